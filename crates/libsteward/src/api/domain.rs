//! Domains: what can be asked for them, what they have, and what their processes complain of.

use serde::{Deserialize, Serialize};

use super::cpu::BestEffort;
use super::disk::{DiskMinute, DomainDisk, IoClass};
use super::event::Event;
use super::memory::{Activity, DomainMemory};
use super::method::Method;

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
    pub cpu_reservable: Option<f64>,
    /// Memory promised, in bytes: what it uses up to this is not taken from it. Paid out of what its parent is
    /// promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_min: Option<i64>,
    /// The most memory that it may use, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<i64>,
    /// Protected: for how long one of its pages may go unused before it may be taken, in nanoseconds, 1 second to 24
    /// hours (30 minutes are usual).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<i64>,
    /// How soon its disk requests are served; as those of the domain above unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoClass>,
    /// Disk time reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<f64>,
    /// The most that it may read, and write, of each disk, in bytes a second; 1 MiB at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_max_bytes: Option<i64>,
    /// The same in requests a second; 16 at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_max_requests: Option<i64>,
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
    /// Whether it comes after all of them for now, whatever its priority ([`LowerDomain`](super::LowerDomain)).
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
    pub cpu_reservable: f64,
    /// What it is guaranteed with all below it, as a fraction of the machine: what is reserved for it, and its weight's
    /// part of the rest where no tasks of its parent's own, which weigh as much as there are, stand beside it.
    pub cpu_guaranteed: f64,
    /// Memory promised, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_min: Option<u64>,
    /// The most memory that it may use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
    /// For how long one of its pages may go unused before it may be taken, in nanoseconds; `None`: it is not protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protect: Option<u64>,
    /// What its children are promised together, in bytes.
    pub memory_min_sum: u64,
    /// The most that its children may be promised together, in bytes.
    pub memory_reservable: u64,
    /// What it uses; `None` where the kernel does not count it, because the cgroup above hands no memory out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<DomainMemory>,
    /// Whether it is in use; `None` where it is not protected, or that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// How soon its disk requests are served, where that was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoClass>,
    /// Disk time reserved, as a fraction of the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<f64>,
    /// The most that it may read, and write, of each disk, in bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_max_bytes: Option<u64>,
    /// The same in requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_max_requests: Option<u64>,
    /// What it had of the disks; `None` where the kernel does not count it, because the cgroup above does not hand the
    /// disk out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_use: Option<DomainDisk>,
    /// What it and all below it have changed in files that is not on the disk yet, in bytes; `None` where that is not
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_dirty: Option<u64>,
    /// What disk requests of it and all below it took in the last minute; `None` while there were none, or nobody
    /// counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_minute: Option<DiskMinute>,
    /// What its children have reserved together.
    pub disk_sum: f64,
    /// The most that its children may reserve together.
    pub disk_reservable: f64,
    /// What its processes complained of so far with [`Complain`], as a sum.
    pub complaints: u64,
    /// What the scheduler counts for it, where it knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DomainUsage>,
    /// Why its settings are not in force, where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
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
    /// How much of its memory stays charged to where it was, in bytes: the domain neither keeps nor limits that. Absent
    /// where that is nothing, or cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_bytes: Option<u64>,
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
