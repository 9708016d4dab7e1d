//! What a mechanism (the sched_ext program, or SCHED_DEADLINE where there is none) takes and gives.
//!
//! The daemon speaks to whatever enforces reservations through [`Mechanism`]. Every type here is
//! plain data: times are in nanoseconds of `CLOCK_MONOTONIC`, fractions are of one CPU (0 to 1).

use std::fmt;

use serde::{Deserialize, Serialize};

/// CPU time promised to a task: `budget_ns` in every `period_ns` (Yang 2009, section 7.2.1, `C:T`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reservation {
    /// `C`: CPU time per period, in nanoseconds, above 0 and at most `period_ns`.
    pub budget_ns: u64,
    /// `T`: length of a period, in nanoseconds.
    pub period_ns: u64,
}

impl Reservation {
    /// `B = C / T`: the fraction of one CPU that is promised, above 0 and at most 1.
    pub fn bandwidth(&self) -> f64 {
        self.budget_ns as f64 / self.period_ns as f64
    }
}

/// An executable as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The superblock's device in the kernel's own encoding: `major << 20 | minor`.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

/// Whose task a grant that is never revoked is for: anybody could start any number of programs that are never revoked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IrrevocableFor {
    /// Anybody's: it was given by hand, by who may.
    #[default]
    Anybody,
    /// Root's only.
    Root,
    /// Root's and this user's.
    User(u32),
}

/// What a specification gives to a task that starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The promised CPU time.
    pub reservation: Reservation,
    /// Flag `I`: children that do not have a specification of their own get this one.
    pub inherit: bool,
    /// Flag `R`: may be revoked under overload.
    pub revocable: bool,
    /// Whose task may be irrevocable, if it is not revocable; anybody else's may be revoked all the same.
    #[serde(default)]
    pub irrevocable_for: IrrevocableFor,
    /// Keep this grant when the task executes a program, whatever that program's specification
    /// says (`steward run --cpu`).
    pub keep_over_exec: bool,
    /// The specification that this comes from: an index that the daemon chose, 0 when there is none.
    pub spec_id: u32,
}

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

/// One decision of the mechanism, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The kernel's name of the task.
    pub name: String,
    /// The CPU concerned.
    pub cpu: u32,
    /// What was decided.
    pub kind: EventKind,
    /// `max(Rload, Sload)` of that CPU at the time.
    pub load: f64,
    /// `C / T` of the task.
    pub bandwidth: f64,
    /// The threshold that the load was held against.
    pub threshold: f64,
    /// By which rule it was decided, if there is more to say than that the load leaves room.
    pub reason: Option<Reason>,
}

/// A rule of admission other than that there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Refused or revoked: the load is too high. Fractions of the CPU.
    Load,
    /// Refused: the `C / T` of that user's tasks on the CPU would be too much. Fractions of the CPU.
    User,
    /// Refused: the CPU has no place for the sum of another user. Numbers of users.
    Users,
    /// Refused: no CPU that is online is allowed to the task. Displaced: `amount` is 1 if its CPU is online, so that its
    /// affinity was the reason, otherwise 0.
    NoCpu,
    /// Not taken back: it would bring in more memory than is free. Bytes.
    Memory,
    /// Admitted, but may be revoked: the `C / T` of what is never revoked would be too much. Fractions of the CPU.
    Irrevocable,
    /// Admitted, but may be revoked: the task belongs neither to root nor to the user whom its specification names.
    NotNamed,
}

/// The rule by which a decision was made, with its amounts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule.
    pub rule: Rule,
    /// Whose task it is.
    pub uid: u32,
    /// What there was without the task, in the unit of the rule.
    pub amount: f64,
    /// The most that there may be, in the unit of the rule.
    pub limit: f64,
}

/// What a mechanism can decide about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// Taken into the interactive class.
    Admitted,
    /// Refused at admission; [`Event::reason`] has the rule.
    Refused,
    /// Refused because the table of tasks with a specification is full.
    TableFull,
    /// Revoked: overload, and it had exhausted its budget within the observation window.
    RevokedExhausted,
    /// Revoked: overload, and it was the hungriest.
    RevokedHungriest,
    /// Revoked: its CPU went offline, or is no longer allowed to it. What follows says whether another one takes it.
    RevokedDisplaced,
    /// Taken back after revocation or refusal.
    Reactivated,
    /// Has no reservation any more: it ended, executed a program without a specification, or was told so.
    Released,
}

/// The limits within which the mechanism admits and revokes (Yang 2009, section 8.1.2), and what may be declared:
/// fractions of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// `Rlo`: with every sample of the window below it, one task is reactivated.
    pub reactivate_below: f64,
    /// `Rhi`: admission keeps load plus bandwidth below it.
    pub admit_below: f64,
    /// `Rmax`: with every sample of the window above it, tasks are revoked.
    pub revoke_above: f64,
    /// The most `C / T` that tasks which are never revoked may have together; further ones may be revoked.
    pub irrevocable_max: f64,
    /// The most `C / T` that the tasks of one user, other than root and the owner, may have together.
    pub user_max: f64,
}

impl Default for Thresholds {
    /// 0.65, 0.80, 0.90. The paper gives no figures; these leave a tenth of each CPU to best-effort work
    /// even while overload is being noticed. What is never revoked may declare as much as admission lets in (0.80), and one
    /// user 0.75, so that a film of somebody else (5 ms in 30 ms) has its time whatever that user's tasks do.
    fn default() -> Self {
        Thresholds {
            reactivate_below: 0.65,
            admit_below: 0.80,
            revoke_above: 0.90,
            irrevocable_max: 0.80,
            user_max: 0.75,
        }
    }
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

/// In which order domains get what reservations of tasks leave: the best-effort layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BestEffortOrder {
    /// Virtual time at each level of the tree, with credit of a cycle for those who come back: exact, and with the cumulative
    /// service guarantee (Eclipse 1998, section 5).
    #[default]
    VirtualTime,
    /// Move-To-Rear List Scheduling as published (Eclipse 1998, section 5), for comparison.
    MtrLs,
    /// Weighted round-robin by service cycles (Eclipse 1998, section 6.2), for comparison.
    Wrr,
}

impl fmt::Display for BestEffortOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BestEffortOrder::VirtualTime => "virtual-time",
            BestEffortOrder::MtrLs => "mtr-ls",
            BestEffortOrder::Wrr => "wrr",
        })
    }
}

/// How the best-effort layer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestEffortSettings {
    /// The order among domains.
    pub order: BestEffortOrder,
    /// `T`: in which time every domain gets its fraction, in nanoseconds, 10 ms to 10 s.
    pub service_cycle_ns: u64,
    /// What runs is not preempted by an earlier domain before it has run this long, in nanoseconds, at most 10 ms.
    pub preemption_interval_ns: u64,
}

impl Default for BestEffortSettings {
    /// Virtual time with the paper's cycle of 500 ms (Eclipse 1998, section 6.2) and preemption at once.
    fn default() -> Self {
        BestEffortSettings {
            order: BestEffortOrder::VirtualTime,
            service_cycle_ns: 500_000_000,
            preemption_interval_ns: 0,
        }
    }
}

/// The number of priorities that a domain can have: 0 to 7, higher is served first.
pub const PRIORITIES: u8 = 8;
/// The priority of a domain that nobody gave one.
pub const PRIORITY_DEFAULT: u8 = 4;

/// What a domain gets from its parent, and what it keeps for its own tasks beside its children (Walfield, sections
/// 3.2 and 4.1; Eclipse 1998, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainPolicy {
    /// Order among siblings, 0 to 7: what a higher one wants, a lower one gets only by its reservation.
    pub priority: u8,
    /// Share of the unreserved rest among siblings of one priority, 1 to 10,000; `None`: the cgroup's `cpu.weight`.
    pub weight: Option<u32>,
    /// CPU reserved, as a fraction of the parent's, 0 to 1; 0: none.
    pub reserved: f64,
    /// Priority of the domain's own tasks beside its children.
    pub own_priority: u8,
    /// Weight of the domain's own tasks together, beside its children; `None`: the sum of their own weights (100 for
    /// a task of nice 0), as the kernel's default scheduler has it.
    pub own_weight: Option<u32>,
}

impl Default for DomainPolicy {
    fn default() -> Self {
        DomainPolicy {
            priority: PRIORITY_DEFAULT,
            weight: None,
            reserved: 0.0,
            own_priority: PRIORITY_DEFAULT,
            own_weight: None,
        }
    }
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
    /// Time that its own tasks have waited as best-effort, summed over tasks, in nanoseconds, for ever. A wait counts once
    /// it is over.
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

    /// Suspends the domain of this cgroup, whose path has no leading slash, with all below it, or lets it go on.
    /// What its tasks have reserved for themselves they get all the same. Doing it twice changes nothing.
    ///
    /// # Errors
    /// [`MechanismError::NoSuchDomain`], [`MechanismError::Kernel`], [`MechanismError::Unsupported`].
    fn suspend_domain(&mut self, cgroup_id: u64, path: &str, suspended: bool) -> Result<(), MechanismError> {
        let _ = (cgroup_id, path, suspended);
        Err(MechanismError::Unsupported { what: "suspending domains", by: self.kind() })
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

    /// How many cgroups have no domain of their own at the moment, because there are too many: each is part of the one above it.
    fn cgroups_without_domain(&self) -> u64 {
        0
    }

    /// Hands over the decisions taken since the last call, oldest first, and how many were lost because nobody
    /// read them in time.
    fn take_events(&mut self, sink: &mut dyn FnMut(Event)) -> u64;

    /// A file descriptor that becomes readable when events wait, where there is one.
    fn event_descriptor(&self) -> Option<std::os::fd::RawFd>;

    /// `None` while in force; otherwise why it no longer is.
    fn exit_reason(&self) -> Option<String>;
}
