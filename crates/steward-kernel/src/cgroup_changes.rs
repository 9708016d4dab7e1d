//! Notices when the tree of cgroups changes: what comes, goes or is given to another user, and what is written to the
//! files that say how the CPU is shared.
//!
//! The kernel reports a file that is written, whoever writes it, to who watches its directory (inotify). What it changes
//! by itself it reports only of some files, and none of those matter here.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};

use crate::cgroups_tree::Cgroup;
use crate::roots::Roots;

/// The files of a cgroup that say how the CPU is shared, and whether its tasks may run.
const FILES: [&str; 6] =
    ["cpu.weight", "cpu.weight.nice", "cpu.idle", "cpu.max", "cgroup.freeze", "cgroup.subtree_control"];

/// A watch on every cgroup that it was told of.
#[derive(Debug)]
pub struct CgroupChanges {
    root: OwnedFd,
    inotify: OwnedFd,
    /// The watch of each cgroup, by the cgroup's id.
    watches: HashMap<u64, i32>,
    changed: bool,
}

impl CgroupChanges {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When there is no directory at `roots.cgroup`, or the kernel gives no inotify instance.
    pub fn open(roots: &Roots) -> io::Result<Self> {
        let root =
            fs::open(&roots.cgroup, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH, Mode::empty())?;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(CgroupChanges { root, inotify, watches: HashMap::new(), changed: true })
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
                let _ = inotify::remove_watch(&self.inotify, *watch);
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
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn add(&self, cgroup: &Cgroup) -> io::Result<i32> {
        let path = if cgroup.path.is_empty() { "." } else { &cgroup.path };
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        let directory = fs::openat2(&self.root, path, flags, Mode::empty(), beneath)?;
        let wanted = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR;
        // The link leads to exactly the directory that was opened.
        Ok(inotify::add_watch(&self.inotify, format!("/proc/self/fd/{}", directory.as_raw_fd()), wanted)?)
    }

    fn take_in(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
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
        let mut changes = CgroupChanges::open(&roots).expect("inotify");
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
