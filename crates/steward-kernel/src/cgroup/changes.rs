//! Tells where the tree of cgroups changes: what comes, goes or is given to another user, and what is written to the
//! files that say how the CPU is shared.
//!
//! The kernel reports a file that is written, whoever writes it, to who watches its directory (inotify). What it
//! changes by itself it reports only of some files, and none of those matter here.

use std::collections::HashMap;
use std::mem::MaybeUninit;

use rustix::fs::OFlags;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::cgroup::tree::{Cgroup, CgroupTree, watch_opened};
use crate::error::KernelError;
use crate::roots::Roots;

/// The files of a cgroup that say how the CPU is shared, and whether its tasks may run.
const FILES: [&str; 5] = ["cpu.weight", "cpu.weight.nice", "cpu.idle", "cpu.max", "cgroup.freeze"];
/// The file that says what a cgroup hands out to its children: these have other files afterwards.
const FILE_OF_CHILDREN: &str = "cgroup.subtree_control";

/// Where the tree of cgroups has changed: what is there now is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// What has this name directly below the cgroup with this id came, went, or was given to another user.
    Entry(u64, String),
    /// The cgroup with this id has other settings or another owner.
    Settings(u64),
    /// All those directly below the cgroup with this id may have other settings.
    SettingsBelow(u64),
    /// So much has changed that the kernel has not kept all of it.
    Anything,
}

/// A watch on every cgroup that it was told of.
#[derive(Debug)]
pub struct CgroupChanges {
    /// Nobody else has it, so that what its descriptor tells is about these watches.
    tree: CgroupTree,
    /// The watch of each cgroup, by the cgroup's id, and the other way round.
    watches: HashMap<u64, i32>,
    ids: HashMap<i32, u64>,
}

impl CgroupChanges {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// As [`CgroupTree::open`].
    pub fn open(roots: &Roots) -> Result<Self, KernelError> {
        CgroupTree::open(roots).map(Self::over)
    }

    /// As [`CgroupChanges::open`], over a directory that may stand in for the hierarchy, in a test.
    ///
    /// # Errors
    /// As [`CgroupTree::open_any`].
    pub fn open_any(roots: &Roots) -> Result<Self, KernelError> {
        CgroupTree::open_any(roots).map(Self::over)
    }

    fn over(tree: CgroupTree) -> Self {
        CgroupChanges { tree, watches: HashMap::new(), ids: HashMap::new() }
    }

    /// Tells of changes of this cgroup from now on. What happened to it before is not known: look at it afterwards.
    /// Returns whether it is there, and still the one that is meant.
    ///
    /// # Errors
    /// When it cannot be watched, other than because it has gone: mostly that there are more than
    /// `fs.inotify.max_user_watches`.
    pub fn watch(&mut self, cgroup: &Cgroup) -> std::io::Result<bool> {
        match self.add(cgroup) {
            Ok(Some(watch)) => {
                self.watches.insert(cgroup.id, watch);
                self.ids.insert(watch, cgroup.id);
                Ok(true)
            }
            Ok(None) | Err(Errno::NOENT | Errno::NODEV) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn add(&self, cgroup: &Cgroup) -> Result<Option<i32>, Errno> {
        let directory = self.tree.open_below(&cgroup.path, OFlags::DIRECTORY | OFlags::PATH)?;
        if rustix::fs::fstat(&directory)?.st_ino != cgroup.id {
            return Ok(None);
        }
        let wanted = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR;
        watch_opened(&self.tree, &directory, wanted).map(Some)
    }

    /// Tells nothing of the cgroup with this id any more.
    pub fn forget(&mut self, id: u64) {
        if let Some(watch) = self.watches.remove(&id) {
            self.ids.remove(&watch);
            // Gone already with its cgroup, or in a part of the tree that is not looked at any more.
            let _ = inotify::remove_watch(&self.tree, watch);
        }
    }

    /// How many cgroups are watched.
    pub fn watched(&self) -> usize {
        self.watches.len()
    }

    /// Hands over what has changed since the last call.
    pub fn take(&mut self, note: &mut dyn FnMut(Change)) {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.tree, &mut buffer);
        while let Ok(event) = reader.next() {
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                note(Change::Anything);
                continue;
            }
            // None of one that is not watched any more.
            let Some(id) = self.ids.get(&event.wd()).copied() else { continue };
            if events.contains(ReadFlags::IGNORED) {
                // Its cgroup's end, of which its parent tells.
                self.ids.remove(&event.wd());
                self.watches.remove(&id);
                continue;
            }
            // What is no text is not looked at.
            let name = event.file_name().map(|name| name.to_str().unwrap_or_default());
            match name {
                None => note(Change::Settings(id)),
                Some(name) if events.contains(ReadFlags::ISDIR) => note(Change::Entry(id, name.to_owned())),
                Some(FILE_OF_CHILDREN) => note(Change::SettingsBelow(id)),
                Some(name) if FILES.contains(&name) => note(Change::Settings(id)),
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn cgroup(root: &Path, path: &str) -> Cgroup {
        let id =
            std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(root.join(path)).expect("it is there"));
        Cgroup { path: path.to_owned(), id, uid: 0 }
    }

    fn taken(changes: &mut CgroupChanges) -> Vec<Change> {
        let mut taken = Vec::new();
        changes.take(&mut |change| taken.push(change));
        taken.dedup();
        taken
    }

    #[test]
    fn what_comes_goes_or_shares_the_cpu_otherwise_is_told_with_its_place_and_nothing_else_is() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let root = roots.cgroup.clone();
        std::fs::create_dir_all(root.join("a/b")).expect("directories");
        for file in ["cpu.weight", "cgroup.procs", "cgroup.subtree_control"] {
            std::fs::write(root.join("a").join(file), "").expect("a file");
        }
        let mut changes = CgroupChanges::open_any(&roots).expect("a directory that stands in");
        let [top, a, b] = ["", "a", "a/b"].map(|path| cgroup(&root, path));
        assert!([&top, &a].into_iter().all(|cgroup| changes.watch(cgroup).expect("watched")));
        assert!(!changes.watch(&Cgroup { id: a.id, ..b.clone() }).expect("another one"), "not who was meant");
        assert_eq!(taken(&mut changes), []);

        std::fs::write(root.join("a/cgroup.procs"), "1").expect("written");
        assert_eq!(taken(&mut changes), [], "who is in it is of no interest");
        std::fs::write(root.join("a/cpu.weight"), "200").expect("written");
        assert_eq!(taken(&mut changes), [Change::Settings(a.id)]);
        std::fs::write(root.join("a/cgroup.subtree_control"), "+cpu").expect("written");
        assert_eq!(taken(&mut changes), [Change::SettingsBelow(a.id)]);
        std::fs::create_dir(root.join("a/b/c")).expect("made");
        assert_eq!(taken(&mut changes), [], "b is not watched");
        std::fs::remove_dir(root.join("a/b/c")).expect("removed");
        std::fs::create_dir(root.join("a/new\nline")).expect("made");
        assert_eq!(taken(&mut changes), [Change::Entry(a.id, "new\nline".into())]);
        std::fs::remove_dir(root.join("a/b")).expect("removed");
        assert_eq!(taken(&mut changes), [Change::Entry(a.id, "b".into())]);
        assert!(!changes.watch(&b).expect("it is no error that it has gone"));
        changes.forget(a.id);
        std::fs::create_dir(root.join("a/d")).expect("made");
        assert_eq!(taken(&mut changes), [], "it was told to forget it");
        std::fs::remove_dir_all(root.join("a")).expect("removed");
        assert_eq!(taken(&mut changes), [Change::Entry(top.id, "a".into())]);
    }
}
