//! The daemon's undo journal: what an earlier daemon has left in the kernel is undone, and this one records in it what
//! it changes, whatever changes it.

use std::path::Path;

use steward_kernel::Roots;
use steward_kernel::journal::{self, Journal, SharedJournal};

/// The journal, or why there is none: then nothing is changed that would have to be undone.
pub type OwnJournal = Result<SharedJournal, String>;

/// Opens the journal for this daemon, which keeps it to itself.
pub fn open(state_directory: &Path, roots: &Roots) -> OwnJournal {
    std::fs::create_dir_all(state_directory)
        .map_err(|error| format!("cannot create {}: {error}", state_directory.display()))?;
    let journal = Journal::open(&state_directory.join(libsteward::UNDO_JOURNAL), roots);
    let journal = journal.map_err(|error| error.to_string())?;
    if let Some(sentence) = journal.set_aside() {
        tracing::warn!(decision = "not-reverted", "{sentence}");
    }
    Ok(journal.into())
}

/// Undoes what a daemon that was killed left behind. Returns what could not be undone, in sentences.
pub fn undo_leftovers(state_directory: &Path) -> Vec<String> {
    match journal::revert(&state_directory.join(libsteward::UNDO_JOURNAL), &Roots::default()) {
        Ok(report) => {
            for line in &report.reverted {
                tracing::info!(decision = "reverted", "{line}");
            }
            report.set_aside.into_iter().chain(report.failed).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}
