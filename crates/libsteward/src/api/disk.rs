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

/// A disk that was calibrated, and what is made of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibratedDisk {
    /// What the kernel calls it.
    pub name: String,
    /// By what it is known again under another name.
    pub identity: String,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// Whether domains are charged for its requests by that now.
    pub charged: bool,
    /// What makes classes and fractions count on it, or why nothing does.
    pub text: String,
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

/// What disk requests of a domain with all below it took in the last minute, from when they were handed on to when they
/// were done. Of disks that stand for others (device-mapper, md, loop) those below count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskMinute {
    /// For how long it was looked, in nanoseconds: less than a minute where it is only counted since.
    pub seen_ns: u64,
    /// How many were done.
    pub requests: u64,
    /// For how long disks were at work for them, in nanoseconds: from when each was given to the disk until it was
    /// done, each moment divided among all that the disk had then.
    pub device_time_ns: u64,
    /// Half of them were done within so many nanoseconds (a quarter more at most).
    pub median_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// All of them.
    pub max_ns: u64,
}

/// Where somebody waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskWaitReason {
    /// What it waits for stands behind requests of others.
    #[default]
    Queue,
    /// Too much that was changed in files is not on the disk yet.
    DirtyLimit,
    /// The journal is written for others who bring something to the disk as well.
    Journal,
}

/// Somebody who had time of the disk while another one waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskHolder {
    /// Its domain's name; nothing for all that the caller may not see, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// What the program is called; nothing where pages were written that programs of the domain had changed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// For how long the disk was at work for it, in nanoseconds, with its part of the journal.
    pub device_time_ns: u64,
}

/// A wait of a thread in fsync and its like, or because too much was not written yet, for more than 50 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskWait {
    /// The process.
    pub pid: i32,
    /// What the thread is called.
    pub name: String,
    /// Whether it still waits.
    pub goes_on: bool,
    /// When it was over, or was looked at, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// For how long it had waited then, in nanoseconds.
    pub waited_ns: u64,
    /// For how long of that for the journal.
    pub journal_ns: u64,
    /// For how long of that because too much was not written yet.
    pub dirty_ns: u64,
    /// Where it waited.
    pub reason: DiskWaitReason,
    /// For how long the disk was at work for itself meanwhile, in nanoseconds.
    pub own_time_ns: u64,
    /// For whom else, who had most first.
    pub by: Vec<DiskHolder>,
}

impl DiskWaitReason {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            DiskWaitReason::Queue => "queue",
            DiskWaitReason::DirtyLimit => "dirty limit",
            DiskWaitReason::Journal => "journal",
        }
    }
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
