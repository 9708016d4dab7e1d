//! Limits and protects the memory of a cgroup, through the undo journal.

use crate::cgroup::place::Place;
use crate::cgroup::reading::Bound;
use crate::journal::{JournalError, SharedJournal, Undone};
use crate::roots::Roots;

/// A file of a cgroup that limits or protects its memory (Documentation/admin-guide/cgroup-v2.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BoundFile {
    /// `memory.min`: never reclaimed.
    Min,
    /// `memory.low`: reclaimed only when nothing unprotected is left.
    Low,
    /// `memory.high`: beyond it the cgroup's tasks reclaim, and are slowed.
    High,
    /// `memory.max`: beyond it a task of the cgroup is killed.
    Max,
}

impl BoundFile {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            BoundFile::Min => "memory.min",
            BoundFile::Low => "memory.low",
            BoundFile::High => "memory.high",
            BoundFile::Max => "memory.max",
        }
    }
}

/// Sets one of them; see [`SharedJournal::write_knob`]. Lowering `memory.high` or `memory.max` below what is charged
/// makes the kernel reclaim before this returns, which may take seconds and, for `memory.max`, kill.
///
/// # Errors
/// As [`SharedJournal::write_knob`].
pub fn set(
    journal: &SharedJournal,
    place: &Place,
    file: BoundFile,
    bound: Bound,
    roots: &Roots,
) -> Result<Option<u64>, JournalError> {
    journal.write_knob(place, file.name(), &bound.to_string(), roots)
}

/// Puts one of them back to what it was before Steward; see [`SharedJournal::undo_knob`].
///
/// # Errors
/// As [`SharedJournal::undo_knob`].
pub fn unset(
    journal: &SharedJournal,
    place: &Place,
    file: BoundFile,
    roots: &Roots,
) -> Result<Option<Undone>, JournalError> {
    journal.undo_knob(place, file.name(), roots)
}
