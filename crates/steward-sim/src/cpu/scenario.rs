//! What is simulated: a machine, domains, tasks and what they do.
//!
//! [`Scenario`] is the checked form; [`file`] reads it from TOML and says with file and line what is wrong.

pub mod file;
mod set;
#[cfg(test)]
mod tests;

use steward_core::cpu::best_effort::BestEffortSettings;
use steward_core::cpu::reservation::Reservation;
use steward_core::cpu::thresholds::Thresholds;
use steward_sched::decide::{
    LOAD_ONE, LoadThresholds, PRIORITY_DEFAULT, Policy, SHARE_ONE, WEIGHT_DEFAULT, WEIGHT_SCALE,
};

use crate::cpu::program::Program;
use crate::random::Amount;

/// The most CPUs of a machine.
pub const CPUS_MAX: u32 = steward_sched::CPUS_MAX as u32;
/// The most domains, without the root.
pub const SCENARIO_DOMAINS_MAX: usize = steward_sched::DOMAINS_MAX - 2;
/// The most tasks.
pub const TASKS_MAX: u32 = 1_000_000;

/// The hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineSettings {
    /// How many CPUs, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// The time between timer interrupts: slices end at them.
    pub tick_ns: u64,
}

impl Default for MachineSettings {
    /// One CPU with 250 ticks a second.
    fn default() -> Self {
        MachineSettings { cpus: 1, tick_ns: 4_000_000 }
    }
}

/// A domain below the root.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainSpec {
    /// Its name.
    pub name: String,
    /// Index of its parent; `None`: the root. Parents come before their children.
    pub parent: Option<usize>,
    /// As `cpu.weight`: 1 to 10,000.
    pub weight: u32,
    /// The fraction of the parent's CPU that is reserved for it, 0 to 1.
    pub reserved: f64,
    /// Order among siblings, 0 to 7.
    pub priority: u8,
    /// Priority of its own tasks beside its children, 0 to 7.
    pub own_priority: u8,
    /// Weight of its own tasks together beside its children, 1 to 10,000; `None`: the sum of theirs.
    pub own_weight: Option<u32>,
    /// As `cpu.max`: nanoseconds of CPU time in each period of nanoseconds.
    pub quota: Option<(u64, u64)>,
}

impl DomainSpec {
    /// A domain with the default policy.
    pub fn new(name: impl Into<String>, parent: Option<usize>) -> Self {
        DomainSpec {
            name: name.into(),
            parent,
            weight: WEIGHT_DEFAULT,
            reserved: 0.0,
            priority: PRIORITY_DEFAULT,
            own_priority: PRIORITY_DEFAULT,
            own_weight: None,
            quota: None,
        }
    }

    /// What the scheduler is told of it.
    pub(crate) fn policy(&self) -> Policy {
        let reserved = (self.reserved * SHARE_ONE as f64).round() as u32;
        let own_weight = self.own_weight.unwrap_or(0) * WEIGHT_SCALE;
        Policy::new(self.priority, 0, reserved, self.own_priority, own_weight)
    }
}

/// Tasks of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSpec {
    /// What they are called in the result.
    pub name: String,
    /// How many.
    pub count: u32,
    /// The domains that they are spread over in turn; `None`: the root. Never empty.
    pub domains: Vec<Option<usize>>,
    /// Weight of each, 100 for nice 0.
    pub weight: u32,
    /// When they start, after the run's start, in turn. Never empty.
    pub starts: Vec<Amount>,
    /// The CPUs that they may use; `None`: all.
    pub pinned: Option<CpuSet>,
    /// CPU time reserved for each, and whether it may be revoked.
    pub reservation: Option<(Reservation, bool)>,
    /// Whose it is; 0: root, for whom what may be reserved has no limit.
    pub user: u32,
    /// What they do, in turn. Never empty.
    pub programs: Vec<Program>,
}

/// Some of a machine's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet([u64; CPUS_MAX as usize / 64]);

impl CpuSet {
    /// These CPUs; those beyond [`CPUS_MAX`] are left out. `None` when none is left.
    pub fn of(cpus: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut set = CpuSet([0; CPUS_MAX as usize / 64]);
        for cpu in cpus.into_iter().filter(|cpu| *cpu < CPUS_MAX) {
            set.0[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        set.first().map(|_| set)
    }

    /// Whether the CPU is one of them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// The CPUs, lowest first.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..CPUS_MAX).filter(move |cpu| self.contains(*cpu))
    }

    /// The lowest.
    pub fn first(&self) -> Option<u32> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word as u32 * 64 + self.0[word].trailing_zeros())
    }

    /// Those of them below a number; `None` when there are none.
    pub fn below(self, cpus: u32) -> Option<Self> {
        CpuSet::of(self.iter().take_while(|cpu| *cpu < cpus))
    }
}

/// A bounded buffer between tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferSpec {
    /// Its name.
    pub name: String,
    /// How many pieces it holds.
    pub capacity: u32,
    /// How many pieces are in it at the start.
    pub level: u32,
}

/// Everything that a run is made of. The same scenario gives the same result.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Where random amounts start from.
    pub seed: u64,
    /// How long it runs, with the warm-up.
    pub duration_ns: u64,
    /// How much of that goes by before measuring begins.
    pub warmup_ns: u64,
    /// The hardware.
    pub machine: MachineSettings,
    /// The order among domains.
    pub best_effort: BestEffortSettings,
    /// When tasks are admitted, revoked and taken back.
    pub thresholds: LoadThresholds,
    /// Domains, parents first.
    pub domains: Vec<DomainSpec>,
    /// Tasks.
    pub tasks: Vec<TaskSpec>,
    /// Buffers between tasks.
    pub buffers: Vec<BufferSpec>,
}

impl Default for Scenario {
    /// Ten seconds of nothing on one CPU.
    fn default() -> Self {
        Scenario {
            seed: 1,
            duration_ns: 10_000_000_000,
            warmup_ns: 0,
            machine: MachineSettings::default(),
            best_effort: BestEffortSettings::default(),
            thresholds: to_parts(Thresholds::default()),
            domains: Vec::new(),
            tasks: Vec::new(),
            buffers: Vec::new(),
        }
    }
}

impl Scenario {
    /// Runs it on another number of CPUs, 1 to [`CPUS_MAX`]. Tasks that were pinned to some that are not there may run
    /// on the others, or if none is left, anywhere.
    pub fn set_cpus(&mut self, cpus: u32) {
        self.machine.cpus = cpus.clamp(1, CPUS_MAX);
        for task in &mut self.tasks {
            task.pinned = task.pinned.and_then(|cpus| cpus.below(self.machine.cpus));
        }
    }
}

/// Thresholds as the scheduler has them: parts per million.
pub(crate) fn to_parts(thresholds: Thresholds) -> LoadThresholds {
    let parts = |fraction: f64| (fraction * f64::from(LOAD_ONE)).round() as u32;
    LoadThresholds {
        reactivate_below: parts(thresholds.reactivate_below),
        admit_below: parts(thresholds.admit_below),
        revoke_above: parts(thresholds.revoke_above),
        irrevocable_max: parts(thresholds.irrevocable_max),
        user_max: parts(thresholds.user_max),
    }
}

/// The weight of a task by its nice value: the kernel's table in hundredths of nice 0's, as the scheduler has it.
pub fn weight_of_nice(nice: i32) -> u32 {
    (steward_core::cpu::nice::kernel_weight(nice) * 100 + 512) / 1024
}
