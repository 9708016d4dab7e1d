//! What forecasts are made from, and what they are.

use crate::cpu::policy::DomainPolicy;

/// The largest slowdown that is told: one that waits and gets nothing is this many times slower, or more.
pub const SLOWDOWN_MAX: f64 = 1000.0;

/// How a scheduler treats a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulingClass {
    /// The default: a weight among others.
    Fair,
    /// SCHED_IDLE: only what nobody else wants, or nearly so.
    Idle,
    /// SCHED_FIFO, SCHED_RR, SCHED_DEADLINE, or the stop class: ahead of all others.
    RealTime,
}

/// What the kernel has counted for one task, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskSample {
    /// Thread id in the initial pid namespace.
    pub tid: i32,
    /// Process id in the initial pid namespace.
    pub pid: i32,
    /// When the task started, in nanoseconds since boot: with `tid` it says which task this is for ever.
    pub started_ns: u64,
    /// The task's real user.
    pub uid: u32,
    /// The id of its cgroup: the inode number of its directory.
    pub cgroup_id: u64,
    /// The kernel's name of the task, padded with zeros.
    pub name: [u8; 16],
    /// How schedulers treat it.
    pub class: SchedulingClass,
    /// Its weight; 100 at nice 0, by the kernel's table at every other nice value.
    pub weight: f64,
    /// CPU time so far, in nanoseconds.
    pub run_ns: u64,
    /// Time so far that it could have run but had no CPU, in nanoseconds, with the wait that lasts.
    pub wait_ns: u64,
    /// Whether it runs or waits for a CPU now.
    pub runnable: bool,
    /// The fraction of one CPU that is promised to the task itself and in force, 0 when none.
    pub reserved: f64,
}

/// All tasks of the machine as a source read them.
#[derive(Clone, Copy, Debug)]
pub struct TaskReading<'r> {
    /// When the first of them was read, in nanoseconds of `CLOCK_MONOTONIC`: what a reader stands behind others before
    /// it reads is no part of what it counts.
    pub at_ns: u64,
    /// Ordered by thread id.
    pub tasks: &'r [TaskSample],
    /// What of it is new.
    pub changed: Changed<'r>,
}

/// Which samples differ from those of the same source's reading before.
#[derive(Clone, Copy, Debug)]
pub enum Changed<'r> {
    /// Any may.
    All,
    /// The tasks are the same, in the same order, and only the samples at these places differ; each is named once, and
    /// tasks that are runnable always are.
    At(&'r [u32]),
}

/// What the scheduler has counted for a domain's own tasks, with those that have ended. Real-time tasks, which it does
/// not schedule, are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainCounters {
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// CPU time so far, in nanoseconds.
    pub used_ns: u64,
    /// The integral over time of how many ran or waited for a CPU, in nanoseconds.
    pub runnable_ns: u64,
}

/// A domain as the models need it, read at one moment. What it used is summed from the tasks, and from
/// [`DomainCounters`].
#[derive(Clone, Debug, PartialEq)]
pub struct DomainSample {
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// The parent's cgroup id; 0 for the root.
    pub parent_id: u64,
    /// Priority, weight and reservation in force. `weight` is `None` where the cgroup has no `cpu` controller and its
    /// tasks count as its parent's.
    pub policy: DomainPolicy,
    /// The most that `cpu.max` leaves to it, in CPUs; infinity when there is no limit.
    pub limit_cpus: f64,
    /// Frozen or suspended: its tasks do not run whatever they want.
    pub suspended: bool,
}

/// Which scheduler decides, and so which model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// Weights among all tasks, level by level where cgroups have the `cpu` controller (CPU Futures, equations 5 to 8):
    /// the default scheduler.
    ProportionalShare,
    /// Reservations of tasks, then the tree of domains with priorities, reservations and weights: Steward's own.
    Steward,
}

/// Four allocations, in milliseconds of CPU time per second, over the last second or the next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// What it got.
    pub actual_ms_per_s: f64,
    /// What it would have got on an idle machine.
    pub desired_ms_per_s: f64,
    /// What it will get if all go on as they do.
    pub predicted_ms_per_s: f64,
    /// The most that it could get if it wanted all it could have.
    pub potential_ms_per_s: f64,
}

impl Forecast {
    /// How many times slower the CPU seemed than an idle one: desired over actual, at most [`SLOWDOWN_MAX`]; `None`
    /// where nothing was wanted (CPU Futures, section 3.1).
    pub fn slowdown(&self) -> Option<f64> {
        self.desired_over(self.actual_ms_per_s)
    }

    /// Desired over predicted, at most [`SLOWDOWN_MAX`]; `None` where nothing was wanted.
    pub fn future_slowdown(&self) -> Option<f64> {
        self.desired_over(self.predicted_ms_per_s)
    }

    /// Desired over potential, at most [`SLOWDOWN_MAX`]; below 1 there is room for more. `None` where nothing was
    /// wanted.
    pub fn potential_slowdown(&self) -> Option<f64> {
        self.desired_over(self.potential_ms_per_s)
    }

    fn desired_over(&self, allocation_ms_per_s: f64) -> Option<f64> {
        let desired = self.desired_ms_per_s;
        (desired > 0.0).then(|| {
            if allocation_ms_per_s * SLOWDOWN_MAX > desired {
                desired / allocation_ms_per_s
            } else {
                SLOWDOWN_MAX
            }
        })
    }
}
