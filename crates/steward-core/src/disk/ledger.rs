//! What disks did for whom, and who waits for them, as a program in the kernel counts and notes it
//! (`crates/steward-waits/src/bpf/ledger.bpf.c`). Moments are in nanoseconds of `CLOCK_MONOTONIC`.

use super::latency::Histogram;

/// Who waits for less is not noted, in nanoseconds: from there on people notice it (Yang 2009, chapter 1).
pub const LONG_NS: u64 = 50_000_000;

/// What a request was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Whose it is.
    #[default]
    Own,
    /// A file system's journal, which all share.
    Journal,
    /// Data that the journal has written before it commits; it is of whoever has changed it.
    ForCommit,
}

/// What is counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// The disk's number: the minor in the lower 20 bits, the major above.
    pub disk: u32,
    /// What for.
    pub kind: Kind,
}

/// What was counted since it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// For how long disks were at work for it, in nanoseconds: from when a request was given to the disk until it was
    /// done, each moment divided evenly among all that the disk had then.
    pub device_ns: u64,
    /// From when they were handed on to when they were done.
    pub latencies: Histogram,
    /// The longest of these since the last reading, in nanoseconds.
    pub max_ns: u64,
}

/// Something that a disk did, or a commit that somebody waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// When it was done.
    pub at_ns: u64,
    /// For whom.
    pub cgroup_id: u64,
    /// Which disk, as in [`Key::disk`]; nothing that matters for a commit.
    pub disk: u32,
    /// The process that asked for it last; 0 for threads of the kernel.
    pub pid: i32,
    /// What that is called, as the kernel calls the thread.
    pub name: String,
    /// How long the disk was at work, in nanoseconds; 0 for a commit.
    pub device_ns: u64,
    /// What it was.
    pub what: Work,
}

/// What a disk did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Requests.
    Requests(Kind),
    /// Nothing: somebody waited for a commit of the journal, and it came. Of 64 in a cgroup at most for each commit.
    Committed,
}

impl Default for Work {
    fn default() -> Self {
        Work::Requests(Kind::Own)
    }
}

/// Somebody who waits in fsync, or because too much is not written yet; or has waited for longer than [`LONG_NS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Since when.
    pub began_ns: u64,
    /// Until when; until it was read, where it goes on.
    pub ended_ns: u64,
    /// Whether it goes on.
    pub goes_on: bool,
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// The disk that it has handed something on to last; `None` where it has not.
    pub disk: Option<u32>,
    /// The process.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// What the thread is called.
    pub name: String,
    /// For how long it has waited for the journal, in nanoseconds.
    pub journal_ns: u64,
    /// For how long of that until the commit began that it waits for: others' came first.
    pub others_commit_ns: u64,
    /// For how long it was held back because too many pages were not written yet, in nanoseconds.
    pub dirty_ns: u64,
}

impl Wait {
    /// How long it has lasted, in nanoseconds.
    pub fn waited_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.began_ns)
    }
}

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When it was read.
    pub at_ns: u64,
    /// What was counted since the program is there.
    pub accounts: Vec<(Key, Account)>,
    /// What disks did since the last reading, oldest first. It goes back 3 seconds on a disk that is busy all the time.
    pub served: Vec<Served>,
    /// How many of these were gone before they were read.
    pub served_missed: u64,
    /// Who waits, and who has waited since the last reading for longer than [`LONG_NS`].
    pub waits: Vec<Wait>,
    /// How many requests there was no room to count since the program is there.
    pub requests_missed: u64,
    /// How many waits.
    pub waits_missed: u64,
}
