//! Where a disk has a file system that files can be written on, which disk a directory is on, and which file systems do
//! not say whose pages they write back.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steward_core::disk::device::Device;

use super::below::{DeviceOfFile, disks_below, name_of};
use super::devices;
use crate::roots::{Roots, read_if_present};

/// A mount, by `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
struct Mount {
    number: String,
    point: PathBuf,
    is_read_only: bool,
    kind: String,
    /// What is said of the file system itself.
    options: String,
}

/// A directory, and the disk that it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDisk {
    /// The directory.
    pub directory: PathBuf,
    /// The disk.
    pub device: Device,
}

/// The directory and the disk that somebody means who names either: a directory or a file, or a disk, a partition or
/// what stands for them, as in `sda`, `/dev/sda1` or `/dev/mapper/root`.
///
/// # Errors
/// Why there is none that could be measured, in a sentence.
pub fn find(place: &Path, roots: &Roots, device_of_file: DeviceOfFile) -> Result<OnDisk, String> {
    let mounts = mounts(roots);
    let directory = match device_named(place, roots) {
        Some(name) => mounted_at(&name, &mounts, roots, device_of_file)?,
        None if place.is_dir() => place.to_owned(),
        None if place.is_file() => {
            place.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new(".")).to_owned()
        }
        None => {
            return Err(format!(
                "{} is no directory, and no disk of this machine; name a directory on the disk that is meant, or the disk",
                place.display()
            ));
        }
    };
    let at = directory.display();
    let disks = device_of_file(&directory)
        .and_then(|(major, minor)| name_of(&format!("{major}:{minor}"), roots))
        .map(|name| disks_below(&name, roots, device_of_file))
        .unwrap_or_default();
    match disks.as_slice() {
        [disk] => {
            let listed = devices::list(roots).map_err(|error| error.to_string())?;
            let device = listed.into_iter().find(|device| device.name == *disk);
            let device = device.ok_or_else(|| format!("{disk}, which {at} is on, has gone"))?;
            Ok(OnDisk { directory, device })
        }
        [] => Err(format!(
            "{at} is on {}, which names no disk of its own; name a directory on a file system of one disk, as ext4 and XFS are",
            kind_of(&directory, &mounts).unwrap_or_else(|| "a file system".to_owned())
        )),
        disks => Err(format!(
            "{at} is on several disks ({}), of which none can be measured alone; name a directory on one of them",
            disks.join(", ")
        )),
    }
}

/// The file systems that tell the kernel whose pages are written back (`SB_I_CGROUPWB`;
/// Documentation/admin-guide/cgroup-v2.rst, "Filesystem Support for Writeback"). Of ext3 it is the driver of ext4.
const WITH_CGROUP_WRITEBACK: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];

/// With this option that driver says nothing of it (`ext4_fill_super()`), whether it was mounted so or says so itself:
/// the kernel shows it in both cases.
const WITHOUT_IT: &str = "data=journal";

/// What a file system is that does not tell whose pages it writes back; `None` of one that does.
fn without_cgroup_writeback(mount: &Mount) -> Option<String> {
    let is_journaled = mount.options.split(',').any(|option| option == WITHOUT_IT);
    match WITH_CGROUP_WRITEBACK.contains(&mount.kind.as_str()) {
        true => is_journaled.then(|| format!("{} with {WITHOUT_IT}", mount.kind)),
        false => Some(mount.kind.clone()),
    }
}

/// A file system of which nothing that is written back counts for the cgroup that has changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenByRoot {
    /// Where it is mounted, at first.
    pub point: PathBuf,
    /// What it is, as in `vfat` or `ext4 with data=journal`.
    pub kind: String,
    /// The disks that it is on, by name.
    pub disks: Vec<String>,
}

/// The file systems on these disks that can be written and do not tell whose pages they write back.
pub fn written_by_root(
    disk_names: &[&str],
    roots: &Roots,
    device_of_file: DeviceOfFile,
) -> Vec<WrittenByRoot> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for mount in mounts(roots).into_iter().filter(|mount| !mount.is_read_only) {
        let Some(kind) = without_cgroup_writeback(&mount) else { continue };
        if !seen.insert(mount.number.clone()) {
            continue;
        }
        let Some(name) = name_of(&mount.number, roots) else { continue };
        let mut disks = disks_below(&name, roots, device_of_file);
        disks.retain(|disk| disk_names.contains(&disk.as_str()));
        if !disks.is_empty() {
            found.push(WrittenByRoot { point: mount.point, kind, disks });
        }
    }
    found
}

/// The kernel's name of a device that is named so; `None` where none is.
fn device_named(place: &Path, roots: &Roots) -> Option<String> {
    if let Ok(metadata) = std::fs::metadata(place) {
        let number = metadata.rdev();
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        return metadata.file_type().is_block_device().then(|| name_of(&number, roots))?;
    }
    let name = place.to_str().filter(|name| !name.contains('/') && !name.is_empty())?;
    let block = roots.sys.join("block");
    let is_partition = || {
        let disks = std::fs::read_dir(&block).into_iter().flatten().flatten();
        disks.into_iter().any(|disk| disk.path().join(name).join("partition").is_file())
    };
    (block.join(name).is_dir() || is_partition()).then(|| name.to_owned())
}

/// Where a file system of a disk is mounted that can be written.
fn mounted_at(
    name: &str,
    mounts: &[Mount],
    roots: &Roots,
    device_of_file: DeviceOfFile,
) -> Result<PathBuf, String> {
    let meant = disks_below(name, roots, device_of_file);
    let is_on = |mount: &&Mount| {
        name_of(&mount.number, roots).is_some_and(|mounted| {
            let disks = disks_below(&mounted, roots, device_of_file);
            disks.len() == 1 && meant.contains(&disks[0])
        })
    };
    let on: Vec<&Mount> = mounts.iter().filter(is_on).collect();
    match on.iter().find(|mount| !mount.is_read_only) {
        Some(mount) => Ok(mount.point.clone()),
        None if on.is_empty() => Err(format!(
            "no file system of {name} alone is mounted: only on one can it be measured, for nothing is written to the device itself"
        )),
        None => {
            Err(format!("all file systems of {name} are mounted read-only: nothing can be measured there"))
        }
    }
}

fn mounts(roots: &Roots) -> Vec<Mount> {
    let text = read_if_present(&roots.proc.join("self/mountinfo")).ok().flatten().unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let fields: Vec<&str> = before.split(' ').collect();
    let (number, point, options) = (fields.get(2)?, fields.get(4)?, fields.get(5)?);
    let mut after = after.split(' ');
    let (kind, of_all) = (after.next()?, after.nth(1).unwrap_or_default());
    let is_read_only = |options: &str| options.split(',').any(|option| option == "ro");
    Some(Mount {
        number: (*number).to_owned(),
        point: unescaped(point).into(),
        is_read_only: is_read_only(options) || is_read_only(of_all),
        kind: kind.to_owned(),
        options: of_all.to_owned(),
    })
}

/// The kernel writes a blank, and what else would end a field, as a number.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
}

/// The kind of file system that a directory is on.
fn kind_of(directory: &Path, mounts: &[Mount]) -> Option<String> {
    let directory = std::fs::canonicalize(directory).ok()?;
    let above = mounts.iter().filter(|mount| directory.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.as_os_str().len()).map(|mount| mount.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    const FILES: [(&str, &str); 10] = [
        ("sys/block/sda/dev", "8:0\n"),
        ("sys/block/sda/sda1/dev", "8:1\n"),
        ("sys/block/sda/sda1/partition", "1\n"),
        ("sys/block/sdb/dev", "8:16\n"),
        ("sys/block/sdb/sdb1/dev", "8:17\n"),
        ("sys/block/sdb/sdb1/partition", "1\n"),
        ("sys/block/sdc/dev", "8:32\n"),
        ("sys/block/md0/dev", "9:0\n"),
        ("sys/block/md0/slaves/sda/dev", "8:0\n"),
        ("sys/block/md0/slaves/sdb/dev", "8:16\n"),
    ];

    fn number(path: &Path) -> Option<(u32, u32)> {
        match path.file_name()?.to_str()? {
            "data" => Some((8, 1)),
            "both" => Some((9, 0)),
            _ => Some((0, 42)),
        }
    }

    #[test]
    fn a_directory_a_disk_and_a_partition_all_lead_to_both() {
        let (keep, roots) = with_files(&FILES);
        let data = keep.path().join("my data/data");
        std::fs::create_dir_all(&data).expect("a directory");
        std::fs::write(data.join("file"), "").expect("a file");
        let shown = data.display().to_string().replace(' ', "\\040");
        let mountinfo = format!(
            "21 1 0:42 / /tmp rw - tmpfs tmpfs rw\n\
             22 1 8:1 / /read-only ro,noatime shared:1 - ext4 /dev/sda1 rw\n\
             23 1 8:1 / {shown} rw,noatime shared:1 - ext4 /dev/sda1 rw\n\
             24 1 8:32 / /sealed rw - squashfs /dev/sdc ro\n"
        );
        std::fs::create_dir_all(roots.proc.join("self")).expect("a directory");
        std::fs::write(roots.proc.join("self/mountinfo"), mountinfo).expect("a file");
        for place in [data.as_path(), &data.join("file"), Path::new("sda"), Path::new("sda1")] {
            let found = find(place, &roots, number).expect("it is there");
            assert_eq!((found.directory.as_path(), found.device.name.as_str()), (data.as_path(), "sda"));
        }
        let (tmp, both) = (keep.path().join("memory"), keep.path().join("both"));
        for directory in [&tmp, &both] {
            std::fs::create_dir(directory).expect("a directory");
        }
        for (place, says) in [
            (tmp.as_path(), "which names no disk of its own"),
            (&both, "is on several disks (sda, sdb)"),
            (Path::new("sdb"), "no file system of sdb alone is mounted"),
            (Path::new("sdc"), "all file systems of sdc are mounted read-only"),
            (Path::new("sdz"), "sdz is no directory, and no disk of this machine"),
            (Path::new("/dev/null"), "/dev/null is no directory"),
        ] {
            let why = find(place, &roots, number).expect_err("it cannot be measured");
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn file_systems_that_do_not_say_whose_pages_they_write_are_found_on_disks_and_below_what_stands_for_them()
    {
        let (_keep, roots) = with_files(&FILES);
        let mountinfo = "21 1 8:1 / /data rw - ext4 /dev/sda1 rw\n\
             22 1 8:16 / /stick rw,noatime - vfat /dev/sdb rw\n\
             23 1 8:16 /a /bound rw,noatime - vfat /dev/sdb rw\n\
             24 1 9:0 / /both rw - ntfs3 /dev/md0 rw\n\
             25 1 8:32 / /sealed ro - squashfs /dev/sdc ro\n\
             27 1 8:17 / /log rw - ext4 /dev/sdb1 rw,data=journal\n\
             28 1 8:1 / /ordered rw - ext4 /dev/sda1 rw,data=ordered\n\
             26 1 0:42 / /tmp rw - tmpfs tmpfs rw\n";
        std::fs::create_dir_all(roots.proc.join("self")).expect("a directory");
        std::fs::write(roots.proc.join("self/mountinfo"), mountinfo).expect("a file");
        let found = |names: &[&str]| -> Vec<String> {
            let found = written_by_root(names, &roots, number).into_iter();
            found.map(|of| format!("{} {} {}", of.point.display(), of.kind, of.disks.join(" "))).collect()
        };
        let all = ["/stick vfat sdb", "/both ntfs3 sda sdb", "/log ext4 with data=journal sdb"];
        assert_eq!(found(&["sda", "sdb", "sdc"]), all);
        assert_eq!(found(&["sda"]), ["/both ntfs3 sda"]);
    }
}
