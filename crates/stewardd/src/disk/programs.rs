//! Which tasks are to have which priority: those that have a reservation, by what their specification says of the disk,
//! and programs in the background.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::cpu::mechanism::MechanismKind;
use steward_core::disk::Class;
use steward_core::disk::config::Order;
use steward_core::disk::plan::{Decision, Seen};
use steward_core::disk::priority::Priority;
use steward_core::spec::Spec;
use steward_kernel::disk::calibrations::{Calibrations, Damaged};
use steward_kernel::disk::devices;
use steward_kernel::process;

use super::domains::OfDomains;
use super::knobs::Wanted;
use crate::daemon::Daemon;
use crate::health::Topic;
use crate::programs::running::Matched;

/// Whether the specification says that its programs are in the background, though they have no reservation. To be
/// served first takes one, which is what admission and the guard go by.
pub(crate) fn is_in_background(spec: &Spec) -> bool {
    spec.io == Some(Class::Background) && spec.reservation.is_none()
}

impl Daemon {
    /// Has each task's requests have the priority that they are to have, if it is time to look.
    pub(crate) fn tick_disk(&mut self, now_ns: u64) {
        let spent = self.disk.spent_on_looks.clone();
        spent.on(|| self.look_at_disks(now_ns));
    }

    /// Has the worker have the kernel's flusher come round often, or as before, if it is time to.
    fn tick_writeback(&mut self, now_ns: u64) {
        let has_changed = self.domains.cgroups().is_ok_and(|cgroups| cgroups.take_handed_out());
        let job = self.disk.writeback.job(now_ns, has_changed, &self.disk.knobs);
        job.into_iter().for_each(|job| self.worker.give(job));
    }

    /// What has ceased to be handed out while the daemon stopped is not to keep what was changed from disks; nobody
    /// sees to it afterwards.
    pub(crate) fn settle_writeback(&self) {
        match self.domains.cgroups().is_ok_and(|cgroups| cgroups.take_handed_out()) {
            true => self.disk.knobs.flush(),
            // It may come round often for what was changed just before.
            false => {
                let _ = self.disk.knobs.flush_often(false);
            }
        }
    }

    fn look_at_disks(&mut self, now_ns: u64) {
        self.tick_writeback(now_ns);
        self.tick_counting(now_ns);
        let told = self.cpu.mechanism.as_mut().map(|mechanism| mechanism.take_heirs()).unwrap_or_default();
        self.disk.note_heirs(told);
        if !self.disk.is_due(now_ns) {
            return;
        }
        let mut heirs = self.disk.take_heirs(&self.options.roots);
        let any_heirs = self.disk.any_heirs_are_due(now_ns);
        let programs = self.disk_programs();
        let domains = self.disk_domains(now_ns, &programs);
        // Before the worker has anything to do for domains that may take long.
        self.tick_writeback(now_ns);
        let OfDomains { first, processes, weights, limits, charged, any_charged, left, .. } = domains;
        let problem = domains.problems.into_iter().next();
        if left != self.disk.left || problem != self.domains.disk_problem {
            (self.disk.left, self.domains.disk_problem) = (left, problem);
            self.note_disk(self.domains.disk_failure.clone());
        }
        if self.disk.without_device_is_due(now_ns) {
            self.look_for_disks_that_are_meant();
        }
        let seen = Seen {
            domains: first,
            by_weight: domains.by_weight,
            first_domains: domains.first_domains,
            with_background: domains.with_background,
            processes: programs.processes.into_iter().chain(processes).collect(),
            background: self.disk.background.clone(),
            has_weights: !weights.is_empty(),
            may_order: self.settings.config.disk.may_order(),
            ..programs
        };
        let of_domains = seen.domains.keys().copied().collect();
        let Decision { priorities, ordered, waits, mut left, .. } =
            self.disk.decide(now_ns, seen, domains.of_first, domains.devices.as_deref(), &self.options.roots);
        // In a domain that comes first, what is started is to have it too.
        heirs.retain(|task| !priorities.contains_key(task));
        left.extend(domains.no_longer_first.into_iter().filter(|(task, _)| !priorities.contains_key(task)));
        let disks = match ordered {
            true => match &domains.devices {
                Some(devices) => devices::present_among(devices),
                None => devices::present(&self.options.roots),
            },
            false => BTreeMap::new(),
        };
        let lost = self.disk.lost;
        let free = match domains.has_parts {
            true => self.disk.counting.free_disks(),
            false => BTreeSet::new(),
        };
        let written_freely = self.disks_written_freely(now_ns);
        let wanted = Wanted {
            written_freely,
            priorities,
            ordered,
            disks,
            waits,
            first_by_weight: domains.cgroups,
            of_domains,
            weights,
            has_parts: domains.has_parts,
            free,
            charged,
            any_charged,
            limits,
            handed_out: self.disk.handed_out.clone(),
            lost,
            heirs,
            any_heirs,
            left,
            // want() says what is known where that counts.
            ..Wanted::default()
        };
        if let Some(job) = self.disk.want(now_ns, wanted) {
            self.worker.give(job);
        }
    }

    /// The disks that rotate to which what is taken from programs goes, while anybody's memory is protected: what is
    /// swapped out page by page goes out three times as fast where it is not held back (docs/memory.md). On others that
    /// makes no difference worth a change.
    fn disks_written_freely(&mut self, now_ns: u64) -> BTreeSet<String> {
        if self.memory.manager.given().is_idle() || self.settings.config.disk.order != Order::Auto {
            return BTreeSet::new();
        }
        self.disk.swap_disks(now_ns, &self.options.roots)
    }

    /// Takes in what is kept of disks that were calibrated, and what is to be done with them.
    pub(crate) fn read_calibrations(&mut self) {
        let kept = Calibrations::read(&self.options.state_directory, Damaged::SetAside);
        self.disk.set_known(kept, self.settings.config.disk.clone());
        self.disk.without_device = self.disk.find_without_device(&self.options.roots);
        self.note_disk(self.domains.disk_failure.clone());
    }

    /// Says of what the configuration says of disks that are not there.
    fn look_for_disks_that_are_meant(&mut self) {
        let without_device = self.disk.find_without_device(&self.options.roots);
        if without_device != self.disk.without_device {
            self.disk.without_device = without_device;
            self.note_disk(self.domains.disk_failure.clone());
        }
    }

    /// What became of the worker's job.
    pub(crate) fn note_disk(&mut self, failure: Option<String>) {
        let beside = self.disk.lost_calibrations.iter().chain(&self.disk.left);
        let beside = beside.chain(&self.disk.without_device).cloned();
        let problems: Vec<String> =
            self.domains.disk_problem.iter().cloned().chain(failure.clone()).chain(beside).collect();
        self.domains.disk_failure = failure;
        self.health.set(Topic::Disk, problems);
    }

    /// What tasks with a reservation are to have, as their specifications say.
    fn disk_programs(&mut self) -> Seen {
        let mut seen = Seen::default();
        let Some(mechanism) = self.cpu.mechanism.as_mut() else { return seen };
        // Other mechanisms do not tell who starts what: children would keep the priority of their parents. Threads of
        // the kernel have none.
        let tells_who_starts_what = mechanism.kind() == MechanismKind::SchedExt;
        let Ok(snapshot) = mechanism.snapshot() else { return seen };
        for task in &snapshot.tasks {
            let (ids, loaded) = (&self.ids, &self.loaded);
            let look_up = || {
                let spec = ids.name(task.grant.spec_id).and_then(|name| loaded.by_name(name))?;
                Some((spec.io?, spec.io_priority))
            };
            let wanted = *self.disk.classes.entry(task.grant.spec_id).or_insert_with(look_up);
            let period_ns = task.grant.reservation.period_ns;
            let priority = wanted.and_then(|(class, level)| Priority::of(class, level, Some(period_ns)));
            let Some(priority) = priority else { continue };
            let Ok(stat) = process::stat(task.tid, &self.options.roots) else { continue };
            if !tells_who_starts_what && !stat.is_kernel_thread() {
                continue;
            }
            let is_for_others = matches!(priority, Priority::RealTime(_)) && stat.is_kernel_thread();
            if is_for_others {
                seen.for_others.insert(stat.id);
            }
            seen.processes.insert(stat.id, task.pid);
            seen.programs.insert(stat.id, if is_for_others { Priority::FOR_OTHERS } else { priority });
        }
        seen
    }

    /// A program runs of which a specification may say that it is in the background.
    pub(crate) fn note_background(&mut self, matched: &Matched) {
        let spec = self.loaded.by_name(&matched.spec).filter(|spec| is_in_background(spec));
        self.disk.note_background(matched.process, spec.and_then(|spec| Priority::of(spec.io?, None, None)));
    }
}
