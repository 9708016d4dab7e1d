//! Protected domains below one that has a limit of its own: what holds for the machine holds there on a smaller scale.
//!
//! When a cgroup reaches its maximum, the kernel takes memory from those in it, leaves what they are told to keep, and
//! ends one of them when it finds nothing else, however much the machine has left
//! (Documentation/admin-guide/cgroup-v2.rst, memory.max; mm/memcontrol.c, mem_cgroup_out_of_memory). So what is kept
//! below one with a maximum leaves others a part of it, and nothing is kept there once all that could be taken in it
//! comes near to nothing, as [`super::manager`] does with the machine as a whole. A limit of what may be swapped out
//! is a smaller swap.
//!
//! Nobody has to be fast enough for that: whoever allocates into the last part is slowed (`memory.high`), and not
//! ended, until it is seen; and as long as there is anything to take in it, kept or not, it is taken for who allocates
//! there before that part is touched.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::principal::parent_of;
use super::protection::Kept;
use super::seen::{Machine, Seen};
use super::shortage::{AHEAD_NS, Distance, Shortage, kept_at_most, near_bytes};

/// One that has protected domains below it is looked at again at once when it has this part of its maximum more; not
/// while it is farther from having nothing left than three quarters of that.
const LOOK_PART: u64 = 32;

/// A cgroup of which more than this is charged is looked at again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nearing {
    /// The cgroup's id.
    pub id: u64,
    /// How much, in bytes.
    pub charged_bytes: u64,
}

/// Who allocates in a cgroup that has more than this has memory taken there first, and is slowed where none can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The cgroup's id.
    pub id: u64,
    /// How much, in bytes.
    pub bytes: u64,
}

/// What is remembered of one from look to look.
#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    short: Shortage,
    /// Of what could be taken if nothing were kept.
    full: Shortage,
    last: Option<(u64, Distance)>,
}

/// What is remembered of those with a maximum that have protected domains below them, by id of the cgroup.
#[derive(Clone, Debug, Default)]
pub(super) struct Beneath(BTreeMap<u64, Remembered>);

/// What protected ones below one use, of files and of their own, in bytes.
#[derive(Clone, Debug, Default)]
struct Below {
    of_files: u64,
    of_own: u64,
    /// Of each of them both together, with its id, in the order in which they came.
    each: Vec<(u64, u64)>,
}

/// How one of them stands. Bytes.
#[derive(Debug)]
struct Standing {
    id: u64,
    charged_bytes: u64,
    max_bytes: u64,
    /// What each protected one below it uses, with its id.
    below: Vec<(u64, u64)>,
    /// How far it is to having nothing left, as it will be when this decision is in force.
    ahead_bytes: u64,
    is_far: bool,
    is_short: bool,
    /// There would be as little left if nothing were kept: who allocates there has all of its maximum.
    is_full: bool,
}

/// How all of them stand at one look.
#[derive(Debug)]
pub(super) struct Found(Vec<Standing>);

impl Beneath {
    /// How those stand that have a maximum and protected domains below them. `promised_bytes` is, by place, what those
    /// below are told to keep beside what protected ones do.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        machine: &Machine,
        domains: &[Seen],
        promised_bytes: &[u64],
    ) -> Found {
        let mut all: BTreeMap<usize, Below> = BTreeMap::new();
        for (place, seen) in domains.iter().enumerate() {
            let Some((of_files, of_own)) = seen.used_of_files_and_own() else { continue };
            for above in above(domains, place).filter(|above| domains[*above].has_maximum()) {
                let below = all.entry(above).or_default();
                below.of_files = below.of_files.saturating_add(of_files);
                below.of_own = below.of_own.saturating_add(of_own);
                below.each.push((seen.id, of_files.saturating_add(of_own)));
            }
        }
        let ids: BTreeSet<u64> = all.keys().map(|place| domains[*place].id).collect();
        self.0.retain(|id, _| ids.contains(id));
        let stands = |(place, below): (usize, Below)| {
            let distance_beside =
                |below: &Below| distance(machine, domains, place, below, promised_bytes[place]);
            let (distance, of_all) = (distance_beside(&below)?, distance_beside(&Below::default())?);
            Some(self.stands(now_ns, &domains[place], below, distance, of_all))
        };
        Found(all.into_iter().filter_map(stands).collect())
    }

    fn stands(
        &mut self,
        now_ns: u64,
        seen: &Seen,
        below: Below,
        distance: Distance,
        of_all: Distance,
    ) -> Standing {
        let max_bytes = seen.principal.max_bytes;
        let known = self.0.entry(seen.id).or_default();
        let falls_bytes = known
            .last
            .map_or(0, |(at_ns, last)| distance.falls(&last, now_ns.saturating_sub(at_ns), AHEAD_NS));
        known.last = Some((now_ns, distance));
        let ahead_bytes = distance.bytes().saturating_sub(falls_bytes);
        Standing {
            id: seen.id,
            charged_bytes: seen.principal.charged_bytes(),
            max_bytes,
            below: below.each,
            ahead_bytes,
            is_far: distance.bytes() >= max_bytes / 4 * 3,
            is_short: known.short.becomes(now_ns, near_bytes(max_bytes), ahead_bytes),
            is_full: known.full.becomes(now_ns, near_bytes(max_bytes), of_all.bytes()),
        }
    }
}

impl Found {
    /// Those below which nothing is kept, by id of the cgroup.
    pub(super) fn short(&self) -> Vec<u64> {
        self.0.iter().filter(|standing| standing.is_short).map(|standing| standing.id).collect()
    }

    /// When which of them is to be looked at again.
    pub(super) fn nearing(&self) -> Vec<Nearing> {
        let near = self.0.iter().filter(|standing| !standing.is_far);
        near.map(|standing| Nearing {
            id: standing.id,
            charged_bytes: standing.charged_bytes.saturating_add(standing.max_bytes / LOOK_PART),
        })
        .collect()
    }

    /// Below which maximum who allocates is to be slowed before it is reached: wherever anything may be kept, and as
    /// long as anything is left to take.
    pub(super) fn ceilings(&self) -> Vec<Ceiling> {
        let held = self.0.iter().filter(|standing| !(standing.is_short && standing.is_full));
        held.map(|standing| Ceiling { id: standing.id, bytes: kept_at_most(standing.max_bytes) }).collect()
    }

    /// Has nothing be kept below those that are short, and no more below the others than leaves a part of their maximum
    /// to everybody there: what is used comes before what is there to grow.
    pub(super) fn lessen(&self, kept: &mut [Kept]) {
        if self.0.is_empty() {
            return;
        }
        let places: BTreeMap<u64, usize> =
            kept.iter().enumerate().map(|(place, kept)| (kept.id, place)).collect();
        for standing in &self.0 {
            let each = standing.below.iter();
            let below: Vec<(usize, u64)> =
                each.filter_map(|(id, used_bytes)| Some((*places.get(id)?, *used_bytes))).collect();
            let used = below.iter().map(|(place, used_bytes)| kept[*place].bytes.min(*used_bytes));
            let most_bytes = kept_at_most(standing.max_bytes);
            let mut spare_bytes = most_bytes.saturating_sub(used.fold(0, u64::saturating_add));
            for (place, used_bytes) in below {
                let kept = &mut kept[place];
                if standing.is_short {
                    kept.bytes = 0;
                } else {
                    let used_bytes = kept.bytes.min(used_bytes);
                    let more_bytes = (kept.bytes - used_bytes).min(spare_bytes);
                    spare_bytes -= more_bytes;
                    kept.bytes = used_bytes + more_bytes;
                }
            }
        }
    }

    /// Those of whom what is idle is not to be covered, by id, where that of each is this much: there is not enough
    /// without in one that they are below.
    pub(super) fn uncovered(&self, idle_bytes: &BTreeMap<u64, u64>) -> BTreeSet<u64> {
        let lacks = |standing: &&Standing| {
            let idle = standing.below.iter().filter_map(|(id, _)| idle_bytes.get(id).copied());
            let left_bytes = standing.ahead_bytes.saturating_sub(idle.fold(0, u64::saturating_add));
            left_bytes < 2 * near_bytes(standing.max_bytes)
        };
        self.0.iter().filter(lacks).flat_map(|standing| standing.below.iter().map(|(id, _)| *id)).collect()
    }
}

/// The places above one, from the next on.
fn above(domains: &[Seen], place: usize) -> impl Iterator<Item = usize> {
    let up = |place: &usize| parent_of(*place, &domains[*place].principal);
    std::iter::successors(up(&place), up)
}

/// How much can still be allocated in one with a maximum before the kernel finds nothing to take there; `None` where it
/// is not known what is in it. Others below it than protected ones are told to keep `promised_bytes`.
fn distance(
    machine: &Machine,
    domains: &[Seen],
    place: usize,
    below: &Below,
    promised_bytes: u64,
) -> Option<Distance> {
    let (seen, limited) = (&domains[place], domains[place].limited?);
    let left_bytes = seen.principal.max_bytes.saturating_sub(seen.principal.charged_bytes());
    // Nobody knows of what that is: of files first, which can be had at once.
    let file_bytes = limited.file_bytes.saturating_sub(below.of_files);
    let promised_of_files = promised_bytes.min(file_bytes);
    let of_own = below.of_own.saturating_add(promised_bytes - promised_of_files);
    Some(Distance {
        quick_bytes: left_bytes.saturating_add(file_bytes - promised_of_files),
        slow_bytes: limited.anonymous_bytes.saturating_sub(of_own).min(swap_left(machine, domains, place)),
    })
}

/// How much of one may be swapped out, by its limit, those above it and the room there is, in bytes.
fn swap_left(machine: &Machine, domains: &[Seen], place: usize) -> u64 {
    let own = |place: usize| domains[place].limited.map_or(u64::MAX, |limited| limited.swap_left_bytes);
    let all = std::iter::once(place).chain(above(domains, place)).map(own);
    all.fold(machine.swap_free_bytes, u64::min)
}

/// Programs' own pages that a limit of what may be swapped out keeps in memory, however much room there is in the swap,
/// without those that protected domains use, in bytes.
pub(super) fn stuck_bytes(domains: &[Seen]) -> u64 {
    let mut below = vec![(0_u64, 0_u64); domains.len()];
    let mut all_bytes = 0_u64;
    // Children come after their parents.
    for (place, seen) in domains.iter().enumerate().rev() {
        let (mut stuck_bytes, mut kept_bytes) = below[place];
        kept_bytes = kept_bytes.saturating_add(seen.used_of_files_and_own().map_or(0, |(_, of_own)| of_own));
        if let Some(limited) = seen.limited {
            let others_bytes = limited.anonymous_bytes.saturating_sub(kept_bytes);
            stuck_bytes = stuck_bytes.max(others_bytes.saturating_sub(limited.swap_left_bytes));
        }
        match parent_of(place, &seen.principal) {
            Some(parent) => {
                let (stuck, kept) = &mut below[parent];
                *stuck = stuck.saturating_add(stuck_bytes);
                *kept = kept.saturating_add(kept_bytes);
            }
            None => all_bytes = all_bytes.saturating_add(stuck_bytes),
        }
    }
    all_bytes
}

#[cfg(test)]
mod tests;
