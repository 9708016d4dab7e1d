//! Reads tasks, and makes what is said of them.

use std::sync::Arc;

use steward_core::cpu::forecast::{DomainCounters, Model};
use steward_core::cpu::mechanism::{DomainRecord, MechanismKind};
use steward_kernel::Roots;
use steward_kernel::cgroup::changes::CgroupChanges;
use steward_kernel::cpu::idle::IdleClock;
use steward_tasks::Source;

use super::{ASKED_FOR_NS, Outlook, OutlookTexts, Sampler};
use crate::daemon::Daemon;
use crate::health::Topic;
use crate::turn::clock::{self, cpu_time_ns};

fn open_source(roots: &Roots) -> Box<dyn Source> {
    let (source, better) = steward_tasks::open(roots);
    let (name, why) = (source.name(), better.map(|error| error.to_string()));
    tracing::info!(decision = "source", source = name, why, "tasks are read through {name}");
    source
}

impl Daemon {
    /// Reads tasks from here instead of from this machine.
    pub fn set_task_source(&mut self, source: Box<dyn Source>) {
        self.cpu.sampler.source = Some(source);
    }

    /// To be called often: reads all tasks when it is time to.
    pub(crate) fn sample_if_due(&mut self, now_ns: u64) {
        if self.cpu.sampler.pace.due_ns(now_ns) <= now_ns {
            self.sample(now_ns);
        }
        self.cpu.sampler.groups.go_on_at_rest(&self.domains, now_ns);
    }

    /// Reads all tasks, unless that was done a moment ago, because somebody asks and may ask again. Returns whether
    /// they were read.
    pub(crate) fn refresh(&mut self, now_ns: u64) -> bool {
        self.cpu.sampler.pace.asked_until_ns = now_ns + ASKED_FOR_NS;
        self.sample_if_old(now_ns)
    }

    /// Reads all tasks, unless that was done a moment ago. Returns whether they were read.
    pub(crate) fn sample_if_old(&mut self, now_ns: u64) -> bool {
        let is_old = !self.cpu.sampler.pace.is_fresh(now_ns);
        if is_old {
            self.sample(now_ns);
        }
        is_old
    }

    /// Reads all tasks.
    pub(crate) fn sample(&mut self, now_ns: u64) {
        // Loading a program once is no part of what reading costs, and may take seconds: what is read then is not of
        // before.
        let is_open = self.cpu.sampler.source.is_some();
        if !is_open {
            self.cpu.sampler.source = Some(open_source(&self.options.roots));
            self.cpu.sampler.idle = IdleClock::open(&self.options.roots).ok();
            self.cpu.sampler.groups.watch(CgroupChanges::open(&self.options.roots).ok());
        }
        let now_ns = if is_open { now_ns } else { clock::now_ns() };
        let begun_ns = cpu_time_ns();
        let reserved = self
            .cpu
            .mechanism
            .as_mut()
            .and_then(|mechanism| mechanism.reservations_in_force().ok())
            .unwrap_or_default();
        let domain_records = self.read_domains();
        let Sampler { source, idle, herald, groups, outlook, texts, records, pace, real_time, .. } =
            &mut self.cpu.sampler;
        let Some(source) = source else { return };
        let outcome = source.read(now_ns);
        let failure = outcome.as_ref().err().map(|error| format!("forecasts are old: {error}"));
        if let Ok(reading) = outcome {
            groups.adopt(&reading, &self.domains, now_ns);
            real_time.take(now_ns, reading.tasks);
            // First, so that nobody else has the tasks that are changed.
            *outlook = None;
            *texts = OutlookTexts::default();
            herald.take(&reading);
            herald.set_reserved(reserved.into_iter());
            // Without it what ended tasks used looks idle.
            if let Some(idle_ns) = idle.as_ref().and_then(|idle| idle.idle_ns().ok()) {
                herald.set_idle(idle_ns);
            }
            herald.set_domain_counters(domain_records.iter().flatten().map(counters));
            *records = domain_records;
        }
        pace.note(now_ns, cpu_time_ns().saturating_sub(begun_ns));
        self.health.set(Topic::Forecasts, failure.into_iter().collect());
    }

    /// Which scheduler decides.
    fn model(&self) -> Model {
        match self.cpu.mechanism.as_ref().map(|mechanism| mechanism.kind()) {
            Some(MechanismKind::SchedExt) => Model::Steward,
            Some(MechanismKind::Deadline | MechanismKind::Nice) | None => Model::ProportionalShare,
        }
    }

    /// What Steward's own scheduler has of domains, if it decides.
    fn read_domains(&mut self) -> Option<Vec<DomainRecord>> {
        if self.model() != Model::Steward {
            return None;
        }
        self.cpu.mechanism.as_mut().and_then(|mechanism| mechanism.domains().ok())
    }

    /// Forecasts from what was read last: at rest up to some seconds old, and no tasks are read for them. Its domains
    /// are the groups as they are when this returns, in their order.
    pub(crate) fn outlook_of_last_read(&mut self, now_ns: u64) -> Arc<Outlook> {
        self.outlook(now_ns, None)
    }

    /// The same, with what the scheduler has of domains where that was read a moment ago.
    pub(crate) fn outlook_with(&mut self, records: &[DomainRecord], now_ns: u64) -> Arc<Outlook> {
        let is_steward = self.model() == Model::Steward;
        self.outlook(now_ns, is_steward.then_some(records))
    }

    fn outlook(&mut self, now_ns: u64, records: Option<&[DomainRecord]>) -> Arc<Outlook> {
        if let Some((made_at_ns, outlook)) = &self.cpu.sampler.outlook
            && now_ns.saturating_sub(*made_at_ns) < self.cpu.sampler.pace.fresh_ns()
            && outlook.generation == self.cpu.sampler.groups.generation()
        {
            return Arc::clone(outlook);
        }
        let outlook = Arc::new(self.make_outlook(now_ns, records));
        self.cpu.sampler.texts = OutlookTexts::default();
        self.cpu.sampler.outlook = Some((now_ns, Arc::clone(&outlook)));
        outlook
    }

    fn make_outlook(&mut self, now_ns: u64, records: Option<&[DomainRecord]>) -> Outlook {
        let model = self.model();
        let just_read = self.cpu.sampler.records.take().filter(|_| self.cpu.sampler.pace.is_fresh(now_ns));
        let read = if records.is_some() { None } else { just_read.or_else(|| self.read_domains()) };
        let records = records.or(read.as_deref());
        let mut samples = self.cpu.sampler.groups.samples(&self.domains, records, now_ns);
        for sample in &mut samples {
            sample.suspended |= self.cpu.suspensions.is_suspended(sample.cgroup_id);
        }
        let generation = self.cpu.sampler.groups.generation();
        if self.cpu.sampler.cpus_of != Some(generation) {
            (self.cpu.sampler.cpus, self.cpu.sampler.cpus_of) = (self.online_cpu_count(), Some(generation));
        }
        let cpus = self.cpu.sampler.cpus;
        Outlook {
            report: self.cpu.sampler.herald.forecasts(model, cpus, &samples),
            model,
            cpus,
            samples,
            generation,
        }
    }
}

fn counters(record: &DomainRecord) -> DomainCounters {
    DomainCounters {
        cgroup_id: record.cgroup_id,
        used_ns: record.best_effort_time_ns + record.reserved_time_ns,
        runnable_ns: record.runnable_time_ns,
    }
}
