//! What is to happen in the memory machine: by time, and within one moment in the order in which it was put in, so that
//! a run repeats exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

/// What is to happen. Putting in and taking out cost O(log n).
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
}

impl Events {
    pub(super) fn push(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((at_ns, self.sequence, event)));
    }

    /// When the next event is, in nanoseconds.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }
}
