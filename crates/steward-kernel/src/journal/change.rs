//! What is written in the journal, and what may become of it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use steward_core::disk::priority::Priority;
use steward_core::process::TaskId;

use super::knob::Knob;
use crate::cpu::scheduling::Scheduling;

/// A change of the kernel's state, with what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A file of the kernel was written.
    File {
        /// The file.
        path: PathBuf,
        /// What it said before.
        old: String,
        /// What it says once written, if the kernel shows it as it was written.
        new: String,
        /// Whose file it is, where it is of a disk: another one may come to have its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<String>,
    },
    /// The scheduling of a task was changed.
    Task {
        /// Which task.
        task: TaskId,
        /// How it was scheduled before.
        old: Scheduling,
        /// How it is scheduled by the change.
        new: Scheduling,
    },
    /// What orders a disk's requests was changed.
    DiskOrder {
        /// The directory of its queue.
        queue: PathBuf,
        /// The elevator before.
        old: String,
        /// How many requests could wait in it.
        old_requests: u64,
        /// The elevator by the change.
        new: String,
        /// How many requests can wait in it by the change. Earlier versions did not note it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        new_requests: Option<u64>,
        /// Which disk it is: another one may come to have its name. Earlier versions did not note it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<String>,
    },
    /// The priority of a task's disk requests was changed.
    DiskPriority {
        /// Which task.
        task: TaskId,
        /// What it was before.
        old: Priority,
        /// What it is by the change.
        new: Priority,
    },
    /// A file of a cgroup was written, once or several times.
    Knob(Knob),
    /// A cgroup was had hand the disk out to those below it.
    DiskHandedOut {
        /// The cgroup, from the root of the hierarchy.
        cgroup: String,
        /// The inode number of its directory.
        id: u64,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::File { path, old, .. } => write!(formatter, "{} to {old:?}", path.display()),
            Change::Task { task, .. } => write!(formatter, "the scheduling of task {}", task.tid),
            Change::DiskOrder { queue, old, .. } => {
                write!(formatter, "the elevator of {} to {old}", queue.display())
            }
            Change::DiskPriority { task, .. } => write!(formatter, "the disk priority of task {}", task.tid),
            Change::Knob(knob) => knob.fmt(formatter),
            Change::DiskHandedOut { cgroup, .. } => {
                write!(formatter, "that the cgroup /{cgroup} hands the disk out")
            }
        }
    }
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The old value is in place again.
    PutBack,
    /// Nothing was done, for this reason.
    Left(String),
}
