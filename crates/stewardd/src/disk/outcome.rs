//! What came of the last application, as far as the next look goes by it. It stands beside what the worker holds for as
//! long as the disk is waited for.

use std::collections::BTreeSet;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether anything failed that may succeed later, with nothing else to tell when: on a disk that is only just
    /// coming, or because there was no room for the undo journal.
    pub may_succeed_later: bool,
    /// The disks that have an order of Steward's by now, and those on which it failed, by name and sequence.
    pub settled: BTreeSet<(String, u64)>,
    /// Whether it was found that nothing tells when somebody waits for the disk.
    pub is_untold: bool,
    /// Whether a disk has the elevator that divides its time by weights, and this kernel no file to write them into.
    pub lacks_weights: bool,
}
