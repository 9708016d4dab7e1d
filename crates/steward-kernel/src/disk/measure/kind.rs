//! Which requests are made of a disk, and what was seen of them.

/// Which requests are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) writes: bool,
    pub(super) far: bool,
    pub(super) bytes: u64,
}

/// What was seen of a kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    /// All that were made, also before it counted.
    pub(super) requests: u64,
    pub(super) cpu_bound: bool,
    /// The part of the time in which the threads could have run and something else had their CPUs.
    pub(super) waited: f64,
    /// The part of the time of all CPUs in which other programs ran.
    pub(super) programs: f64,
}
