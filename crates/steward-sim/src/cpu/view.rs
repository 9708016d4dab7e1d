//! What can be seen of a machine while it runs: for tests that hold each moment to what the rules promise.

use steward_core::cpu::reservation::Reservation;

use crate::cpu::kernel::{Queue, TaskId};
use crate::cpu::machine::Machine;
use crate::cpu::scheduler::Standing;

/// What a task does. CPUs are numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It has not begun, sleeps, waits for something else than a CPU, or has ended.
    Away,
    /// It waits to run out of its reservation, on this CPU.
    WaitsReserved(u32),
    /// It waits to run as best-effort work.
    Waits,
    /// It stands among those that have waited too long.
    WaitsForRescue,
    /// It runs on this CPU out of its reservation.
    Reserved(u32),
    /// It runs on this CPU as best-effort work.
    BestEffort(u32),
    /// It runs on this CPU because it had waited too long.
    Rescued(u32),
}

impl Doing {
    /// The CPU that it has, if any.
    pub fn cpu(self) -> Option<u32> {
        match self {
            Doing::Reserved(cpu) | Doing::BestEffort(cpu) | Doing::Rescued(cpu) => Some(cpu),
            _ => None,
        }
    }

    /// Whether it could run and does not.
    pub fn waits(self) -> bool {
        matches!(self, Doing::Waits | Doing::WaitsReserved(_) | Doing::WaitsForRescue)
    }
}

/// A task that asked for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationView {
    /// What it asked for.
    pub reservation: Reservation,
    /// The CPU on which it is in force, if it is.
    pub admitted_on: Option<u32>,
    /// Periods that ended with budget owed.
    pub missed: u64,
    /// Periods that began.
    pub periods: u64,
    /// Periods whose budget it used up.
    pub exhausted: u64,
}

/// A task at a moment. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// What it does.
    pub doing: Doing,
    /// `cpu.max` holds its domain or one above it.
    pub held: bool,
    /// CPU time that it has used.
    pub used_ns: u64,
    /// CPU time that it has used out of its reservation.
    pub reserved_ns: u64,
    /// Since when it could run and does not.
    pub waits_since_ns: Option<u64>,
    /// The longest that it could run and did not, up to now.
    pub longest_wait_ns: u64,
    /// What became of its reservation.
    pub reservation: Option<ReservationView>,
}

impl Machine {
    /// The moment, in nanoseconds from the start.
    pub fn now_ns(&self) -> u64 {
        self.kernel.now_ns
    }

    /// The CPUs that run nothing.
    pub fn idle_cpus(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.kernel.cpu_count()).filter(|cpu| self.kernel.cpus[*cpu as usize].current.is_none())
    }

    /// Brings the times of what runs up to now.
    pub fn account(&mut self) {
        (0..self.kernel.cpu_count()).for_each(|cpu| self.kernel.account(cpu));
    }

    /// The task that a CPU runs: its place in the order of the scenario, each entry's copies one after the other.
    pub fn task_on(&self, cpu: u32) -> Option<usize> {
        Some(self.kernel.cpus[cpu as usize].current? as usize)
    }

    /// All tasks, in that order. Their times are those of when they were last accounted ([`Machine::account`]).
    pub fn task_views(&self) -> impl Iterator<Item = TaskView> + '_ {
        (0..self.tasks.len()).map(|place| self.task_view(place))
    }

    /// The task in that place.
    pub fn task_view(&self, place: usize) -> TaskView {
        let p = place as TaskId;
        let task = self.kernel.task(p);
        let runs_on = self.kernel.cpus.get(task.cpu as usize).is_some_and(|cpu| cpu.current == Some(p));
        let doing = match task.queue() {
            _ if runs_on && self.scheduler.runs_reserved(p) => Doing::Reserved(task.cpu),
            _ if runs_on && self.scheduler.rescues(task.cpu) => Doing::Rescued(task.cpu),
            _ if runs_on => Doing::BestEffort(task.cpu),
            _ if !task.runnable => Doing::Away,
            Some(Queue::Interactive(cpu)) => Doing::WaitsReserved(cpu),
            Some(Queue::Rescue) => Doing::WaitsForRescue,
            _ => Doing::Waits,
        };
        let slot = self.scheduler.slot_of(p);
        TaskView {
            doing,
            held: self.scheduler.held_by_quota(p),
            used_ns: task.used_ns,
            reserved_ns: slot.map_or(0, |slot| slot.reserved_time_ns),
            waits_since_ns: task.waits_since_ns,
            longest_wait_ns: task
                .longest_wait_ns
                .max(task.waits_since_ns.map_or(0, |since_ns| self.kernel.now_ns - since_ns)),
            reservation: slot.map(|slot| ReservationView {
                reservation: slot.reservation,
                admitted_on: (slot.standing == Standing::Admitted).then_some(slot.cpu),
                missed: slot.edf.missed,
                periods: slot.edf.periods,
                exhausted: slot.edf.exhausted,
            }),
        }
    }
}
