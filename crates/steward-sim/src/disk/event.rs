//! What is to happen in the disk machine: by time, and within one moment in the order in which it was put in, so that a
//! run repeats exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A program goes on, or starts.
    Step { program: usize },
    /// A program ends.
    End { program: usize },
    /// The device has served a request.
    Served { id: u64 },
    /// The elevator has waited long enough for somebody's next request.
    Elevator,
    /// What is to be written is written, however little it is.
    Flush,
    /// Steward looks who is to be served how.
    Look,
    /// What it wants is in the kernel.
    Apply { number: usize },
    /// Steward's thread hears that somebody waits.
    Told,
    /// It looks whether anybody still does.
    Quiet,
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

    /// Has it be asked then whether anybody still waits.
    pub(super) fn push_quiet(&mut self, at_ns: Option<u64>) {
        if let Some(at_ns) = at_ns {
            self.push(at_ns, Event::Quiet);
        }
    }

    /// When the next event is, in nanoseconds.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }
}
