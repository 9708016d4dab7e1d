//! The queue of what is to happen: by time, and within one moment in the order in which it was put in, so that a run
//! repeats exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a given moment. A generation that is no longer the current one says that the event was
/// called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A task wakes up (or starts).
    Wake { task: u32 },
    /// The task that runs on the CPU has done what its program asked of the CPU.
    PhaseDone { cpu: u32, generation: u32 },
    /// The CPU's timer interrupt.
    Tick { cpu: u32 },
    /// The budget of the task that runs on the CPU is used up.
    BudgetEnds { cpu: u32, generation: u32 },
    /// A period begins for the task with this slot.
    PeriodBegins { slot: u32, generation: u32 },
    /// Quotas are refilled.
    RefillQuotas,
    /// Load is sampled.
    Sample,
    /// The disk has served its first request.
    DiskDone,
    /// What was measured so far is forgotten.
    MeasureFromHere,
}

/// What is to happen. Putting in and taking out cost O(log n).
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, bool, u64, Event)>>,
    sequence: u64,
}

impl EventQueue {
    /// What a task has done comes before all else at that moment, so that one that needs its budget to the nanosecond
    /// is done with it rather than out of it.
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        let is_later = !matches!(event, Event::PhaseDone { .. });
        self.heap.push(Reverse((at_ns, is_later, self.sequence, event)));
    }

    /// When the next event is, in nanoseconds.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((at_ns, _, _, event))| (at_ns, event))
    }
}
