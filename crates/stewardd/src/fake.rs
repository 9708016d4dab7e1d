//! A mechanism in memory, for tests: it admits up to the threshold on one CPU, and a test can look at it, eject
//! it and refuse to load it.

pub mod cgroups;
pub mod disk;
pub mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use steward_core::cpu::best_effort::BestEffortSettings;
use steward_core::cpu::event::{Event, EventKind};
use steward_core::cpu::mechanism::{
    CpuRecord, DomainRecord, Mechanism, MechanismError, MechanismKind, Snapshot, Standing, TaskRecord,
};
use steward_core::cpu::policy::DomainPolicy;
use steward_core::cpu::reservation::Grant;
use steward_core::cpu::thresholds::Thresholds;
use steward_core::process::FileIdentity;
use steward_kernel::{Roots, process};

use crate::cpu::mechanisms::{Enforcer, LoadFailure, Loader};
use crate::daemon::Options;

/// A daemon all of whose files are below a directory; where one is not there, nothing is configured.
pub fn options(directory: &Path, roots: Roots) -> Options {
    Options {
        config: directory.join("steward.toml"),
        spec_directories: vec![directory.join("specs")],
        rule_directories: vec![directory.join("rules")],
        domain_directories: vec![directory.join("domains.d")],
        state_directory: directory.join("state"),
        pressure_directory: directory.join("pressure"),
        mechanism: None,
        best_effort: None,
        roots,
        polkit: directory.join("pkcheck"),
        systemd: Some(directory.join("systemd-run")).filter(|program| program.exists()),
        own_reservation: None,
        memory_reservation: None,
        disk_handed_out_for_ns: 0,
    }
}

/// What the fake machine knows; shared between the test and every mechanism loaded on it.
#[derive(Debug, Default)]
pub struct Machine {
    /// The table as it was set last.
    pub exec_table: Vec<(FileIdentity, Option<Grant>)>,
    /// What tasks hold.
    pub tasks: BTreeMap<i32, (Grant, Standing)>,
    /// Tasks that may start an interactive program.
    pub allowed: Vec<i32>,
    /// Who has taken over a priority for the disk.
    pub heirs: Vec<i32>,
    /// Decisions that wait to be taken.
    pub events: Vec<Event>,
    /// Which mechanism is loaded.
    pub loaded: Option<MechanismKind>,
    /// How often one was loaded.
    pub loads: u64,
    /// Why the loaded one has ended, once a test ejects it.
    pub exit_reason: Option<String>,
    /// Kinds that cannot be loaded, with the reason.
    pub broken: Vec<(MechanismKind, LoadFailure)>,
    /// Free memory as set last, in bytes.
    pub memory_free: Option<u64>,
    /// Thresholds as set last.
    pub thresholds: Thresholds,
    /// Policies of domains, by cgroup id.
    pub domains: BTreeMap<u64, DomainPolicy>,
    /// What it has counted for domains, by cgroup id; others have the default below the root.
    pub counted: BTreeMap<u64, DomainRecord>,
    /// Cgroups that are suspended.
    pub suspended: BTreeSet<u64>,
    /// Cgroups that this scheduler does not see.
    pub unseen: Vec<u64>,
    /// A file and what is written into it as soon as something is assigned: what others do meanwhile.
    pub meanwhile: Option<(PathBuf, String)>,
    /// The order among domains as set last.
    pub best_effort: BestEffortSettings,
    /// How many periods tasks with a specification have begun from one look to the next: they want something.
    pub periods_each_look: u64,
    /// How often somebody looked.
    pub looks: u64,
    /// How many cgroups there are for which there was no domain left.
    pub cgroups_without_domain: u64,
}

/// A handle on a [`Machine`].
#[derive(Clone, Debug, Default)]
pub struct Fake {
    machine: Arc<Mutex<Machine>>,
}

impl Fake {
    /// Looks at the machine, or changes it.
    ///
    /// # Panics
    /// When a test panicked while it looked.
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().expect("no test panicked while it held the machine")
    }

    /// Ejects what is loaded: every task loses what it had.
    pub fn eject(&self, reason: &str) {
        let mut machine = self.machine();
        machine.exit_reason = Some(reason.to_owned());
        machine.tasks.clear();
        machine.exec_table.clear();
        machine.domains.clear();
        machine.suspended.clear();
    }

    /// Loads mechanisms on this machine.
    pub fn loader(&self) -> Loader {
        let fake = self.clone();
        Box::new(move |kind, thresholds| {
            let mut machine = fake.machine();
            if let Some((_, failure)) = machine.broken.iter().find(|(broken, _)| *broken == kind) {
                return Err(failure.clone());
            }
            machine.loaded = Some(kind);
            machine.loads += 1;
            machine.exit_reason = None;
            machine.thresholds = thresholds;
            Ok(Box::new(FakeMechanism { kind, fake: fake.clone() }))
        })
    }
}

struct FakeMechanism {
    kind: MechanismKind,
    fake: Fake,
}

impl Enforcer for FakeMechanism {
    fn set_memory_free(&mut self, bytes: Option<u64>) {
        self.fake.machine().memory_free = bytes;
    }
}

impl Drop for FakeMechanism {
    fn drop(&mut self) {
        if let Ok(mut machine) = self.fake.machine.lock() {
            machine.loaded = None;
            machine.tasks.clear();
            machine.exec_table.clear();
            machine.domains.clear();
            machine.suspended.clear();
        }
    }
}

impl FakeMechanism {
    fn in_force(&self) -> Result<MutexGuard<'_, Machine>, MechanismError> {
        let machine = self.fake.machine();
        match &machine.exit_reason {
            Some(reason) => Err(MechanismError::Gone { reason: reason.clone() }),
            None => Ok(machine),
        }
    }
}

fn exists(tid: i32) -> Result<(), MechanismError> {
    if std::path::Path::new(&format!("/proc/{tid}")).exists() {
        Ok(())
    } else {
        Err(MechanismError::NoSuchTask { tid })
    }
}

fn reserved(machine: &Machine) -> f64 {
    let admitted = machine.tasks.values().filter(|(_, standing)| *standing == Standing::Admitted);
    admitted.map(|(grant, _)| grant.reservation.bandwidth()).sum()
}

impl Mechanism for FakeMechanism {
    fn kind(&self) -> MechanismKind {
        self.kind
    }

    fn set_exec_table(&mut self, entries: &[(FileIdentity, Option<Grant>)]) -> Result<(), MechanismError> {
        self.in_force()?.exec_table = entries.to_vec();
        Ok(())
    }

    fn assign_thread(
        &mut self,
        pid: i32,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError> {
        if process::process_of(tid, &Roots::default()).ok() != Some(pid) {
            return Err(MechanismError::NoSuchTask { tid });
        }
        self.assign(tid, grant)
    }

    fn assign(&mut self, tid: i32, grant: Option<Grant>) -> Result<Option<Standing>, MechanismError> {
        exists(tid)?;
        let mut machine = self.in_force()?;
        if let Some((file, text)) = machine.meanwhile.take() {
            std::fs::write(file, text).expect("a test's file can be written");
        }
        let before = machine.tasks.remove(&tid);
        let decided = |kind, load, bandwidth, threshold| Event {
            at_ns: 1,
            tid,
            pid: tid,
            user: process::user(tid, &Roots::default()).ok().flatten(),
            name: "fake".to_owned(),
            cpu: 0,
            kind,
            load,
            bandwidth,
            threshold,
            reason: None,
        };
        let Some(grant) = grant else {
            if let Some((grant, _)) = before {
                machine.events.push(decided(EventKind::Released, 0.0, grant.reservation.bandwidth(), 0.0));
            }
            return Ok(None);
        };
        let (load, bandwidth) = (reserved(&machine), grant.reservation.bandwidth());
        let threshold = machine.thresholds.admit_below;
        let fits = load + bandwidth < threshold;
        let standing = if fits { Standing::Admitted } else { Standing::Refused };
        let kind = if fits { EventKind::Admitted } else { EventKind::Refused };
        machine.tasks.insert(tid, (grant, standing));
        machine.events.push(decided(kind, load, bandwidth, threshold));
        Ok(Some(standing))
    }

    fn allow_interactive_exec(&mut self, tid: i32) -> Result<(), MechanismError> {
        exists(tid)?;
        self.in_force()?.allowed.push(tid);
        Ok(())
    }

    fn set_thresholds(&mut self, thresholds: Thresholds) -> Result<(), MechanismError> {
        self.in_force()?.thresholds = thresholds;
        Ok(())
    }

    fn set_domain(&mut self, cgroup_id: u64, policy: Option<DomainPolicy>) -> Result<(), MechanismError> {
        let mut machine = self.in_force()?;
        if self.kind != MechanismKind::SchedExt {
            return Err(MechanismError::Unsupported { what: "policies of domains", by: self.kind });
        }
        if machine.unseen.contains(&cgroup_id) {
            return Err(MechanismError::NoSuchDomain { cgroup_id });
        }
        match policy {
            Some(policy) => _ = machine.domains.insert(cgroup_id, policy),
            None => _ = machine.domains.remove(&cgroup_id),
        }
        Ok(())
    }

    fn suspend_domain(&mut self, cgroup_id: u64, _path: &str, suspended: bool) -> Result<(), MechanismError> {
        let mut machine = self.in_force()?;
        if machine.unseen.contains(&cgroup_id) {
            return Err(MechanismError::NoSuchDomain { cgroup_id });
        }
        if suspended {
            machine.suspended.insert(cgroup_id);
        } else {
            machine.suspended.remove(&cgroup_id);
        }
        Ok(())
    }

    fn domains(&mut self) -> Result<Vec<DomainRecord>, MechanismError> {
        let machine = self.in_force()?;
        let record = |(cgroup_id, policy): (&u64, &DomainPolicy)| DomainRecord {
            cgroup_id: *cgroup_id,
            parent_id: 1,
            policy: *policy,
            share: policy.reserved,
            best_effort_time_ns: 1_000_000,
            tasks: 1,
            runnable: 1,
            suspended: machine.suspended.contains(cgroup_id),
            ..DomainRecord::default()
        };
        let counted = |(cgroup_id, policy): (&u64, &DomainPolicy)| {
            let counted = machine.counted.get(cgroup_id).cloned();
            counted.map(|counted| DomainRecord { policy: *policy, ..counted })
        };
        let domains = machine.domains.iter();
        Ok(domains.map(|domain| counted(domain).unwrap_or_else(|| record(domain))).collect())
    }

    fn set_best_effort(&mut self, settings: BestEffortSettings) -> Result<(), MechanismError> {
        self.in_force()?.best_effort = settings;
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, MechanismError> {
        let mut machine = self.in_force()?;
        let load = reserved(&machine);
        machine.looks += 1;
        let begun = machine.looks * machine.periods_each_look;
        let record = |(tid, (grant, standing)): (&i32, &(Grant, Standing))| {
            let record = record(*tid, *grant, *standing);
            TaskRecord { periods: record.periods + begun, ..record }
        };
        let tasks: Vec<TaskRecord> = machine.tasks.iter().map(record).collect();
        let admitted = tasks.iter().filter(|task| task.standing == Standing::Admitted).count() as u32;
        let cpu = CpuRecord {
            cpu: 0,
            online: true,
            measured_load: 0.0,
            projected_load: load,
            window: [0.0; 4],
            reserved: load,
            admitted,
        };
        Ok(Snapshot { at_ns: 1, tasks, cpus: vec![cpu] })
    }

    fn cgroups_without_domain(&self) -> u64 {
        self.fake.machine().cgroups_without_domain
    }

    fn take_events(&mut self, sink: &mut dyn FnMut(Event)) -> u64 {
        let events = std::mem::take(&mut self.fake.machine().events);
        events.into_iter().for_each(sink);
        0
    }

    fn take_heirs(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.fake.machine().heirs)
    }

    fn event_descriptor(&self) -> Option<RawFd> {
        None
    }

    fn exit_reason(&self) -> Option<String> {
        self.fake.machine().exit_reason.clone()
    }
}

fn record(tid: i32, grant: Grant, standing: Standing) -> TaskRecord {
    TaskRecord {
        tid,
        pid: process::process_of(tid, &Roots::default()).unwrap_or(tid),
        name: "fake".to_owned(),
        cpu: 0,
        standing,
        grant,
        budget_left_ns: grant.reservation.budget_ns as i64,
        deadline_ns: 30_000_000,
        periods: 100,
        periods_announced: 0,
        deadlines_missed: 0,
        budgets_exhausted: 0,
        reserved_time_ns: 1_000_000,
        best_effort_time_ns: 0,
        overrun_max_ns: 0,
        reason: None,
    }
}
