//! The disk: how soon requests are served, and what domains had of it.

use serde::{Deserialize, Serialize};

/// How soon the disk requests of a domain, or of a program, are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoClass {
    /// Before all others.
    Interactive,
    /// As the kernel does by default.
    #[default]
    Normal,
    /// When nobody else wants the disk, but for a tenth of what a usual domain has.
    Background,
}

/// What a domain with all below it has had of all disks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainDisk {
    /// Read, in bytes.
    pub read: u64,
    /// Written, in bytes.
    pub written: u64,
    /// Requests that were made.
    pub requests: u64,
    /// How long the disks were busy for it, in nanoseconds; `None` where no disk has io.cost, which alone counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_time_ns: Option<u64>,
    /// For how long at least one of its tasks stood still for want of a disk, in nanoseconds.
    pub stalled_ns: u64,
}

impl IoClass {
    /// All of them, the first first.
    pub const ALL: [IoClass; 3] = [IoClass::Interactive, IoClass::Normal, IoClass::Background];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            IoClass::Interactive => "interactive",
            IoClass::Normal => "normal",
            IoClass::Background => "background",
        }
    }
}
