//! How fast requests are served: the CPU time of those that ended, over the time in which there were any.

/// What the first pace counts for, in nanoseconds of measured time.
const FIRST_BUSY_NS: f64 = 20e6;

/// The pace of some kind of requests.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// No pace is above that, in CPUs.
    most: f64,
    /// About so many requests count, the last ones.
    requests: f64,
    /// CPU time of those that ended, and the time that it took, in nanoseconds; what is long ago counts less.
    work_ns: f64,
    busy_ns: f64,
    /// When `busy_ns` was added to last; meaningful while there are any.
    since_ns: u64,
    /// How many there are.
    in_hand: usize,
    /// Whether one has ended.
    is_measured: bool,
}

impl Pace {
    /// Of requests of which nothing is known, but that they are served so fast at first and `most` at best, in CPUs.
    pub(super) fn new(first: f64, most: f64, requests: f64) -> Self {
        let (work_ns, busy_ns) = (first * FIRST_BUSY_NS, FIRST_BUSY_NS);
        Pace { most, requests, work_ns, busy_ns, since_ns: 0, in_hand: 0, is_measured: false }
    }

    /// CPU time in each unit of time, in CPUs.
    pub(super) fn cpus(&self, now_ns: u64) -> f64 {
        // That nothing has ended for longer than usual says something, too.
        let is_silent = self.is_measured && self.in_hand > 0;
        let silent_ns = if is_silent { now_ns.saturating_sub(self.since_ns) as f64 } else { 0.0 };
        let overtime_ns = (silent_ns - self.busy_ns / self.requests * 2.0).max(0.0);
        (self.work_ns / (self.busy_ns + overtime_ns)).min(self.most)
    }

    /// The same as of the last request that ended; `None` before the first.
    pub(super) fn last(&self) -> Option<f64> {
        self.is_measured.then(|| (self.work_ns / self.busy_ns).min(self.most))
    }

    /// How many requests there are.
    pub(super) fn in_hand(&self) -> usize {
        self.in_hand
    }

    /// One more is there.
    pub(super) fn enter(&mut self, now_ns: u64) {
        if self.in_hand == 0 {
            self.since_ns = now_ns;
        }
        self.in_hand += 1;
    }

    /// One is gone, with what it used, in nanoseconds; `None` if it never began.
    pub(super) fn leave(&mut self, cpu_ns: Option<u64>, now_ns: u64) {
        self.in_hand = self.in_hand.saturating_sub(1);
        if let Some(cpu_ns) = cpu_ns {
            let busy_ns = now_ns.saturating_sub(self.since_ns) as f64;
            self.since_ns = now_ns.max(self.since_ns);
            self.is_measured = true;
            let kept = 1.0 - 1.0 / self.requests;
            self.work_ns = self.work_ns * kept + (cpu_ns as f64).max(1.0);
            self.busy_ns = self.busy_ns * kept + busy_ns.max(1.0);
        }
    }
}
