//! Which program a path names, and how the kernel knows it.
//!
//! A specification names an executable by path; the scheduler knows it by superblock device and inode. A path is
//! followed as `execve` follows it, so that `/usr/bin/vi` becomes whatever the alternatives system made it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, open, statx};
use rustix::io::Errno;
use steward_core::process::FileIdentity;
use steward_core::spec::TargetFacts;

use crate::error::KernelError;
use crate::mounts::{MountTable, encode_device};
use crate::roots::Roots;

/// How much of a file the kernel looks at to find out what it is (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE_BYTES_MAX: u64 = 256;

/// Finds out what `path` names, following symbolic links as `execve` does.
///
/// A directory, a file without execute permission for anyone, and anything else that `execve` refuses are told apart
/// in the result. What runs for a script, and what the scheduler sees, is its interpreter.
///
/// On overlayfs the inode is the overlay's own only where its layers are on one file system or `xino` is on, which
/// are the usual cases.
///
/// # Errors
/// [`KernelError::Read`] when the path cannot be looked at, for example for lack of permission, or when mountinfo
/// cannot be read.
pub fn identify(path: &Path, roots: &Roots) -> Result<TargetFacts, KernelError> {
    identify_on(path, &MountTable::of_caller(roots)?)
}

/// As [`identify`], with mounts that were read before: for many paths at once.
///
/// # Errors
/// [`KernelError::Read`] when the path cannot be looked at, for example for lack of permission.
pub fn identify_on(path: &Path, mounts: &MountTable) -> Result<TargetFacts, KernelError> {
    if !path.is_absolute() {
        return Ok(TargetFacts::NotAbsolute);
    }
    let handle = match open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(TargetFacts::Missing),
        Err(Errno::LOOP) => return Ok(TargetFacts::SymlinkLoop),
        Err(errno) => return Err(KernelError::Read { path: path.into(), source: errno.into() }),
    };
    let facts = stat_handle(&handle, path)?;
    if let Some(refusal) = refusal(&facts) {
        return Ok(refusal);
    }
    // A file that may be executed but not read is never a script: the interpreter could not read it either.
    if let Some(interpreter) = interpreter(path) {
        return Ok(TargetFacts::Script { interpreter });
    }
    let device = mounts.device(facts.stx_mnt_id).unwrap_or_else(|| own_device(&facts));
    Ok(TargetFacts::Executable { identity: FileIdentity { device, inode: facts.stx_ino } })
}

/// The executable that a process runs, through the kernel's own link to it, which is right even after the file was
/// renamed or removed. `None` for kernel threads, for processes that have ended, and where the caller may not look.
pub fn of_process(pid: i32, roots: &Roots, mounts: &mut MountTable) -> Option<FileIdentity> {
    let link = roots.proc.join(format!("{pid}/exe"));
    let facts = statx(CWD, &link, AtFlags::empty(), statx_mask()).ok()?;
    // Programs in memory (memfd) are on a mount that no namespace shows; their own device is the superblock's.
    let own = own_device(&facts);
    let device = mounts.device_seen_by(roots, pid, facts.stx_mnt_id, own).unwrap_or(own);
    Some(FileIdentity { device, inode: facts.stx_ino })
}

fn statx_mask() -> StatxFlags {
    StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO | StatxFlags::MNT_ID
}

fn stat_handle(handle: &OwnedFd, path: &Path) -> Result<Statx, KernelError> {
    statx(handle.as_fd(), "", AtFlags::EMPTY_PATH, statx_mask())
        .map_err(|errno| KernelError::Read { path: path.into(), source: errno.into() })
}

fn own_device(facts: &Statx) -> u64 {
    encode_device(facts.stx_dev_major, facts.stx_dev_minor)
}

/// Why `execve` would not take this file, if it would not.
fn refusal(facts: &Statx) -> Option<TargetFacts> {
    let mode = u32::from(facts.stx_mode);
    match mode & libc::S_IFMT {
        libc::S_IFDIR => Some(TargetFacts::Directory),
        libc::S_IFREG if mode & 0o111 != 0 => None,
        _ => Some(TargetFacts::NotExecutable),
    }
}

/// The interpreter that a script's first line names, if the file is a script.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(SCRIPT_LINE_BYTES_MAX).read_to_end(&mut start).ok()?;
    parse_interpreter(&start)
}

/// As `load_script` does it (fs/binfmt_script.c): blanks, then a name up to a blank or the end of the line.
fn parse_interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let text = String::from_utf8_lossy(line);
    let name = text.split([' ', '\t', '\0']).find(|word| !word.is_empty())?;
    Some(PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    fn program(directory: &Path, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, content).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("permissions");
        path
    }

    fn target(path: &Path) -> TargetFacts {
        identify(path, &Roots::default()).expect("the path can be looked at")
    }

    #[test]
    fn each_kind_of_bad_path_is_told_apart() {
        let place = directory();
        let place = place.path();
        symlink("b", place.join("a")).expect("a link");
        symlink("a", place.join("b")).expect("a link");
        let plain = program(place, "plain", "text", 0o644);
        assert_eq!(target(Path::new("bin/true")), TargetFacts::NotAbsolute);
        assert_eq!(target(&place.join("nothing")), TargetFacts::Missing);
        assert_eq!(target(&plain.join("below-a-file")), TargetFacts::Missing);
        assert_eq!(target(place), TargetFacts::Directory);
        assert_eq!(target(&plain), TargetFacts::NotExecutable);
        assert_eq!(target(Path::new("/dev/null")), TargetFacts::NotExecutable);
        assert_eq!(target(&place.join("a")), TargetFacts::SymlinkLoop);
    }

    #[test]
    fn a_script_gives_its_interpreter() {
        let place = directory();
        let script = program(place.path(), "tool", "#! /usr/bin/env -S python3\nprint()\n", 0o755);
        assert_eq!(target(&script), TargetFacts::Script { interpreter: "/usr/bin/env".into() });
        assert_eq!(parse_interpreter(b"#!/bin/sh"), Some("/bin/sh".into()));
        assert_eq!(parse_interpreter(b"#!\n/bin/sh"), None);
        assert_eq!(parse_interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn a_symbolic_link_to_a_program_is_that_program() {
        let place = directory();
        let real = program(place.path(), "real", "\x7fELF", 0o755);
        symlink(&real, place.path().join("link")).expect("a link");
        let inode = std::fs::metadata(&real).expect("metadata").ino();
        let TargetFacts::Executable { identity } = target(&place.path().join("link")) else {
            panic!("it is a program");
        };
        assert_eq!(identity.inode, inode);
        assert_eq!(target(&real), TargetFacts::Executable { identity });
    }

    #[test]
    fn the_device_is_that_of_the_mount_and_not_of_stat() {
        let place = directory();
        let real = program(place.path(), "real", "\x7fELF", 0o755);
        let facts = statx(CWD, &real, AtFlags::empty(), statx_mask()).expect("statx");
        let roots = Roots::under(place.path());
        std::fs::create_dir_all(roots.proc.join("self")).expect("a directory");
        let line = format!("{} 1 77:1234567 / / rw - btrfs none rw\n", facts.stx_mnt_id);
        std::fs::write(roots.proc.join("self/mountinfo"), line).expect("a file");
        let expected = FileIdentity { device: encode_device(77, 1_234_567), inode: facts.stx_ino };
        assert_eq!(
            identify(&real, &roots).expect("it is there"),
            TargetFacts::Executable { identity: expected }
        );
    }

    #[test]
    fn a_running_process_and_its_path_have_one_identity() {
        let own = std::env::current_exe().expect("the test's own path");
        let mut mounts = MountTable::of_caller(&Roots::default()).expect("mountinfo");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let running = of_process(pid, &Roots::default(), &mut mounts).expect("it runs");
        assert_eq!(target(&own), TargetFacts::Executable { identity: running });
    }
}
