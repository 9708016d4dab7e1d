//! What the memory's room keeps.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use steward_kernel::Roots;

use super::activity::Watching;
use super::audit::Audit;
use super::lately::Lately;
use super::looks::Looks;
use super::manager::Manager;
use super::placed::Programs;
use super::pressure::Listeners;
use super::scopes::Scopes;
use super::told::Voice;
use crate::turn::descriptors::{Source, Wait};
use crate::turn::part::Part;
use crate::turn::worker::Worker;

/// The memory's part of the daemon.
pub(crate) struct Memory {
    /// The loop that keeps what protected domains use.
    pub(crate) manager: Manager,
    /// Which thread has a reservation for that.
    pub(crate) reserved_for: Option<i32>,
    /// What watches whether protected domains are in use.
    pub(crate) activity: Watching,
    /// Whether what domains were promised was kept.
    pub(crate) audit: Audit,
    /// What is asked of systemd for programs that it has placed.
    pub(crate) scopes: Scopes,
    /// What became of what specifications promise to programs.
    pub(crate) programs: Programs,
    /// What those who watch are told of how much domains may use.
    pub(crate) looks: Looks,
    /// The programs that are told when they should give memory back.
    pub(crate) listeners: Listeners,
    /// Who was held back in the last minute.
    pub(crate) lately: Lately,
    /// What was told as decisions.
    pub(crate) voice: Voice,
}

impl Memory {
    /// Nobody is protected yet; `audit` and the FIFOs in `pressure_directory` are what an earlier daemon has left.
    /// `systemd` is the program that asks it.
    ///
    /// # Errors
    /// When a thread of its own cannot be started.
    pub(crate) fn new(
        roots: &Roots,
        audit: Audit,
        systemd: Option<PathBuf>,
        pressure_directory: &Path,
    ) -> anyhow::Result<Self> {
        Ok(Memory {
            manager: Manager::new(roots)?,
            reserved_for: None,
            activity: Watching::new(roots)?,
            audit,
            scopes: Scopes::new(systemd)?,
            programs: Programs::default(),
            looks: Looks::default(),
            listeners: Listeners::new(pressure_directory, roots),
            lately: Lately::default(),
            voice: Voice::default(),
        })
    }

    /// Has the record of promises written. What the kernel was told of domains' memory they take back themselves; the
    /// threads end with this.
    pub(crate) fn stop(&mut self, worker: &mut Worker) {
        self.audit.finish(worker);
    }
}

impl Part for Memory {
    fn lasting_descriptors(&self) -> Vec<Wait<'_>> {
        let announcing = [self.manager.as_fd(), self.activity.as_fd()];
        announcing.map(|descriptor| Wait::readable(Source::Memory, descriptor)).into()
    }

    fn poll_timeout(&self, _now_ns: u64) -> Option<u64> {
        self.audit.wake_at_ns().into_iter().chain(self.listeners.due_ns()).min()
    }
}
