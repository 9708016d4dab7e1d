//! Mounts and the devices of their superblocks, from `/proc/PID/mountinfo`.
//!
//! The device number that `stat` gives for a file is not always that of its superblock: btrfs gives one of its own
//! per subvolume. The scheduler sees the superblock's (`inode->i_sb->s_dev`), and so does mountinfo, so a file's
//! device is that of the mount it was reached by (`STATX_MNT_ID`, Linux 5.8).

use std::collections::HashMap;
use std::io;
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

/// The devices of mounts by mount id.
///
/// Mount ids are unique among the mounts that exist, over all namespaces, but are given out again: use one table
/// for one pass over the processes, not for ever.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    device_of_mount: HashMap<u64, u64>,
}

impl MountTable {
    /// The mounts of the caller's own namespace.
    ///
    /// # Errors
    /// [`KernelError::Read`] or [`KernelError::Parse`] naming mountinfo.
    pub fn of_caller(roots: &Roots) -> Result<Self, KernelError> {
        let mut table = MountTable::default();
        table.add(&mountinfo_path(roots, None))?;
        Ok(table)
    }

    /// The superblock's device of the mount, if it is in the table.
    pub fn device(&self, mount_id: u64) -> Option<u64> {
        self.device_of_mount.get(&mount_id).copied()
    }

    /// As [`MountTable::device`]; a mount that is not in the table is looked for in the process's own namespace.
    pub fn device_seen_by(&mut self, roots: &Roots, pid: i32, mount_id: u64) -> Option<u64> {
        if let Some(device) = self.device(mount_id) {
            return Some(device);
        }
        // A process that has ended meanwhile has no mounts to add, and its executable is of no interest any more.
        self.add(&mountinfo_path(roots, Some(pid))).ok()?;
        self.device(mount_id)
    }

    fn add(&mut self, path: &Path) -> Result<(), KernelError> {
        for line in read(path)?.lines() {
            let (mount_id, device) = parse_line(line)
                .ok_or_else(|| KernelError::parse(path, "ID PARENT MAJOR:MINOR ...", line))?;
            self.device_of_mount.insert(mount_id, device);
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
