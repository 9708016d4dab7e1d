//! The daemon's undo journal: what an earlier daemon has left in the kernel is undone, and this one records in it what
//! it changes, whatever changes it.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use steward_kernel::Roots;
use steward_kernel::journal::{self, Journal, SharedJournal};

/// The journal, or why there is none: then nothing is changed that would have to be undone.
pub type OwnJournal = Result<SharedJournal, String>;

/// Makes the state directory, and lets nobody else into it: it says what everybody has, and whoever can open the
/// journal's lock can keep it from the daemon.
///
/// # Errors
/// In a sentence.
pub fn own(state_directory: &Path) -> Result<(), String> {
    let own = || {
        DirBuilder::new().recursive(true).mode(0o700).create(state_directory)?;
        let mode = std::fs::metadata(state_directory)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            std::fs::set_permissions(state_directory, Permissions::from_mode(mode & !0o077))?;
        }
        Ok(())
    };
    own().map_err(|error: std::io::Error| {
        format!("cannot have {} to itself: {error}", state_directory.display())
    })
}

/// Opens the journal for this daemon, which keeps it to itself.
pub fn open(state_directory: &Path, roots: &Roots) -> OwnJournal {
    own(state_directory)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_sees_the_state_or_can_hold_the_journals_lock() {
        let directory = tempfile::tempdir().expect("a directory");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        let made = directory.path().join("made/state");
        own(&made).expect("it can be made");
        assert_eq!(mode(&made), 0o700);
        let found = directory.path().join("found");
        std::fs::create_dir(&found).expect("a directory");
        std::fs::set_permissions(&found, Permissions::from_mode(0o755)).expect("it is ours");
        let lock = found.join(format!("{}.lock", libsteward::UNDO_JOURNAL));
        std::fs::write(&lock, "").expect("a file");
        std::fs::set_permissions(&lock, Permissions::from_mode(0o644)).expect("it is ours");
        let roots = Roots::under(directory.path());
        let boot_id = directory.path().join("proc/sys/kernel/random/boot_id");
        std::fs::create_dir_all(boot_id.parent().expect("it has one")).expect("a directory");
        std::fs::write(boot_id, "one\n").expect("a file");
        let journal = open(&found, &roots).expect("a journal");
        assert_eq!((mode(&found), mode(&lock)), (0o700, 0o600));
        drop(journal);
    }
}
