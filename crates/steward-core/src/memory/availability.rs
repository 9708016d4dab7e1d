//! How much memory each domain may use now (Walfield, section 3.5 and algorithm 2): what it uses, what nobody uses, and
//! what it can take back from those who use more than their part.
//!
//! The paper approximates what can be taken back, and says where that is wrong: with widely different weights, and
//! where somebody does not use what they are entitled to, which goes to whoever comes first. Here it is the exact
//! answer to one question, asked for each domain alone: what would it have if it wanted everything, its siblings wanted
//! what they use, and all were served by weight ([`super::fill`])? What somebody does not use is then divided among all
//! who want it, by their weights.
//!
//! - Siblings of a higher priority have what they use before it; from those of a lower one all is taken that can be.
//! - Who goes by what it is told stays below that: a collector of garbage between 7/8 and 15/16 of it. It wants a
//!   quarter more than it uses, as far as that is its part. What such leave would otherwise be told to all others at
//!   once; that is little of a large part and much for a small one, which would have half as much again as its weight
//!   says where the weights differ widely.
//! - What can be taken from whom is what [`super::victims`] can take, and no more: nothing below a minimum or what is
//!   kept, and nothing of which the kernel could not get rid.
//! - Nobody can have more than a maximum, its own or that of a domain above it.
//! - What a domain's own processes use beside its children is not taken for these, unless a principal stands for it.
//!
//! With it is told what of it can be had without waiting for a disk, and how much has to be written at most before the
//! rest is there. Everybody is asked for alone: the same memory may be told to several, and goes to who comes first.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::fill::{self, Contender, Fill};
use super::principal::{Family, Principal};
use super::victims::takeable;

/// By how much what a domain may use has to change before who watches it is told again, in percent of what was told.
const TOLD_PERCENT: u128 = 5;

/// Who goes by what it is told wants 1 of so many parts of what it uses beside that.
const SPARED_PART: u64 = 4;

/// Whether what a domain may use now is to be told to whoever was told `told_bytes`.
pub fn is_news(told_bytes: u64, now_bytes: u64) -> bool {
    let difference = u128::from(told_bytes.abs_diff(now_bytes));
    difference > 0 && difference * 100 >= u128::from(told_bytes) * TOLD_PERCENT
}

/// What the machine has beside what is charged to those who are asked for. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What is free, or a page of a file that is charged to none of them.
    pub free_bytes: u64,
    /// What must stay free of it: below that memory is taken back, by the kernel or by Steward.
    pub target_bytes: u64,
    /// All that the kernel hands out: figures that are read one after the other may add up to more.
    pub total_bytes: u64,
}

/// How much a domain may use. Bytes, of what is charged to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Available {
    /// All of it; less than it uses where that is more than its part and others lack it.
    pub bytes: u64,
    /// What of that it can have at once: what it uses, what is free, and clean pages of files of those who would pay.
    pub at_once_bytes: u64,
    /// What has to be written to a disk at most before it can have all of it, whatever the kernel takes first.
    pub to_write_bytes: u64,
}

/// How much each of these may use, in their order. O(n log n).
pub fn available(principals: &[Principal], room: &Room) -> Vec<Available> {
    let family = Family::of(principals);
    let takeable_bytes = takeable(principals);
    let mut spared_bytes = vec![0; principals.len()];
    // Who does not go by it leaves what those below leave. Children come after their parents.
    for (place, principal) in principals.iter().enumerate().rev() {
        let of_children = || sum(family.children[place].iter().map(|child| spared_bytes[*child]));
        let own_bytes = if principal.adapts { principal.claimed_bytes / SPARED_PART } else { of_children() };
        spared_bytes[place] = own_bytes;
    }
    let share = |(place, principal)| Share {
        spared_bytes: spared_bytes[place],
        ..Share::of(principal, takeable_bytes[place], family.min_bytes[place])
    };
    let shares: Vec<Share> = principals.iter().enumerate().map(share).collect();
    let claimed_of = |places: &[usize]| sum(places.iter().map(|place| shares[*place].claimed_bytes));
    let mut grants = vec![Grant::default(); principals.len()];
    let charged_bytes = sum(family.top.iter().map(|place| principals[*place].charged_bytes()));
    let all = room.all(claimed_of(&family.top).max(charged_bytes));
    Level { shares: &shares, places: &family.top, above: all }.grant(&mut grants);
    // Parents are before their children.
    for (place, children) in family.children.iter().enumerate() {
        let own_bytes = shares[place].claimed_bytes.saturating_sub(claimed_of(children));
        let above = Grant { bytes: grants[place].bytes.saturating_sub(own_bytes), ..grants[place] };
        Level { shares: &shares, places: children, above }.grant(&mut grants);
    }
    grants.iter().zip(principals).map(|(grant, principal)| grant.told(principal)).collect()
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

impl Room {
    /// What all have together who use this much.
    fn all(&self, used_bytes: u64) -> Grant {
        let free_bytes = self.free_bytes.saturating_sub(self.target_bytes);
        let bytes = used_bytes.saturating_add(self.free_bytes).min(self.total_bytes);
        let bytes = bytes.saturating_sub(self.target_bytes);
        Grant { bytes, free_bytes, at_once_bytes: free_bytes, to_write_bytes: 0 }
    }
}

/// What one stands for beside its siblings. Bytes of what it claims.
#[derive(Clone, Copy, Debug)]
struct Share {
    priority: u8,
    weight: NonZeroU32,
    claimed_bytes: u64,
    /// What it leaves of what it is told, and wants all the same.
    spared_bytes: u64,
    /// What is not taken from it.
    held_bytes: u64,
    /// What it is promised.
    min_bytes: u64,
    /// The most that it may have.
    max_bytes: u64,
    /// What can be taken from it without waiting for a disk.
    clean_bytes: u64,
    /// What can be taken from it once it is written.
    slow_bytes: u64,
}

impl Share {
    fn of(principal: &Principal, takeable_bytes: u64, min_bytes: u64) -> Self {
        let claimed_bytes = principal.claimed_bytes;
        let takeable_bytes = takeable_bytes.min(claimed_bytes);
        let clean_bytes = principal.clean_bytes.min(takeable_bytes);
        let held_bytes = claimed_bytes - takeable_bytes;
        // A maximum is one of what is charged. Who cannot be taken from has what it has.
        let beside = principal.max_bytes.saturating_add(principal.borrowed_bytes);
        let max_bytes = beside.saturating_sub(principal.lent_bytes).max(held_bytes);
        Share {
            priority: principal.priority,
            weight: principal.weight,
            claimed_bytes,
            spared_bytes: 0,
            held_bytes,
            min_bytes,
            max_bytes,
            clean_bytes,
            // If it is taken first, all of this has to be written.
            slow_bytes: takeable_bytes - clean_bytes,
        }
    }

    /// What it wants: what it has, as far as it may.
    fn wanted_bytes(&self) -> u64 {
        self.claimed_bytes.min(self.max_bytes)
    }

    /// One that wants this, and what it leaves of what it is told; all that is not held of it goes to others at a level
    /// that is low enough.
    fn wanting(&self) -> Contender {
        let wanted_bytes = self.claimed_bytes.saturating_add(self.spared_bytes).min(self.max_bytes);
        Contender::new(self.held_bytes, wanted_bytes, self.weight)
    }

    /// One that wants what it has, and of which all is held but so much.
    fn giving(&self, bytes: u64) -> Contender {
        let wanted_bytes = self.wanted_bytes();
        Contender::new(wanted_bytes.saturating_sub(bytes).max(self.held_bytes), wanted_bytes, self.weight)
    }
}

/// What one can have, in bytes of what it claims; and of what it would have more than now, what is free, what can be
/// had at once, and what has to be written at most.
#[derive(Clone, Copy, Debug, Default)]
struct Grant {
    bytes: u64,
    free_bytes: u64,
    at_once_bytes: u64,
    to_write_bytes: u64,
}

impl Grant {
    fn told(&self, principal: &Principal) -> Available {
        let charged =
            |bytes: u64| bytes.saturating_add(principal.lent_bytes).saturating_sub(principal.borrowed_bytes);
        let at_once_bytes = principal.claimed_bytes.saturating_add(self.at_once_bytes).min(self.bytes);
        Available {
            bytes: charged(self.bytes),
            at_once_bytes: charged(at_once_bytes),
            to_write_bytes: self.to_write_bytes,
        }
    }
}

/// The children of one, and what they can have together.
struct Level<'shares> {
    shares: &'shares [Share],
    places: &'shares [usize],
    above: Grant,
}

impl Level<'_> {
    fn grant(&self, grants: &mut [Grant]) {
        let mut groups: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for place in self.places {
            groups.entry(self.shares[*place].priority).or_default().push(*place);
        }
        for (priority, places) in &groups {
            self.grant_group(*priority, places, grants);
        }
    }

    fn sum_of(&self, is_meant: impl Fn(&Share) -> bool, bytes: impl Fn(&Share) -> u64) -> u64 {
        sum(self.places.iter().map(|place| &self.shares[*place]).filter(|share| is_meant(share)).map(bytes))
    }

    /// What each of those of one priority can have.
    fn grant_group(&self, priority: u8, places: &[usize], grants: &mut [Grant]) {
        let lower = |share: &Share| share.priority < priority;
        let higher = |share: &Share| share.priority > priority;
        let higher_bytes = self.sum_of(higher, Share::wanted_bytes);
        let held_bytes = self.sum_of(|_| true, |share| share.held_bytes);
        let held_lower_bytes = self.sum_of(lower, |share| share.held_bytes);
        let pool_bytes = self.above.bytes.saturating_sub(higher_bytes).saturating_sub(held_lower_bytes);
        // All that can be taken from each; and what is clean alone, and what is not alone.
        let all: Vec<Contender> = places.iter().map(|place| self.shares[*place].wanting()).collect();
        let fill = Fill::new(&all);
        let givings: [fn(&Share) -> u64; 2] = [|share| share.clean_bytes, |share| share.slow_bytes];
        let [clean, slow] = givings.map(|giving| Group::of(self.shares, places, giving));
        let parts = |is_meant: &dyn Fn(&Share) -> bool| {
            [
                self.sum_of(is_meant, |share| share.clean_bytes),
                self.sum_of(is_meant, |share| share.slow_bytes),
            ]
        };
        let (of_lower, of_all_others) = (parts(&lower), parts(&|share| share.priority != priority));
        for (nth, place) in places.iter().enumerate() {
            let share = &self.shares[*place];
            let level = fill.level_for(pool_bytes, &all[nth]);
            let fair_bytes = level.bytes_of(share.weight).min(pool_bytes);
            // What it is promised it can have of those of a higher priority, too.
            let left_bytes = self.above.bytes.saturating_sub(held_bytes - share.held_bytes);
            let sure_bytes = share.min_bytes.min(left_bytes).max(share.held_bytes);
            let bytes = fair_bytes.max(sure_bytes).min(share.max_bytes);
            let more_bytes = bytes.saturating_sub(share.claimed_bytes);
            let free_bytes = self.above.free_bytes.min(more_bytes);
            let payers = if sure_bytes > fair_bytes { &of_all_others } else { &of_lower };
            let clean_bytes = clean.given_at(level, nth).saturating_add(payers[0]);
            let slow_bytes = slow.given_at(level, nth).saturating_add(payers[1]);
            grants[*place] = Grant {
                bytes,
                free_bytes,
                at_once_bytes: self.above.at_once_bytes.saturating_add(clean_bytes).min(more_bytes),
                to_write_bytes: self
                    .above
                    .to_write_bytes
                    .saturating_add(slow_bytes)
                    .min(more_bytes - free_bytes),
            };
        }
    }
}

/// Those of one priority, and what they have together at each level.
struct Group {
    contenders: Vec<Contender>,
    fill: Fill,
    wanted_bytes: u128,
}

impl Group {
    /// Of each at most so much is given.
    fn of(shares: &[Share], places: &[usize], giving: fn(&Share) -> u64) -> Self {
        let contenders: Vec<Contender> =
            places.iter().map(|place| shares[*place].giving(giving(&shares[*place]))).collect();
        let wanted_bytes = places.iter().map(|place| u128::from(shares[*place].wanted_bytes())).sum();
        Group { fill: Fill::new(&contenders), contenders, wanted_bytes }
    }

    /// What those but this one give at a level.
    fn given_at(&self, level: fill::Level, except: usize) -> u64 {
        let all_bytes = self.wanted_bytes.saturating_sub(self.fill.bytes_at(level));
        let own_bytes = u128::from(self.contenders[except].given_at(level));
        u64::try_from(all_bytes.saturating_sub(own_bytes)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
