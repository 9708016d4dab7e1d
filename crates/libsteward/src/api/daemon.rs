//! The daemon: what it has read, what it says, and what it decided.

use serde::{Deserialize, Serialize};

use super::cpu::{CpuState, Grant};
use super::disk::CalibratedDisk;
use super::event::Event;
use super::memory::MemoryState;
use super::method::Method;

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
    /// The user beside root who may reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How many specifications are loaded.
    pub specs: u64,
    /// Decisions that could not be recorded because they came too fast.
    pub events_lost: u64,
    /// The CPUs, and who has reservations of them.
    pub cpu: CpuState,
    /// The memory.
    pub memory: MemoryState,
    /// The disks that were calibrated; none from a daemon that knows of no such.
    #[serde(default)]
    pub disks: Vec<CalibratedDisk>,
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
