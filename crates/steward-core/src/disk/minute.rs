//! What disks did for each cgroup in the last minute: how many requests, how long these took, and for how long the
//! disks were at work for them.

use std::collections::{BTreeMap, VecDeque};

use super::latency::Histogram;
use super::ledger::{Key, Reading};

/// The span that is told of, in nanoseconds.
pub const MINUTE_NS: u64 = 60_000_000_000;
/// To so much it is exact, in nanoseconds.
const SLICE_NS: u64 = 5_000_000_000;

/// What was done within a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// For how long disks were at work, in nanoseconds.
    pub device_ns: u64,
    /// How long requests took.
    pub latencies: Histogram,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl Done {
    /// With that of another one.
    pub fn add(&mut self, other: &Done) {
        self.device_ns = self.device_ns.saturating_add(other.device_ns);
        self.latencies.add(&other.latencies);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// In how many nanoseconds at most so large a part of the requests was done; never more than the longest took.
    pub fn percentile_ns(&self, part: f64) -> Option<u64> {
        self.latencies.percentile_ns(part).map(|ns| ns.min(self.max_ns))
    }

    fn is_nothing(&self) -> bool {
        self.device_ns == 0 && self.latencies.requests() == 0
    }
}

/// By cgroup.
pub type ByCgroup = BTreeMap<u64, Done>;

/// As it is counted.
pub type ByKey = BTreeMap<Key, Done>;

/// What was counted of each account by a reading: device time in nanoseconds, and how long requests took.
type Counted = BTreeMap<Key, (u64, Histogram)>;

/// The last minute, in slices.
#[derive(Clone, Debug, Default)]
pub struct Minute {
    /// What was counted at the last reading, and when that was.
    before: Option<(u64, Counted)>,
    /// The oldest first, with when each began and ended.
    slices: VecDeque<(u64, u64, ByCgroup)>,
}

impl Minute {
    /// Takes in a reading, and returns what was done since the one before. `is_counted` says of which disks: what is
    /// done by one that stands for others is done by those again.
    pub fn add(&mut self, reading: &Reading, is_counted: impl Fn(u32) -> bool) -> ByKey {
        let (from_ns, before) = self.before.take().unwrap_or((reading.at_ns, BTreeMap::new()));
        let mut now = BTreeMap::new();
        let mut new = ByKey::new();
        for (key, account) in reading.accounts.iter().filter(|(key, _)| is_counted(key.disk)) {
            now.insert(*key, (account.device_ns, account.latencies.clone()));
            let nothing = (0, Histogram::default());
            let (device_ns, latencies) = before.get(key).unwrap_or(&nothing);
            let latencies = account.latencies.since(latencies);
            let max_ns = if latencies.requests() == 0 { 0 } else { account.max_ns };
            let done = Done { device_ns: account.device_ns.saturating_sub(*device_ns), latencies, max_ns };
            if !done.is_nothing() {
                new.insert(*key, done);
            }
        }
        self.before = Some((reading.at_ns, now));
        self.keep(from_ns, reading.at_ns, by_cgroup(&new));
        new
    }

    fn keep(&mut self, from_ns: u64, to_ns: u64, new: ByCgroup) {
        match self.slices.back_mut() {
            Some((began_ns, ended_ns, slice)) if to_ns.saturating_sub(*began_ns) <= SLICE_NS => {
                *ended_ns = to_ns;
                merge(slice, &new);
            }
            _ => self.slices.push_back((from_ns, to_ns, new)),
        }
        while self.slices.front().is_some_and(|(_, ended_ns, _)| ended_ns + MINUTE_NS <= to_ns) {
            self.slices.pop_front();
        }
    }

    /// For how long it was looked, in nanoseconds: up to a minute and a slice.
    pub fn seen_ns(&self) -> u64 {
        let ends = self.slices.front().zip(self.slices.back());
        ends.map_or(0, |((began_ns, ..), (_, ended_ns, _))| ended_ns.saturating_sub(*began_ns))
    }

    /// What was done, by cgroup.
    pub fn sum(&self) -> ByCgroup {
        let mut sum = ByCgroup::new();
        for (_, _, slice) in &self.slices {
            merge(&mut sum, slice);
        }
        sum
    }
}

/// What was done for each cgroup, whatever for and on whichever disk.
pub fn by_cgroup(done: &ByKey) -> ByCgroup {
    let mut sum = ByCgroup::new();
    for (key, done) in done {
        sum.entry(key.cgroup_id).or_default().add(done);
    }
    sum
}

/// Adds what was done for each.
pub fn merge(sum: &mut ByCgroup, more: &ByCgroup) {
    for (cgroup_id, done) in more {
        sum.entry(*cgroup_id).or_default().add(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::ledger::Account;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const DISK: u32 = 8 << 20;

    /// So many requests of so long each since it is counted.
    fn reading(second: u64, requests: u64, ns: u64) -> Reading {
        let mut latencies = Histogram::default();
        latencies.0[Histogram::step_of(ns)] = requests;
        let account = Account { device_ns: requests * ns, latencies, max_ns: ns };
        let key = Key { cgroup_id: 5, disk: DISK, ..Key::default() };
        Reading { at_ns: second * SECOND_NS, accounts: vec![(key, account)], ..Reading::default() }
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let mut minute = Minute::default();
        for second in 0..=300 {
            // 10 requests of 10 ms in each second, until there are none any more.
            minute.add(&reading(second, 10 * second.min(200), 10_000_000), |_| true);
            if second == 100 {
                let done = &minute.sum()[&5];
                assert!((600..=660).contains(&done.latencies.requests()), "{}", done.latencies.requests());
                assert_eq!(done.device_ns, done.latencies.requests() * 10_000_000);
                assert_eq!(done.percentile_ns(0.99), Some(10_000_000));
                assert!((60..=66).contains(&(minute.seen_ns() / SECOND_NS)));
            }
        }
        assert!(minute.sum().is_empty());
    }

    #[test]
    fn disks_that_stand_for_others_are_not_counted() {
        let mut minute = Minute::default();
        assert!(minute.add(&reading(1, 10, 1_000_000), |disk| disk != DISK).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_new_each_time_is_all_there_is(steps in proptest::collection::vec(0_u64..50, 1..40)) {
            let (mut minute, mut so_far, mut sum) = (Minute::default(), 0, ByCgroup::new());
            for (second, more) in (0..).zip(&steps) {
                so_far += more;
                merge(&mut sum, &by_cgroup(&minute.add(&reading(second, so_far, 3_000_000), |_| true)));
            }
            let requests = sum.get(&5).map_or(0, |done| done.latencies.requests());
            prop_assert_eq!(requests, so_far);
            let last = minute.sum();
            prop_assert_eq!(last.get(&5), sum.get(&5), "all of it is in the last minute");
        }
    }
}
