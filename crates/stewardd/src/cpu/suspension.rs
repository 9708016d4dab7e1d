//! Who has suspended which domain.
//!
//! A suspension belongs to the connection that asked for it, and ends with it, so that a controller which is killed
//! leaves nothing suspended. A domain that two have suspended goes on when both have let it go. Under sched_ext the
//! mark is the scheduler's own and goes with it; with SCHED_DEADLINE the kernel's freezer does it, and the
//! journal and the [guard](crate::watchdog) undo that.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::cpu::mechanism::MechanismError;
use steward_core::domain::name;

use crate::cpu::mechanisms::InForce;

/// A domain that is suspended.
#[derive(Debug)]
struct Suspended {
    cgroup_id: u64,
    /// The connections that hold it, by [`crate::server::peer::Caller::id`].
    callers: BTreeSet<u64>,
}

/// All that is suspended, by the cgroup's path.
#[derive(Debug, Default)]
pub struct Suspensions {
    domains: BTreeMap<String, Suspended>,
}

impl Suspensions {
    /// Whether nothing is suspended.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Whether the domain of this cgroup is suspended itself.
    pub fn is_suspended(&self, cgroup_id: u64) -> bool {
        self.domains.values().any(|suspended| suspended.cgroup_id == cgroup_id)
    }

    /// Suspends a domain for a connection.
    ///
    /// # Errors
    /// Why the mechanism cannot; nothing is noted then.
    pub fn suspend(
        &mut self,
        path: &str,
        cgroup_id: u64,
        caller: u64,
        mechanism: &mut InForce,
    ) -> Result<(), MechanismError> {
        // Another cgroup of the same name: the one that was suspended is gone.
        if self.domains.get(path).is_some_and(|known| known.cgroup_id != cgroup_id) {
            self.end(path, mechanism);
        }
        if let Some(mechanism) = mechanism {
            mechanism.suspend_domain(cgroup_id, path, true)?;
        }
        let suspended = self.domains.entry(path.to_owned());
        suspended.or_insert(Suspended { cgroup_id, callers: BTreeSet::new() }).callers.insert(caller);
        Ok(())
    }

    /// A connection resumes a domain; true when it is suspended still, by another.
    pub fn let_go(&mut self, path: &str, caller: u64, mechanism: &mut InForce) -> bool {
        let Some(suspended) = self.domains.get_mut(path) else { return false };
        suspended.callers.remove(&caller);
        if suspended.callers.is_empty() {
            self.end(path, mechanism);
        }
        self.domains.contains_key(path)
    }

    /// Lets go what belongs to connections that have ended.
    pub fn keep(&mut self, is_connected: impl Fn(u64) -> bool, mechanism: &mut InForce) {
        let mut ended = Vec::new();
        for (path, suspended) in &mut self.domains {
            suspended.callers.retain(|caller| is_connected(*caller));
            if suspended.callers.is_empty() {
                ended.push(path.clone());
            }
        }
        for path in ended {
            tracing::info!(decision = "let-go", path, "the connection that had suspended it has ended");
            self.end(&path, mechanism);
        }
    }

    /// Lets a domain and all below it go on, whoever suspended them: it is about to be removed.
    pub fn end_below(&mut self, path: &str, mechanism: &mut InForce) {
        let below = self.domains.keys().filter(|other| name::is_at_or_below(other, path));
        for path in below.cloned().collect::<Vec<_>>() {
            self.end(&path, mechanism);
        }
    }

    /// Tells a fresh mechanism.
    pub fn apply(&mut self, mechanism: &mut InForce) {
        let Some(mechanism) = mechanism else { return };
        for (path, suspended) in &self.domains {
            if let Err(error) = mechanism.suspend_domain(suspended.cgroup_id, path, true) {
                tracing::warn!(path, %error, "a suspended domain goes on");
            }
        }
    }

    fn end(&mut self, path: &str, mechanism: &mut InForce) {
        let Some(suspended) = self.domains.remove(path) else { return };
        let Some(mechanism) = mechanism else { return };
        match mechanism.suspend_domain(suspended.cgroup_id, path, false) {
            // What is gone is not suspended.
            Ok(()) | Err(MechanismError::NoSuchDomain { .. } | MechanismError::Gone { .. }) => {}
            Err(error) => tracing::error!(path, %error, "a domain may stay suspended"),
        }
    }
}
