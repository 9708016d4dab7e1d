//! The part of a disk's time that a cgroup has beside its siblings, through the undo journal: with the elevator BFQ
//! (`io.bfq.weight`, Documentation/block/bfq-iosched.rst), and where requests are charged (`io.weight`,
//! Documentation/admin-guide/cgroup-v2.rst). The kernel has the first once BFQ is loaded, and both where the cgroup
//! above hands the disk out. What is usual, 100, is the same in both.

use crate::cgroup::place::Place;
use crate::journal::{JournalError, SharedJournal, Undone};
use crate::roots::Roots;

/// The file that BFQ has.
pub const OF_BFQ: &str = "io.bfq.weight";
/// The file that counts where requests are charged.
pub const OF_COST: &str = "io.weight";

/// Gives a cgroup this weight, 1 to 1000, in this file; see [`SharedJournal::write_knob`].
///
/// # Errors
/// As [`SharedJournal::write_knob`]; [`is_absent`](crate::KernelError::is_absent) too where no device has that
/// elevator.
pub fn set(
    journal: &SharedJournal,
    place: &Place,
    file: &str,
    weight: u16,
    roots: &Roots,
) -> Result<Option<u64>, JournalError> {
    // As the kernel shows it.
    journal.write_knob(place, file, &format!("default {weight}"), roots)
}

/// Puts it back to what it was before Steward; see [`SharedJournal::undo_knob`].
///
/// # Errors
/// As [`SharedJournal::undo_knob`].
pub fn unset(
    journal: &SharedJournal,
    place: &Place,
    file: &str,
    roots: &Roots,
) -> Result<Option<Undone>, JournalError> {
    journal.undo_knob(place, file, roots)
}
