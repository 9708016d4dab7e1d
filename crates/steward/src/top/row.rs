//! The rows of a snapshot, and what a row is about.

use libsteward::api;
use serde::{Deserialize, Serialize};

use super::cpu::promise::Promise;
use super::disk::Disk;
use super::memory::Memory;

/// A domain with its promise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainRow {
    /// What the daemon forecasts.
    #[serde(flatten)]
    pub domain: api::DomainForecast,
    /// What was promised; left out when nothing is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
    /// Its memory; left out where the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Its part of the disk; left out where there is nothing to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// What became of what it was promised of the memory; left out where nothing was, and in most looks of a recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_record: Vec<api::AuditedMemory>,
}

impl DomainRow {
    /// The last part of the name.
    pub fn short_name(&self) -> &str {
        match self.domain.name.trim_end_matches('/').rsplit('/').next() {
            Some("") | None => "/",
            Some(last) => last,
        }
    }
}

/// A task with its promise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    /// What the daemon forecasts.
    #[serde(flatten)]
    pub task: api::TaskForecast,
    /// What was promised; left out when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
    /// Whether it is a thread of the kernel itself; left out when it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel: bool,
}

impl TaskRow {
    /// The task as a key.
    pub fn key(&self) -> Key {
        Key::Task(self.task.tid, self.task.pid)
    }
}

/// What a row is about, over time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A domain, by name.
    Domain(String),
    /// A task, by thread and process: a thread number that comes back is another task's, mostly of another process.
    Task(i32, i32),
    /// A process with several threads.
    Process(i32),
    /// The threads of the kernel itself in a domain, by its name.
    Kernel(String),
}
