//! Why there is no journal.

use std::io;
use std::path::PathBuf;

use crate::error::KernelError;

/// The version of the file's format that is written.
pub(super) const SCHEMA: u32 = 3;

/// Why the journal itself can not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file can not be opened, read, written or synced.
    #[error("cannot {action} the undo journal {}: {source}; nothing was changed in the kernel", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The journal.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the undo journal {} is in use by a running daemon; stop the daemon first", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error(
        "the undo journal {} has format {found}, and this version of Steward reads format {SCHEMA}; \
         revert with the version that wrote it",
        path.display()
    )]
    Schema {
        /// The journal.
        path: PathBuf,
        /// The format that it says it has.
        found: u32,
    },
    /// What was to be changed could not be looked at or written.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
