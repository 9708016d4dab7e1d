//! The CPU: reservations of tasks, what becomes of them, and who enforces them.

pub mod forecast;

use serde::{Deserialize, Serialize};

use super::disk::DiskWait;
use super::event::Event;
use super::method::Method;

/// `budget_ns` of CPU time in every `period_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// CPU time per period, in nanoseconds.
    pub budget_ns: u64,
    /// Length of a period, in nanoseconds.
    pub period_ns: u64,
}

/// Where a task that has a specification stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Its reservation is in force.
    Admitted,
    /// Refused at admission; best-effort until there is room.
    Refused,
    /// Put out under overload; best-effort until there is room.
    Revoked,
}

/// What a task was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The promised CPU time.
    pub reservation: Reservation,
    /// Children that do not have a specification of their own get it too.
    pub inherit: bool,
    /// May be revoked under overload.
    pub revocable: bool,
    /// The specification that it comes from; `None` when it was given by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
}

/// A task that has a specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The kernel's name of the task.
    pub name: String,
    /// The CPU that its reservation is on.
    pub cpu: u32,
    /// Where it stands.
    pub standing: Standing,
    /// What it was given.
    pub grant: Grant,
    /// What is left of this period's budget, in nanoseconds; negative when overrun.
    pub budget_left_ns: i64,
    /// End of the current period, in nanoseconds.
    pub deadline_ns: u64,
    /// Periods begun since admission.
    pub periods: u64,
    /// Periods that ended with budget still owed.
    pub deadlines_missed: u64,
    /// Periods whose budget was used up before they ended.
    pub budgets_exhausted: u64,
    /// CPU time received out of the reservation, in nanoseconds.
    pub reserved_time_ns: u64,
    /// CPU time received as best-effort, in nanoseconds.
    pub best_effort_time_ns: u64,
    /// The longest overrun of a budget, in nanoseconds.
    pub overrun_max_ns: u64,
    /// What its process complained of so far with [`Complain`](super::Complain), as a sum.
    #[serde(default)]
    pub complaints: u64,
}

/// The load of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// The CPU's number.
    pub cpu: u32,
    /// Whether it is online.
    pub online: bool,
    /// Decayed average of what interactive tasks used.
    pub measured_load: f64,
    /// Fraction that real-time tasks (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE) took lately, before all reservations; an
    /// older daemon does not say.
    #[serde(default)]
    pub real_time: f64,
    /// What is expected from the specifications.
    pub projected_load: f64,
    /// The last four samples of the measured load, latest first.
    pub window: Vec<f64>,
    /// Sum of the bandwidths admitted here.
    pub reserved: f64,
    /// How many tasks are admitted here.
    pub admitted: u32,
}

/// The limits within which tasks are admitted and revoked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// With the whole window below it, one task is reactivated.
    pub reactivate_below: f64,
    /// Admission keeps the load below it.
    pub admit_below: f64,
    /// With the whole window above it, tasks are revoked.
    pub revoke_above: f64,
}

/// Which mechanism enforces reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MechanismKind {
    /// Steward's own scheduler.
    SchedExt,
    /// The kernel's SCHED_DEADLINE.
    Deadline,
    /// Nice values alone, after ejections: nothing is reserved.
    Nice,
}

/// What is known of the mechanism.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MechanismState {
    /// The one in force; `None` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MechanismKind>,
    /// Why it is not the one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<String>,
    /// How often it was loaded again since the daemon started.
    pub restarts: u64,
}

/// The CPUs, what enforces reservations of them, and who has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuState {
    /// What enforces reservations.
    pub mechanism: MechanismState,
    /// The limits of admission.
    pub thresholds: Thresholds,
    /// All CPUs.
    pub cpus: Vec<Cpu>,
    /// All tasks that have a specification.
    pub tasks: Vec<Task>,
}

/// Gives a running process a reservation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The process, or one of its threads: then that thread alone.
    pub pid: i32,
    /// What it gets.
    pub cpu: Reservation,
    /// All threads and their children, not only the main thread; no unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherit: Option<bool>,
    /// May be revoked under overload; yes unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocable: Option<bool>,
    /// Without room, be best-effort until there is some, instead of
    /// [`AdmissionRefused`](super::ApiError::AdmissionRefused).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_if_refused: Option<bool>,
    /// Where, in its own memory, the thread changes a number of 32 bits when it begins with another request of a
    /// server: the scheduler reads it there, and begins a fresh period if that is within the reservation. Without
    /// `inherit` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_at: Option<u64>,
}
method!(Set, "io.steward.Set", Standings);

/// Where the task stands now; `None` where that is decided later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standings {
    /// The standing of the process' main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// Whether the scheduler reads the thread's requests at [`Set::requests_at`](super::Set::requests_at), where that
    /// was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_requests: Option<bool>,
}

/// Makes a running process best-effort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The process, with all its threads; or one of its threads alone.
    pub pid: i32,
}
method!(Release, "io.steward.Release", Released);

/// What [`Release`] did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Released {
    /// How many threads had a reservation.
    pub released: u64,
}

/// Why a process has what it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The process, or one of its threads.
    pub pid: i32,
}
method!(Explain, "io.steward.Explain", Explanation);

/// What [`Explain`] returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The explanation, in sentences.
    pub text: String,
    /// Its latest waits for the disk of more than 50 ms, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disk_waits: Vec<DiskWait>,
    /// Its tasks that have a specification.
    pub tasks: Vec<Task>,
    /// Its latest decisions, oldest first.
    pub events: Vec<Event>,
}

/// How the best-effort layer works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BestEffort {
    /// The order among domains: `virtual-time`, `mtr-ls` or `wrr`.
    pub order: String,
    /// In which time every domain gets its fraction, in nanoseconds.
    pub service_cycle_ns: u64,
    /// What runs is not preempted before it has run this long, in nanoseconds.
    pub preemption_interval_ns: u64,
}
