//! Which file systems' files may be opened without waiting for somebody else.
//!
//! Opening a file on FUSE or on a network waits for a server, which may be anybody's program and may never answer. So
//! a file is opened only where the caller's own mountinfo knows its superblock, and only for kinds of file systems that
//! keep their files on this machine. Every user can make mounts in a namespace of their own; these the caller's
//! mountinfo does not have, and what is on them is left alone.
//!
//! An overlay is not among these kinds: its layers may be on any file system.

use std::collections::HashMap;

use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};

use crate::error::KernelError;
use crate::mounts::encode_device;
use crate::roots::{Roots, read};

/// Kinds of file systems, by the kernel's names, that are served by this kernel alone from devices or memory.
const LOCAL: [&str; 20] = [
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs", "nilfs2",
    "ntfs3", "ramfs", "rootfs", "squashfs", "tmpfs", "udf", "vfat", "xfs", "zonefs",
];

/// How a file system's files are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// By the superblock's device and the inode number.
    Superblock,
    /// Each subvolume has inode numbers of its own, and a device of its own that only `stat` tells (btrfs).
    Subvolumes,
}

/// The superblocks whose files may be opened.
#[derive(Debug, Default)]
pub struct LocalFileSystems {
    known: HashMap<u64, Numbering>,
}

impl LocalFileSystems {
    /// Those of the caller's own mounts, and the one of memory that programs share without a path (memfd_create(2),
    /// shm_overview(7), shmget(2)), which is mounted nowhere.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming mountinfo.
    pub fn of_caller(roots: &Roots) -> Result<Self, KernelError> {
        let mut known: HashMap<u64, Numbering> =
            read(&roots.proc.join("self/mountinfo"))?.lines().filter_map(parse).collect();
        known.extend(shared_memory().map(|device| (device, Numbering::Superblock)));
        Ok(LocalFileSystems { known })
    }

    /// How files on this superblock are told apart; `None` where they must not be opened.
    pub fn numbering(&self, device: u64) -> Option<Numbering> {
        self.known.get(&device).copied()
    }
}

/// The device and the numbering of one line of proc_pid_mountinfo(5), if files there may be opened.
fn parse(line: &str) -> Option<(u64, Numbering)> {
    let (mount, system) = line.split_once(" - ")?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let kind = system.split(' ').next()?;
    let numbering = if kind == "btrfs" { Numbering::Subvolumes } else { Numbering::Superblock };
    LOCAL.contains(&kind).then_some((encode_device(major.parse().ok()?, minor.parse().ok()?), numbering))
}

/// The device of the kernel's own tmpfs.
fn shared_memory() -> Option<u64> {
    let file = memfd_create("steward-hold", MemfdFlags::CLOEXEC).ok()?;
    let device = fstat(&file).ok()?.st_dev;
    Some(encode_device(major(device), minor(device)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_superblocks_of_local_kinds_may_be_opened() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        std::fs::create_dir_all(roots.proc.join("self")).expect("a directory");
        let text = "27 1 254:0 / / rw,relatime shared:5 master:3 - ext4 /dev/vda rw\n\
            28 27 0:40 /@ /home rw - btrfs /dev/vdb rw\n\
            29 27 0:41 / /dev/shm\\040-\\040ext4 rw - tmpfs none rw\n\
            30 27 0:42 / /a rw - fuse.ext4 ext4 rw\n\
            31 27 0:43 / /b rw - fuse none rw\n\
            32 27 8:1 / /c rw - fuseblk /dev/sda1 rw\n\
            33 27 0:45 / /d rw - nfs4 server:/ rw\n\
            34 27 0:46 / /e rw - 9p host rw\n\
            35 27 0:47 / /f rw - overlay overlay rw,lowerdir=/ext4\n\
            36 27 0:48 / /g rw - cifs //server/ext4 rw\n\
            37 27 0:6 / /dev rw - devtmpfs devtmpfs rw\n\
            nonsense\n";
        std::fs::write(roots.proc.join("self/mountinfo"), text).expect("a file");
        let systems = LocalFileSystems::of_caller(&roots).expect("mountinfo");
        assert_eq!(systems.numbering(encode_device(254, 0)), Some(Numbering::Superblock));
        assert_eq!(systems.numbering(encode_device(0, 40)), Some(Numbering::Subvolumes));
        assert_eq!(systems.numbering(encode_device(0, 41)), Some(Numbering::Superblock));
        for minor in (42..=48).chain([6, 99]) {
            assert_eq!(systems.numbering(encode_device(0, minor)), None, "0:{minor}");
        }
        assert_eq!(systems.numbering(encode_device(8, 1)), None);
        // The one of shared memory is known besides.
        assert_eq!(systems.known.len(), 4);
    }

    #[test]
    fn without_mountinfo_there_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error =
            LocalFileSystems::of_caller(&Roots::under(directory.path())).expect_err("nothing is there");
        assert!(error.to_string().contains("mountinfo"), "{error}");
    }
}
