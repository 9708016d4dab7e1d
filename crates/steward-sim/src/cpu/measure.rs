//! What is measured while the machine runs: counters and histograms per kind of task.

use hdrhistogram::Histogram;

/// What the tasks of one `[[task]]` entry did since measuring began. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// From waking to running.
    pub(crate) wake_delay_ns: Histogram<u64>,
    pub(crate) iterations: u64,
    pub(crate) frames: u64,
    pub(crate) frames_late: u64,
    gap_max_ns: u64,
    /// Frames in each whole second, for entries with one task.
    frames_in_second: Vec<u32>,
}

impl Measured {
    pub(crate) fn new() -> Self {
        Measured {
            // Three digits are always a valid precision.
            wake_delay_ns: Histogram::new(3).expect("a histogram of three digits"),
            iterations: 0,
            frames: 0,
            frames_late: 0,
            gap_max_ns: 0,
            frames_in_second: Vec::new(),
        }
    }

    /// A task runs `delay_ns` after it woke.
    pub(crate) fn wake(&mut self, delay_ns: u64) {
        // It grows by itself, and a delay of more than a lifetime is not simulated.
        self.wake_delay_ns.record(delay_ns).expect("a delay that a histogram takes");
    }

    /// A frame ended at `at_ns` after measuring began; the task's one before at `before_ns`.
    pub(crate) fn frame(&mut self, at_ns: u64, before_ns: Option<u64>, late: bool) {
        self.frames += 1;
        self.frames_late += u64::from(late);
        if let Some(before_ns) = before_ns {
            self.gap_max_ns = self.gap_max_ns.max(at_ns - before_ns);
        }
        let second = (at_ns / 1_000_000_000) as usize;
        if self.frames_in_second.len() <= second {
            self.frames_in_second.resize(second + 1, 0);
        }
        self.frames_in_second[second] += 1;
    }

    /// Frames of one task in the worst whole second of `seconds`.
    pub(crate) fn frames_per_second_min(&self, seconds: u64) -> Option<u32> {
        (0..seconds as usize).map(|second| self.frames_in_second.get(second).copied().unwrap_or(0)).min()
    }

    /// The longest time between two frames, given how long was measured and when the last frame ended.
    pub(crate) fn gap_max_ns(&self, measured_ns: u64, last_ns: Option<u64>) -> u64 {
        self.gap_max_ns.max(measured_ns - last_ns.unwrap_or(0).min(measured_ns))
    }
}
