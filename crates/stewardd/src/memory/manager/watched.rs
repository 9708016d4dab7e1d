//! Whether the tree of cgroups may be another than it was when it was listed last.
//!
//! To list it is most of what it costs to see everybody: six system calls for each cgroup, ten times a second while
//! little is free. The kernel tells what comes and goes in directories that are watched, and what is written to a file
//! that says what is handed out below it; so nothing is listed while it tells nothing.

use std::collections::BTreeSet;

use steward_kernel::Roots;
use steward_kernel::cgroup::changes::{CgroupChanges, Change};
use steward_kernel::cgroup::tree::Cgroup;

/// With more cgroups than this all are listed each time: watches are a resource of everybody's.
const WATCHED_MAX: usize = 1024;

/// The watches on all that were listed.
pub(super) struct Watched {
    /// Where nothing can be watched, it may always be another.
    changes: Option<CgroupChanges>,
    /// Those that are watched, by cgroup id.
    ids: BTreeSet<u64>,
    /// One was not watched before it was listed, or cannot be.
    may_differ: bool,
}

impl Watched {
    pub(super) fn open(roots: &Roots) -> Self {
        Watched { changes: CgroupChanges::open_any(roots).ok(), ids: BTreeSet::new(), may_differ: true }
    }

    /// Whether it may be another since the last listing that was noted.
    pub(super) fn may_differ(&mut self) -> bool {
        let mut may_differ = self.may_differ;
        if let Some(changes) = &mut self.changes {
            // What the CPU is shared by, and to whom one belongs, makes no difference here.
            changes.take(&mut |change| may_differ |= !matches!(change, Change::Settings(_)));
        }
        // Once it has differed, until it is listed.
        self.may_differ = may_differ;
        may_differ
    }

    /// All of it was listed, after what was told of it was asked for. What has come to one that was not watched yet is
    /// seen at the next listing.
    pub(super) fn note(&mut self, listed: &[Cgroup]) {
        let Some(changes) = &mut self.changes else { return };
        let there: BTreeSet<u64> = listed.iter().map(|cgroup| cgroup.id).collect();
        for gone in self.ids.difference(&there) {
            changes.forget(*gone);
        }
        self.ids.retain(|id| there.contains(id));
        self.may_differ = listed.len() > WATCHED_MAX;
        for cgroup in listed.iter().take(WATCHED_MAX) {
            if self.ids.contains(&cgroup.id) {
                continue;
            }
            self.may_differ = true;
            // One that has gone meanwhile is told of by the one above; one that cannot be watched is tried again.
            if changes.watch(cgroup).is_ok_and(|is_there| is_there) {
                self.ids.insert(cgroup.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steward_kernel::cgroup::tree::CgroupTree;

    #[test]
    fn it_is_listed_again_only_after_something_has_come_gone_or_been_handed_out() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let root = roots.cgroup.clone();
        std::fs::create_dir_all(root.join("a/b")).expect("directories");
        for file in ["a/memory.min", "a/cpu.weight", "a/cgroup.subtree_control"] {
            std::fs::write(root.join(file), "").expect("a file");
        }
        let tree = CgroupTree::open_any(&roots).expect("it is there");
        let mut watched = Watched::open(&roots);
        let list = |watched: &mut Watched| {
            let may_differ = watched.may_differ();
            if may_differ {
                watched.note(&tree.list().expect("it can be listed"));
            }
            may_differ
        };
        // The second time is for what came before all were watched.
        assert_eq!([list(&mut watched), list(&mut watched), list(&mut watched)], [true, true, false]);
        let writes: [(&str, bool); 3] =
            [("a/memory.min", false), ("a/cpu.weight", false), ("a/cgroup.subtree_control", true)];
        for (file, may_differ) in writes {
            std::fs::write(root.join(file), "+memory").expect("written");
            assert_eq!(list(&mut watched), may_differ, "{file}");
            assert!(!list(&mut watched));
        }
        std::fs::create_dir(root.join("a/b/c")).expect("made");
        assert_eq!([list(&mut watched), list(&mut watched), list(&mut watched)], [true, true, false]);
        std::fs::create_dir(root.join("a/b/c/d")).expect("made in one that came");
        assert!(list(&mut watched) && list(&mut watched) && !list(&mut watched));
        std::fs::remove_dir(root.join("a/b/c/d")).expect("removed");
        assert!(list(&mut watched));
        assert!(!list(&mut watched) && watched.ids.len() == 4, "{:?}", watched.ids);
    }

    #[test]
    fn with_more_than_are_watched_it_may_always_be_another() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        for number in 0..=WATCHED_MAX {
            std::fs::create_dir_all(roots.cgroup.join(number.to_string())).expect("directories");
        }
        let tree = CgroupTree::open_any(&roots).expect("it is there");
        let mut watched = Watched::open(&roots);
        for _ in 0..3 {
            assert!(watched.may_differ());
            watched.note(&tree.list().expect("it can be listed"));
        }
        assert!(watched.ids.len() <= WATCHED_MAX, "{}", watched.ids.len());
    }
}
