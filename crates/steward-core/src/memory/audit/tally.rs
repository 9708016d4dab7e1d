//! What is counted of a promise of memory, and of who broke it.

use crate::record::Counted;

/// For how long tasks of a domain may stand still for want of memory within a second, in nanoseconds. People notice
/// what takes longer in a program with windows or moving pictures (Yang 2009, chapter 1).
pub const STALL_MAX_NS: u64 = 50_000_000;
/// What a fault that waited for a disk counts for where the kernel counts no pressure, in nanoseconds: ten times what a
/// fast disk takes, and a tenth of what a slow one does.
pub const FAULT_NS: u64 = 1_000_000;
/// So often all cgroups are read while nobody stalls, in nanoseconds.
pub const LOOK_AROUND_NS: u64 = 10_000_000_000;

/// What became of a promise within some time. Times are in nanoseconds; sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How long the domain was looked at.
    pub seen_ns: u64,
    /// For how much of that the kernel had been told all that was promised.
    pub in_force_ns: u64,
    /// While at least one of its tasks stood still for want of memory.
    pub stalled_ns: u64,
    /// While all of its tasks that were not idle did.
    pub stopped_ns: u64,
    /// Pages that were fetched again soon after they had been taken.
    pub refaults: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// How many seconds were judged.
    pub seconds: u64,
    /// In how many of these the promise was broken.
    pub broken: u64,
    /// For how long it stood still in the worst of them.
    pub worst_stalled_ns: u64,
}

impl Counted for Tally {
    const NAME: &'static str = "record of promises of memory";
    const HEADER: &'static str = "steward-memory-audit 1";
    type Numbers = [u64; 9];

    fn add(&mut self, other: &Tally) {
        let sum = |one: &mut u64, other: u64| *one = one.saturating_add(other);
        sum(&mut self.seen_ns, other.seen_ns);
        sum(&mut self.in_force_ns, other.in_force_ns);
        sum(&mut self.stalled_ns, other.stalled_ns);
        sum(&mut self.stopped_ns, other.stopped_ns);
        sum(&mut self.refaults, other.refaults);
        sum(&mut self.major_faults, other.major_faults);
        sum(&mut self.seconds, other.seconds);
        sum(&mut self.broken, other.broken);
        self.worst_stalled_ns = self.worst_stalled_ns.max(other.worst_stalled_ns);
    }

    fn numbers(&self) -> [u64; 9] {
        let Tally { seen_ns, in_force_ns, stalled_ns, stopped_ns, refaults, .. } = *self;
        let Tally { major_faults, seconds, broken, worst_stalled_ns, .. } = *self;
        [
            seen_ns,
            in_force_ns,
            stalled_ns,
            stopped_ns,
            refaults,
            major_faults,
            seconds,
            broken,
            worst_stalled_ns,
        ]
    }

    fn of_numbers(numbers: [u64; 9]) -> Self {
        let [seen_ns, in_force_ns, stalled_ns, stopped_ns, refaults, more @ ..] = numbers;
        let [major_faults, seconds, broken, worst_stalled_ns] = more;
        Tally {
            seen_ns,
            in_force_ns,
            stalled_ns,
            stopped_ns,
            refaults,
            major_faults,
            seconds,
            broken,
            worst_stalled_ns,
        }
    }
}

/// In how many seconds somebody was the culprit, and what it took. It is kept by the paths of both ([`blame_key`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// Broken seconds in which nobody took more.
    pub seconds: u64,
    /// What it took in these, in bytes.
    pub taken_bytes: u64,
}

impl Counted for Blame {
    const NAME: &'static str = "record of who broke promises of memory";
    const HEADER: &'static str = "steward-memory-blame 1";
    type Numbers = [u64; 2];

    fn add(&mut self, other: &Blame) {
        self.seconds = self.seconds.saturating_add(other.seconds);
        self.taken_bytes = self.taken_bytes.saturating_add(other.taken_bytes);
    }

    fn numbers(&self) -> [u64; 2] {
        [self.seconds, self.taken_bytes]
    }

    fn of_numbers([seconds, taken_bytes]: [u64; 2]) -> Self {
        Blame { seconds, taken_bytes }
    }
}

/// Between the two paths: in none of them two slashes follow each other.
const BETWEEN: &str = "//";

/// Under which name is kept what `culprit` did to `domain`; both are paths.
pub fn blame_key(domain: &str, culprit: &str) -> String {
    format!("{domain}{BETWEEN}{culprit}")
}

/// The culprit, of a name under which something is kept of what was done to `domain`.
pub fn culprit_of<'key>(key: &'key str, domain: &str) -> Option<&'key str> {
    key.strip_prefix(domain)?.strip_prefix(BETWEEN)
}
