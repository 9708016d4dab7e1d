//! What is counted in a run of the memory machine.

use steward_core::memory::protection::Change;

/// A program that was killed because nothing could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Which one.
    pub program: usize,
}

/// What is counted of a domain. In groups of [`super::GROUP_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Major faults on what had been used before.
    pub faults: u64,
    /// Of these, on pages of files.
    pub faults_of_files: u64,
    /// For how long its programs waited for memory that had to be taken from somebody first, in nanoseconds.
    pub stalled_ns: u64,
    /// For how long they waited for pages to be read, in nanoseconds.
    pub disk_ns: u64,
    /// Of the faults, on what had been used within its period, and was taken while its minimum was in force.
    pub faults_within_period_count: u64,
    /// What was taken of it below its minimum, though used within its period.
    pub taken_below_min: u64,
    /// What Steward took from it.
    pub taken: u64,
    /// Of this, what it took below what the domain is to keep.
    pub taken_below_floor: u64,
    /// The longest time that an interactive program of it took to use its memory after a pause, in nanoseconds.
    pub latency_max_ns: u64,
    /// How many times one did.
    pub rounds: u64,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Who was killed.
    pub kills: Vec<Kill>,
    /// By domain.
    pub domains: Vec<Counts>,
    /// How often somebody who allocated had to take memory itself.
    pub direct_reclaims: u64,
    /// Who was demoted or came back, and when. Ids are places of domains.
    pub changes: Vec<(u64, Change)>,
    /// How often all protection was dropped.
    pub shortages: u64,
    /// How many groups Steward took while enough was free.
    pub taken_unasked: u64,
}
