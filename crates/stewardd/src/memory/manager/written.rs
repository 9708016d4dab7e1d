//! How fast memory is freed that has to be written first: what the loop's own reclaims had written, and how long that
//! took.

use steward_core::memory::pace::Pace;
use steward_kernel::Roots;
use steward_kernel::memory::machine;
use steward_kernel::memory::reclaim::ReclaimOutcome;

/// What was measured.
#[derive(Default)]
pub(super) struct Written {
    pace: Pace,
    /// What had been written to the swap when it was looked at last, in pages.
    swapped_out_pages: Option<u64>,
}

impl Written {
    /// Takes in what became of reclaims that have ended by now.
    pub(super) fn note(&mut self, outcomes: &[ReclaimOutcome], now_ns: u64, roots: &Roots) {
        let taken_bytes = outcomes.iter().map(|outcome| outcome.taken_bytes).fold(0, u64::saturating_add);
        let longest = outcomes.iter().map(|outcome| outcome.duration).max().unwrap_or_default();
        if taken_bytes == 0 {
            return;
        }
        // Where it cannot be read, nothing is measured.
        let Ok(counters) = machine::counters(roots) else { return };
        let before = self.swapped_out_pages.replace(counters.swapped_out_pages);
        let swapped_pages = before.map_or(0, |before| counters.swapped_out_pages.saturating_sub(before));
        let swapped_bytes = swapped_pages.saturating_mul(rustix::param::page_size() as u64);
        let took_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        // The kernel may have written as well meanwhile, and before.
        self.pace.note(swapped_bytes.min(taken_bytes), now_ns.saturating_sub(took_ns), now_ns);
    }

    /// Bytes a second; `None` as long as too little was measured.
    pub(super) fn bytes_per_second(&self) -> Option<u64> {
        self.pace.measured()
    }
}
