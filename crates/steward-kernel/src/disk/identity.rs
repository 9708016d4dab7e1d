//! By what a disk is told from others: from those of other names, and from another one that comes to have its name.

use std::path::Path;

use crate::roots::read_if_present;

/// By what a disk is known again under another name: a number that its maker has given it, as the kinds of disks show
/// it, or else no more than what it is and how large.
pub(super) fn identity(text: &dyn Fn(&str) -> Option<String>) -> String {
    let of = |file: &str| text(file).filter(|text| !text.is_empty());
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let model = of("device/model").map(|model| format!("{}, ", words(model))).unwrap_or_default();
    let own = of("wwid").or_else(|| of("device/wwid")).map(|wwid| format!("wwid {}", words(wwid)));
    let serial = || of("serial").or_else(|| of("device/serial")).or_else(|| of("device/cid"));
    let own = own.or_else(|| serial().map(|serial| format!("{model}serial number {}", words(serial))));
    let size = || Some(format!("{model}{} {OF_SIZE}", of("size")?));
    own.or_else(size).unwrap_or_default()
}

/// Ends the identity of a disk that has nothing of its own; the kernel counts in pieces of 512 bytes, whatever the disk
/// does (Documentation/ABI/stable/sysfs-block).
const OF_SIZE: &str = "sectors";

/// Whether what a disk is known by may be true of another one.
pub fn is_of_any_such(identity: &str) -> bool {
    identity.ends_with(OF_SIZE)
}

/// Which of the disks that have its name one after the other the one of this directory below `/sys/block` is: the
/// kernel numbers all that it has had since it started (`diskseq`); before Linux 5.15 it does not, and what the disk is
/// known by must do. `None` where there is no disk, or nothing is known of it.
pub(crate) fn which(directory: &Path) -> Option<String> {
    let text = |file: &str| read_if_present(&directory.join(file)).ok().flatten();
    let sequence = text("diskseq").map(|number| format!("diskseq {number}"));
    sequence.or_else(|| Some(identity(&text)).filter(|identity| !identity.is_empty()))
}

/// Whether another disk than this one has come to have the files of the queue that `path` is or is in. Of one that has
/// gone there are none.
pub(crate) fn is_of_another(path: &Path, disk: Option<&str>) -> bool {
    let queue = path.ancestors().find(|directory| directory.ends_with("queue"));
    let Some((directory, disk)) = queue.and_then(Path::parent).zip(disk) else { return false };
    directory.exists() && which(directory).as_deref() != Some(disk)
}
