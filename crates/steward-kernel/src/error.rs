//! What can go wrong between Steward and the kernel, always with the path.

use std::io;
use std::path::PathBuf;

/// A read or a write of the kernel that failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {value:?} to {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file says something that this version of Steward does not understand.
    #[error("cannot make sense of {}: expected {expected}, found {found:?}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What should have been there.
        expected: &'static str,
        /// What was there, cut to what fits a line.
        found: String,
    },
    /// A directory of the cgroup tree could not be opened, made, removed or watched.
    #[error("cannot {action} {}: {source}", path.display())]
    Cgroup {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call on a task failed.
    #[error("{action} of task {tid} failed: {source}")]
    Task {
        /// The thread id.
        tid: i32,
        /// The system call, and what it was to do.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl KernelError {
    /// A [`KernelError::Parse`], with what was found cut to what fits a line.
    pub fn parse(path: impl Into<PathBuf>, expected: &'static str, found: &str) -> Self {
        KernelError::Parse { path: path.into(), expected, found: found.chars().take(80).collect() }
    }

    /// What the kernel said, as a number of `errno`, where it said anything.
    pub fn errno(&self) -> Option<i32> {
        match self {
            KernelError::Read { source, .. }
            | KernelError::Write { source, .. }
            | KernelError::Cgroup { source, .. }
            | KernelError::Task { source, .. } => source.raw_os_error(),
            KernelError::Parse { .. } => None,
        }
    }

    /// Whether the thing is not there: no such file, not supported by this kernel, or a task that has ended.
    pub fn is_absent(&self) -> bool {
        let absent = [libc::ENOENT, libc::ENOTDIR, libc::ESRCH, libc::ENODEV, libc::EOPNOTSUPP];
        self.errno().is_some_and(|errno| absent.contains(&errno))
    }

    /// Whether the caller lacks the permission.
    pub fn is_denied(&self) -> bool {
        self.errno().is_some_and(|errno| errno == libc::EPERM || errno == libc::EACCES)
    }
}
