//! Has promises judged about once a second, and the record kept about once a minute.

use steward_core::cpu::audit::Reading;
use steward_core::cpu::mechanism::DomainRecord;

use super::EVERY_NS;
use crate::daemon::Daemon;
use crate::files::record::since_boot_s;
use crate::turn::clock;

impl Daemon {
    /// To be called at least once a second.
    pub(crate) fn audit_if_due(&mut self, now_ns: u64) {
        if self.cpu.audit.due_at_ns <= now_ns {
            // At the same moments of each second, and none twice.
            let next_ns = self.cpu.audit.due_at_ns.saturating_add(EVERY_NS);
            self.cpu.audit.due_at_ns =
                if next_ns > now_ns { next_ns } else { now_ns.saturating_add(EVERY_NS) };
            self.audit_now(&clock::now_ns, since_boot_s());
        }
        self.cpu.audit.kept.save_if_due(now_ns, &mut self.worker);
    }

    /// Reads what the scheduler has counted, and judges it. The clock is read when the counters are: what the loop did
    /// before may have taken long, and so may reading where the daemon loses the CPU meanwhile.
    pub(crate) fn audit_now(&mut self, clock: &dyn Fn() -> u64, since_boot_s: u64) {
        let promises = self.domains.promises();
        self.cpu.audit.busy = !promises.is_empty();
        let begun_ns = clock();
        let records = match self.cpu.mechanism.as_mut() {
            Some(mechanism) if self.cpu.audit.busy => mechanism.domains().ok(),
            _ => None,
        };
        let at_ns = clock();
        let Some(mut records) = records else { return self.cpu.audit.auditor.forget() };
        let suspended = std::mem::take(&mut self.cpu.audit.suspended);
        for record in &mut records {
            record.suspended |= suspended.contains(&record.cgroup_id);
        }
        let reading = Reading { took_ns: at_ns.saturating_sub(begun_ns), ..self.reading(at_ns, &records) };
        let at_s = self.cpu.audit.now_s(since_boot_s);
        self.cpu.audit.observe(&reading, &promises, at_s);
    }

    fn reading<'records>(&self, at_ns: u64, records: &'records [DomainRecord]) -> Reading<'records> {
        Reading {
            at_ns,
            generation: self.cpu.loading.restarts,
            cpus: self.online_cpu_count(),
            took_ns: 0,
            service_cycle_ns: self.best_effort().service_cycle_ns,
            records,
        }
    }
}
