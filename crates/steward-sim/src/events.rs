//! What is to happen in a machine: by time, and within one moment in the order in which it was put in, so that a run
//! repeats exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is to happen. Putting in and taking out cost O(log n).
#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Reverse<(u64, u64, E)>>,
    sequence: u64,
}

impl<E: Ord> Default for Events<E> {
    fn default() -> Self {
        Events { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E: Ord> Events<E> {
    pub(crate) fn push(&mut self, at_ns: u64, event: E) {
        self.sequence += 1;
        self.heap.push(Reverse((at_ns, self.sequence, event)));
    }

    /// When the next event is, in nanoseconds.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }
}
