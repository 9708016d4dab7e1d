//! Processes, threads and the files that they run, as the kernel tells them apart.

use serde::{Deserialize, Serialize};

/// An executable as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The superblock's device in the kernel's own encoding: `major << 20 | minor`.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

/// The file of a program as stat(2) tells it, which on some file systems is not what the kernel knows it by: good for
/// telling whether a process runs the same one as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFile {
    /// The device that it is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
}

/// One task that can not be mistaken for a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskId {
    /// Thread id.
    pub tid: i32,
    /// When it started, in clock ticks since boot (`starttime` of proc_pid_stat(5)).
    pub started_ticks: u64,
}

/// A process, as far as Steward needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id, and start time of its first thread.
    pub id: TaskId,
    /// The parent's process id; 0 for the first process and for kernel threads' parent.
    pub parent: i32,
    /// The effective user id.
    pub uid: u32,
    /// The kernel's name of its first thread (at most 15 bytes).
    pub name: String,
    /// Whether it is a thread of the kernel itself.
    pub kernel_thread: bool,
    /// Whether it was forked and has not executed a program since.
    pub forked_without_exec: bool,
    /// The program that it runs; `None` for kernel threads and where the caller may not look.
    pub executable: Option<FileIdentity>,
    /// Its threads, the first one included: all of them, or only that one when only first threads were listed.
    pub threads: Vec<Thread>,
}

/// A thread of a [`Process`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Thread id and start time.
    pub id: TaskId,
    /// The kernel's name of the thread (at most 15 bytes).
    pub name: String,
}
