//! Notices when the tree of cgroups changes: what comes, goes or is given to another user, and what is written to the
//! files that say how the CPU is shared.
//!
//! The kernel reports a file that is written, whoever writes it, to who watches its directory (inotify). What it
//! changes by itself it reports only of some files, and none of those matter here.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;

use rustix::fs::OFlags;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::cgroup::tree::{Cgroup, CgroupTree, watch_opened};
use crate::error::KernelError;
use crate::roots::Roots;

/// The files of a cgroup that say how the CPU is shared, and whether its tasks may run.
const FILES: [&str; 6] =
    ["cpu.weight", "cpu.weight.nice", "cpu.idle", "cpu.max", "cgroup.freeze", "cgroup.subtree_control"];

/// A watch on every cgroup that it was told of.
#[derive(Debug)]
pub struct CgroupChanges {
    /// Nobody else has it, so that what its descriptor tells is about these watches.
    tree: CgroupTree,
    /// The watch of each cgroup, by the cgroup's id.
    watches: HashMap<u64, i32>,
    changed: bool,
}

impl CgroupChanges {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// As [`CgroupTree::open`].
    pub fn open(roots: &Roots) -> Result<Self, KernelError> {
        CgroupTree::open(roots).map(Self::over)
    }

    fn over(tree: CgroupTree) -> Self {
        CgroupChanges { tree, watches: HashMap::new(), changed: true }
    }

    /// Whether something may have changed since [`CgroupChanges::forget`].
    pub fn has_changed(&mut self) -> bool {
        self.take_in();
        self.changed
    }

    /// What has changed so far is of no interest any more: the tree is about to be read.
    pub fn forget(&mut self) {
        self.take_in();
        self.changed = false;
    }

    /// Watches these cgroups, as they were just listed, and none else. What happened to a new one before it was watched
    /// is not known, which counts as a change.
    ///
    /// # Errors
    /// When one cannot be watched, other than because it has gone: mostly that there are more than
    /// `fs.inotify.max_user_watches`. Nothing can be said of changes then, until a later call succeeds.
    pub fn follow(&mut self, cgroups: &[Cgroup]) -> io::Result<()> {
        let listed: HashSet<u64> = cgroups.iter().map(|cgroup| cgroup.id).collect();
        self.watches.retain(|id, watch| {
            let stays = listed.contains(id);
            if !stays {
                // Gone already, and its watch with it, or in a part of the tree that is not looked at any more.
                let _ = inotify::remove_watch(&self.tree, *watch);
            }
            stays
        });
        for cgroup in cgroups {
            if self.watches.contains_key(&cgroup.id) {
                continue;
            }
            self.changed = true;
            match self.add(cgroup) {
                Ok(watch) => self.watches.insert(cgroup.id, watch),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
        }
        Ok(())
    }

    fn add(&self, cgroup: &Cgroup) -> Result<i32, Errno> {
        let directory = self.tree.open_below(&cgroup.path, OFlags::DIRECTORY | OFlags::PATH)?;
        let wanted = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR;
        watch_opened(&self.tree, &directory, wanted)
    }

    fn take_in(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.tree, &mut buffer);
        while let Ok(event) = reader.next() {
            let events = event.events();
            let is_written = events.contains(ReadFlags::MODIFY);
            let matters = event
                .file_name()
                .is_none_or(|name| FILES.iter().any(|file| name.to_bytes() == file.as_bytes()));
            // Our own removal of a watch, or a cgroup's end, of which its parent tells.
            self.changed |= !events.contains(ReadFlags::IGNORED) && (matters || !is_written);
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

    #[test]
    fn what_comes_goes_or_shares_the_cpu_otherwise_is_a_change_and_nothing_else_is() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let root = roots.cgroup.clone();
        std::fs::create_dir_all(root.join("a/b")).expect("directories");
        std::fs::write(root.join("a/cpu.weight"), "100").expect("a file");
        std::fs::write(root.join("a/cgroup.procs"), "").expect("a file");
        let tree = CgroupTree::open_any(&roots).expect("a directory that stands in");
        let mut changes = CgroupChanges::over(tree);
        assert!(changes.has_changed(), "nothing is known yet");
        let listed = ["", "a", "a/b"].map(|path| cgroup(&root, path));
        changes.forget();
        changes.follow(&listed).expect("watched");
        assert!(changes.has_changed(), "they may have changed before they were watched");
        let settle = |changes: &mut CgroupChanges, listed: &[Cgroup]| {
            changes.forget();
            changes.follow(listed).expect("watched");
            assert!(!changes.has_changed());
        };
        settle(&mut changes, &listed);

        std::fs::write(root.join("a/cgroup.procs"), "1").expect("written");
        assert!(!changes.has_changed(), "who is in it is of no interest");
        std::fs::write(root.join("a/cpu.weight"), "200").expect("written");
        assert!(changes.has_changed() && changes.has_changed());
        settle(&mut changes, &listed);
        std::fs::create_dir(root.join("a/c")).expect("made");
        assert!(changes.has_changed());
        settle(&mut changes, &listed[..1]);
        std::fs::remove_dir(root.join("a/b")).expect("removed");
        assert!(!changes.has_changed(), "a is not watched any more");
        changes
            .follow(&[cgroup(&root, ""), cgroup(&root, "a"), listed[2].clone()])
            .expect("what has gone is left out");
        settle(&mut changes, &listed[..2]);
        std::fs::remove_dir(root.join("a/c")).expect("removed");
        assert!(changes.has_changed());
    }
}
