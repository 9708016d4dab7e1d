//! What a run gives: plain numbers, as JSON or as a table.

use std::fmt;

use serde::Serialize;
use steward_sched::decide::ROOT_DOMAIN;

use crate::cpu::machine::Machine;

/// The version of [`Outcome`]'s JSON form.
pub const SCHEMA: u32 = 1;

/// What was measured in one run. Shares are of the whole machine, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// How long was measured, in seconds of the simulated machine.
    pub measured_seconds: f64,
    /// The part of the CPUs' time that tasks used.
    pub busy: f64,
    /// The part of the time in which the disk served a request.
    pub disk_busy: f64,
    /// How often each thing was decided.
    pub decisions: Decisions,
    /// Each `[[task]]` entry.
    pub tasks: Vec<TaskOutcome>,
    /// Each domain, with its children's share.
    pub domains: Vec<DomainOutcome>,
}

/// Counts of decisions; those about reservations from the start of the run, the others since measuring began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Decisions {
    /// A CPU chose what to run next.
    pub dispatch: u64,
    /// A reservation was admitted.
    pub admitted: u64,
    /// A reservation was refused.
    pub refused: u64,
    /// A reservation was revoked under overload.
    pub revoked: u64,
    /// A refused or revoked reservation was admitted later.
    pub reactivated: u64,
    /// A task was rescued that had waited too long.
    pub rescued: u64,
}

/// What the tasks of one `[[task]]` entry got.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskOutcome {
    /// The entry's name.
    pub name: String,
    /// How many tasks it stands for.
    pub count: u32,
    /// Their share together.
    pub share: f64,
    /// The share of the one that got least.
    pub share_min: f64,
    /// The share of the one that got most.
    pub share_max: f64,
    /// Iterations of the program per second, together.
    pub work_per_second: f64,
    /// How often one of them woke up and then ran.
    pub wakeups: u64,
    /// From waking to running: the median, in milliseconds.
    pub latency_ms_p50: f64,
    /// From waking to running: what 99 of 100 stay below, in milliseconds.
    pub latency_ms_p99: f64,
    /// From waking to running: the longest, in milliseconds.
    pub latency_ms_max: f64,
    /// Frames, for programs that have an `until` phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// What became of reservations, for entries with `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationOutcome>,
}

/// Frames of a player.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Frames {
    /// Frames that ended.
    pub frames_total: u64,
    /// Those that ended after the next one was due to begin.
    pub frames_late: u64,
    /// Frames in the worst whole second; with one task only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_per_second_min: Option<u32>,
    /// The longest time between two frames of a task, in milliseconds.
    pub gap_ms_max: f64,
}

/// Reservations of tasks, from the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReservationOutcome {
    /// Tasks whose reservation is in force at the end.
    pub admitted: u32,
    /// Periods begun.
    pub periods: u64,
    /// Periods that ended with budget owed.
    pub deadlines_missed: u64,
    /// Periods whose budget was used up.
    pub budgets_exhausted: u64,
    /// CPU time out of the reservation, in milliseconds.
    pub reserved_time_ms: f64,
    /// CPU time as best-effort, in milliseconds.
    pub best_effort_time_ms: f64,
}

/// What a domain got.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DomainOutcome {
    /// Its name.
    pub name: String,
    /// Its name's path from the root.
    pub path: String,
    /// The share of its tasks and of those below it.
    pub share: f64,
    /// The share of its own tasks.
    pub own_share: f64,
}

impl Machine {
    /// Runs to the end of the scenario and returns what was measured.
    pub fn run(mut self) -> Outcome {
        let end_ns = self.scenario.duration_ns;
        self.run_until(end_ns);
        Outcome::of(&self)
    }
}

impl Outcome {
    fn of(machine: &Machine) -> Self {
        let measured_ns = machine.kernel.now_ns - machine.measured_from_ns;
        let capacity_ns = measured_ns as f64 * f64::from(machine.kernel.cpu_count());
        let busy_ns: u64 = machine.kernel.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        let counts = &machine.scheduler.counts;
        Outcome {
            measured_seconds: measured_ns as f64 / 1e9,
            busy: (busy_ns - machine.busy_before_ns) as f64 / capacity_ns,
            disk_busy: machine.disk.busy_ns as f64 / measured_ns as f64,
            decisions: Decisions {
                dispatch: counts.decisions,
                admitted: counts.admitted,
                refused: counts.refused,
                revoked: counts.revoked,
                reactivated: counts.reactivated,
                rescued: counts.rescued,
            },
            tasks: tasks(machine, measured_ns, capacity_ns),
            domains: domains(machine, capacity_ns),
        }
    }

    /// The result of the `[[task]]` entry with this name.
    pub fn task(&self, name: &str) -> Option<&TaskOutcome> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// The result of the domain with this name.
    pub fn domain(&self, name: &str) -> Option<&DomainOutcome> {
        self.domains.iter().find(|domain| domain.name == name)
    }
}

/// CPU time that each task used since measuring began, in nanoseconds.
fn used(machine: &Machine) -> impl Iterator<Item = u64> + '_ {
    let pairs = machine.tasks.iter().zip(&machine.kernel.tasks);
    pairs.map(|(task, kernel_task)| kernel_task.used_ns - task.used_before_ns)
}

fn tasks(machine: &Machine, measured_ns: u64, capacity_ns: f64) -> Vec<TaskOutcome> {
    let mut outcomes: Vec<TaskOutcome> = Vec::new();
    for (spec, measured) in machine.scenario.tasks.iter().zip(&machine.measured) {
        let delay_ms = |quantile| measured.wake_delay_ns.value_at_quantile(quantile) as f64 / 1e6;
        outcomes.push(TaskOutcome {
            name: spec.name.clone(),
            count: spec.count,
            share: 0.0,
            share_min: if spec.count > 0 { f64::INFINITY } else { 0.0 },
            share_max: 0.0,
            work_per_second: measured.iterations as f64 / (measured_ns as f64 / 1e9),
            wakeups: measured.wake_delay_ns.len(),
            latency_ms_p50: delay_ms(0.5),
            latency_ms_p99: delay_ms(0.99),
            latency_ms_max: delay_ms(1.0),
            frames: None,
            reservation: spec.reservation.map(|_| ReservationOutcome::default()),
        });
    }
    for (task, used_ns) in machine.tasks.iter().zip(used(machine)) {
        let outcome = &mut outcomes[task.entry as usize];
        let share = used_ns as f64 / capacity_ns;
        outcome.share += share;
        outcome.share_min = outcome.share_min.min(share);
        outcome.share_max = outcome.share_max.max(share);
        let measured = &machine.measured[task.entry as usize];
        if measured.frames > 0 {
            let gap_ms = measured.gap_max_ns(measured_ns, task.last_frame_ns) as f64 / 1e6;
            let before_ms = outcome.frames.as_ref().map_or(0.0, |frames| frames.gap_ms_max);
            outcome.frames = Some(Frames {
                frames_total: measured.frames,
                frames_late: measured.frames_late,
                frames_per_second_min: (outcome.count == 1)
                    .then(|| measured.frames_per_second_min(measured_ns / 1_000_000_000))
                    .flatten(),
                gap_ms_max: gap_ms.max(before_ms),
            });
        }
    }
    for slot in &machine.scheduler.slots {
        let entry = machine.tasks[slot.task as usize].entry as usize;
        let Some(reservation) = &mut outcomes[entry].reservation else { continue };
        reservation.admitted += u32::from(slot.standing == crate::cpu::scheduler::Standing::Admitted);
        reservation.periods += slot.edf.periods;
        reservation.deadlines_missed += slot.edf.missed;
        reservation.budgets_exhausted += slot.edf.exhausted;
        reservation.reserved_time_ms += slot.reserved_time_ns as f64 / 1e6;
        reservation.best_effort_time_ms += slot.best_effort_time_ns as f64 / 1e6;
    }
    outcomes
}

fn domains(machine: &Machine, capacity_ns: f64) -> Vec<DomainOutcome> {
    let specs = &machine.scenario.domains;
    let mut own = vec![0u64; specs.len()];
    let first = ROOT_DOMAIN + 1;
    for (task, used_ns) in machine.tasks.iter().zip(used(machine)) {
        if task.domain >= first {
            own[(task.domain - first) as usize] += used_ns;
        }
    }
    let mut all = own.clone();
    // Parents come before their children.
    for index in (0..specs.len()).rev() {
        if let Some(parent) = specs[index].parent {
            all[parent] += all[index];
        }
    }
    let mut outcomes: Vec<DomainOutcome> = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let above = spec.parent.map_or(String::new(), |parent| outcomes[parent].path.clone() + "/");
        outcomes.push(DomainOutcome {
            name: spec.name.clone(),
            path: above + &spec.name,
            share: all[index] as f64 / capacity_ns,
            own_share: own[index] as f64 / capacity_ns,
        });
    }
    outcomes
}

/// How many domains the table shows.
const DOMAINS_SHOWN: usize = 20;

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decisions { dispatch, admitted, refused, revoked, reactivated, rescued } = self.decisions;
        writeln!(
            formatter,
            "{:.1} s measured, CPUs {:.1} % busy, disk {:.1} %; {dispatch} decisions; reservations: {admitted} \
             admitted, {refused} refused, {revoked} revoked, {reactivated} taken back; {rescued} tasks rescued",
            self.measured_seconds,
            self.busy * 100.0,
            self.disk_busy * 100.0,
        )?;
        let width = self.tasks.iter().map(|task| task.name.chars().count()).max().unwrap_or(0).max(4);
        writeln!(
            formatter,
            "\n{:width$}  COUNT   CPU %   MIN %   MAX %      WORK/S  WAKE ms p50      p99      max  FRAMES   LATE  MISSED",
            "TASK"
        )?;
        for task in &self.tasks {
            let frames = task.frames.as_ref();
            let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
            writeln!(
                formatter,
                "{:width$}  {:5}  {:6.2}  {:6.2}  {:6.2}  {:10.2}  {:11.3}  {:7.3}  {:7.3}  {:>6}  {:>5}  {:>6}",
                task.name,
                task.count,
                task.share * 100.0,
                task.share_min * 100.0,
                task.share_max * 100.0,
                task.work_per_second,
                task.latency_ms_p50,
                task.latency_ms_p99,
                task.latency_ms_max,
                number(frames.map(|frames| frames.frames_total)),
                number(frames.map(|frames| frames.frames_late)),
                number(task.reservation.as_ref().map(|reservation| reservation.deadlines_missed)),
            )?;
        }
        if self.domains.is_empty() {
            return Ok(());
        }
        let shown = &self.domains[..self.domains.len().min(DOMAINS_SHOWN)];
        let width = shown.iter().map(|domain| domain.path.chars().count()).max().unwrap_or(0).max(6);
        writeln!(formatter, "\n{:width$}   CPU %   OWN %", "DOMAIN")?;
        for domain in shown {
            let (share, own) = (domain.share * 100.0, domain.own_share * 100.0);
            writeln!(formatter, "{:width$}  {share:6.2}  {own:6.2}", domain.path)?;
        }
        if self.domains.len() > shown.len() {
            writeln!(formatter, "and {} more", self.domains.len() - shown.len())?;
        }
        Ok(())
    }
}
