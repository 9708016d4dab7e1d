//! Which real-time tasks took CPU time lately: the kernel runs them before everything that Steward promises.
//!
//! The figures are those that tasks are read for anyway ([`crate::cpu::herald`]); which CPU and which policy is asked
//! of the kernel when somebody wants to know.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::cpu::explain::RealTimeTask;
use steward_core::cpu::forecast::{SchedulingClass, TaskSample};
use steward_kernel::cpu::scheduling::{self, POLICY_DEADLINE, POLICY_FIFO, POLICY_ROUND_ROBIN};
use steward_kernel::{Roots, process};

/// What was used is looked at over at least this time, in nanoseconds.
const WINDOW_NS: u64 = 500_000_000;
/// What is older than this at the next look says nothing of "lately", in nanoseconds.
const OLD_NS: u64 = 10_000_000_000;
/// Who used less of a CPU than this is not kept.
const LEAST: f64 = 0.01;
/// How many tasks are kept at most, those that used most.
const KEPT_MAX: usize = 64;

/// A task that used CPU time, and how much of a CPU.
#[derive(Clone, Debug, PartialEq)]
struct Taker {
    tid: i32,
    pid: i32,
    name: String,
    share: f64,
}

/// What real-time tasks used between the last two looks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RealTimeUse {
    looked_at_ns: u64,
    /// CPU time so far, by thread id and start.
    before: BTreeMap<(i32, u64), u64>,
    takers: Vec<Taker>,
}

impl RealTimeUse {
    /// Takes in what tasks have used so far.
    pub(crate) fn take(&mut self, now_ns: u64, tasks: &[TaskSample]) {
        let elapsed_ns = now_ns.saturating_sub(self.looked_at_ns);
        if elapsed_ns < WINDOW_NS {
            return;
        }
        let real_time = || tasks.iter().filter(|task| task.class == SchedulingClass::RealTime);
        self.takers.clear();
        if elapsed_ns <= OLD_NS {
            let known = real_time().filter_map(|task| {
                let before = self.before.get(&(task.tid, task.started_ns))?;
                let share = task.run_ns.saturating_sub(*before) as f64 / elapsed_ns as f64;
                (share >= LEAST).then(|| Taker { tid: task.tid, pid: task.pid, name: name_of(task), share })
            });
            self.takers.extend(known);
            self.takers.sort_by(|one, other| other.share.total_cmp(&one.share));
            self.takers.truncate(KEPT_MAX);
        }
        self.before = real_time().map(|task| ((task.tid, task.started_ns), task.run_ns)).collect();
        self.looked_at_ns = now_ns;
    }

    /// Those that used most, where they ran last; without those that have what Steward gave them (`promised`, by thread
    /// id), which with SCHED_DEADLINE are of that policy.
    pub(crate) fn tasks(&self, roots: &Roots, promised: &BTreeSet<i32>) -> Vec<RealTimeTask> {
        let others = self.takers.iter().filter(|taker| !promised.contains(&taker.tid));
        let shown = others.filter_map(|Taker { tid, pid, name, share }| {
            // One that has ended meanwhile takes nothing any more.
            let cpu = process::stat(*tid, roots).ok()?.cpu;
            let policy = policy_of(*tid).unwrap_or("real time").to_owned();
            Some(RealTimeTask { tid: *tid, pid: *pid, name: name.clone(), policy, cpu, share: *share })
        });
        shown.collect()
    }
}

/// The kernel's name of a task's policy, if it is a real-time one.
pub(crate) fn policy_of(tid: i32) -> Option<&'static str> {
    match scheduling::read(tid).ok()?.policy {
        POLICY_FIFO => Some("SCHED_FIFO"),
        POLICY_ROUND_ROBIN => Some("SCHED_RR"),
        POLICY_DEADLINE => Some("SCHED_DEADLINE"),
        _ => None,
    }
}

fn name_of(task: &TaskSample) -> String {
    let end = task.name.iter().position(|byte| *byte == 0).unwrap_or(task.name.len());
    String::from_utf8_lossy(&task.name[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn task(tid: i32, class: SchedulingClass, run_ns: u64) -> TaskSample {
        let mut name = [0; 16];
        name[..6].copy_from_slice(b"burner");
        TaskSample {
            tid,
            pid: tid,
            started_ns: 7,
            uid: 0,
            cgroup_id: 1,
            name,
            class,
            weight: 100.0,
            run_ns,
            wait_ns: 0,
            runnable: true,
            reserved: 0.0,
        }
    }

    #[test]
    fn what_real_time_tasks_used_between_two_looks_is_known_and_nobody_elses() {
        use SchedulingClass::{Fair, RealTime};
        let mut real_time = RealTimeUse::default();
        let at = |one, other| [task(1, RealTime, one), task(2, RealTime, 5), task(3, Fair, other)];
        real_time.take(20 * SECOND, &at(SECOND, 0));
        assert_eq!(real_time.takers, vec![], "one look says nothing");
        real_time.take(20 * SECOND + WINDOW_NS - 1, &at(2 * SECOND, 0));
        assert_eq!(real_time.takers, vec![], "too soon");
        real_time.take(21 * SECOND, &at(SECOND + SECOND / 2, SECOND));
        let expected = Taker { tid: 1, pid: 1, name: "burner".into(), share: 0.5 };
        assert_eq!(real_time.takers, vec![expected]);
        real_time.take(22 * SECOND, &[TaskSample { started_ns: 8, ..task(1, RealTime, 9 * SECOND) }]);
        assert_eq!(real_time.takers, vec![], "another task has its number");
        real_time.take(60 * SECOND, &[TaskSample { started_ns: 8, ..task(1, RealTime, 40 * SECOND) }]);
        assert_eq!(real_time.takers, vec![], "that is not lately");
    }
}
