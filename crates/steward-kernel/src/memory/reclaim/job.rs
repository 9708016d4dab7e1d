//! What is to be taken, and what became of it.

use std::time::Duration;

use crate::error::KernelError;

/// What is to be taken, and from whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimJob {
    /// From the root of the hierarchy.
    pub cgroup: String,
    /// The cgroup's id: nothing is taken from another one under its name.
    pub id: u64,
    /// How much, in bytes.
    pub bytes: u64,
    /// How much rather anonymous memory than files is taken: 0 (files alone) to 200; `None` for the machine's own
    /// value. Before Linux 6.9 any other value is an error (`EINVAL`).
    pub swappiness: Option<u32>,
    /// Take only what lay idle for so long when it was last aged, in nanoseconds, and is not in use again; `None` for
    /// whatever the kernel chooses. Nothing is idle where there are no page ages ([`crate::memory::ages`]).
    pub idle_ns: Option<u64>,
}

/// How a job ended.
#[derive(Debug)]
pub enum End {
    /// All was taken.
    Done,
    /// The kernel found no more that it could take (`EAGAIN`). Of the last piece a part may have been taken, which it
    /// does not tell.
    NothingToBeHad,
    /// Somebody cancelled it.
    Cancelled,
    /// The cgroup has gone, or another one has its name.
    Gone,
    /// It failed otherwise.
    Failed(KernelError),
}

/// What became of a job.
#[derive(Debug)]
pub struct ReclaimOutcome {
    /// The number that [`ReclaimPool::give`](super::ReclaimPool::give) returned.
    pub number: u64,
    /// The job.
    pub job: ReclaimJob,
    /// What whole pieces have taken, in bytes.
    pub taken_bytes: u64,
    /// Whole pieces.
    pub pieces: u64,
    /// How long the thread was at it, waiting for the disk included.
    pub duration: Duration,
    /// How it ended.
    pub end: End,
}
