//! On which disks one cgroup at most wants anything, so that it does not matter whose part is how large: parts of a
//! disk are not to cost who has it to themselves (Eclipse 1998, section 5.2: the scheduler is bypassed where nobody
//! else waits).
//!
//! Whoever wants a disk has requests that are not done yet. By how long these took it is known how many there were at a
//! time (Little's law). Nothing is read here.

use std::collections::{BTreeMap, BTreeSet};

use super::minute::{ByCgroup, ByKey};

/// Whose requests were under way for less than one in so many of a reading's time does not count.
const WANTS_ONE_IN: u64 = 20;
/// Two have to want a disk in two readings that are no further apart than this, in nanoseconds: many programs write
/// something now and then, and one may come when another one goes.
const APART_MAX_NS: u64 = 5_000_000_000;
/// One reading is enough where somebody's request was under way for longer than so many of them.
const LONG_READINGS: u64 = 2;
/// For how long it is reckoned with two after there were, and with anything at first, in nanoseconds: in that time also
/// who has the least part has had a turn (12.5 s).
const STAYS_FOR_NS: u64 = 15_000_000_000;

/// What is known of each disk, by its number as in [`Key::disk`](super::ledger::Key::disk).
#[derive(Clone, Debug, Default)]
pub struct Contention(BTreeMap<u32, Disk>);

/// Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Disk {
    /// When two were seen last who want it.
    seen_at_ns: Option<u64>,
    /// Until when it is reckoned with more than one.
    until_ns: u64,
}

impl Contention {
    /// Takes in what was done since the last call, `span_ns` before `now_ns`.
    pub fn note(&mut self, now_ns: u64, span_ns: u64, done: &ByKey) {
        let mut disks: BTreeMap<u32, ByCgroup> = BTreeMap::new();
        for (key, done) in done {
            disks.entry(key.disk).or_default().entry(key.cgroup_id).or_default().add(done);
        }
        for (number, cgroups) in disks {
            let first = || Disk { until_ns: now_ns + STAYS_FOR_NS, ..Disk::default() };
            let disk = self.0.entry(number).or_insert_with(first);
            let want: Vec<_> = cgroups
                .values()
                .filter(|done| done.latencies.sum_ns().saturating_mul(WANTS_ONE_IN) >= span_ns)
                .collect();
            if want.len() < 2 {
                continue;
            }
            let is_long = want.iter().any(|done| done.max_ns > span_ns.saturating_mul(LONG_READINGS));
            if is_long || disk.seen_at_ns.is_some_and(|at_ns| now_ns <= at_ns + APART_MAX_NS) {
                disk.until_ns = now_ns + STAYS_FOR_NS;
            }
            disk.seen_at_ns = Some(now_ns);
        }
    }

    /// The disks that one cgroup at most wants, of those that anybody has had something of.
    pub fn free(&self, now_ns: u64) -> BTreeSet<u32> {
        self.0.iter().filter(|(_, disk)| disk.until_ns <= now_ns).map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::latency::Histogram;
    use crate::disk::ledger::Key;
    use crate::disk::minute::Done;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const DISK: u32 = 8 << 20;

    /// So many requests of so many milliseconds each for a cgroup.
    fn requests(cgroup_id: u64, disk: u32, requests: u64, ms: u64) -> (Key, Done) {
        let mut latencies = Histogram::default();
        latencies.0[Histogram::step_of(ms * 1_000_000)] = requests;
        (
            Key { cgroup_id, disk, ..Key::default() },
            Done { latencies, max_ns: ms * 1_000_000, ..Done::default() },
        )
    }

    /// The seconds, of those told, in which the disk is free.
    fn free_seconds(seconds: u64, done: impl Fn(u64) -> Vec<(Key, Done)>) -> Vec<u64> {
        let mut contention = Contention::default();
        let is_free = |second: &u64| {
            contention.note(second * SECOND_NS, SECOND_NS, &done(*second).into_iter().collect());
            contention.free(second * SECOND_NS).contains(&DISK)
        };
        (1..=seconds).filter(is_free).collect()
    }

    #[test]
    fn who_has_a_disk_alone_has_it_free_after_a_while_until_a_second_one_comes_and_a_while_after_it_has_gone()
    {
        let free = free_seconds(70, |second| {
            let second_one = (31..=40).contains(&second).then(|| requests(6, DISK, 20, 10));
            [requests(5, DISK, 90, 10)].into_iter().chain(second_one).collect()
        });
        let expected: Vec<u64> = (16..=31).chain(55..=70).collect();
        assert_eq!(free, expected);
    }

    #[test]
    fn who_comes_when_another_one_goes_has_it_free_at_once() {
        let free = free_seconds(60, |second| {
            let first = (second <= 31).then(|| requests(5, DISK, 360, 10));
            let second_one = (second >= 31).then(|| requests(6, DISK, 360, 10));
            first.into_iter().chain(second_one).collect()
        });
        assert_eq!(free, (16..=60).collect::<Vec<u64>>());
    }

    #[test]
    fn who_writes_a_little_now_and_then_and_who_is_on_another_disk_does_not_count() {
        let free = free_seconds(60, |second| {
            let little = (second % 6 == 0).then(|| requests(6, DISK, 3, 30));
            let other = requests(7, DISK | 16, 90, 10);
            [requests(5, DISK, 90, 10), other].into_iter().chain(little).collect()
        });
        assert_eq!(free, (16..=60).collect::<Vec<u64>>());
    }

    #[test]
    fn who_has_a_turn_each_twelve_seconds_counts_all_the_time() {
        let free = free_seconds(200, |second| {
            let seldom = (second % 12 == 0).then(|| requests(6, DISK, 1, 11_900));
            [requests(5, DISK, 90, 10)].into_iter().chain(seldom).collect()
        });
        assert_eq!(free, Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn a_disk_that_two_want_is_never_free(
            each in proptest::collection::vec((1_u64..200, 10_u64..1000), 2..6),
            seconds in 1_u64..100,
        ) {
            let free = free_seconds(seconds, |_| {
                let all = each.iter().zip(1..);
                // Each for a tenth of the time at least.
                all.map(|((count, ms), cgroup)| requests(cgroup, DISK, (*count).max(100 / ms), *ms)).collect()
            });
            prop_assert!(free.is_empty(), "{free:?}");
        }
    }
}
