//! What the scheduler knows: the BPF program's maps and variables.

use steward_core::cpu::reservation::Reservation;
use steward_sched::decide::{
    Claim, ClassUse, CpuOrder, Declared, DomainTable, EdfTask, LOAD_VICTIM_RANKS, Load, LoadCut,
    LoadThresholds, Restriction, Waiters,
};

use crate::cpu::kernel::TaskId;
use crate::random::Random;

/// No deadline: what runs is best-effort.
pub(super) const NEVER: u64 = u64::MAX;

/// What a domain owes for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unpaid {
    pub(super) index: u16,
    pub(super) used_ns: u64,
    /// Where the tasks may run that used it.
    pub(super) restriction: Restriction,
}

/// What a task runs as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// It is not on a CPU.
    #[default]
    Off,
    BestEffort,
    Interactive,
}

/// Why a task is put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueued {
    /// It woke up.
    Woken,
    /// Its slice is over.
    SliceOver,
    /// Its slice is over, and its CPU has nothing else, yet it was not kept there.
    Last,
}

/// What the scheduler knows of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskState {
    pub(super) charged_ns: u64,
    pub(super) vtime: u64,
    pub(super) waiting_since_ns: u64,
    pub(super) slot: Option<u32>,
    pub(super) weight: u32,
    pub(super) runnable_weight: u32,
    pub(super) domain: u16,
    pub(super) mode: Mode,
    pub(super) counted_waiting: bool,
    pub(super) restricted_waiting: bool,
    pub(super) rescued: bool,
    /// Began to run without waiting in the order, and its domain's credit has not been looked at since.
    pub(super) unjoined: bool,
}

/// What only the CPU itself needs at each switch.
#[derive(Clone, Debug)]
pub(super) struct CpuRun {
    pub(super) deadline_ns: u64,
    pub(super) budget_end_ns: Option<u64>,
    pub(super) rescued_ns: u64,
    /// How often one could be rescued when the last one was.
    pub(super) rescue_interval_ns: u64,
    pub(super) began_ns: u64,
    /// Virtual time and weight of the task that runs as best-effort, and when they were taken.
    pub(super) vtime: u64,
    pub(super) vtime_at_ns: u64,
    pub(super) weight: u32,
    /// What tasks of a domain used here and the domain has not paid yet.
    pub(super) unpaid: Option<Unpaid>,
    /// The domain of the task that runs as best-effort.
    pub(super) domain: Option<u16>,
    /// Where the task may run that runs, or ran last.
    pub(super) restriction: Restriction,
    /// Its slice is a long one, because nothing waited.
    pub(super) alone: bool,
    /// What is chosen now goes before the interactive class, for a moment.
    pub(super) gap: bool,
    /// It runs because it had waited too long.
    pub(super) rescue: bool,
    pub(super) class: ClassUse,
}

impl CpuRun {
    pub(super) fn new() -> Self {
        CpuRun {
            deadline_ns: NEVER,
            budget_end_ns: None,
            rescued_ns: 0,
            rescue_interval_ns: 0,
            began_ns: 0,
            vtime: 0,
            vtime_at_ns: 0,
            weight: 0,
            unpaid: None,
            restriction: Restriction::None,
            domain: None,
            alone: false,
            gap: false,
            rescue: false,
            class: ClassUse::default(),
        }
    }
}

/// The scheduler's state: the BPF program's maps and variables.
pub(crate) struct Scheduler {
    pub(super) thresholds: LoadThresholds,
    pub(super) tasks: Vec<TaskState>,
    pub(crate) slots: Vec<Slot>,
    pub(super) cpu_states: Vec<CpuState>,
    pub(super) cpu_runs: Vec<CpuRun>,
    pub(super) orders: Vec<Box<CpuOrder>>,
    pub(crate) domains: Box<DomainTable>,
    pub(super) preemption_interval_ns: u64,
    pub(super) overdue: bool,
    /// Whether the last look found that those who stand to be rescued press.
    pub(super) overdue_press: bool,
    /// The domain at which the next look for tasks that have waited too long begins.
    pub(super) overdue_cursor: u16,
    pub(super) room: u32,
    pub(super) waiters: Waiters,
    pub(super) samples: u32,
    pub(super) sampled_ns: u64,
    /// Where light tasks are put.
    pub(super) random: Random,
    pub(crate) counts: Counts,
}

/// Where a task that has a specification stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its task is gone.
    None,
    Admitted,
    Refused,
    Revoked,
}

/// A task that has a specification.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) task: TaskId,
    pub(crate) standing: Standing,
    pub(crate) edf: EdfTask,
    pub(crate) reserved_time_ns: u64,
    pub(crate) best_effort_time_ns: u64,
    pub(crate) cpu: u32,
    /// What it asks for, and while it is admitted, what it counts as.
    pub(super) claim: Claim,
    pub(super) revocable: bool,
    pub(super) used: u32,
    pub(super) sampled_reserved_ns: u64,
    pub(super) sampled_exhausted: u64,
    pub(super) exhausted_sample: u32,
    pub(super) admitted_sample: u32,
    pub(super) waiting_since_ns: u64,
    pub(super) failures: u32,
    pub(super) retry_sample: u32,
    pub(crate) reservation: Reservation,
    pub(super) timer: u32,
}

impl Slot {
    /// Whether the reservation can be served on its CPU at this moment.
    pub(super) fn served_by_deadline(&self, now_ns: u64) -> bool {
        self.standing == Standing::Admitted && self.edf.eligible(now_ns)
    }
}

/// The reservations of one CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuState {
    pub(super) load: Load,
    pub(super) declared: Declared,
    pub(super) reserved_time_ns: u64,
    pub(super) sampled_ns: u64,
    /// The sampler's scratch: what those used who may be put out, and whom to put out.
    pub(super) used_by_rank: [u32; LOAD_VICTIM_RANKS],
    pub(super) cut: Option<LoadCut>,
}

/// How often each thing was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) decisions: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) revoked: u64,
    pub(crate) reactivated: u64,
    pub(crate) rescued: u64,
}

/// What is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Admitted,
    Refused,
    Revoked,
    Reactivated,
}
