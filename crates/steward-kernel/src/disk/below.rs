//! Which disks a device's requests end up at: the disk that a partition is a part of, those that device-mapper (LVM,
//! dm-crypt) and md stand for (`slaves/`), the one that the file of a loop device is on; through as many of these as
//! there are. Only there can requests be ordered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::roots::{Roots, read_if_present};

/// How many devices may stand on each other: what says more goes around in a circle.
const DEPTH_MAX: usize = 16;

/// The numbers of the device that a file is on; `None` where it is on none, or that cannot be seen.
pub type DeviceOfFile = fn(&Path) -> Option<(u32, u32)>;

/// As the kernel tells it of files (`stat(2)`). A file system that spans devices (btrfs) has numbers of its own, which
/// no device has.
pub fn device_of_file(path: &Path) -> Option<(u32, u32)> {
    let stat = rustix::fs::stat(path).ok()?;
    Some((rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)))
}

/// The names of the disks below a device that is named as the kernel does (`sda1`, `dm-0`), sorted. A disk of its own
/// is the only one below it; one of which nothing is known has none.
pub fn disks_below(name: &str, roots: &Roots, device_of_file: DeviceOfFile) -> Vec<String> {
    let mut disks = BTreeSet::new();
    let mut seen = BTreeSet::new();
    Walk { roots, device_of_file, disks: &mut disks, seen: &mut seen }.down(name, 0);
    disks.into_iter().collect()
}

/// The kernel's name of the device of these numbers, as in `8:0`; `None` where there is none.
pub fn name_of(number: &str, roots: &Roots) -> Option<String> {
    let has_number = |directory: &Path| {
        read_if_present(&directory.join("dev")).ok().flatten().is_some_and(|text| text == number)
    };
    let devices = names_in(&roots.sys.join("block")).into_iter();
    devices
        .flat_map(|disk| {
            let directory = roots.sys.join("block").join(&disk);
            let partitions = partitions(&directory).into_iter().map(|name| (directory.join(&name), name));
            std::iter::once((directory.clone(), disk)).chain(partitions).collect::<Vec<_>>()
        })
        .find(|(directory, _)| has_number(directory))
        .map(|(_, name)| name)
}

/// Whether it is a device of device-mapper that queues requests itself (multipath, but where it was made otherwise):
/// its own elevator orders them, and they are handed on past those of the disks below (`blk_insert_cloned_request()`).
pub(super) fn takes_requests(directory: &Path) -> bool {
    directory.join("dm").is_dir() && directory.join("mq").is_dir()
}

/// The device that hands its requests on to this disk past the disk's own elevator.
pub(super) fn orders_for(directory: &Path, roots: &Roots) -> Option<String> {
    let holders = names_in(&directory.join("holders")).into_iter();
    holders.into_iter().find(|name| takes_requests(&roots.sys.join("block").join(name)))
}

struct Walk<'a> {
    roots: &'a Roots,
    device_of_file: DeviceOfFile,
    disks: &'a mut BTreeSet<String>,
    seen: &'a mut BTreeSet<String>,
}

impl Walk<'_> {
    fn down(&mut self, name: &str, depth: usize) {
        if name.is_empty() || depth > DEPTH_MAX || !self.seen.insert(name.to_owned()) {
            return;
        }
        let directory = self.directory(name);
        let Some(directory) = directory else {
            if let Some(disk) = self.disk_of_partition(name) {
                self.down(&disk, depth + 1);
            }
            return;
        };
        if takes_requests(&directory) {
            self.disks.insert(name.to_owned());
            return;
        }
        let below = names_in(&directory.join("slaves"));
        if !below.is_empty() {
            below.iter().for_each(|name| self.down(name, depth + 1));
            return;
        }
        match read_if_present(&directory.join("loop/backing_file")) {
            Ok(Some(file)) => self.below_file(Path::new(&file), depth),
            // One that is set up for nothing yet, or has lost what it stood for.
            _ if ["dm", "md", "loop"].iter().any(|kind| directory.join(kind).is_dir()) => {}
            // These are memory, or a loop that is set up for nothing.
            _ if ["loop", "zram", "ram"].iter().any(|kind| name.starts_with(kind)) => {}
            _ => _ = self.disks.insert(name.to_owned()),
        }
    }

    fn below_file(&mut self, file: &Path, depth: usize) {
        let device = (self.device_of_file)(file);
        if let Some(name) = device.and_then(|(major, minor)| name_of(&format!("{major}:{minor}"), self.roots))
        {
            self.down(&name, depth + 1);
        }
    }

    fn directory(&self, name: &str) -> Option<PathBuf> {
        Some(self.roots.sys.join("block").join(name)).filter(|directory| directory.is_dir())
    }

    fn disk_of_partition(&self, name: &str) -> Option<String> {
        let block = self.roots.sys.join("block");
        names_in(&block).into_iter().find(|disk| block.join(disk).join(name).join("partition").is_file())
    }
}

fn partitions(disk: &Path) -> Vec<String> {
    names_in(disk).into_iter().filter(|name| disk.join(name).join("partition").is_file()).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    /// Two disks, of which the second has two partitions; LVM on crypt on one of these and on the other disk, a RAID of
    /// both, a loop on a file, one on nothing, a circle.
    const FILES: [(&str, &str); 25] = [
        ("sys/block/sda/dev", "8:0\n"),
        ("sys/block/sdb/dev", "8:16\n"),
        ("sys/block/sdb/sdb1/partition", "1\n"),
        ("sys/block/sdb/sdb1/dev", "8:17\n"),
        ("sys/block/sdb/sdb2/partition", "2\n"),
        ("sys/block/sdb/sdb2/dev", "8:18\n"),
        ("sys/block/dm-0/dev", "253:0\n"),
        ("sys/block/dm-0/dm/name", "crypt\n"),
        ("sys/block/dm-0/slaves/sdb2/dev", "8:18\n"),
        ("sys/block/dm-1/dev", "253:1\n"),
        ("sys/block/dm-1/slaves/dm-0/dev", "253:0\n"),
        ("sys/block/dm-1/slaves/sda/dev", "8:0\n"),
        ("sys/block/md0/dev", "9:0\n"),
        ("sys/block/md0/slaves/sdb1/dev", "8:17\n"),
        ("sys/block/md0/slaves/dm-1/dev", "253:1\n"),
        ("sys/block/loop0/loop/backing_file", "/on-the-raid/image\n"),
        ("sys/block/loop1/loop/sizelimit", "0\n"),
        ("sys/block/loop3/dev", "7:3\n"),
        ("sys/block/loop2/loop/backing_file", "/on-several/image\n"),
        ("sys/block/dm-3/dm/name", "mpatha\n"),
        ("sys/block/dm-3/mq/0/nr_tags", "128\n"),
        ("sys/block/dm-3/slaves/sda/dev", "8:0\n"),
        ("sys/block/dm-4/slaves/dm-3/dev", "253:3\n"),
        ("sys/block/dm-8/slaves/dm-9/dev", "253:9\n"),
        ("sys/block/dm-9/slaves/dm-8/dev", "253:8\n"),
    ];

    fn known(path: &Path) -> Option<(u32, u32)> {
        match path.to_str()? {
            "/on-the-raid/image" => Some((9, 0)),
            "/on-several/image" => Some((0, 42)),
            _ => None,
        }
    }

    #[test]
    fn each_device_leads_to_the_disks_that_its_requests_end_up_at() {
        let (_directory, roots) = with_files(&FILES);
        for (name, disks) in [
            ("sda", &["sda"][..]),
            ("sdb1", &["sdb"]),
            ("dm-0", &["sdb"]),
            ("dm-1", &["sda", "sdb"]),
            ("md0", &["sda", "sdb"]),
            ("loop0", &["sda", "sdb"]),
            // It orders requests itself.
            ("dm-3", &["dm-3"]),
            ("dm-4", &["dm-3"]),
        ] {
            assert_eq!(disks_below(name, &roots, known), disks, "{name}");
        }
    }

    #[test]
    fn what_leads_nowhere_or_around_in_a_circle_has_no_disk_below() {
        let (_directory, roots) = with_files(&FILES);
        for name in ["loop1", "loop2", "loop3", "dm-8", "dm-9", "gone", ""] {
            assert_eq!(disks_below(name, &roots, known), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn disks_and_partitions_are_found_by_their_numbers() {
        let (_directory, roots) = with_files(&FILES);
        let name = |number| name_of(number, &roots);
        assert_eq!((name("8:17").as_deref(), name("253:1").as_deref()), (Some("sdb1"), Some("dm-1")));
        assert_eq!(name("8:99"), None);
    }
}
