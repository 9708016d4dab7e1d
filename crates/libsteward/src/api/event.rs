//! Decisions, with the figures that they were made with.

use serde::{Deserialize, Serialize};

/// What was decided about a task.
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
    /// No CPU that is online is allowed.
    NoCpu,
    /// It would bring in more memory than is free. Bytes.
    Memory,
    /// Admitted, and may be revoked: what is never revoked declares too much. Fractions of the CPU.
    Irrevocable,
    /// Admitted, and may be revoked: it is neither root's nor the named user's.
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

/// One decision, with the figures that it was made with.
///
/// One about a domain has its name in `name`, and in `tid` and `pid` the process that asked (0: nobody did).
/// `bandwidth` is then the fraction that the domain has reserved or asked for, `load` what its level had reserved
/// beside it, and `threshold` the most that the level may reserve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds.
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
    /// The CPU's load at the time.
    pub load: f64,
    /// The task's bandwidth.
    pub bandwidth: f64,
    /// The threshold that the load was held against.
    pub threshold: f64,
    /// By which rule it was decided, if there is more to say than that there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same in a sentence.
    pub text: String,
}
