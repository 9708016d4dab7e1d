//! The judgement over one reading after another.

use std::collections::BTreeMap;

use super::tally::{FAULT_NS, LOOK_AROUND_NS, STALL_MAX_NS, Tally};
use crate::domain::name::is_at_or_below;

const SECOND_NS: u64 = 1_000_000_000;
/// Readings further apart, in nanoseconds, say how long a domain stood still, but not in how many seconds.
const EVIDENCE_MAX_NS: u64 = 30_000_000_000;
/// Whoever stalls for so long since the last reading, in nanoseconds, is reason to look around.
const STALLS_NS: u64 = STALL_MAX_NS / 10;
/// A domain wants no more than its minimum while this part of it is free.
const SPARE_PART: u64 = 16;
/// Who took less than this is nobody's culprit, in bytes.
const TAKEN_MIN_BYTES: u64 = 1 << 20;

/// A domain that is promised memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Its path from the root of the cgroup tree.
    pub path: String,
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// The user that it belongs to.
    pub user: u32,
    /// Its minimum, in bytes; 0 where it has none.
    pub min_bytes: u64,
    /// Whether it is protected: then all that it uses is promised.
    pub is_protected: bool,
    /// Whether the kernel was told all of that.
    pub is_in_force: bool,
}

/// What the kernel has counted so far for a cgroup with all below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What it uses now, in bytes: in memory and in the swap.
    pub used_bytes: u64,
    /// Pages of files that are charged to it, without those in a file system in memory, in bytes.
    pub file_bytes: u64,
    /// What was taken from it so far, by whomever, in bytes.
    pub reclaimed_bytes: u64,
    /// While at least one of its tasks stood still; `None` where that is not counted.
    pub stalled: Option<Waits>,
    /// While all that were not idle did.
    pub stopped: Option<Waits>,
    /// Pages that were fetched again soon after they had been taken.
    pub refaults: u64,
    /// The same in bytes.
    pub refaulted_bytes: u64,
    /// Of these, what was of files, in bytes.
    pub refaulted_file_bytes: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// How often it came to its own limits.
    pub limited_times: u64,
}

/// For how long tasks stood still so far, by what for, in nanoseconds. A wait may be in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For memory, as far as the kernel calls it so.
    pub memory_ns: u64,
    /// For a disk.
    pub disk_ns: u64,
}

/// Somebody who may have taken memory: a cgroup with none below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taker {
    /// Its path.
    pub path: String,
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// What is charged to it now, in bytes.
    pub used_bytes: u64,
    /// What was taken from it so far, by whomever, in bytes.
    pub reclaimed_bytes: u64,
}

impl Taker {
    /// All that it has allocated so far and not given back itself, in bytes.
    fn allocated_bytes(&self) -> u64 {
        self.used_bytes.saturating_add(self.reclaimed_bytes)
    }
}

/// What was read at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// In the order of the promises; `None` of one that could not be read.
    pub counters: &'a [Option<Counters>],
    /// All who may have taken memory, where they were looked at.
    pub takers: Option<&'a [Taker]>,
}

/// Who took the most memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The cgroup's path.
    pub path: String,
    /// What it took since all were looked at last, in bytes.
    pub taken_bytes: u64,
}

/// What was found about one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// Its place in the promises.
    pub promise: usize,
    /// Since the last reading.
    pub tally: Tally,
    /// Of a broken second, who took the most; `None` where nobody took any that could be named.
    pub culprit: Option<Culprit>,
}

/// Holds each reading against the one before.
#[derive(Clone, Debug, Default)]
pub struct Auditor {
    at_ns: Option<u64>,
    /// By cgroup id.
    last: BTreeMap<u64, Last>,
    looked_around_ns: Option<u64>,
    /// What those who take had allocated when they were looked at last, by cgroup id, in bytes.
    allocated_bytes: BTreeMap<u64, u64>,
    /// The newest cgroup that has ever been among them: ids are given out in order.
    newest_id: u64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    counters: Counters,
    is_in_force: bool,
}

impl Auditor {
    /// Forgets the last reading: what happens until the next one is not judged.
    pub fn forget(&mut self) {
        *self = Auditor::default();
    }

    /// Whether this reading is to say who takes memory: somebody stalls, or it is long ago that it was said.
    pub fn wants_takers(&self, at_ns: u64, promises: &[Promise], counters: &[Option<Counters>]) -> bool {
        let is_old =
            self.looked_around_ns.is_none_or(|last_ns| at_ns.saturating_sub(last_ns) >= LOOK_AROUND_NS);
        let stalls = |(promise, now): (&Promise, &Option<Counters>)| {
            let before = self.last.get(&promise.cgroup_id);
            now.zip(before).is_some_and(|(now, before)| now.stalled_since(&before.counters) >= STALLS_NS)
        };
        is_old || promises.iter().zip(counters).any(stalls)
    }

    /// Judges what happened since the last reading. Nothing can be said of a domain that was not in the last one.
    pub fn observe(&mut self, reading: &Reading<'_>, promises: &[Promise]) -> Vec<Audited> {
        let elapsed_ns = self.at_ns.replace(reading.at_ns).and_then(|last| reading.at_ns.checked_sub(last));
        let taken = reading.takers.map(|takers| self.take_in(reading.at_ns, takers)).unwrap_or_default();
        let before = std::mem::take(&mut self.last);
        let mut audited = Vec::new();
        for (place, (promise, counters)) in promises.iter().zip(reading.counters).enumerate() {
            let Some(counters) = *counters else { continue };
            let now = Last { counters, is_in_force: promise.is_in_force };
            self.last.insert(promise.cgroup_id, now);
            let (Some(elapsed_ns), Some(before)) = (elapsed_ns, before.get(&promise.cgroup_id)) else {
                continue;
            };
            let Some(tally) = judge(promise, before, &now, elapsed_ns) else { continue };
            let culprit = if tally.broken > 0 { culprit(&promise.path, &taken) } else { None };
            audited.push(Audited { promise: place, tally, culprit });
        }
        audited
    }

    /// What each has taken since they were looked at last, with their paths.
    fn take_in(&mut self, at_ns: u64, takers: &[Taker]) -> Vec<Culprit> {
        let allocated = takers.iter().map(|taker| (taker.cgroup_id, taker.allocated_bytes()));
        let before = std::mem::replace(&mut self.allocated_bytes, allocated.collect());
        let newest_id = takers.iter().map(|taker| taker.cgroup_id).fold(self.newest_id, u64::max);
        let known_to_id = std::mem::replace(&mut self.newest_id, newest_id);
        // At the first look nobody is known to have taken anything.
        if self.looked_around_ns.replace(at_ns).is_none() {
            return Vec::new();
        }
        let taken = |taker: &Taker| {
            let allocated_bytes = taker.allocated_bytes();
            let before = before.get(&taker.cgroup_id).copied();
            // One that has been made since has taken all that it has. An older one had others below it until now, whose
            // memory is charged to it when they go: nobody knows what of that is new.
            let is_new = taker.cgroup_id > known_to_id;
            let taken_bytes =
                allocated_bytes.saturating_sub(before.unwrap_or(if is_new { 0 } else { allocated_bytes }));
            Culprit { path: taker.path.clone(), taken_bytes }
        };
        takers.iter().map(taken).collect()
    }
}

impl Counters {
    /// For how long it stood still since then, in nanoseconds: counted, or estimated from faults.
    fn stalled_since(&self, before: &Counters) -> u64 {
        let counted_ns = self.waited_since(before, |counters| counters.stalled);
        let faults = self.major_faults.saturating_sub(before.major_faults);
        counted_ns.unwrap_or_else(|| faults.saturating_mul(FAULT_NS))
    }

    /// What of its waits since then was for memory, in nanoseconds: what the kernel calls so, or of those for a disk
    /// the part that refaults have in all that was read, whichever is more.
    fn waited_since(&self, before: &Counters, waits: impl Fn(&Counters) -> Option<Waits>) -> Option<u64> {
        let (now, then) = waits(self).zip(waits(before))?;
        let memory_ns = now.memory_ns.saturating_sub(then.memory_ns);
        let disk_ns = now.disk_ns.saturating_sub(then.disk_ns);
        let (refaulted, read) = self.read_since(before);
        let part_ns = u128::from(disk_ns) * u128::from(refaulted) / u128::from(read.max(1));
        Some(memory_ns.max(u64::try_from(part_ns).unwrap_or(u64::MAX)))
    }

    /// What was read since then that had been taken, and all that was read, at most, in bytes: of files what there is
    /// more of them now, and what was taken meanwhile, was read.
    fn read_since(&self, before: &Counters) -> (u64, u64) {
        let refaulted = self.refaulted_bytes.saturating_sub(before.refaulted_bytes);
        let of_files = self.refaulted_file_bytes.saturating_sub(before.refaulted_file_bytes);
        let taken = self.reclaimed_bytes.saturating_sub(before.reclaimed_bytes);
        let new =
            self.file_bytes.saturating_add(taken).saturating_sub(before.file_bytes).saturating_sub(of_files);
        (refaulted, refaulted.saturating_add(new))
    }
}

/// One domain between two readings; `None` where the counters began anew.
fn judge(promise: &Promise, before: &Last, now: &Last, elapsed_ns: u64) -> Option<Tally> {
    let (is_in_force, before, now) = (before.is_in_force && now.is_in_force, &before.counters, &now.counters);
    let counted_ns = |counters: &Counters| counters.stalled.map(|waits| waits.memory_ns);
    let is_reset = now.major_faults < before.major_faults || counted_ns(now) < counted_ns(before);
    if is_reset || elapsed_ns == 0 {
        return None;
    }
    let stalled_ns = now.stalled_since(before);
    let most_bytes = promise.min_bytes - promise.min_bytes / SPARE_PART;
    let wants_no_more = promise.is_protected || before.used_bytes.max(now.used_bytes) <= most_bytes;
    let is_judged =
        wants_no_more && now.limited_times == before.limited_times && elapsed_ns <= EVIDENCE_MAX_NS;
    let elapsed_seconds = (elapsed_ns.saturating_add(SECOND_NS / 2) / SECOND_NS).max(1);
    let allowed_ns = STALL_MAX_NS.saturating_mul(elapsed_seconds);
    let is_broken = is_judged && stalled_ns > allowed_ns;
    Some(Tally {
        seen_ns: elapsed_ns,
        in_force_ns: if is_in_force { elapsed_ns } else { 0 },
        stalled_ns,
        stopped_ns: now.waited_since(before, |counters| counters.stopped).unwrap_or(0),
        refaults: now.refaults.saturating_sub(before.refaults),
        major_faults: now.major_faults - before.major_faults,
        seconds: is_judged.into(),
        broken: is_broken.into(),
        worst_stalled_ns: if is_broken { stalled_ns } else { 0 },
    })
}

/// Who took the most, without the domain itself and those below it.
fn culprit(domain: &str, taken: &[Culprit]) -> Option<Culprit> {
    let others = taken.iter().filter(|one| !is_at_or_below(&one.path, domain));
    let most = others.reduce(|one, other| if other.taken_bytes > one.taken_bytes { other } else { one });
    most.filter(|most| most.taken_bytes >= TAKEN_MIN_BYTES).cloned()
}
