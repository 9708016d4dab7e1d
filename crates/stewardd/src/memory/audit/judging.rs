//! Has promises of memory judged about once a second, and the record kept about once a minute.

use std::collections::BTreeSet;

use steward_core::domain::name::parent_of;
use steward_core::memory::audit::{Counters, Reading, Taker};

use super::EVERY_NS;
use crate::daemon::Daemon;
use crate::domains::cgroups::Cgroups;
use crate::files::record::since_boot_s;
use crate::turn::clock;

impl Daemon {
    /// To be called at least once a second.
    pub(crate) fn audit_memory_if_due(&mut self, now_ns: u64) {
        if self.memory.audit.due_at_ns <= now_ns {
            // At the same moments of each second, and none twice.
            let next_ns = self.memory.audit.due_at_ns.saturating_add(EVERY_NS);
            self.memory.audit.due_at_ns =
                if next_ns > now_ns { next_ns } else { now_ns.saturating_add(EVERY_NS) };
            self.audit_memory_now(clock::now_ns(), since_boot_s());
        }
        self.memory.audit.kept.save_if_due(now_ns, &mut self.worker);
        self.memory.audit.blamed.save_if_due(now_ns, &mut self.worker);
    }

    /// Reads what the kernel has counted, and judges it.
    pub(crate) fn audit_memory_now(&mut self, at_ns: u64, since_boot_s: u64) {
        let promises = self.domains.memory_promises();
        self.memory.audit.busy = !promises.is_empty();
        let Some(cgroups) = self.domains.cgroups().ok().filter(|_| self.memory.audit.busy) else {
            self.memory.audit.auditor.forget();
            self.memory.audit.totals.clear();
            self.memory.audit.blamed_totals.clear();
            return;
        };
        let counters: Vec<Option<Counters>> =
            promises.iter().map(|promise| cgroups.memory_counters(&promise.path)).collect();
        let wants = self.memory.audit.auditor.wants_takers(at_ns, &promises, &counters);
        let takers = self.memory.audit.takers(at_ns, wants, || takers(cgroups), clock::cpu_time_ns);
        let reading = Reading { at_ns, counters: &counters, takers: takers.as_deref() };
        let broken = self.memory.audit.observe(&reading, &promises, since_boot_s);
        self.tell_broken(at_ns, &broken);
    }
}

/// All who may take memory: cgroups with none below them. Of others what is not their children's is little.
fn takers(cgroups: &dyn Cgroups) -> Vec<Taker> {
    let listed = cgroups.list().unwrap_or_default();
    let parents: BTreeSet<&str> = listed.iter().filter_map(|cgroup| parent_of(&cgroup.path)).collect();
    let leaves = listed.iter().filter(|cgroup| !parents.contains(cgroup.path.as_str()));
    leaves.filter_map(|cgroup| cgroups.memory_taker(&cgroup.path)).collect()
}
