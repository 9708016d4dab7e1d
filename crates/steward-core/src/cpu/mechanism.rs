//! What a mechanism (the sched_ext program, or SCHED_DEADLINE where there is none) takes and gives.
//!
//! The daemon speaks to whatever enforces reservations through [`Mechanism`]. Every type here is
//! plain data: times are in nanoseconds of `CLOCK_MONOTONIC`, fractions are of one CPU (0 to 1).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::best_effort::BestEffortSettings;
use super::event::{Event, Reason};
use super::policy::DomainPolicy;
use super::reservation::Grant;
use super::thresholds::Thresholds;
use crate::process::FileIdentity;

/// Where a task that has a specification stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// In the interactive class: its reservation is in force.
    Admitted,
    /// Refused at admission; best-effort until reactivation finds room.
    Refused,
    /// Admitted once, then put out under overload; best-effort until reactivation finds room.
    Revoked,
}

impl fmt::Display for Standing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Standing::Admitted => "admitted",
            Standing::Refused => "refused",
            Standing::Revoked => "revoked",
        })
    }
}

/// A task that has a specification, as the mechanism sees it now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Thread id in the initial pid namespace.
    pub tid: i32,
    /// Process id in the initial pid namespace.
    pub pid: i32,
    /// The kernel's name of the task (at most 15 bytes).
    pub name: String,
    /// The CPU that its reservation is on.
    pub cpu: u32,
    /// Where it stands.
    pub standing: Standing,
    /// What it was given.
    pub grant: Grant,
    /// What is left of this period's budget; negative when overrun, in nanoseconds.
    pub budget_left_ns: i64,
    /// End of the current period, in nanoseconds of `CLOCK_MONOTONIC`.
    pub deadline_ns: u64,
    /// Periods begun since admission.
    pub periods: u64,
    /// Periods of those that began because the task announced a request; counts on from 0 after 2^32.
    pub periods_announced: u32,
    /// Periods whose budget was still owed to a task that wanted it when they ended.
    pub deadlines_missed: u64,
    /// Periods whose budget was used up before they ended.
    pub budgets_exhausted: u64,
    /// CPU time received out of the reservation, in nanoseconds.
    pub reserved_time_ns: u64,
    /// CPU time received as best-effort, in nanoseconds.
    pub best_effort_time_ns: u64,
    /// The longest overrun of a budget so far, in nanoseconds.
    pub overrun_max_ns: u64,
    /// By which rule it was decided about last, if by another one than that the load leaves room.
    pub reason: Option<Reason>,
}

impl TaskRecord {
    /// Its thread id and the fraction of one CPU that is reserved for it, if that is in force.
    pub fn in_force(&self) -> Option<(i32, f64)> {
        (self.standing == Standing::Admitted).then(|| (self.tid, self.grant.reservation.bandwidth()))
    }
}

/// The load of one CPU (Yang 2009, section 8.1.1). All loads are fractions of the CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// The CPU's number.
    pub cpu: u32,
    /// Whether it is online.
    pub online: bool,
    /// `Rload`: decayed average of what interactive tasks used.
    pub measured_load: f64,
    /// `Sload`: what is expected from the specifications.
    pub projected_load: f64,
    /// The observation window: the last four samples of `Rload`, latest first.
    pub window: [f64; 4],
    /// Sum of `C/T` over the tasks admitted here.
    pub reserved: f64,
    /// How many tasks are admitted here.
    pub admitted: u32,
}

/// Everything that the mechanism knows, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// All tasks that have a specification.
    pub tasks: Vec<TaskRecord>,
    /// All CPUs.
    pub cpus: Vec<CpuRecord>,
}

/// Which mechanism is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MechanismKind {
    /// Steward's scheduler, through sched_ext.
    SchedExt,
    /// The kernel's SCHED_DEADLINE class and nice values.
    Deadline,
    /// Nice values alone: what is left after the kernel has taken Steward's scheduler out several times.
    Nice,
}

impl fmt::Display for MechanismKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            MechanismKind::SchedExt => "sched_ext",
            MechanismKind::Deadline => "SCHED_DEADLINE",
            MechanismKind::Nice => "nice values",
        })
    }
}

/// Why a mechanism could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum MechanismError {
    /// The task ended before the request reached it.
    #[error("task {tid} has ended")]
    NoSuchTask {
        /// The thread id that was asked for.
        tid: i32,
    },
    /// There is no more room for tasks or executables.
    #[error("{what} is full ({capacity} entries)")]
    Full {
        /// The table, in words.
        what: &'static str,
        /// How many entries it has.
        capacity: usize,
    },
    /// There is no cgroup with this id, or it is gone.
    #[error("no domain has the cgroup id {cgroup_id}: it is gone")]
    NoSuchDomain {
        /// The id that was asked for.
        cgroup_id: u64,
    },
    /// This mechanism cannot do that.
    #[error("{by} has no support for {what}")]
    Unsupported {
        /// What was asked for, in words.
        what: &'static str,
        /// The mechanism.
        by: MechanismKind,
    },
    /// The kernel refused.
    #[error("{action}: {source}; {advice}")]
    Kernel {
        /// What was tried, on what.
        action: String,
        /// What the kernel said.
        source: std::io::Error,
        /// What the person can do.
        advice: String,
    },
    /// The mechanism is no longer in force (ejected by the kernel, or replaced).
    #[error("the scheduler is no longer loaded: {reason}")]
    Gone {
        /// The kernel's or the scheduler's own words.
        reason: String,
    },
}

/// A domain as the mechanism sees it now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainRecord {
    /// The cgroup's id: the inode number of its directory.
    pub cgroup_id: u64,
    /// The parent's cgroup id; 0 for the root.
    pub parent_id: u64,
    /// The policy in force; `weight` is the one that counts, wherever it comes from.
    pub policy: DomainPolicy,
    /// The fraction of all CPU time (0 to 1) that its own tasks are due, given what is runnable now.
    pub share: f64,
    /// CPU time that its own tasks (not its children's) got as best-effort, in nanoseconds, for ever.
    pub best_effort_time_ns: u64,
    /// CPU time that its own tasks got out of reservations of their own, in nanoseconds, for ever.
    pub reserved_time_ns: u64,
    /// Time that its own tasks have waited as best-effort, summed over tasks, in nanoseconds, for ever. A wait counts
    /// once it is over.
    pub waiting_time_ns: u64,
    /// The integral over time of how many of its own tasks were runnable, in nanoseconds, for ever.
    pub runnable_time_ns: u64,
    /// The integral of the square of that number, in nanoseconds, for ever; wraps.
    pub runnable_squared_ns: u64,
    /// Its own tasks, asleep or not.
    pub tasks: u32,
    /// Its own runnable tasks.
    pub runnable: u32,
    /// Whether `cpu.max` holds it back at this moment.
    pub throttled: bool,
    /// Whether it is suspended.
    pub suspended: bool,
    /// What `cpu.max` leaves to it, in CPUs; infinity without a limit.
    pub limit_cpus: f64,
}

impl Default for DomainRecord {
    /// One without tasks, to which nothing is promised, for which nothing was counted and which nothing limits.
    fn default() -> Self {
        DomainRecord {
            cgroup_id: 0,
            parent_id: 0,
            policy: DomainPolicy::default(),
            share: 0.0,
            best_effort_time_ns: 0,
            reserved_time_ns: 0,
            waiting_time_ns: 0,
            runnable_time_ns: 0,
            runnable_squared_ns: 0,
            tasks: 0,
            runnable: 0,
            throttled: false,
            suspended: false,
            limit_cpus: f64::INFINITY,
        }
    }
}

/// Holds tasks for moments, from any thread (Redline's speed bumps: `crate::memory::bumps`).
pub trait Bumper: Send + Sync {
    /// Keeps all tasks whose memory is charged to this cgroup itself from running for so long from now, in nanoseconds;
    /// 0 lets them go on. Nobody has to come back for that. What they have reserved for themselves they get all the
    /// same.
    ///
    /// # Errors
    /// [`MechanismError::Gone`], [`MechanismError::Unsupported`], [`MechanismError::Kernel`].
    fn bump(&self, cgroup_id: u64, for_ns: u64) -> Result<(), MechanismError>;
}

/// Something that enforces reservations. Implemented by `steward-sched` and by `steward-kernel`, and by a
/// stand-in for tests.
pub trait Mechanism: Send {
    /// Which one this is.
    fn kind(&self) -> MechanismKind;

    /// Makes `entries` the whole table of what an executable gets at `exec`. Running tasks keep what they have.
    /// `None` says best-effort: the program drops what it would inherit (unless it was given for good, see
    /// [`Grant::keep_over_exec`]).
    ///
    /// # Errors
    /// [`MechanismError::Full`], and then the table is as it was before.
    fn set_exec_table(&mut self, entries: &[(FileIdentity, Option<Grant>)]) -> Result<(), MechanismError>;

    /// Gives the task `grant` in place of whatever it has (admission decides whether it comes into force at once),
    /// or with `None` makes it best-effort.
    ///
    /// # Errors
    /// [`MechanismError::NoSuchTask`], [`MechanismError::Full`].
    fn assign(&mut self, tid: i32, grant: Option<Grant>) -> Result<Option<Standing>, MechanismError>;

    /// The same for a thread of the process `pid`, if it still is one: an id that was given out again since it was
    /// looked up means somebody else, to whom nothing is done.
    ///
    /// # Errors
    /// As [`Mechanism::assign`]; [`MechanismError::NoSuchTask`] where the process has no such thread.
    fn assign_thread(
        &mut self,
        pid: i32,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError>;

    /// Lets this task take up the specification of the next program that it executes although it is best-effort
    /// itself (`steward run`).
    ///
    /// # Errors
    /// [`MechanismError::NoSuchTask`].
    fn allow_interactive_exec(&mut self, tid: i32) -> Result<(), MechanismError>;

    /// Changes the thresholds for all CPUs.
    ///
    /// # Errors
    /// [`MechanismError::Gone`].
    fn set_thresholds(&mut self, thresholds: Thresholds) -> Result<(), MechanismError>;

    /// Says who is the owner, whose tasks no limit of an ordinary user holds for.
    ///
    /// # Errors
    /// [`MechanismError::Gone`].
    fn set_owner(&mut self, uid: Option<u32>) -> Result<(), MechanismError> {
        let _ = uid;
        Ok(())
    }

    /// Gives the domain of this cgroup a policy, or with `None` the default again. Takes effect at once.
    ///
    /// # Errors
    /// [`MechanismError::NoSuchDomain`], [`MechanismError::Unsupported`].
    fn set_domain(&mut self, cgroup_id: u64, policy: Option<DomainPolicy>) -> Result<(), MechanismError> {
        let _ = (cgroup_id, policy);
        Err(MechanismError::Unsupported { what: "policies of domains", by: self.kind() })
    }

    /// Suspends the domain of this cgroup, whose path has no leading slash, with all below it, or resumes it.
    /// What its tasks have reserved for themselves they get all the same. Doing it twice changes nothing.
    ///
    /// # Errors
    /// [`MechanismError::NoSuchDomain`], [`MechanismError::Kernel`], [`MechanismError::Unsupported`].
    fn suspend_domain(&mut self, cgroup_id: u64, path: &str, suspended: bool) -> Result<(), MechanismError> {
        let _ = (cgroup_id, path, suspended);
        Err(MechanismError::Unsupported { what: "suspending domains", by: self.kind() })
    }

    /// What holds tasks for moments; `None` where this mechanism cannot. It is no longer of use once the mechanism is
    /// out of force.
    fn bumper(&self) -> Option<Box<dyn Bumper>> {
        None
    }

    /// Reads all domains, in no particular order.
    ///
    /// # Errors
    /// [`MechanismError::Gone`], [`MechanismError::Unsupported`].
    fn domains(&mut self) -> Result<Vec<DomainRecord>, MechanismError> {
        Err(MechanismError::Unsupported { what: "reading domains", by: self.kind() })
    }

    /// Changes the order among domains and its parameters, at once.
    ///
    /// # Errors
    /// [`MechanismError::Gone`], [`MechanismError::Unsupported`].
    fn set_best_effort(&mut self, settings: BestEffortSettings) -> Result<(), MechanismError> {
        let _ = settings;
        Err(MechanismError::Unsupported { what: "an order among domains", by: self.kind() })
    }

    /// Reads everything.
    ///
    /// # Errors
    /// [`MechanismError::Gone`].
    fn snapshot(&mut self) -> Result<Snapshot, MechanismError>;

    /// The reservations of tasks that are in force now: thread ids, and the fraction of one CPU for each.
    ///
    /// # Errors
    /// As [`Mechanism::snapshot`].
    fn reservations_in_force(&mut self) -> Result<Vec<(i32, f64)>, MechanismError> {
        Ok(self.snapshot()?.tasks.iter().filter_map(TaskRecord::in_force).collect())
    }

    /// How many cgroups have no domain of their own at the moment, because there are too many: each is part of the one
    /// above it.
    fn cgroups_without_domain(&self) -> u64 {
        0
    }

    /// Hands over the decisions taken since the last call, oldest first, and how many were lost because nobody
    /// read them in time.
    fn take_events(&mut self, sink: &mut dyn FnMut(Event)) -> u64;

    /// Hands over the tasks that were born, or have executed a program, since the last call with a priority for the
    /// disk that whoever started them has from Steward alone ([`Mark::Alone`](crate::disk::priority::Mark::Alone)).
    fn take_heirs(&mut self) -> Vec<i32> {
        Vec::new()
    }

    /// A file descriptor that becomes readable when events wait, where there is one.
    fn event_descriptor(&self) -> Option<std::os::fd::RawFd>;

    /// `None` while in force; otherwise why it no longer is.
    fn exit_reason(&self) -> Option<String>;
}
