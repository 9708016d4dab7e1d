//! What processes complained of.
//!
//! Processes without number can complain, one after the other. So each user has so many places, and whoever needs one
//! more takes it from the process of his that was silent longest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use steward_core::process::TaskId;

use crate::server::turns::Payer;

/// How many processes of one user are remembered.
const PER_USER_MAX: usize = 4096;
/// How many of all.
const ALL_MAX: usize = 65_536;
/// Of how many it is looked at a time whether they live, which costs a read of a file for each.
const LOOKED_AT_MAX: usize = 64;

#[derive(Debug)]
struct Complaint {
    payer: Payer,
    count: u64,
    /// The number of the last one.
    last: u64,
}

/// The sums of all complaints, by process.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    by_process: BTreeMap<TaskId, Complaint>,
    /// By user, who complained last comes last.
    by_user: HashMap<Payer, BTreeSet<(u64, TaskId)>>,
    /// How many complaints there were.
    noted: u64,
    /// Of which it was looked last whether it lives.
    looked_at: Option<TaskId>,
}

impl Complaints {
    /// Adds to the complaints of a process, for which `payer` pays, and returns their sum.
    pub(crate) fn note(&mut self, process: TaskId, payer: Payer, missed: u64) -> u64 {
        self.noted += 1;
        let before = self.remove(process).unwrap_or(0);
        let of_user = self.by_user.get(&payer).map_or(0, BTreeSet::len);
        if of_user >= PER_USER_MAX {
            self.remove_oldest_of(payer);
        } else if self.by_process.len() >= ALL_MAX {
            let most = self.by_user.iter().max_by_key(|(payer, places)| (places.len(), **payer));
            most.map(|(payer, _)| *payer).into_iter().for_each(|payer| self.remove_oldest_of(payer));
        }
        let count = before.saturating_add(missed);
        self.by_process.insert(process, Complaint { payer, count, last: self.noted });
        self.by_user.entry(payer).or_default().insert((self.noted, process));
        count
    }

    /// The sum of the complaints of the process that has this id; 0 when it did not complain.
    pub(crate) fn of(&self, pid: i32) -> u64 {
        let with_id = TaskId { tid: pid, started_ticks: 0 }..=TaskId { tid: pid, started_ticks: u64::MAX };
        self.by_process.range(with_id).next_back().map_or(0, |(_, complaint)| complaint.count)
    }

    /// Looks at the next few, and forgets those of them of which `lives` says that they have ended.
    pub(crate) fn forget_ended(&mut self, lives: impl Fn(TaskId) -> bool) {
        let begin = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.by_process.range((begin, Bound::Unbounded)).map(|(process, _)| *process);
        let next: Vec<TaskId> = next.take(LOOKED_AT_MAX).collect();
        // After the last comes the first.
        self.looked_at = next.last().copied().filter(|_| next.len() == LOOKED_AT_MAX);
        for process in next.into_iter().filter(|process| !lives(*process)) {
            self.remove(process);
        }
    }

    fn remove_oldest_of(&mut self, payer: Payer) {
        let oldest = self.by_user.get(&payer).and_then(|places| places.first().copied());
        if let Some((_, process)) = oldest {
            self.remove(process);
        }
    }

    fn remove(&mut self, process: TaskId) -> Option<u64> {
        let complaint = self.by_process.remove(&process)?;
        if let Some(places) = self.by_user.get_mut(&complaint.payer) {
            places.remove(&(complaint.last, process));
            if places.is_empty() {
                self.by_user.remove(&complaint.payer);
            }
        }
        Some(complaint.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(tid: i32) -> TaskId {
        TaskId { tid, started_ticks: 7 }
    }

    #[test]
    fn short_lived_processes_of_one_user_take_no_place_from_others_or_from_whoever_goes_on_complaining() {
        let mut complaints = Complaints::default();
        complaints.note(process(1), 1001, 5);
        for tid in 10..70_010 {
            assert_eq!(complaints.note(process(tid), 1000, 1), 1);
            if tid % 1000 == 0 {
                complaints.note(process(2), 1000, 1);
            }
        }
        assert_eq!((complaints.of(1), complaints.of(2), complaints.of(10)), (5, 70, 0));
        assert_eq!(complaints.note(process(1), 1001, 2), 7);
        assert_eq!(complaints.by_process.len(), PER_USER_MAX + 1);
    }

    #[test]
    fn users_without_number_take_places_from_whoever_has_the_most() {
        let mut complaints = Complaints::default();
        complaints.note(process(1), 1001, 5);
        for tid in 10..140_000 {
            complaints.note(process(tid), 100_000 + tid as u32 / 3000, 1);
        }
        assert_eq!((complaints.by_process.len(), complaints.of(1)), (ALL_MAX, 5));
        let mut looks = 0;
        while complaints.by_process.len() > 1 {
            let looked_at = std::cell::Cell::new(0);
            complaints.forget_ended(|process| {
                looked_at.set(looked_at.get() + 1);
                process.tid == 1
            });
            assert!(looked_at.get() <= LOOKED_AT_MAX, "{} at once", looked_at.get());
            looks += 1;
        }
        assert_eq!((complaints.by_process.len(), complaints.by_user.len(), complaints.of(1)), (1, 1, 5));
        assert_eq!(looks, ALL_MAX.div_ceil(LOOKED_AT_MAX));
    }
}
