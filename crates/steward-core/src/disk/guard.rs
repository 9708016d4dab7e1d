//! Keeps whoever is served first from taking the disk for themselves (Yang 2009, section 10.2.2: no request may wait
//! for ever). The kernel's real-time class has no such limit: an editor that copies a large file would keep everybody
//! else from the disk for as long as that takes, and anybody may start an editor.
//!
//! What interactive programs read and write is little, and now and then (section 10.3). Those that take more than half
//! of a disk's time together for two looks in a row lose their place for a while, the greediest first, as many as it
//! takes. They are then the first among all others.

use std::collections::BTreeMap;

use super::priority::Priority;
use crate::process::TaskId;

/// The part of a disk's time that those who are served first may take together.
const SHARE_MAX: f64 = 0.5;
/// For how long in a row they take more before any loses its place, in looks.
const LOOKS: u32 = 2;
/// For how long one loses its place, in nanoseconds.
const SET_BACK_NS: u64 = 10_000_000_000;
/// What it has meanwhile: the first among those that have no class.
pub const SET_BACK_TO: Priority = Priority::BestEffort(0);

/// What the disks did since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disks {
    /// For which part of the time the busiest one had requests, 0 to 1.
    pub busy: f64,
    /// What all of them read and wrote, in bytes.
    pub bytes: u64,
}

/// Who was seen to take how much, and who has lost its place until when.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// What each had read and written at the last look, in bytes, ever.
    seen: BTreeMap<TaskId, u64>,
    /// For how many looks in a row they have taken too much together.
    over: u32,
    /// Until when, in nanoseconds of the caller's clock.
    set_back: BTreeMap<TaskId, u64>,
}

impl Guard {
    /// Takes in a look: what each of those who are to be served first has read and written so far, in bytes, ever. The
    /// looks are about a second apart.
    pub fn look(&mut self, now_ns: u64, disks: Disks, tasks: &BTreeMap<TaskId, u64>) {
        self.set_back.retain(|task, until_ns| *until_ns > now_ns && tasks.contains_key(task));
        let taken: Vec<(TaskId, u64)> = tasks
            .iter()
            .filter_map(|(task, bytes)| Some((*task, bytes.saturating_sub(*self.seen.get(task)?))))
            .filter(|(task, _)| !self.set_back.contains_key(task))
            .collect();
        self.seen.clone_from(tasks);
        let together: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
        // What comes out of memory counts for a task, and not for a disk.
        let all = disks.bytes.max(together).max(1) as f64;
        let share = |bytes: u64| disks.busy * bytes as f64 / all;
        if share(together) <= SHARE_MAX {
            self.over = 0;
            return;
        }
        self.over += 1;
        if self.over < LOOKS {
            return;
        }
        self.over = 0;
        self.set_back_the_greediest(now_ns, taken, together, &share);
    }

    fn set_back_the_greediest(
        &mut self,
        now_ns: u64,
        mut taken: Vec<(TaskId, u64)>,
        mut together: u64,
        share: &dyn Fn(u64) -> f64,
    ) {
        taken.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for (task, bytes) in taken {
            if share(together) <= SHARE_MAX {
                break;
            }
            together -= bytes;
            self.set_back.insert(task, now_ns + SET_BACK_NS);
        }
    }

    /// Whether a task has lost its place at the moment.
    pub fn is_set_back(&self, task: TaskId) -> bool {
        self.set_back.contains_key(&task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn task(tid: i32) -> TaskId {
        TaskId { tid, started_ticks: 1 }
    }

    /// Looks each second at tasks that take so many bytes each in it, of so many that the disks do.
    fn after(seconds: u64, busy: f64, bytes: u64, each: &[u64]) -> Guard {
        let mut guard = Guard::default();
        for second in 0..=seconds {
            let tasks = (1..).zip(each).map(|(tid, each)| (task(tid), each * second)).collect();
            guard.look(second * SECOND_NS, Disks { busy, bytes }, &tasks);
        }
        guard
    }

    #[test]
    fn who_saves_now_and_then_or_reads_a_film_keeps_its_place() {
        for (busy, all, own) in
            [(1.0, 40_000_000, 600_000), (1.0, 40_000_000, 19_000_000), (0.3, 5_000_000, 5_000_000)]
        {
            assert!(!after(60, busy, all, &[own]).is_set_back(task(1)), "{own} of {all}");
        }
    }

    #[test]
    fn who_takes_most_of_the_disk_for_two_seconds_is_set_back_and_comes_back() {
        assert!(!after(1, 1.0, 40_000_000, &[30_000_000]).is_set_back(task(1)));
        let mut guard = after(2, 1.0, 40_000_000, &[30_000_000, 1_000]);
        assert!(guard.is_set_back(task(1)) && !guard.is_set_back(task(2)));
        let quiet = BTreeMap::from([(task(1), 60_000_000)]);
        guard.look(11 * SECOND_NS, Disks::default(), &quiet);
        assert!(guard.is_set_back(task(1)));
        guard.look(12 * SECOND_NS, Disks::default(), &quiet);
        assert!(!guard.is_set_back(task(1)));
    }

    #[test]
    fn a_moment_of_greed_is_forgotten() {
        let mut guard = Guard::default();
        let mut bytes = 0;
        for second in 0..60 {
            bytes += if second % 2 == 0 { 40_000_000 } else { 0 };
            let tasks = BTreeMap::from([(task(1), bytes)]);
            guard.look(second * SECOND_NS, Disks { busy: 1.0, bytes: 40_000_000 }, &tasks);
            assert!(!guard.is_set_back(task(1)), "after {second} s");
        }
    }

    proptest! {
        #[test]
        fn whatever_they_take_those_who_keep_their_place_take_half_of_the_disk_at_most(
            each in proptest::collection::vec(0_u64..100_000_000, 1..20),
            others in 0_u64..100_000_000,
            busy in 0.0_f64..=1.0,
        ) {
            let all = each.iter().sum::<u64>() + others;
            let guard = after(2, busy, all, &each);
            let kept: u64 = (1..).zip(&each).filter(|(tid, _)| !guard.is_set_back(task(*tid))).map(|(_, bytes)| bytes).sum();
            prop_assert!(busy * kept as f64 <= 0.5 * all.max(1) as f64 + 1.0);
            // And nobody loses it for what others take.
            if busy * (all - others) as f64 <= 0.5 * all as f64 {
                prop_assert!((1..).zip(&each).all(|(tid, _)| !guard.is_set_back(task(tid))));
            }
        }
    }
}
