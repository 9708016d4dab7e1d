//! Holds a machine, after each thing that happens, to what docs/scheduler.md promises at every moment.

use proptest::prelude::*;
use steward_sim::cpu::scenario::{CpuSet, DomainSpec};
use steward_sim::cpu::view::{Doing, TaskView};
use steward_sim::{Machine, Scenario};

use crate::random::{MS, SECOND};

/// A task of the scenario.
struct Known {
    name: String,
    domain: Option<usize>,
    pinned: Option<CpuSet>,
    /// It never asks for more than its reservation.
    honest: bool,
    /// What the tasks admitted on its CPU have declared was more than one CPU at some moment.
    beside_too_many: bool,
}

impl Known {
    fn may_run_on(&self, cpu: u32) -> bool {
        self.pinned.is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// A machine that is watched.
pub struct Watch {
    pub machine: Machine,
    scenario: Scenario,
    tasks: Vec<Known>,
    views: Vec<TaskView>,
    looked_ns: u64,
    /// What each CPU ran last.
    ran: Vec<Option<usize>>,
    has_priorities: bool,
}

/// So much of their CPUs tasks may declare that are to miss nothing.
const DECLARED_MAX: f64 = 1.0;
/// A wait ends with a rescue 12 s after it began, half a second or, here, a second later when it is seen, and its turn.
const WAIT_MAX_NS: u64 = 14 * SECOND;

impl Watch {
    pub fn new(scenario: &Scenario) -> Self {
        let known = scenario.tasks.iter().flat_map(|spec| {
            (0..spec.count).map(|copy| Known {
                name: format!("{}.{copy}", spec.name),
                domain: spec.domains[0],
                pinned: spec.pinned.and_then(|cpus| cpus.below(scenario.machine.cpus)),
                honest: spec.name.starts_with("honest"),
                beside_too_many: false,
            })
        });
        Watch {
            machine: Machine::new(scenario),
            tasks: known.collect(),
            views: Vec::new(),
            looked_ns: 0,
            ran: vec![None; scenario.machine.cpus as usize],
            has_priorities: scenario
                .domains
                .iter()
                .any(|domain| (domain.priority, domain.own_priority) != (4, 4)),
            scenario: scenario.clone(),
        }
    }

    /// Runs up to a moment, in nanoseconds from the start.
    pub fn run(&mut self, end_ns: u64) -> Result<(), TestCaseError> {
        while self.machine.step(end_ns) {
            self.look()?;
        }
        self.count();
        for (known, view) in self.tasks.iter().zip(&self.views) {
            prop_assert!(
                view.longest_wait_ns <= WAIT_MAX_NS,
                "{} waited {} ns",
                known.name,
                view.longest_wait_ns
            );
        }
        Ok(())
    }

    /// The same without a look at what happens meanwhile, which takes most of the time.
    pub fn run_unseen(&mut self, end_ns: u64) {
        while self.machine.step(end_ns) {}
        self.count();
    }

    /// Brings what tasks have used up to date.
    fn count(&mut self) {
        self.machine.account();
        self.views = self.machine.task_views().collect();
    }

    fn look(&mut self) -> Result<(), TestCaseError> {
        self.no_cpu_is_idle_beside_work()?;
        self.priorities_are_kept()?;
        if self.machine.now_ns() >= self.looked_ns + 4 * MS {
            self.looked_ns = self.machine.now_ns();
            self.honest_tasks_miss_nothing()?;
        }
        Ok(())
    }

    fn no_cpu_is_idle_beside_work(&self) -> Result<(), TestCaseError> {
        for cpu in self.machine.idle_cpus() {
            for (place, known) in self.tasks.iter().enumerate() {
                if !known.may_run_on(cpu) {
                    continue;
                }
                let view = self.machine.task_view(place);
                let waits = match view.doing {
                    Doing::WaitsReserved(home) => home == cpu,
                    Doing::Waits => !view.held,
                    // The others are served at once unless they are held, and idle CPUs are told of those that are held
                    // with the next refill of quotas.
                    Doing::WaitsForRescue => !view.held,
                    _ => false,
                };
                prop_assert!(
                    !waits,
                    "CPU {cpu} is idle beside {}, which {:?} at {}",
                    known.name,
                    view.doing,
                    self.machine.now_ns()
                );
            }
        }
        Ok(())
    }

    fn honest_tasks_miss_nothing(&mut self) -> Result<(), TestCaseError> {
        let mut declared = vec![0.0; self.scenario.machine.cpus as usize];
        self.views.clear();
        self.views.extend(self.machine.task_views());
        for view in &self.views {
            if let Some(reservation) = view.reservation
                && let Some(cpu) = reservation.admitted_on
            {
                declared[cpu as usize] += reservation.reservation.bandwidth();
            }
        }
        for (known, view) in self.tasks.iter_mut().zip(&self.views) {
            let Some(reservation) = view.reservation else { continue };
            known.beside_too_many |=
                reservation.admitted_on.is_some_and(|cpu| declared[cpu as usize] > DECLARED_MAX);
            prop_assert!(
                !known.honest || known.beside_too_many || reservation.missed == 0,
                "{} missed a deadline, by {}, on {:?} with {declared:?}",
                known.name,
                self.machine.now_ns(),
                reservation.admitted_on
            );
        }
        Ok(())
    }

    /// Whoever begins to run as best-effort work does not keep one of a higher priority waiting where their ways up the
    /// tree meet, unless something is reserved for it on its way.
    fn priorities_are_kept(&mut self) -> Result<(), TestCaseError> {
        for cpu in 0..self.scenario.machine.cpus {
            let Some(runs) = self.machine.task_on(cpu) else {
                self.ran[cpu as usize] = None;
                continue;
            };
            if self.ran[cpu as usize].replace(runs) == Some(runs) {
                continue;
            }
            if !self.has_priorities || self.machine.task_view(runs).doing != Doing::BestEffort(cpu) {
                continue;
            }
            for (place, waits) in self.tasks.iter().enumerate() {
                let waiting = self.machine.task_view(place);
                // Who is put aside at this moment goes first at the next tick.
                let waited = waiting.waits_since_ns.is_some_and(|since_ns| since_ns < self.machine.now_ns());
                if waiting.doing != Doing::Waits || waiting.held || !waited || !waits.may_run_on(cpu) {
                    continue;
                }
                let (below, above, reserved) = self.meet(self.tasks[runs].domain, waits.domain);
                prop_assert!(
                    below >= above || reserved,
                    "{} of priority {below} begins on CPU {cpu} beside {} of priority {above} at {}",
                    self.tasks[runs].name,
                    waits.name,
                    self.machine.now_ns()
                );
            }
        }
        Ok(())
    }

    fn domain(&self, place: usize) -> &DomainSpec {
        &self.scenario.domains[place]
    }

    /// The places from a domain up to a child of the root.
    fn way(&self, domain: Option<usize>) -> Vec<usize> {
        std::iter::successors(domain, |place| self.domain(*place).parent).collect()
    }

    /// The priorities of two domains' own tasks where their ways up the tree meet, and whether the first has something
    /// reserved there.
    fn meet(&self, a: Option<usize>, b: Option<usize>) -> (u8, u8, bool) {
        let (way_a, way_b) = (self.way(a), self.way(b));
        let shared = way_a.iter().rev().zip(way_b.iter().rev()).take_while(|(a, b)| a == b).count();
        let at = |way: &[usize]| {
            let level = shared.checked_sub(1).map(|depth| way[way.len() - 1 - depth]);
            match way.len().checked_sub(shared + 1) {
                Some(place) => (self.domain(way[place]).priority, self.domain(way[place]).reserved > 0.0),
                None => (level.map_or(4, |level| self.domain(level).own_priority), false),
            }
        };
        let ((priority_a, reserved), (priority_b, _)) = (at(&way_a), at(&way_b));
        (priority_a, priority_b, reserved)
    }

    /// Whether a domain is another one or below it.
    fn is_below(&self, domain: Option<usize>, above: usize) -> bool {
        self.way(domain).contains(&above)
    }

    /// CPU time that the tasks of a domain and of those below it have used, at the end of the last run.
    pub fn served_ns(&self, domain: usize) -> u64 {
        let below =
            self.tasks.iter().zip(&self.views).filter(|(known, _)| self.is_below(known.domain, domain));
        below.map(|(_, view)| view.used_ns).sum()
    }
}
