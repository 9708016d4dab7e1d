//! Mounts and the devices of their superblocks, from `/proc/PID/mountinfo`.
//!
//! The device number that `stat` gives for a file is not always that of its superblock: btrfs gives one of its own
//! per subvolume. The scheduler sees the superblock's (`inode->i_sb->s_dev`), and so does mountinfo, so a file's
//! device is that of the mount it was reached by (`STATX_MNT_ID`, Linux 5.8).
//!
//! Users can make mount namespaces of their own, with 100,000 mounts in each, and the kernel writes some hundred bytes
//! for each mount. So the namespaces of others are looked into only for files of which `stat` gives no device that is
//! known for that of a superblock, each once, and for so many bytes in all.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::error::KernelError;
use crate::roots::{Roots, read};

/// How many bits of the kernel's own device numbers are the minor number (`MINORBITS` in linux/kdev_t.h).
const MINOR_BITS: u32 = 20;

/// A device number in the kernel's own encoding, which is not that of user space's `dev_t`.
pub fn encode_device(major: u32, minor: u32) -> u64 {
    u64::from(major) << MINOR_BITS | u64::from(minor)
}

/// How many dead mounts are looked for on top of each other.
const LAYERS_MAX: usize = 64;

/// Unmounts file systems at `path` that were served by a process which has died: touching them says that nobody is
/// connected. Whoever is in one keeps what they have open. Returns how many there were; what is alive stays.
///
/// # Errors
/// What looking at `path` or unmounting says; that nothing is at `path` is none.
pub fn unmount_dead(path: &Path) -> io::Result<usize> {
    for unmounted in 0..LAYERS_MAX {
        let Err(error) = std::fs::metadata(path) else { return Ok(unmounted) };
        match Errno::from_io_error(&error) {
            Some(Errno::NOTCONN | Errno::CONNABORTED) => unmount(path, UnmountFlags::DETACH)?,
            Some(Errno::NOENT) => return Ok(unmounted),
            _ => return Err(error),
        }
    }
    Ok(LAYERS_MAX)
}

/// How much is read of the mountinfo of other namespaces than the caller's for one table, in bytes: some thousand
/// mounts.
const FOREIGN_BYTES_MAX: u64 = 1024 * 1024;

/// The devices of mounts by mount id.
///
/// Mount ids are unique among the mounts that exist, over all namespaces, but are given out again: use one table
/// for one pass over the processes, not for ever.
#[derive(Clone, Debug)]
pub struct MountTable {
    device_of_mount: HashMap<u64, u64>,
    /// The devices of superblocks. A device number is not given out twice, so where `stat` gives one of these, it is
    /// that.
    superblocks: HashSet<u64>,
    has_own: bool,
    /// Namespaces of others that were read, by their inode numbers.
    read: HashSet<u64>,
    /// How much may still be read of others', in bytes.
    left_bytes: u64,
}

impl Default for MountTable {
    fn default() -> Self {
        MountTable {
            device_of_mount: HashMap::new(),
            superblocks: HashSet::new(),
            has_own: false,
            read: HashSet::new(),
            left_bytes: FOREIGN_BYTES_MAX,
        }
    }
}

impl MountTable {
    /// The mounts of the caller's own namespace.
    ///
    /// # Errors
    /// [`KernelError::Read`] or [`KernelError::Parse`] naming mountinfo.
    pub fn of_caller(roots: &Roots) -> Result<Self, KernelError> {
        let mut table = MountTable { has_own: true, ..MountTable::default() };
        let path = mountinfo_path(roots, None);
        table.add(&path, &read(&path)?)?;
        Ok(table)
    }

    /// The superblock's device of the mount, if it is in the table.
    pub fn device(&self, mount_id: u64) -> Option<u64> {
        self.device_of_mount.get(&mount_id).copied()
    }

    /// As [`MountTable::device`], for a file of a process of which `stat` gives `stat_device`. A mount that is not in
    /// the table is looked for in the process's own namespace, unless the file's superblock is known without.
    pub fn device_seen_by(
        &mut self,
        roots: &Roots,
        pid: i32,
        mount_id: u64,
        stat_device: u64,
    ) -> Option<u64> {
        if !std::mem::replace(&mut self.has_own, true) {
            let path = mountinfo_path(roots, None);
            // What cannot be read is not known; the process's own namespace may tell it.
            let _ = read(&path).and_then(|text| self.add(&path, &text));
        }
        if let Some(device) = self.device(mount_id) {
            return Some(device);
        }
        if self.superblocks.contains(&stat_device) {
            return Some(stat_device);
        }
        // A process that has ended meanwhile has no mounts to add, and its executable is of no interest any more.
        let namespace = std::fs::metadata(roots.proc.join(format!("{pid}/ns/mnt"))).ok()?.ino();
        if self.left_bytes > 0 && self.read.insert(namespace) {
            self.add_foreign(&mountinfo_path(roots, Some(pid))).ok()?;
        }
        self.device(mount_id)
    }

    /// The whole lines among as many bytes as may still be read.
    fn add_foreign(&mut self, path: &Path) -> Result<(), KernelError> {
        let failed = |source| KernelError::Read { path: path.into(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(self.left_bytes).read_to_end(&mut bytes).map_err(failed)?;
        self.left_bytes = self.left_bytes.saturating_sub(bytes.len() as u64);
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.add(path, &String::from_utf8_lossy(&bytes[..whole]))
    }

    fn add(&mut self, path: &Path, mountinfo: &str) -> Result<(), KernelError> {
        for line in mountinfo.lines() {
            let (mount_id, device) = parse_line(line)
                .ok_or_else(|| KernelError::parse(path, "ID PARENT MAJOR:MINOR ...", line))?;
            self.device_of_mount.insert(mount_id, device);
            self.superblocks.insert(device);
        }
        Ok(())
    }
}

fn mountinfo_path(roots: &Roots, pid: Option<i32>) -> PathBuf {
    match pid {
        None => roots.proc.join("self/mountinfo"),
        Some(pid) => roots.proc.join(format!("{pid}/mountinfo")),
    }
}

/// Mount id and device of one line (proc_pid_mountinfo(5)).
fn parse_line(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split(' ');
    let mount_id = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    Some((mount_id, encode_device(major.parse().ok()?, minor.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_encoded_as_the_kernel_does_it() {
        assert_eq!(encode_device(254, 1), 0xfe0_0001);
        assert_eq!(encode_device(0, 0x1_2345), 0x1_2345);
    }

    #[test]
    fn a_line_of_mountinfo_gives_mount_and_device() {
        let line = "38 31 8:17 /@home /home rw,relatime shared:5 - btrfs /dev/sda1 rw";
        assert_eq!(parse_line(line), Some((38, encode_device(8, 17))));
        assert_eq!(parse_line("nonsense"), None);
    }

    /// A procfs with these mounts of the caller, and processes of others with theirs.
    fn with_mounts(own: &str, others: &[(i32, String)]) -> (tempfile::TempDir, Roots) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let write = |process: &str, text: &str| {
            let place = roots.proc.join(process);
            std::fs::create_dir_all(place.join("ns")).expect("a directory");
            std::fs::write(place.join("mountinfo"), text).expect("a file");
            std::fs::write(place.join("ns/mnt"), "").expect("a file");
        };
        write("self", own);
        others.iter().for_each(|(pid, text)| write(&pid.to_string(), text));
        (directory, roots)
    }

    fn mounts(ids: std::ops::Range<u64>, device: &str) -> String {
        ids.map(|id| format!("{id} 1 {device} / /m{id} rw - tmpfs none rw\n")).collect()
    }

    #[test]
    fn a_file_on_a_superblock_that_is_known_needs_no_look_into_another_namespace() {
        let (_keep, roots) = with_mounts(&mounts(1..2, "8:1"), &[(7, mounts(10..60_000, "8:1"))]);
        let mut table = MountTable::default();
        let disk = encode_device(8, 1);
        assert_eq!(table.device_seen_by(&roots, 7, 59_999, disk), Some(disk));
        assert_eq!((table.left_bytes, table.device(59_999)), (FOREIGN_BYTES_MAX, None));
    }

    #[test]
    fn each_other_namespace_is_read_once_found_or_not_and_all_together_to_the_limit() {
        let text = mounts(10..5000, "0:77");
        let (_keep, roots) =
            with_mounts(&mounts(1..2, "8:1"), &[(7, text.clone()), (8, mounts(5000..90_000, "0:78"))]);
        let mut table = MountTable::of_caller(&roots).expect("mountinfo");
        // As btrfs has it: stat gives a device that is no superblock's.
        for _ in 0..3 {
            assert_eq!(table.device_seen_by(&roots, 7, 4999, 5), Some(encode_device(0, 77)));
            assert_eq!(table.device_seen_by(&roots, 7, 1_000_000, 5), None);
        }
        assert_eq!(table.left_bytes, FOREIGN_BYTES_MAX - text.len() as u64);
        assert_eq!(table.device_seen_by(&roots, 8, 5000, 5), Some(encode_device(0, 78)));
        assert_eq!((table.device_seen_by(&roots, 8, 89_999, 5), table.left_bytes), (None, 0));
        assert_eq!(table.device_seen_by(&roots, 9, 1_000_000, 5), None, "no such process");
    }

    #[test]
    fn a_broken_mountinfo_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        std::fs::create_dir_all(roots.proc.join("self")).expect("a directory");
        std::fs::write(roots.proc.join("self/mountinfo"), "not a mount\n").expect("a file");
        let error = MountTable::of_caller(&roots).expect_err("it is broken").to_string();
        assert!(error.contains("self/mountinfo") && error.contains("not a mount"), "{error}");
    }
}
