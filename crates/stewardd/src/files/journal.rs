//! What an earlier daemon has left in the kernel.

use std::path::Path;

use steward_kernel::{Roots, journal};

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
