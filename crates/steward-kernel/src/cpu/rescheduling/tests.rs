//! A kernel in memory that keeps its account of bandwidth as Linux 7.3 does, faults included.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::journal::{self, Undone};

#[derive(Clone, Copy)]
struct Task {
    started_ticks: u64,
    scheduling: Scheduling,
    nice: i32,
    /// Whether it has run since it came into SCHED_DEADLINE.
    has_run: bool,
}

#[derive(Default)]
struct Kernel {
    tasks: RefCell<BTreeMap<i32, Task>>,
    /// What the kernel believes to be reserved, as a fraction of one CPU.
    booked: Cell<f64>,
    period_max_ns: Cell<u64>,
    /// Just before this many more writes the task ends, and another gets its id.
    writes_until_reuse: Cell<Option<u32>>,
}

const NEWCOMER: Task =
    Task { started_ticks: 99, scheduling: Scheduling { nice: 5, ..ORDINARY }, nice: 5, has_run: false };
const ORDINARY: Scheduling =
    Scheduling { policy: 0, flags: 0, nice: 0, priority: 0, runtime_ns: 0, deadline_ns: 0, period_ns: 0 };

impl Kernel {
    fn with_sleepers(count: i32) -> Self {
        let kernel = Kernel::default();
        kernel.period_max_ns.set(4_000_000_000);
        for tid in 1..=count {
            let sleeper = Task { started_ticks: 1, scheduling: ORDINARY, nice: 0, has_run: false };
            kernel.tasks.borrow_mut().insert(tid, sleeper);
        }
        kernel
    }

    fn run(&self, tid: i32) {
        self.tasks.borrow_mut().get_mut(&tid).expect("it is there").has_run = true;
    }

    fn bandwidth(scheduling: &Scheduling) -> f64 {
        if scheduling.policy == POLICY_DEADLINE {
            scheduling.runtime_ns as f64 / scheduling.period_ns as f64
        } else {
            0.0
        }
    }
}

fn failed(tid: i32, errno: i32) -> KernelError {
    KernelError::Task { tid, action: "test", source: std::io::Error::from_raw_os_error(errno) }
}

impl Tasks for Kernel {
    fn read(&self, tid: i32) -> Result<Scheduling, KernelError> {
        let tasks = self.tasks.borrow();
        tasks.get(&tid).map(|task| task.scheduling).ok_or_else(|| failed(tid, libc::ESRCH))
    }

    fn write(&self, tid: i32, scheduling: &Scheduling) -> Result<(), KernelError> {
        if let Some(left) = self.writes_until_reuse.get() {
            if left == 0 {
                self.tasks.borrow_mut().insert(tid, NEWCOMER);
            }
            self.writes_until_reuse.set(left.checked_sub(1));
        }
        if scheduling.policy == POLICY_DEADLINE
            && (scheduling.period_ns > self.period_max_ns.get() || scheduling.runtime_ns < 1024)
        {
            return Err(failed(tid, libc::EINVAL));
        }
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.get_mut(&tid).ok_or_else(|| failed(tid, libc::ESRCH))?;
        let leaves = task.scheduling.policy == POLICY_DEADLINE && scheduling.policy != POLICY_DEADLINE;
        if !leaves {
            let (before, after) = (Kernel::bandwidth(&task.scheduling), Kernel::bandwidth(scheduling));
            self.booked.set(self.booked.get() + after - before);
        } else if task.has_run {
            self.booked.set(self.booked.get() - Kernel::bandwidth(&task.scheduling));
        }
        task.has_run &= !leaves;
        task.scheduling = *scheduling;
        if scheduling.policy != POLICY_DEADLINE {
            task.nice = scheduling.nice;
        }
        Ok(())
    }

    fn nice(&self, tid: i32) -> Option<i32> {
        self.tasks.borrow().get(&tid).map(|task| task.nice)
    }

    fn is_alive(&self, task: TaskId) -> bool {
        self.tasks.borrow().get(&task.tid).is_some_and(|now| now.started_ticks == task.started_ticks)
    }
}

fn first(tid: i32) -> TaskId {
    TaskId { tid, started_ticks: 1 }
}

#[test]
fn twenty_sleeping_programs_leave_all_bandwidth_free_however_often_the_daemon_starts() {
    let kernel = Kernel::with_sleepers(20);
    let reservation = Scheduling::deadline(1_000_000, 100_000_000, true);
    for _ in 0..4 {
        for tid in 1..=20 {
            change(&kernel, first(tid), &reservation).expect("there is room");
        }
        assert!((kernel.booked.get() - 0.2).abs() < 0.001, "{}", kernel.booked.get());
        for tid in 1..=20 {
            let undone = journal::undo_task(first(tid), &ORDINARY, &reservation, &kernel);
            assert_eq!(undone.expect("it is there"), Undone::PutBack);
            assert_eq!(kernel.read(tid).expect("it is there"), ORDINARY);
        }
    }
    assert!(kernel.booked.get() < 0.001, "{} of a CPU is lost", kernel.booked.get());
}

#[test]
fn a_program_that_was_started_with_the_id_of_an_ended_one_is_as_it_was() {
    for new in [Scheduling::deadline(5_000_000, 30_000_000, true), ORDINARY.with_nice(-10)] {
        let kernel = Kernel::with_sleepers(1);
        kernel.run(1);
        kernel.writes_until_reuse.set(Some(0));
        let error = change(&kernel, first(1), &new).expect_err("it has ended");
        assert!(error.is_absent(), "{error}");
        let now = kernel.read(1).expect("the newcomer is there");
        assert_eq!(now.policy, 0, "{new:?}");
        assert!(kernel.booked.get() < 0.001);
        if new.policy == POLICY_DEADLINE {
            assert_eq!(now, NEWCOMER.scheduling);
        }
        // Seen before the call, nothing is done to it at all.
        let error = change(&kernel, first(1), &new).expect_err("it has ended");
        assert!(error.is_absent() && kernel.read(1).expect("it is there") == now);
    }
}

proptest! {
    #[test]
    fn whatever_ran_in_between_nothing_stays_booked(
        steps in prop::collection::vec((1..6_i32, 0..3_u8, 1..40_u64, any::<bool>()), 0..60),
        period_max_ms in prop::sample::select(vec![50_u64, 100, 4_000]),
    ) {
        let kernel = Kernel::with_sleepers(5);
        kernel.period_max_ns.set(period_max_ms * 1_000_000);
        for (tid, step, budget_ms, runs) in steps {
            let current = kernel.read(tid).expect("it is there");
            if runs {
                kernel.run(tid);
            }
            let wanted = Scheduling::deadline(budget_ms * 1_000_000, 50_000_000, true);
            match step {
                0 => _ = change(&kernel, first(tid), &wanted),
                _ => leave(&kernel, tid, &current, &ORDINARY).expect("it is there"),
            }
        }
        for tid in 1..=5 {
            leave(&kernel, tid, &kernel.read(tid).expect("it is there"), &ORDINARY).expect("it is there");
        }
        // Each leaving may cost 1,100 ns in the shortest of these periods.
        prop_assert!(kernel.booked.get().abs() < 65.0 * 1_100.0 / 50_000_000.0, "{}", kernel.booked.get());
    }
}
