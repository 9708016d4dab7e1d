//! What is counted in a run of the disk machine.

/// What is counted of a program. Bytes and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests of its own that were served.
    pub requests: u64,
    /// Their size.
    pub bytes: u64,
    /// How long the device worked on them.
    pub device_ns: u64,
    /// The longest time from when it wanted one until it was served.
    pub wait_max_ns: u64,
    /// What it wrote into the cache.
    pub buffered_bytes: u64,
    /// How often it was through: saves, frames, pieces.
    pub rounds: u64,
    /// How long these took together.
    pub rounds_ns: u64,
    /// The longest one.
    pub round_max_ns: u64,
    /// Frames that were not there when the next one was due.
    pub late: u64,
}

impl Counts {
    /// Adds what is counted of a thread.
    pub(super) fn add(&mut self, of_thread: &Counts) {
        self.requests += of_thread.requests;
        self.bytes += of_thread.bytes;
        self.device_ns += of_thread.device_ns;
        self.wait_max_ns = self.wait_max_ns.max(of_thread.wait_max_ns);
    }

    /// How long one round took on average, in nanoseconds.
    pub fn round_mean_ns(&self) -> u64 {
        self.rounds_ns.checked_div(self.rounds).unwrap_or(0)
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By program.
    pub programs: Vec<Counts>,
    /// For how long the device worked on something; with several at once each counts.
    pub busy_ns: u64,
    /// How often a program lost its place because it took too much.
    pub set_back: u64,
    /// How often the device was given another elevator.
    pub elevators: u64,
}
