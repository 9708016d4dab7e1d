//! The part of a disk's time that a cgroup has beside its siblings (`io.bfq.weight`,
//! Documentation/block/bfq-iosched.rst), through the undo journal. The kernel has the file once its elevator BFQ is
//! loaded, and where the cgroup above hands the disk out.

use crate::cgroup::place::Place;
use crate::journal::{JournalError, SharedJournal, Undone};
use crate::roots::Roots;

/// The file's name.
pub const FILE: &str = "io.bfq.weight";

/// Gives a cgroup this weight, 1 to 1000; see [`SharedJournal::write_knob`].
///
/// # Errors
/// As [`SharedJournal::write_knob`]; [`is_absent`](crate::KernelError::is_absent) too where no device has that
/// elevator.
pub fn set(
    journal: &SharedJournal,
    place: &Place,
    weight: u16,
    roots: &Roots,
) -> Result<Option<u64>, JournalError> {
    // As the kernel shows it.
    journal.write_knob(place, FILE, &format!("default {weight}"), roots)
}

/// Puts it back to what it was before Steward; see [`SharedJournal::undo_knob`].
///
/// # Errors
/// As [`SharedJournal::undo_knob`].
pub fn unset(journal: &SharedJournal, place: &Place, roots: &Roots) -> Result<Option<Undone>, JournalError> {
    journal.undo_knob(place, FILE, roots)
}
