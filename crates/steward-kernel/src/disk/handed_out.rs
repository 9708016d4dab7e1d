//! What becomes of cgroups that hand the disk out to those below them because of Steward, which the undo journal notes:
//! the daemon after a `kill -9`, and `steward revert`, have them do so no longer, and take it for nobody else's.

use crate::cgroup::directory::CgroupDirectory;
use crate::cgroup::place;
use crate::error::KernelError;
use crate::journal::change::Undone;
use crate::roots::{Roots, read_if_present};

/// The file that says what a cgroup hands out, and what the disk is called in it.
const FILE: &str = "cgroup.subtree_control";
const DISK: &str = "io";

/// Whether anybody has set something of the disk for a cgroup: that is gone once the one above hands it out no longer.
pub fn has_settings(path: &str, roots: &Roots) -> bool {
    let directory = place::directory(path, roots);
    let is_set = |(file, unset): (&str, &str)| {
        let text = read_if_present(&directory.join(file)).ok().flatten();
        text.is_some_and(|text| text != unset)
    };
    let weight = "default 100";
    [("io.weight", weight), ("io.bfq.weight", weight), ("io.max", ""), ("io.latency", "")]
        .into_iter()
        .any(is_set)
}

/// Has a cgroup hand the disk out no longer, unless something of it is set below.
pub(crate) fn undo(cgroup: &str, id: u64, roots: &Roots) -> Result<Undone, KernelError> {
    let left = |why: &str| Ok(Undone::Left(why.into()));
    let directory = match CgroupDirectory::open_same(cgroup, id, roots) {
        Ok(Some(directory)) => directory,
        Ok(None) => return left("another cgroup has its name now"),
        Err(error) if error.is_absent() => return left("it is gone"),
        Err(error) => return Err(error),
    };
    if !directory.read(FILE)?.split_ascii_whitespace().any(|name| name == DISK) {
        return left("it is as it was");
    }
    let children = std::fs::read_dir(place::directory(cgroup, roots)).into_iter().flatten().flatten();
    let mut names = children.filter_map(|entry| entry.file_name().into_string().ok());
    let is_set = |name: String| has_settings(&format!("{cgroup}/{name}"), roots);
    if names.any(is_set) {
        return left("somebody has set something of the disk below it since");
    }
    match directory.write(FILE, &format!("-{DISK}")) {
        Ok(()) => Ok(Undone::PutBack),
        // So says the kernel.
        Err(error) if error.errno() == Some(libc::EBUSY) => left("a cgroup below it hands the disk out"),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::journal::{Change, Journal, revert};
    use crate::roots::with_files;

    #[test]
    fn after_a_kill_the_disk_is_handed_out_no_longer_unless_somebody_has_set_something_of_it_since() {
        let (directory, roots) = with_files(&[
            ("proc/sys/kernel/random/boot_id", "one\n"),
            ("sys/fs/cgroup/cgroup.subtree_control", "cpu io memory\n"),
            ("sys/fs/cgroup/steward.a/io.bfq.weight", "default 100\n"),
            ("sys/fs/cgroup/steward.a/io.max", ""),
            ("sys/fs/cgroup/steward.a/cgroup.subtree_control", "cpu io\n"),
            ("sys/fs/cgroup/steward.a/b/io.weight", "default 70\n"),
        ]);
        let path = directory.path().join("journal");
        let control = |cgroup: &str| roots.cgroup.join(cgroup).join(FILE);
        let says = |cgroup: &str| std::fs::read_to_string(control(cgroup)).expect("a file");
        let id = |path: &str| std::fs::metadata(roots.cgroup.join(path)).expect("it is there").ino();
        let mut journal = Journal::open(&path, &roots).expect("a journal");
        for (cgroup, id) in [("", id("")), ("steward.a", id("steward.a")), ("gone", 7)] {
            let change = Change::DiskHandedOut { cgroup: cgroup.to_owned(), id };
            journal.record(change).expect("it can be noted");
        }
        drop(journal);
        let report = revert(&path, &roots).expect("the journal can be used");
        assert_eq!((says(""), says("steward.a")), ("-io".to_owned(), "cpu io\n".to_owned()));
        assert_eq!(report.reverted, ["that the cgroup / hands the disk out"]);
        assert!(report.left.iter().any(|line| line.contains("below it since")), "{report}");
        assert!(report.left.iter().any(|line| line.contains("gone")) && report.failed.is_empty(), "{report}");
        // Nothing more is to be done, and none of it is Steward's any more.
        assert_eq!(
            revert(&path, &roots).expect("the journal can be used").to_string(),
            "nothing to put back\n"
        );
    }
}
