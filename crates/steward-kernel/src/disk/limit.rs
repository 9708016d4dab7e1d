//! The most that a cgroup may read and write of a device (`io.max`, Documentation/admin-guide/cgroup-v2.rst), through
//! the undo journal. The file has a line for each device that is limited: each is a knob of its own, which
//! [`CgroupDirectory`](crate::cgroup::directory::CgroupDirectory) reads and writes as a file.

use steward_core::disk::Limit;

use crate::cgroup::directory::line_of;
use crate::cgroup::place::Place;
use crate::journal::{JournalError, SharedJournal, Undone};
use crate::roots::Roots;

/// The file's name.
pub const FILE: &str = "io.max";

/// Limits a cgroup on the device of this number; see [`SharedJournal::write_knob`].
///
/// # Errors
/// As [`SharedJournal::write_knob`].
pub fn set(
    journal: &SharedJournal,
    place: &Place,
    device_number: &str,
    limit: Limit,
    roots: &Roots,
) -> Result<Option<u64>, JournalError> {
    journal.write_knob(place, &line_of(FILE, device_number), &limit.to_kernel(device_number), roots)
}

/// Puts it back to what it was before Steward; see [`SharedJournal::undo_knob`].
///
/// # Errors
/// As [`SharedJournal::undo_knob`].
pub fn unset(
    journal: &SharedJournal,
    place: &Place,
    device_number: &str,
    roots: &Roots,
) -> Result<Option<Undone>, JournalError> {
    journal.undo_knob(place, &line_of(FILE, device_number), roots)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::journal::Journal;
    use crate::roots::with_files;

    #[test]
    fn each_device_has_a_record_of_its_own_and_what_somebody_else_wrote_since_stays() {
        let (directory, roots) = with_files(&[
            ("proc/sys/kernel/random/boot_id", "one\n"),
            ("sys/fs/cgroup/steward.a/io.max", ""),
        ]);
        let journal: SharedJournal =
            Journal::open(&directory.path().join("journal"), &roots).expect("a journal").into();
        let cgroup = roots.cgroup.join("steward.a");
        let place = Place {
            path: "steward.a".into(),
            cgroup_id: std::fs::metadata(&cgroup).expect("it is there").ino(),
        };
        let now = || std::fs::read_to_string(cgroup.join("io.max")).expect("a file");
        let of =
            |bytes_per_second| Limit { bytes_per_second: Some(bytes_per_second), requests_per_second: None };
        set(&journal, &place, "8:0", of(1 << 20), &roots).expect("it can be written");
        assert_eq!(now(), "8:0 rbps=1048576 wbps=1048576 riops=max wiops=max");
        set(&journal, &place, "8:0", of(2 << 20), &roots).expect("it can be written");
        assert_eq!((now().contains("wbps=2097152"), journal.outstanding()), (true, 1));
        let undone = unset(&journal, &place, "8:0", &roots).expect("it can be put back");
        assert_eq!(
            (undone, now().as_str()),
            (Some(Undone::PutBack), "8:0 rbps=max wbps=max riops=max wiops=max")
        );
        assert_eq!(journal.outstanding(), 0);
        set(&journal, &place, "8:0", of(1 << 20), &roots).expect("it can be written");
        std::fs::write(cgroup.join("io.max"), "8:0 rbps=7 wbps=max riops=max wiops=max\n").expect("a file");
        let undone = unset(&journal, &place, "8:0", &roots).expect("there is nothing to put back");
        assert!(matches!(undone, Some(Undone::Left(why)) if why.contains("someone else")));
    }
}
