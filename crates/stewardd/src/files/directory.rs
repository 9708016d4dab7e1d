//! The files that count in the directories of one kind, whatever is in them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use steward_core::problem::{Origin, Problem};
use steward_core::spec::{self, DirectoryRank, EffectiveFile};
use steward_kernel::files::Unreadable;

/// The ranks that the directories have, in their order. There cannot be more directories than ranks.
const RANKS: [DirectoryRank; 3] =
    [DirectoryRank::Vendor, DirectoryRank::Runtime, DirectoryRank::Administrator];

/// The files that count in these directories, in the order in which to read them: a later one has precedence. A
/// directory that does not exist is empty; one that cannot be read is a problem.
pub(crate) fn files_in(directories: &[PathBuf], problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let names: Vec<(DirectoryRank, Vec<String>)> = RANKS
        .into_iter()
        .zip(directories)
        .map(|(rank, directory)| (rank, list(directory, problems)))
        .collect();
    spec::effective_files(&names).files.iter().map(|file| path_of(file, directories)).collect()
}

fn list(directory: &Path, problems: &mut Vec<Problem>) -> Vec<String> {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            problems.push(unreadable(directory, &error));
            Vec::new()
        }
    }
}

fn path_of(file: &EffectiveFile, directories: &[PathBuf]) -> PathBuf {
    let index = RANKS.iter().position(|rank| *rank == file.rank).unwrap_or_default();
    directories[index].join(&file.name)
}

pub(crate) fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What to say about a file that was not read.
pub(crate) fn unreadable_file(error: &Unreadable) -> Problem {
    Problem::error(Origin::at(&error.path, 0), error.what(), error.advice())
}

/// What to say about a directory that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem::error(
        Origin::at(path, 0),
        format!("cannot be read: {error}"),
        "correct its permissions, or remove it",
    )
}
