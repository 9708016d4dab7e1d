//! Has promises of memory judged about once a second, and the record kept about once a minute.

use steward_core::memory::audit::{Counters, Reading};

use super::{EVERY_NS, Found};
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
        } else if let Ok(cgroups) = self.domains.cgroups() {
            self.memory.audit.look_on(now_ns, |path| look(cgroups, path), clock::cpu_time_ns);
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
            self.memory.audit.looking = None;
            self.memory.audit.totals.clear();
            self.memory.audit.blamed_totals.clear();
            return;
        };
        let counters: Vec<Option<Counters>> =
            promises.iter().map(|promise| cgroups.memory_counters(&promise.path)).collect();
        let wants = self.memory.audit.auditor.wants_takers(at_ns, &promises, &counters);
        let look = |path: &str| look(cgroups, path);
        let takers = self.memory.audit.takers(at_ns, wants, look, clock::cpu_time_ns);
        let reading = Reading { at_ns, counters: &counters, takers: takers.as_deref() };
        let broken = self.memory.audit.observe(&reading, &promises, since_boot_s);
        self.tell_broken(at_ns, &broken);
    }
}

/// Who may take memory is a cgroup with none below it. Of others what is not their children's is little.
fn look(cgroups: &dyn Cgroups, path: &str) -> Found {
    let children = cgroups.children(path).unwrap_or_default();
    match children.is_empty() {
        true => Found::Leaf(cgroups.memory_taker(path)),
        false => Found::Parent(children.into_iter().map(|child| child.path).collect()),
    }
}
