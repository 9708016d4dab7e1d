//! The undo journal: what Steward changed in the kernel, and what was there before.
//!
//! Each change is written here with its old value, and the file is synced, before the change is made. So whatever
//! happens afterwards - a stop, a crash, `kill -9` - [`revert`] can put back what is still Steward's: it changes
//! nothing that someone else has written since, and running it twice does no more than running it once.
//!
//! The file is one JSON object a line, with a sum over it (`sealed`). The first line holds the identity of the boot:
//! after a reboot nothing is left to put back. Where a line is not as it was written, that line is lost and no other:
//! the rest is put back, and the file is set aside under another name for a person to look at. A line that the disk did
//! not take whole is cut off again, and its change is not made. The file is locked while it is in use, so that nobody
//! reverts under a running daemon.
//!
//! - `file`: the journal as it lies on the disk, and [`Journal::record`]; `lines`: what is written in it.
//! - `knobs`: files of cgroups, written with a record; `shared`: one journal for all in a process.
//! - `given`: which elevators are in force; `undo`: one change taken back; `reverting`: all of them.

pub(crate) mod change;
mod error;
mod file;
mod given;
mod knob;
mod knobs;
mod lines;
mod reverting;
mod shared;
mod undo;

pub use change::{Change, Undone};
pub use error::JournalError;
pub use file::Journal;
pub use given::given_elevators_of;
pub use knob::Knob;
pub use reverting::{Report, revert};
pub use shared::SharedJournal;
pub use undo::undo;
#[cfg(test)]
pub(crate) use undo::undo_task;

#[cfg(test)]
mod tests;
