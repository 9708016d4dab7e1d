//! Domains that come after all their siblings for as long as somebody wants that: what is done about it.

use std::collections::BTreeSet;

use libsteward::api::ApiError;
use steward_core::domain::name;
use steward_kernel::cgroup::tree::Cgroup;

use super::Domains;
use crate::cpu::lowered::Lowered;
use crate::cpu::mechanisms::InForce;

impl Domains {
    /// Whether nothing is lowered.
    pub fn none_lowered(&self) -> bool {
        self.lowered.is_empty()
    }

    /// Whether the domain of this cgroup is lowered itself.
    pub fn is_lowered(&self, cgroup_id: u64) -> bool {
        self.lowered.values().any(|lowered| lowered.cgroup_id == cgroup_id)
    }

    /// Whether the domain at this path is lowered itself.
    pub fn is_lowered_at(&self, path: &str) -> bool {
        self.lowered.contains_key(path)
    }

    /// Lowers a domain for a connection.
    ///
    /// # Errors
    /// Why the mechanism cannot; nothing is noted then.
    pub fn lower(&mut self, cgroup: &Cgroup, caller: u64, mechanism: &mut InForce) -> Result<(), ApiError> {
        let path = cgroup.path.as_str();
        // Another cgroup of the same name: the one that was lowered is gone.
        if self.lowered.get(path).is_some_and(|known| known.cgroup_id != cgroup.id) {
            self.lowered.remove(path);
        }
        let fresh = || Lowered { cgroup_id: cgroup.id, callers: BTreeSet::new() };
        self.lowered.entry(path.to_owned()).or_insert_with(fresh).callers.insert(caller);
        self.apply(mechanism);
        match self.problems.get(path).cloned() {
            None => Ok(()),
            Some(reason) => {
                self.raise(path, caller, mechanism);
                Err(ApiError::MechanismFailed { reason })
            }
        }
    }

    /// A connection gives a domain its own place again; true when it is lowered still, by another.
    pub fn raise(&mut self, path: &str, caller: u64, mechanism: &mut InForce) -> bool {
        let Some(lowered) = self.lowered.get_mut(path) else { return false };
        lowered.callers.remove(&caller);
        if !lowered.callers.is_empty() {
            return true;
        }
        self.lowered.remove(path);
        self.apply(mechanism);
        false
    }

    /// Gives those domains their places again that belong to connections which have ended; true when there were any.
    pub fn keep_lowered(&mut self, is_connected: impl Fn(u64) -> bool, mechanism: &mut InForce) -> bool {
        let before = self.lowered.len();
        self.lowered.retain(|path, lowered| {
            lowered.callers.retain(|caller| is_connected(*caller));
            if lowered.callers.is_empty() {
                tracing::info!(decision = "raised", path, "the connection that had lowered it has ended");
            }
            !lowered.callers.is_empty()
        });
        let has_changed = self.lowered.len() < before;
        if has_changed {
            self.apply(mechanism);
        }
        has_changed
    }

    /// Forgets those whose cgroup somebody else has removed.
    pub(super) fn forget_vanished_lowered(&mut self) {
        let Ok(cgroups) = &self.cgroups else { return };
        let is_there = |path: &String, lowered: &mut Lowered| {
            cgroups.find(path).is_ok_and(|found| found.id == lowered.cgroup_id)
        };
        self.lowered.retain(is_there);
    }

    /// A domain and all below it are gone, or about to go.
    pub(super) fn forget_lowered(&mut self, path: &str) {
        self.lowered.retain(|other, _| !name::is_at_or_below(other, path));
    }
}
