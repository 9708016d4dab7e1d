//! Decisions about tasks, with their reasons.

use serde::{Deserialize, Serialize};

/// One decision of the mechanism, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The user whose task it is; `None` where that is not known.
    #[serde(default)]
    pub user: Option<u32>,
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
    /// Refused: the `C / T` of the tasks of all users who are limited would be too much on the CPU. Fractions of it.
    Together,
    /// Displaced: those of its user had more than the part that is each one's, and another user's task came. Fractions
    /// of the CPU.
    Part,
    /// Refused: no CPU that is online is allowed to the task. Displaced: `amount` is 1 if its CPU is online, so that
    /// its affinity was the reason, otherwise 0.
    NoCpu,
    /// Not taken back: it would bring in more memory than is free. Bytes.
    Memory,
    /// Admitted, but may be revoked: the `C / T` of what is never revoked would be too much. Fractions of the CPU.
    Irrevocable,
    /// Admitted, but may be revoked: the task belongs neither to root nor to the user whom its specification names.
    NotNamed,
    /// Refused: SCHED_DEADLINE has no reservation for a thread of the kernel, nor for a task that may not run on every
    /// CPU. `amount` is the nice value that it has instead.
    Confined,
    /// Refused: it has a real-time policy of its own, which SCHED_DEADLINE would take the place of.
    OwnPolicy,
    /// Refused: the kernel has promised all that it may under SCHED_DEADLINE.
    KernelFull,
    /// Refused: it sleeps on a CPU that is offline, where SCHED_DEADLINE can promise nothing.
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
    /// Revoked: its CPU went offline, or is no longer allowed to it, and what follows says whether another one takes
    /// it; or its user had more than a part of what users may have together, and another user's task came.
    RevokedDisplaced,
    /// Taken back after revocation or refusal.
    Reactivated,
    /// Has no reservation any more: it ended, executed a program without a specification, or was told so.
    Released,
}
