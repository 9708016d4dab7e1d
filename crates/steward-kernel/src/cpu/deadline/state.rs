//! What the mechanism keeps.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use steward_core::cpu::event::{Event, Reason};
use steward_core::cpu::mechanism::{MechanismError, Standing};
use steward_core::cpu::reservation::Grant;
use steward_core::cpu::thresholds::Thresholds;
use steward_core::domain::name::Names;
use steward_core::process::{FileIdentity, TaskId};

use super::account::{Account, Crowd, LoadWindow};
use super::follower::Follower;
use super::lineage::Lineage;
use crate::journal::{JournalError, SharedJournal};
use crate::roots::Roots;

/// [`Mechanism`](steward_core::cpu::mechanism::Mechanism) on SCHED_DEADLINE.
#[derive(Debug)]
pub struct DeadlineMechanism {
    pub(super) roots: Roots,
    pub(super) journal: SharedJournal,
    /// Whether nice values are all that is given.
    pub(super) only_nice: bool,
    pub(super) table: HashMap<FileIdentity, Option<Grant>>,
    pub(super) thresholds: Thresholds,
    pub(super) cpu_count: u32,
    pub(super) tasks: BTreeMap<i32, Managed>,
    /// Threads whose grant was taken away by request, although their process's is inheritable.
    pub(super) exempt: HashSet<TaskId>,
    pub(super) lineage: Lineage,
    pub(super) follower: Follower,
    pub(super) load: LoadWindow,
    pub(super) crowd: Crowd,
    pub(super) weights: Weights,
    pub(super) frozen: Frozen,
    pub(super) events: VecDeque<Event>,
    pub(super) events_lost: u64,
}

/// A task that has a specification.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) id: TaskId,
    pub(super) pid: i32,
    pub(super) name: String,
    pub(super) grant: Grant,
    pub(super) standing: Standing,
    /// The change that is in force on it, by its number in the journal.
    pub(super) change: Option<u64>,
    pub(super) refused_because: Option<Reason>,
    pub(super) account: Account,
}

impl Managed {
    /// The bandwidth that it takes from what can be promised: a task with a better nice value takes its own too.
    pub(super) fn bandwidth_taken(&self) -> f64 {
        if self.change.is_some() { self.grant.reservation.bandwidth() } else { 0.0 }
    }
}

/// Writes into files what was in them before, once this process has ended.
pub trait Watchdog: Send + Debug {
    /// To be called before the file is written: from now on `back` is written into it when this process ends.
    ///
    /// # Errors
    /// When nobody could be told; then a cgroup must not be frozen.
    fn changing(&mut self, file: &Path, back: &str) -> io::Result<()>;
    /// The file is of no more concern.
    fn changed_back(&mut self, file: &Path);
}

/// What is frozen.
#[derive(Debug, Default)]
pub(super) struct Frozen {
    pub(super) watchdog: Option<Box<dyn Watchdog>>,
    /// By cgroup id: the change's number in the journal, and the file.
    pub(super) changes: BTreeMap<u64, (u64, PathBuf)>,
}

/// The weights that are in force.
#[derive(Debug, Default)]
pub(super) struct Weights {
    pub(super) names: Names,
    /// The change of each cgroup, by its number in the journal, and the file.
    pub(super) changes: BTreeMap<u64, (u64, PathBuf)>,
}

pub(super) fn journal_failed(error: JournalError) -> MechanismError {
    let source = match &error {
        JournalError::File { source, .. } => source.raw_os_error(),
        _ => None,
    };
    MechanismError::Kernel {
        action: error.to_string(),
        source: std::io::Error::from_raw_os_error(source.unwrap_or(libc::EIO)),
        advice: "make room in the journal's file system".into(),
    }
}
