//! What requests of a disk are charged at (`io.cost.model`, `io.cost.qos` of the root of the cgroups,
//! Documentation/admin-guide/cgroup-v2.rst), through the undo journal. Both files have a line for each device for which
//! something was set: each is a knob of its own, which
//! [`CgroupDirectory`](crate::cgroup::directory::CgroupDirectory) reads and writes as a file.

use steward_core::disk::cost::{Lines, Model};

use crate::cgroup::directory::{CgroupDirectory, line_of};
use crate::cgroup::place::Place;
use crate::error::KernelError;
use crate::journal::{JournalError, SharedJournal};
use crate::roots::{Roots, read_if_present};

const MODEL: &str = "io.cost.model";
const QUALITY: &str = "io.cost.qos";

/// What the kernel says for all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllLines(Lines);

impl AllLines {
    /// What it says for the device of this number.
    pub fn of(&self, device_number: &str) -> Lines {
        let line = |text: &str| {
            let mut lines = text.lines().map(str::trim);
            let line = lines.find(|line| line.split(' ').next() == Some(device_number));
            line.unwrap_or_default().to_owned()
        };
        Lines { model: line(&self.0.model), quality: line(&self.0.quality) }
    }
}

/// What the kernel says for all devices; `None` where it has no io.cost.
///
/// # Errors
/// [`KernelError`] with the file.
pub fn lines(roots: &Roots) -> Result<Option<AllLines>, KernelError> {
    let read = |file| read_if_present(&roots.cgroup.join(file));
    let both = read(MODEL)?.zip(read(QUALITY)?);
    Ok(both.map(|(model, quality)| AllLines(Lines { model, quality })))
}

/// Has requests of the device of this number charged by this. The model comes first: nothing is charged by another.
///
/// # Errors
/// [`JournalError`] with the file; what was written before the failure is then back.
pub fn set(
    journal: &SharedJournal,
    device_number: &str,
    model: &Model,
    roots: &Roots,
) -> Result<(), JournalError> {
    let place = root(roots)?;
    let write = |file, line: String| journal.write_knob(&place, &line_of(file, device_number), &line, roots);
    let outcome = write(MODEL, model.to_kernel(device_number))
        .and_then(|_| write(QUALITY, model.quality(device_number)))
        .map(drop);
    if outcome.is_err() {
        let _ = unset(journal, device_number, roots);
    }
    outcome
}

/// Puts it back to what it was before Steward, where it is still as Steward left it.
///
/// # Errors
/// As [`SharedJournal::undo_knob`].
pub fn unset(journal: &SharedJournal, device_number: &str, roots: &Roots) -> Result<(), JournalError> {
    let place = root(roots)?;
    for file in [QUALITY, MODEL] {
        journal.undo_knob(&place, &line_of(file, device_number), roots)?;
    }
    Ok(())
}

fn root(roots: &Roots) -> Result<Place, KernelError> {
    let cgroup = CgroupDirectory::open("", roots)?;
    Ok(Place { path: String::new(), cgroup_id: cgroup.id() })
}

#[cfg(test)]
mod tests {
    use steward_core::disk::cost::{Standing, Way};

    use super::*;
    use crate::journal::{self, Journal};
    use crate::roots::with_files;

    const FILES: [(&str, &str); 3] = [
        ("proc/sys/kernel/random/boot_id", "one\n"),
        ("sys/fs/cgroup/io.cost.model", ""),
        ("sys/fs/cgroup/io.cost.qos", ""),
    ];

    fn model() -> Model {
        let way = Way { bytes_per_second: 500, sequential_per_second: 22, random_per_second: 20 };
        Model { read: way, write: way }
    }

    fn now(roots: &Roots) -> [String; 2] {
        [MODEL, QUALITY].map(|file| std::fs::read_to_string(roots.cgroup.join(file)).expect("a file"))
    }

    #[test]
    fn both_lines_have_a_record_and_come_back_as_the_kernels_own() {
        let (directory, roots) = with_files(&FILES);
        let path = directory.path().join("journal");
        let journal: SharedJournal = Journal::open(&path, &roots).expect("a journal").into();
        set(&journal, "8:0", &model(), &roots).expect("it can be written");
        assert_eq!(now(&roots), [model().to_kernel("8:0"), model().quality("8:0")]);
        let lines = lines(&roots).expect("readable").expect("it is there").of("8:0");
        assert_eq!((lines.standing(Some(&model())), journal.outstanding()), (Standing::Stewards, 2));
        unset(&journal, "8:0", &roots).expect("it can be put back");
        assert_eq!(now(&roots), ["8:0 ctrl=auto", "8:0 enable=0 ctrl=auto"]);
        assert_eq!(journal.outstanding(), 0);
        // What a killed daemon leaves.
        set(&journal, "8:0", &model(), &roots).expect("it can be written");
        drop(journal);
        let report = journal::revert(&path, &roots).expect("a journal");
        assert_eq!(report.reverted.len(), 2, "{report:?}");
        assert_eq!(now(&roots), ["8:0 ctrl=auto", "8:0 enable=0 ctrl=auto"]);
    }

    #[test]
    fn what_somebody_else_has_set_meanwhile_stays() {
        let (directory, roots) = with_files(&FILES);
        let journal: SharedJournal =
            Journal::open(&directory.path().join("journal"), &roots).expect("a journal").into();
        set(&journal, "8:0", &model(), &roots).expect("it can be written");
        let theirs = "8:0 enable=1 ctrl=user rpct=90.00 rlat=1 wpct=90.00 wlat=1 min=50.00 max=150.00\n";
        std::fs::write(roots.cgroup.join(QUALITY), theirs).expect("a file");
        unset(&journal, "8:0", &roots).expect("there is nothing to put back");
        assert_eq!(now(&roots)[1], theirs);
        assert_eq!(journal.outstanding(), 0);
    }

    #[test]
    fn a_kernel_without_it_is_told_apart() {
        let (_directory, roots) = with_files(&FILES[..2]);
        assert_eq!(lines(&roots).expect("readable"), None);
    }
}
