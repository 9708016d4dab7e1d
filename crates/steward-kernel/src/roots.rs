//! Where the kernel's file trees are: the real ones, or a directory that stands in for them in a test.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::error::KernelError;

/// The three trees of files through which the kernel is read and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// procfs, usually `/proc`.
    pub proc: PathBuf,
    /// sysfs, usually `/sys`.
    pub sys: PathBuf,
    /// The unified cgroup hierarchy, usually `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
    /// What programs keep until the next boot, usually `/run`.
    pub run: PathBuf,
}

impl Default for Roots {
    /// The trees of the machine that this runs on.
    fn default() -> Self {
        Roots {
            proc: "/proc".into(),
            sys: "/sys".into(),
            cgroup: "/sys/fs/cgroup".into(),
            run: "/run".into(),
        }
    }
}

impl Roots {
    /// Trees under one directory: `DIR/proc`, `DIR/sys`, `DIR/sys/fs/cgroup`, `DIR/run`.
    pub fn under(directory: &Path) -> Self {
        Roots {
            proc: directory.join("proc"),
            sys: directory.join("sys"),
            cgroup: directory.join("sys/fs/cgroup"),
            run: directory.join("run"),
        }
    }
}

/// Reads a small file of the kernel as text, whatever bytes are in it.
///
/// # Errors
/// [`KernelError::Read`] with the path.
pub fn read(path: &Path) -> Result<String, KernelError> {
    match File::open(path).and_then(|file| read_all(&file)) {
        Ok(bytes) => Ok(text_of(bytes)),
        Err(source) => Err(KernelError::Read { path: path.into(), source }),
    }
}

/// How much room there is for what is read of a file at first; few have more.
const PIECE_BYTES: usize = 4096;

/// All that a file of the kernel's has from where it stands. These have no size that could be asked for before, as the
/// standard library does: without, a small one takes two calls.
///
/// # Errors
/// What the kernel said.
pub(crate) fn read_all(file: &impl AsFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(PIECE_BYTES);
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(bytes.len());
        }
        match rustix::io::read(file, spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// As [`read_all`], for what must be text.
///
/// # Errors
/// What the kernel said, or that it is no text ([`io::ErrorKind::InvalidData`]).
pub(crate) fn read_text(file: &impl AsFd) -> io::Result<String> {
    String::from_utf8(read_all(file)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// What was read, as text. Nearly always it is: that is found out many bytes at a time, and what is not is looked for
/// only then.
pub(crate) fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// As [`read`], trimmed, with `None` where there is no such file, this kernel does not support it, or the task
/// that it belongs to has ended.
///
/// # Errors
/// [`KernelError::Read`] for every other reason, for example a lack of permission.
pub fn read_if_present(path: &Path) -> Result<Option<String>, KernelError> {
    match read(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// How often a write is tried again that the kernel refuses because another one is under way, and how long after.
const BUSY_TRIES: usize = 20;
const BUSY_WAIT: Duration = Duration::from_millis(5);

/// Writes a file of the kernel that is there: one write, as these files want it. A disk's `queue/scheduler` may be
/// written by somebody else at the same moment (udev, an administrator): then it is tried again.
///
/// # Errors
/// [`KernelError::Write`] with the path and the value.
pub(crate) fn write(path: &Path, value: &str) -> Result<(), KernelError> {
    let written = while_busy(|| {
        let opened = OpenOptions::new().write(true).truncate(true).open(path);
        opened.and_then(|mut file| file.write_all(value.as_bytes()))
    });
    written.map_err(|source| KernelError::Write { path: path.into(), value: value.into(), source })
}

/// Tries again for a tenth of a second while the outcome is `EBUSY`.
fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BUSY_TRIES {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(BUSY_WAIT),
            outcome => return outcome,
        }
    }
    attempt()
}

/// Trees with these files, for tests: paths below a directory as in [`Roots::under`], and what is in them. The
/// directory goes with the first of what is returned.
#[cfg(test)]
pub(crate) fn with_files(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, content) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    }
    let roots = Roots::under(directory.path());
    (directory, roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a write ends that is refused so often with such an error before it succeeds, and how often it was tried.
    fn refused(times: usize, errno: i32) -> (Option<i32>, usize) {
        let mut tried = 0;
        let outcome = while_busy(|| {
            tried += 1;
            if tried <= times { Err(io::Error::from_raw_os_error(errno)) } else { Ok(()) }
        });
        (outcome.err().and_then(|error| error.raw_os_error()), tried)
    }

    #[test]
    fn a_file_that_somebody_else_writes_is_tried_again_and_not_for_ever() {
        assert_eq!(refused(3, libc::EBUSY), (None, 4));
        assert_eq!(refused(usize::MAX, libc::EBUSY), (Some(libc::EBUSY), BUSY_TRIES + 1));
        assert_eq!(refused(1, libc::EINVAL), (Some(libc::EINVAL), 1), "what is wrong stays wrong");
    }
}
