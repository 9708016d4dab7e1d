//! What may happen in the memory machine.

/// Something that happens at a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A program goes on, or starts.
    Step { program: usize },
    /// A program ends.
    End { program: usize },
    /// The kernel's background reclaim takes the next group.
    Reclaim,
    /// A group is in the swap; a stamp that is no longer the group's says that it was used or given up meanwhile.
    Written { group: u32, stamp: u32 },
    /// Steward observes the machine and decides.
    Look,
    /// Steward compares what is free with what is to be.
    Check,
    /// One of Steward's threads that take memory goes on.
    Take { thread: usize },
    /// A minimum has been written into the kernel.
    Minimum { domain: usize, bytes: u64 },
    /// A change of the scenario's.
    Change { place: usize },
}
