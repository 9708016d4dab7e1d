//! How much memory each domain may use now (Walfield, section 3.5 and algorithm 2): what it uses, what nobody uses, and
//! what it can take back from those who use more than their part.
//!
//! The paper approximates what can be taken back, and says where that is wrong: with widely different weights, and
//! where somebody does not use what they are entitled to, which goes to whoever comes first. Here it is the exact
//! answer to one question, asked for each domain alone: what would it have if it wanted everything, its siblings wanted
//! what they use, and all were served by weight ([`super::fill`])? What somebody does not use is then divided among all
//! who want it, by their weights.
//!
//! - Siblings of a higher priority have what they use before it; from those of a lower one all can be taken but their
//!   minima.
//! - Nobody is taken below a minimum, nor can have more than a maximum, its own or that of a domain above it.
//! - What a domain's own processes use beside its children competes with these as one more child does.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::fill::{Contender, Fill};

/// By how much what a domain may use has to change before who watches it is told again, in percent of what was told.
const TOLD_PERCENT: u128 = 5;

/// Whether what a domain may use now is to be told to whoever was told `told_bytes`.
pub fn is_news(told_bytes: u64, now_bytes: u64) -> bool {
    let difference = u128::from(told_bytes.abs_diff(now_bytes));
    difference > 0 && difference * 100 >= u128::from(told_bytes) * TOLD_PERCENT
}

/// A domain as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The place of the domain above it, before its own; `None` at the top.
    pub parent: Option<usize>,
    /// Order among its siblings: a higher one comes first.
    pub priority: u8,
    /// Its part among siblings of one priority.
    pub weight: NonZeroU32,
    /// What it uses with all below it, in bytes.
    pub used_bytes: u64,
    /// What it is promised, in bytes.
    pub min_bytes: u64,
    /// The most that it may use, in bytes.
    pub max_bytes: u64,
}

/// Priority and weight of what a domain's own processes use, beside its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Order among the children.
    pub priority: u8,
    /// Its part among those of that priority.
    pub weight: NonZeroU32,
}

/// How much each of these domains may use, in bytes, in their order; `free_bytes` is what nobody uses. `own` is what
/// the processes of any of them that are in no domain below weigh. O(n log n).
pub fn available(domains: &[Domain], free_bytes: u64, own: Own) -> Vec<u64> {
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (place, domain) in domains.iter().enumerate() {
        // One that is not before it is none.
        let parent = domain.parent.filter(|parent| *parent < place);
        children.entry(parent).or_default().push(place);
    }
    let mut available = vec![0; domains.len()];
    // Parents are before their children, and the top before all.
    for (parent, places) in &children {
        let used_bytes = |place: &usize| domains[*place].used_bytes;
        let of_children = places.iter().map(used_bytes).fold(0, u64::saturating_add);
        let (pool_bytes, own_bytes) = match parent {
            None => (of_children.saturating_add(free_bytes), 0),
            Some(parent) => (available[*parent], domains[*parent].used_bytes.saturating_sub(of_children)),
        };
        let level = Level { domains, places, pool_bytes, own: (own, own_bytes) };
        for (place, bytes) in level.available() {
            available[place] = bytes;
        }
    }
    available
}

/// The children of one domain, and what they can have together.
struct Level<'a> {
    domains: &'a [Domain],
    places: &'a [usize],
    pool_bytes: u64,
    own: (Own, u64),
}

impl Level<'_> {
    fn available(&self) -> Vec<(usize, u64)> {
        let mut groups: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for place in self.places {
            groups.entry(self.domains[*place].priority).or_default().push(*place);
        }
        groups.iter().flat_map(|(priority, places)| self.of_group(*priority, places)).collect()
    }

    /// What each of those of one priority can have.
    fn of_group(&self, priority: u8, places: &[usize]) -> Vec<(usize, u64)> {
        let pool_bytes = self.pool_of(priority);
        let mut contenders: Vec<Contender> =
            places.iter().map(|place| contender(&self.domains[*place])).collect();
        let (own, own_bytes) = self.own;
        if own.priority == priority {
            contenders.push(Contender::new(0, own_bytes, own.weight));
        }
        let fill = Fill::new(&contenders);
        let of_place = |(place, one): (&usize, &Contender)| {
            let domain = &self.domains[*place];
            let bytes = fill.level_for(pool_bytes, one).bytes_of(domain.weight);
            let least = domain.min_bytes.min(self.pool_bytes);
            (*place, bytes.min(pool_bytes).max(least).min(domain.max_bytes))
        };
        places.iter().zip(&contenders).map(of_place).collect()
    }

    /// What those of this priority can have together.
    fn pool_of(&self, priority: u8) -> u64 {
        let others = self.places.iter().map(|place| &self.domains[*place]);
        let taken = others.filter(|other| other.priority != priority).map(|other| {
            if other.priority > priority { other.used_bytes } else { other.used_bytes.min(other.min_bytes) }
        });
        let (own, own_bytes) = self.own;
        let own_bytes = if own.priority > priority { own_bytes } else { 0 };
        self.pool_bytes.saturating_sub(taken.fold(own_bytes, u64::saturating_add))
    }
}

/// One that wants what it uses, and of which its minimum is not taken.
fn contender(domain: &Domain) -> Contender {
    Contender::new(domain.min_bytes, domain.used_bytes, domain.weight)
}

#[cfg(test)]
mod tests;
