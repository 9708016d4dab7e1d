//! Where the kernel's file trees are: the real ones, or a directory that stands in for them in a test.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

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
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(source) => Err(KernelError::Read { path: path.into(), source }),
    }
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

/// Writes a file of the kernel that is there: one write, as these files want it.
///
/// # Errors
/// [`KernelError::Write`] with the path and the value.
pub(crate) fn write(path: &Path, value: &str) -> Result<(), KernelError> {
    let opened = OpenOptions::new().write(true).truncate(true).open(path);
    opened.and_then(|mut file| file.write_all(value.as_bytes())).map_err(|source| KernelError::Write {
        path: path.into(),
        value: value.into(),
        source,
    })
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
