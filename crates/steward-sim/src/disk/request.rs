//! A request to the disk, and who made it.

use steward_core::disk::priority::Priority;

/// Who hands requests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// A thread of a program.
    Task(i32),
    /// The thread that writes the journal.
    Journal,
    /// The one that writes what a group has left in the cache.
    Flusher(usize),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Request {
    /// Its number.
    pub(super) id: u64,
    /// Who made it.
    pub(super) who: Who,
    /// The group that it is charged to, by the elevator's numbers.
    pub(super) group: usize,
    /// Its size.
    pub(super) bytes: u64,
    /// The priority of who made it then.
    pub(super) priority: Priority,
    /// When it was made, in nanoseconds.
    pub(super) since_ns: u64,
}

impl Request {
    /// Whether somebody waits for it.
    pub(super) fn is_sync(&self) -> bool {
        !matches!(self.who, Who::Flusher(_))
    }
}
