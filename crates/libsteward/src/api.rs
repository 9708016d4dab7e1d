//! The interface `io.steward` as types: what each method takes and returns.
//!
//! These are the daemon's promise to programs in other languages and of other versions, so they are kept apart
//! from the daemon's own types. Times are in nanoseconds, moments are of `CLOCK_MONOTONIC`, loads and
//! bandwidths are fractions of one CPU. A parameter that the daemon does not know is an error, so that a newer
//! client is never half obeyed by an older daemon.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use error::ApiError;
pub use event::{Event, EventKind, Reason, Rule};
pub use forecast::*;

/// The interface's name.
pub const INTERFACE: &str = "io.steward";

/// A method of the interface: a type that holds its parameters, with the type of what it returns.
pub trait Method: Serialize + DeserializeOwned {
    /// The full name, `io.steward.Status`.
    const NAME: &'static str;
    /// What it returns.
    type Reply: Serialize + DeserializeOwned;
}

/// Declares that a type of parameters is a method with that name and reply.
macro_rules! method {
    ($parameters:ty, $name:literal, $reply:ty) => {
        impl Method for $parameters {
            const NAME: &'static str = $name;
            type Reply = $reply;
        }
    };
}

mod error;
mod event;
mod forecast;

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
    /// What its process complained of so far with [`Complain`], as a sum.
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
    /// Fraction that real-time tasks (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE) took lately, before all reservations; an older daemon
    /// does not say.
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

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nothing is lost.
    Note,
    /// What it concerns is not in force.
    Error,
}

/// Something that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The file in which it was written.
    pub file: String,
    /// The line in that file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, and what to do.
    pub message: String,
}

/// A specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The executable's path, or `[comm]` for a kernel thread.
    pub name: String,
    /// What it gives; `None` when it says best-effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// The file in which it was written.
    pub file: String,
    /// The line in that file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Whether the executable exists, so that the specification is in force.
    pub resolved: bool,
}

/// For the calling process, which is about to execute a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// The reservation, kept over exec. Without it the process may take up the specification of the next
    /// program that it executes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Reservation>,
    /// Children get it too; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherit: Option<bool>,
    /// May be revoked under overload; yes unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revocable: Option<bool>,
    /// Without room, be best-effort until there is some, instead of [`ApiError::AdmissionRefused`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_if_refused: Option<bool>,
    /// Move to this domain first. With it and without `cpu` the process gets nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}
method!(Run, "io.steward.Run", Standings);

/// Where the task stands now; `None` where that is decided later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standings {
    /// The standing of the process' main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
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
    /// Without room, be best-effort until there is some, instead of [`ApiError::AdmissionRefused`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_if_refused: Option<bool>,
}
method!(Set, "io.steward.Set", Standings);

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

/// Everything, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {}
method!(Status, "io.steward.Status", StatusReply);

/// What [`Status`] returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReply {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub pid: i32,
    /// What enforces reservations.
    pub mechanism: MechanismState,
    /// The limits of admission.
    pub thresholds: Thresholds,
    /// The user beside root who may reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How many specifications are loaded.
    pub specs: u64,
    /// Decisions that could not be recorded because they came too fast.
    pub events_lost: u64,
    /// All CPUs.
    pub cpus: Vec<Cpu>,
    /// All tasks that have a specification.
    pub tasks: Vec<Task>,
    /// What was left out.
    pub problems: Vec<Problem>,
}

/// The specifications in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSpecs {}
method!(ListSpecs, "io.steward.ListSpecs", SpecList);

/// What [`ListSpecs`] returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpecList {
    /// All that were read without a problem.
    pub specs: Vec<Spec>,
    /// What was left out.
    pub problems: Vec<Problem>,
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
    /// Its tasks that have a specification.
    pub tasks: Vec<Task>,
    /// Its latest decisions, oldest first.
    pub events: Vec<Event>,
}

/// Reads configuration and specifications again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reload {}
method!(Reload, "io.steward.Reload", Reloaded);

/// What [`Reload`] did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reloaded {
    /// How many specifications are loaded now.
    pub specs: u64,
    /// How many running tasks got something new.
    pub assigned: u64,
    /// How many running tasks lost what they had.
    pub released: u64,
    /// What was left out.
    pub problems: Vec<Problem>,
}

/// The latest decisions that the daemon remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListEvents {}
method!(ListEvents, "io.steward.ListEvents", EventList);

/// What [`ListEvents`] returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventList {
    /// The decisions, oldest first.
    pub events: Vec<Event>,
    /// How many were lost since the daemon started because they came too fast.
    pub lost: u64,
}

/// A stream of decisions; call it with "more".
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Monitor {
    /// First those that the daemon still remembers; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<bool>,
}
method!(Monitor, "io.steward.Monitor", Monitored);

/// One reply to [`Monitor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Monitored {
    /// The decision.
    pub event: Event,
    /// How many were lost before it because the caller did not keep up.
    pub lost: u64,
}

/// What can be asked for a domain. All fractions are of what its parent has, above 0 and at most 1; a domain that
/// Steward made at the top has the machine for its parent. What is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DomainSettings {
    /// Order among siblings, 0 to 7, 4 unless set: what a higher one wants, a lower one gets only by its reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Share of the unreserved rest among siblings of one priority, 1 to 10,000; the cgroup's `cpu.weight` unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
    /// Priority of the domain's own tasks beside its children, 0 to 7, 4 unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_priority: Option<i64>,
    /// Weight of the domain's own tasks beside its children, 1 to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_weight: Option<i64>,
    /// CPU reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// The most that the children may reserve together, as a fraction of this domain's own CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// Memory reserved, in bytes. Kept and shown; not enforced yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<i64>,
    /// Disk time reserved. Kept and shown; not enforced yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<f64>,
    /// Names of settings that get their default again; done before the others are set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reset: Vec<String>,
}

/// A domain: a cgroup, with what it was given and what it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// What it is called: a plain name for one that Steward made, the cgroup's path for every other, `/` for the root.
    pub name: String,
    /// The cgroup's path from the root of the cgroup tree, with a leading slash.
    pub path: String,
    /// The cgroup's id: the inode number of its directory.
    pub cgroup_id: u64,
    /// The name of the domain that pays for it; `None` for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Whether Steward made it.
    pub made: bool,
    /// Whether it stays when its last process has gone.
    pub keep: bool,
    /// The user it belongs to.
    pub user: u32,
    /// Order among siblings.
    pub priority: u8,
    /// Whether it comes after all of them for now, whatever its priority ([`LowerDomain`]).
    #[serde(default)]
    pub lowered: bool,
    /// The weight in force.
    pub weight: u32,
    /// Priority of its own tasks.
    pub own_priority: u8,
    /// Weight of its own tasks, where it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_weight: Option<u32>,
    /// CPU reserved, as a fraction of the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// What its children have reserved together, as a fraction of its own.
    pub cpu_sum: f64,
    /// The most that its children may reserve together.
    pub cpu_limit: f64,
    /// What it is guaranteed with all below it, as a fraction of the machine: what is reserved for it, and its weight's part of the rest where
    /// no tasks of its parent's own, which weigh as much as there are, stand beside it.
    pub cpu_guaranteed: f64,
    /// Memory reserved, in bytes. Not enforced yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// What its children have reserved together, in bytes.
    pub memory_sum: u64,
    /// Disk time reserved, as a fraction of the parent's. Not enforced yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<f64>,
    /// What its children have reserved together.
    pub disk_sum: f64,
    /// The most that its children may reserve together.
    pub disk_limit: f64,
    /// What its processes complained of so far with [`Complain`], as a sum.
    pub complaints: u64,
    /// What the scheduler counts for it, where it knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DomainUsage>,
    /// Why its settings are not in force, where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// What the scheduler counts for the tasks of a domain itself, without those of its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainUsage {
    /// The fraction of all CPU time that they are due, given what is runnable now.
    pub share: f64,
    /// CPU time as best-effort, in nanoseconds.
    pub best_effort_time_ns: u64,
    /// CPU time out of reservations of their own, in nanoseconds.
    pub reserved_time_ns: u64,
    /// Time that some waited while none ran, in nanoseconds.
    pub waiting_time_ns: u64,
    /// How many there are.
    pub tasks: u32,
    /// How many can run.
    pub runnable: u32,
    /// Whether `cpu.max` holds the domain back now.
    pub throttled: bool,
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

/// All domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListDomains {}
method!(ListDomains, "io.steward.ListDomains", DomainList);

/// What [`ListDomains`] returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainList {
    /// The domains, parents before children.
    pub domains: Vec<Domain>,
    /// The order among them.
    pub best_effort: BestEffort,
}

/// One domain: by name, or that of a process, or with neither that of the caller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShowDomain {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// A process in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
}
method!(ShowDomain, "io.steward.ShowDomain", DomainShown);

/// What [`ShowDomain`] returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainShown {
    /// The domain.
    pub domain: Domain,
    /// Its own processes.
    pub processes: Vec<i32>,
}

/// Makes a domain, which belongs to the caller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CreateDomain {
    /// What it is to be called: `batch`, or `web/front` below a domain `web` that Steward made.
    pub domain: String,
    /// What it gets.
    pub settings: DomainSettings,
    /// The user it is to belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Let it stay when its last process has gone; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}
method!(CreateDomain, "io.steward.CreateDomain", DomainState);

/// A domain after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainState {
    /// The domain.
    pub domain: Domain,
}

/// Changes what a domain has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetDomain {
    /// Its name.
    pub domain: String,
    /// What to change.
    pub settings: DomainSettings,
    /// The user it is to belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Whether it is to stay when its last process has gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}
method!(SetDomain, "io.steward.SetDomain", DomainState);

/// Removes a domain that Steward made, with all below it; takes the settings from any other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoveDomain {
    /// Its name.
    pub domain: String,
    /// End the processes in it instead of moving them to its parent; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill: Option<bool>,
}
method!(RemoveDomain, "io.steward.RemoveDomain", DomainRemoved);

/// What [`RemoveDomain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainRemoved {
    /// How many domains are gone.
    pub removed: u64,
    /// How many processes were moved to the parent.
    pub moved: u64,
}

/// Moves a process with all its threads to a domain that Steward made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MoveProcess {
    /// The process; the caller unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The domain.
    pub domain: String,
}
method!(MoveProcess, "io.steward.MoveProcess", Moved);

/// What [`MoveProcess`] did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// The domain that it was in.
    pub from: String,
    /// The domain that it is in.
    pub domain: String,
}

/// A stream of changes among domains; call it with "more".
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchDomains {
    /// First every domain that there is; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}
method!(WatchDomains, "io.steward.WatchDomains", DomainWatched);

/// One reply to [`WatchDomains`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainWatched {
    /// What changed; `None` for a domain that was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    /// The domain as it is now; `None` once it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// How many were lost before it because the caller did not keep up.
    pub lost: u64,
}

/// A complaint of the calling process about itself: it was too late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Complain {
    /// How often since the last complaint: frames, deadlines, requests.
    pub missed: u64,
    /// Of what, for the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}
method!(Complain, "io.steward.Complain", Complaints);

/// What [`Complain`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Complaints {
    /// What the process complained of so far, as a sum.
    pub complaints: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_and_error_is_in_the_interface_description() {
        let description = crate::INTERFACE_DESCRIPTION;
        for name in [
            Run::NAME,
            Set::NAME,
            Release::NAME,
            Status::NAME,
            ListSpecs::NAME,
            Explain::NAME,
            Reload::NAME,
            ListEvents::NAME,
            Monitor::NAME,
            ListDomains::NAME,
            ShowDomain::NAME,
            CreateDomain::NAME,
            SetDomain::NAME,
            RemoveDomain::NAME,
            MoveProcess::NAME,
            WatchDomains::NAME,
            Complain::NAME,
            ListForecasts::NAME,
            WatchForecasts::NAME,
            SuspendDomain::NAME,
            LowerDomain::NAME,
            AuditDomain::NAME,
        ] {
            let short = name.rsplit('.').next().unwrap();
            assert!(description.contains(&format!("method {short}(")), "{short}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_an_error() {
        assert!(serde_json::from_str::<Run>(r#"{"cpus":{}}"#).is_err());
        assert_eq!(serde_json::from_str::<Run>("{}").unwrap(), Run::default());
    }
}
