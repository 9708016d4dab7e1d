//! Decisions, with the figures that they were made with.

use serde::{Deserialize, Serialize};

/// What was decided about a task or a domain, or happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Taken into the interactive class.
    Admitted,
    /// No room.
    Refused,
    /// The table of tasks is full.
    TableFull,
    /// Overload, and it had used up its budget.
    RevokedExhausted,
    /// Overload, and it was the hungriest.
    RevokedHungriest,
    /// Its CPU went offline or is no longer allowed.
    RevokedDisplaced,
    /// Taken back.
    Reactivated,
    /// Has no reservation any more.
    Released,
    /// A domain was made.
    DomainCreated,
    /// A domain has other settings now.
    DomainChanged,
    /// A reservation of a domain was refused: there is not that much left.
    DomainRefused,
    /// A domain was removed, by request or because its last process ended.
    DomainRemoved,
    /// A domain's cgroup was removed by somebody else.
    DomainVanished,
    /// A domain's memory is not protected for now, because not all fits.
    MemoryDemoted,
    /// It is protected again.
    MemoryProtected,
    /// No domain's memory is protected for now: too little is left that could be taken from others.
    MemoryShort,
    /// There is enough again.
    MemoryEnough,
    /// Memory was taken from a domain for those that are protected.
    MemoryTaken,
    /// A domain that is promised memory stood still for want of it.
    MemoryStalled,
}

/// A rule of admission other than that there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The load is too high. Fractions of the CPU.
    Load,
    /// The tasks of that user declare too much. Fractions of the CPU.
    User,
    /// There is no room for another user. Numbers of users.
    Users,
    /// The tasks of all users who are limited declare too much together. Fractions of the CPU.
    Together,
    /// Revoked: those of its user declared more than the part that is each one's, and another user's task came.
    /// Fractions of the CPU.
    Part,
    /// No CPU that is online is allowed.
    NoCpu,
    /// It would bring in more memory than is free. Bytes.
    Memory,
    /// Admitted, and may be revoked: what is never revoked declares too much. Fractions of the CPU.
    Irrevocable,
    /// Admitted, and may be revoked: it is neither root's nor the named user's.
    NotNamed,
    /// SCHED_DEADLINE has no reservation for a thread of the kernel, nor for a task that may not run on every CPU; the
    /// amount is the nice value that it has instead.
    Confined,
    /// It has a real-time policy of its own.
    OwnPolicy,
    /// The kernel has promised all that it may under SCHED_DEADLINE.
    KernelFull,
    /// It sleeps on a CPU that is offline.
    Away,
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

/// The task that a decision is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTask {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The kernel's name of the task.
    pub name: String,
}

/// The domain that a decision is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDomain {
    /// Its name.
    pub name: String,
    /// The process that asked for it; 0: nobody did.
    pub asked_by: i32,
    /// The domain that brought it about, where one did: of a promise of memory that was broken, who took the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// With which figures of the CPU a decision was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuFigures {
    /// The CPU concerned, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The CPU's load; of a domain, the fraction that its level had reserved beside it.
    pub load: f64,
    /// The task's bandwidth; of a domain, the fraction that it has reserved or asked for.
    pub bandwidth: f64,
    /// The threshold that the load was held against; of a domain, the most that its level may reserve.
    pub threshold: f64,
}

/// With which figures of memory a decision was made, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// What the domain's level was promised beside it; of one that is demoted or protected again, what others that are
    /// protected keep; of one from which memory was taken, what it still uses.
    pub beside: u64,
    /// What it is promised or asked for; of one that is demoted or protected again, what it needs; otherwise what was
    /// taken: from it, or by who brought it about.
    pub asked: u64,
    /// The most that its level may be promised, or that all that are protected may keep.
    pub limit: u64,
    /// For how long tasks of it stood still, in nanoseconds, where they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_ns: Option<u64>,
}

/// One decision: about a task or a domain, with the figures of the resources that it was made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// What was decided.
    pub kind: EventKind,
    /// The task that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<EventTask>,
    /// The domain that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<EventDomain>,
    /// The figures of the CPU, if it is about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuFigures>,
    /// The figures of memory, if it is about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryFigures>,
    /// By which rule it was decided, if there is more to say than that there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same in a sentence.
    pub text: String,
}

impl Event {
    /// The process that it is about.
    pub fn pid(&self) -> Option<i32> {
        self.task.as_ref().map(|task| task.pid)
    }
}
