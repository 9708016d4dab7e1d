//! Weights of domains through `cpu.weight`, as far as the kernel's default scheduler goes.
//!
//! It keeps no fraction and knows no priorities, so both are refused. A weight is written only into cgroups that
//! Steward made, with its old value in the journal first: those of others have a manager. When the daemon is killed,
//! the [watchdog](super::Watchdog) puts them back.

use steward_core::cpu::mechanism::{Mechanism, MechanismError};
use steward_core::cpu::policy::DomainPolicy;
use steward_core::domain::name::Names;

use super::state::{DeadlineMechanism, journal_failed};
use crate::cgroup::place;
use crate::cgroup::tree::CgroupTree;
use crate::roots;

impl DeadlineMechanism {
    /// How the cgroups are called that Steward made.
    pub fn set_domain_names(&mut self, names: Names) {
        self.weights.names = names;
    }

    pub(super) fn set_weight(
        &mut self,
        cgroup_id: u64,
        policy: Option<DomainPolicy>,
    ) -> Result<(), MechanismError> {
        let policy = policy.unwrap_or_default();
        let only_weight = DomainPolicy { weight: policy.weight, ..DomainPolicy::default() };
        if policy != only_weight {
            return Err(self.unsupported("reservations and priorities of domains"));
        }
        let gone = |_| MechanismError::NoSuchDomain { cgroup_id };
        // Not by a look at all: there may be thousands, and everybody waits meanwhile.
        let path = CgroupTree::open(&self.roots).and_then(|tree| tree.path_of(cgroup_id)).map_err(gone)?;
        if !path.starts_with(self.weights.names.prefix()) {
            return Err(self.unsupported("weights of cgroups that Steward did not make"));
        }
        self.undo_weight(cgroup_id)?;
        let Some(weight) = policy.weight else { return Ok(()) };
        let file = place::directory(&path, &self.roots).join("cpu.weight");
        let before = roots::read(&file).map_err(gone)?;
        self.remember_file(&file, before.trim())?;
        match self.journal.write_file(&file, &weight.to_string()).map_err(journal_failed) {
            Ok(Some(change)) => _ = self.weights.changes.insert(cgroup_id, (change, file)),
            outcome => {
                self.forget_file(&file);
                outcome?;
            }
        }
        Ok(())
    }

    fn unsupported(&self, what: &'static str) -> MechanismError {
        MechanismError::Unsupported { what, by: self.kind() }
    }

    fn undo_weight(&mut self, cgroup_id: u64) -> Result<(), MechanismError> {
        let Some((number, file)) = self.weights.changes.remove(&cgroup_id) else { return Ok(()) };
        // Of a cgroup that is gone there is nothing to undo.
        let _ = self.journal.undo(number, &self.roots);
        self.forget_file(&file);
        self.close(Some(number));
        Ok(())
    }

    /// Puts every weight back.
    pub(super) fn undo_weights(&mut self) {
        let ids: Vec<u64> = self.weights.changes.keys().copied().collect();
        for id in ids {
            // What can not be put back stays in the journal.
            let _ = self.undo_weight(id);
        }
    }
}
