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

/// What a process executed last: good for telling whether it has executed anything since. The file is told as stat(2)
/// does, which on some file systems is not what the kernel knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// The device that the program's file is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// Where the stack begins (`startstack` of proc_pid_stat(5)), which the kernel chooses anew whenever something is
    /// executed; `None` where it does not say.
    #[serde(default)]
    pub stack: Option<u64>,
    /// The user whose rights it has: another one where it is a set-user-ID program.
    #[serde(default)]
    pub effective_user: Option<u32>,
}

impl Executed {
    /// Whether nothing tells `other` from it: the process has executed nothing in between, as far as one can know.
    pub fn is_same(&self, other: &Executed) -> bool {
        fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        (self.device, self.inode) == (other.device, other.inode)
            && agree(self.stack, other.stack)
            && agree(self.effective_user, other.effective_user)
    }
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
