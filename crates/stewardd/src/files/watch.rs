//! Notices when files change that decide what the daemon does: the configuration, the directories of
//! specifications, and the executables that specifications name (a package upgrade gives a path another inode).
//!
//! Directories are watched rather than files, so that a file which is replaced by renaming is noticed. Where a
//! directory is missing, the nearest one above it that exists is watched until it appears.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// How many symbolic links are followed from a path to its file, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// Which names matter in a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    Only(BTreeSet<OsString>),
}

/// Watches what it was last told to.
pub struct Watch {
    descriptor: OwnedFd,
    watched: BTreeMap<i32, Names>,
    wanted: BTreeMap<PathBuf, Names>,
}

impl Watch {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the kernel gives no inotify instance.
    pub fn new() -> anyhow::Result<Self> {
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .context("cannot watch files: inotify_init failed; raise fs.inotify.max_user_instances")?;
        Ok(Watch { descriptor, watched: BTreeMap::new(), wanted: BTreeMap::new() })
    }

    /// Watches these directories whole and these files, in place of what was watched before. Returns what could
    /// not be watched, in sentences; `None` when all this was watched already. Otherwise what changed before now
    /// was missed, and the files have to be read again.
    pub fn set(&mut self, directories: &[PathBuf], files: &[PathBuf]) -> Option<Vec<String>> {
        let mut wanted = BTreeMap::new();
        for directory in directories {
            want_directory(&mut wanted, directory);
        }
        for file in files {
            want_file(&mut wanted, file);
        }
        if wanted == self.wanted {
            return None;
        }
        for descriptor in std::mem::take(&mut self.watched).into_keys() {
            // A directory that was removed has taken its watch along.
            let _ = inotify::remove_watch(&self.descriptor, descriptor);
        }
        let mut failures = Vec::new();
        for (directory, names) in &wanted {
            let changes = WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            match inotify::add_watch(&self.descriptor, directory, changes) {
                Ok(descriptor) => match self.watched.entry(descriptor) {
                    // Two paths of one directory.
                    std::collections::btree_map::Entry::Occupied(mut other) => other.get_mut().extend(names),
                    std::collections::btree_map::Entry::Vacant(place) => _ = place.insert(names.clone()),
                },
                Err(errno) => failures.push(format!(
                    "cannot watch {}: {errno}; after a change there, run systemctl reload stewardd",
                    directory.display()
                )),
            }
        }
        self.wanted = wanted;
        Some(failures)
    }

    /// Takes in what has happened; true when something that matters changed.
    pub fn has_changed(&mut self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.descriptor, &mut buffer);
        let mut changed = false;
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changed = true;
            }
            // Our own removal of a watch.
            if event.events().contains(ReadFlags::IGNORED) {
                continue;
            }
            changed |= match (self.watched.get(&event.wd()), event.file_name()) {
                (None, _) => false,
                (Some(Names::All), _) | (Some(_), None) => true,
                (Some(Names::Only(names)), Some(name)) => {
                    names.contains(std::ffi::OsStr::from_bytes(name.to_bytes()))
                }
            };
        }
        changed
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Names {
    fn extend(&mut self, other: &Names) {
        match (&mut *self, other) {
            (Names::Only(names), Names::Only(more)) => names.extend(more.iter().cloned()),
            _ => *self = Names::All,
        }
    }
}

type Wanted = BTreeMap<PathBuf, Names>;

fn want(wanted: &mut Wanted, directory: &Path, names: Names) {
    match wanted.get_mut(directory) {
        Some(present) => present.extend(&names),
        None => _ = wanted.insert(directory.to_owned(), names),
    }
}

fn want_directory(wanted: &mut Wanted, directory: &Path) {
    if directory.is_dir() {
        return want(wanted, directory, Names::All);
    }
    want_name(wanted, directory);
}

/// Waits for `path` to change in its directory, or for the first part of it that is missing to appear.
fn want_name(wanted: &mut Wanted, path: &Path) {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
    if parent.is_dir() {
        want(wanted, parent, Names::Only(BTreeSet::from([name.to_owned()])));
    } else {
        want_name(wanted, parent);
    }
}

/// Watches a file's name in its directory, and that of every symbolic link on the way to it.
fn want_file(wanted: &mut Wanted, file: &Path) {
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        want_name(wanted, &path);
        let Ok(target) = std::fs::read_link(&path) else { return };
        path = normal(&path.parent().unwrap_or(Path::new("/")).join(target));
    }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_missing_is_noticed_when_it_appears_and_then_watched() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let specs = place.path().join("steward/specs");
        let mut watch = Watch::new().expect("inotify");
        assert_eq!(watch.set(std::slice::from_ref(&specs), &[]), Some(vec![]));
        assert_eq!(watch.set(std::slice::from_ref(&specs), &[]), None);
        assert!(!watch.has_changed());
        std::fs::write(place.path().join("unrelated"), "").expect("written");
        assert!(!watch.has_changed());
        std::fs::create_dir_all(&specs).expect("created");
        assert!(watch.has_changed());
        watch.set(std::slice::from_ref(&specs), &[]);
        std::fs::write(specs.join("a.toml"), "").expect("written");
        assert!(watch.has_changed());
        assert!(!watch.has_changed());
    }

    #[test]
    fn an_executable_that_is_replaced_is_noticed_through_its_links_and_its_neighbours_are_not() {
        let place = tempfile::tempdir().expect("a temporary directory");
        for directory in ["bin", "alternatives", "lib"] {
            std::fs::create_dir(place.path().join(directory)).expect("created");
        }
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, place.path().join(name)).expect("linked");
        };
        link("../alternatives/vi", "bin/vi");
        link("../lib/vim", "alternatives/vi");
        std::fs::write(place.path().join("lib/vim"), "1").expect("written");
        let mut watch = Watch::new().expect("inotify");
        watch.set(&[], &[place.path().join("bin/vi")]);
        std::fs::write(place.path().join("lib/other"), "").expect("written");
        assert!(!watch.has_changed());
        std::fs::rename(place.path().join("lib/other"), place.path().join("lib/vim")).expect("renamed");
        assert!(watch.has_changed());
        std::fs::remove_file(place.path().join("alternatives/vi")).expect("removed");
        assert!(watch.has_changed());
    }
}
