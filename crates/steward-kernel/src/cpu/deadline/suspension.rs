//! Suspension of cgroups through the kernel's freezer, where Steward has no scheduler of its own.
//!
//! A frozen cgroup would stay frozen when the daemon is killed, until the next one reads the journal. So somebody who
//! outlives the daemon is told of each cgroup before it is frozen ([`Watchdog`]).

use std::io;
use std::path::{Path, PathBuf};

use steward_core::cpu::mechanism::MechanismError;

use super::state::{DeadlineMechanism, Watchdog, journal_failed};
use crate::cgroup::place;
use crate::cgroup::tree::CgroupTree;

impl DeadlineMechanism {
    /// Who thaws cgroups when this process is killed. Without one nothing is frozen.
    pub fn set_watchdog(&mut self, watchdog: Box<dyn Watchdog>) {
        self.frozen.watchdog = Some(watchdog);
    }

    pub(super) fn set_frozen(
        &mut self,
        cgroup_id: u64,
        path: &str,
        frozen: bool,
    ) -> Result<(), MechanismError> {
        if !frozen {
            return self.thaw(cgroup_id);
        }
        if self.frozen.changes.contains_key(&cgroup_id) {
            return Ok(());
        }
        let found = CgroupTree::open(&self.roots).and_then(|tree| tree.find(path));
        if !found.is_ok_and(|found| found.id == cgroup_id) {
            return Err(MechanismError::NoSuchDomain { cgroup_id });
        }
        let file = place::directory(path, &self.roots).join("cgroup.freeze");
        self.freeze(cgroup_id, file)
    }

    /// Freezes the cgroup of this file, after everybody who is to undo that has been told.
    pub(super) fn freeze(&mut self, cgroup_id: u64, file: PathBuf) -> Result<(), MechanismError> {
        if self.frozen.watchdog.is_none() {
            return Err(not_told(
                &file,
                io::Error::other("there is nobody to thaw it when this process ends"),
            ));
        }
        self.remember_file(&file, "0")?;
        match self.journal.write_file(&file, "1").map_err(journal_failed) {
            Ok(Some(change)) => _ = self.frozen.changes.insert(cgroup_id, (change, file)),
            outcome => {
                self.forget_file(&file);
                // Somebody else has frozen it: theirs to thaw.
                outcome?;
            }
        }
        Ok(())
    }

    fn thaw(&mut self, cgroup_id: u64) -> Result<(), MechanismError> {
        let Some((number, file)) = self.frozen.changes.remove(&cgroup_id) else { return Ok(()) };
        // Of a cgroup that is gone there is nothing to undo.
        let _ = self.journal.undo(number, &self.roots);
        self.forget_file(&file);
        self.close(Some(number));
        Ok(())
    }

    pub(super) fn forget_file(&mut self, file: &Path) {
        if let Some(watchdog) = &mut self.frozen.watchdog {
            watchdog.changed_back(file);
        }
    }

    /// Has a file put back when this process is killed, if there is somebody to do it.
    pub(super) fn remember_file(&mut self, file: &Path, back: &str) -> Result<(), MechanismError> {
        let told = self.frozen.watchdog.as_mut().map_or(Ok(()), |watchdog| watchdog.changing(file, back));
        told.map_err(|source| not_told(file, source))
    }

    /// Lets everything go on.
    pub(super) fn thaw_all(&mut self) {
        let ids: Vec<u64> = self.frozen.changes.keys().copied().collect();
        for id in ids {
            // What can not be put back stays in the journal.
            let _ = self.thaw(id);
        }
    }
}

fn not_told(file: &Path, source: io::Error) -> MechanismError {
    MechanismError::Kernel {
        action: format!("making sure that {} is written again when stewardd is killed", file.display()),
        source,
        advice: "nothing was changed; see the log of stewardd".to_owned(),
    }
}
