//! The memory machine: takes events in order, lets programs do what they want, and asks the kernel.

use steward_core::memory::manager::Manager;

use super::decide::Decide;
use super::event::Event;
use super::kernel::{Kernel, Used};
use super::lru::{GROUP_BYTES, Kind, Place};
use super::measure::{Kill, Outcome};
use super::program::{FILL_NS, Next, Program, View};
use super::scenario::Scenario;
use super::steward::{Steward, Told};
use crate::random::Random;

/// A program goes on for so long before others have their turn.
const TURN_NS: u64 = 2_000_000;

/// A discrete-event machine with memory.
pub struct Machine {
    scenario: Scenario,
    kernel: Kernel,
    steward: Option<Steward>,
    files: Vec<Vec<u32>>,
    programs: Vec<Program>,
    outcome: Outcome,
    now_ns: u64,
}

impl Machine {
    /// Sets the machine up, under Steward's own manager if Steward is there.
    pub fn new(scenario: &Scenario) -> Self {
        Machine::with(scenario, Box::<Manager>::default())
    }

    /// The same, with somebody else who decides.
    pub fn with(scenario: &Scenario, manager: Box<dyn Decide>) -> Self {
        let scenario = scenario.clone();
        let random = |stream| Random::new(scenario.seed, stream);
        let minima: Vec<u64> = match &scenario.steward {
            Some(_) => scenario.domains.iter().map(|domain| domain.min_bytes).collect(),
            None => vec![0; scenario.domains.len()],
        };
        let mut kernel = Kernel::new(&scenario.machine, &minima, random(1));
        for (cgroup, domain) in kernel.cgroups.iter_mut().zip(&scenario.domains) {
            cgroup.swap_max = domain.swap_max_bytes.map(|bytes| bytes / GROUP_BYTES);
        }
        let steward = scenario.steward.as_ref();
        let steward = steward.map(|settings| Steward::new(settings, &scenario.domains, manager, random(2)));
        let groups_of = |bytes: &u64, kernel: &mut Kernel| -> Vec<u32> {
            (0..bytes / GROUP_BYTES).map(|_| kernel.make(Kind::File, 0)).collect()
        };
        let files = scenario.files.iter().map(|bytes| groups_of(bytes, &mut kernel)).collect();
        let programs: Vec<Program> =
            (3..).zip(&scenario.programs).map(|(stream, spec)| Program::new(spec, random(stream))).collect();
        if steward.is_some() {
            kernel.events.push(0, Event::Look);
            kernel.events.push(0, Event::Check);
        }
        for (place, change) in scenario.changes.iter().enumerate() {
            kernel.events.push(change.at_ns, Event::Change { place });
        }
        for (program, spec) in scenario.programs.iter().enumerate() {
            kernel.events.push(spec.start_ns, Event::Step { program });
            if let Some(end_ns) = spec.end_ns {
                kernel.events.push(end_ns, Event::End { program });
            }
        }
        Machine { kernel, steward, files, programs, outcome: Outcome::default(), now_ns: 0, scenario }
    }

    /// Goes on until this moment, in nanoseconds.
    pub fn run_until(&mut self, until_ns: u64) {
        while self.kernel.events.next_ns().is_some_and(|next_ns| next_ns <= until_ns) {
            let Some((now_ns, event)) = self.kernel.events.pop() else { break };
            self.now_ns = self.now_ns.max(now_ns);
            self.handle(now_ns, event);
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            domains: self.kernel.cgroups.iter().map(|cgroup| cgroup.counts).collect(),
            direct_reclaims: self.kernel.direct_reclaims,
            ..self.outcome.clone()
        }
    }

    /// What a domain's own programs are charged, in bytes, without what is below it.
    pub fn used_bytes(&self, domain: usize) -> u64 {
        self.kernel.cgroups[domain].charged_bytes()
    }

    /// What is free, in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.kernel.free_bytes()
    }

    /// What Steward last said is available to a domain.
    pub fn told(&self, domain: usize) -> Told {
        self.steward.as_ref().map_or_else(Told::default, |steward| steward.told[domain])
    }

    fn handle(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Step { program } => self.step(now_ns, program),
            Event::End { program } => self.programs[program].end(&mut self.kernel),
            Event::Reclaim => self.kernel.reclaim(now_ns),
            Event::Written { group, stamp } => self.kernel.written(group, stamp),
            Event::Change { place } => {
                let change = self.scenario.changes[place];
                self.scenario.domains[change.domain].weight = change.weight;
            }
            Event::Look | Event::Check | Event::Take { .. } | Event::Minimum { .. } => {
                self.of_steward(now_ns, event);
            }
        }
    }

    fn of_steward(&mut self, now_ns: u64, event: Event) {
        let Some(steward) = &mut self.steward else { return };
        let (kernel, domains) = (&mut self.kernel, &self.scenario.domains);
        match event {
            Event::Look => steward.turn(now_ns, kernel, domains, &mut self.outcome),
            Event::Check => steward.check(now_ns, kernel, domains, &mut self.outcome),
            Event::Take { thread } => steward.take(now_ns, kernel, domains, thread, &mut self.outcome),
            Event::Minimum { domain, bytes } => steward.written(now_ns, kernel, domain, bytes),
            _ => {}
        }
    }

    /// A program goes on until it has to wait, or its turn is over.
    fn step(&mut self, began_ns: u64, place: usize) {
        let mut now_ns = began_ns;
        while now_ns < began_ns + TURN_NS {
            let program = &mut self.programs[place];
            if program.has_ended {
                return;
            }
            let steward = self.steward.as_ref();
            let available_bytes = steward.map_or(0, |steward| steward.told[program.domain].available_bytes);
            let view = View { files: &self.files, available_bytes };
            let next = program.next(now_ns, &view, &mut self.kernel);
            if let Some(latency_ns) = program.latency_ns.take() {
                let counts = &mut self.kernel.cgroups[program.domain].counts;
                counts.latency_max_ns = counts.latency_max_ns.max(latency_ns);
                counts.rounds += 1;
            }
            match next {
                Next::Sleep { until_ns: u64::MAX } => return,
                Next::Sleep { until_ns } => now_ns = until_ns.max(now_ns + 1),
                Next::Use { id, is_mapped, work_ns } => {
                    let is_new = self.kernel.groups[id as usize].used_at_ns.is_none();
                    match self.kernel.use_group(now_ns, program.domain, id, is_mapped) {
                        Used::Hit if is_new => now_ns += work_ns.max(FILL_NS),
                        Used::Hit => now_ns += work_ns,
                        Used::Read(done_ns) => {
                            self.kernel.cgroups[program.domain].counts.disk_ns += done_ns - now_ns;
                            now_ns = done_ns + work_ns;
                        }
                        Used::Blocked(until_ns) => {
                            self.kernel.cgroups[program.domain].counts.stalled_ns += until_ns - now_ns;
                            program.put_off(next);
                            now_ns = until_ns;
                            break;
                        }
                        Used::Nothing => {
                            program.put_off(next);
                            self.kill(now_ns);
                        }
                    }
                }
            }
        }
        self.kernel.events.push(now_ns, Event::Step { program: place });
    }

    /// Ends the program that has most.
    fn kill(&mut self, now_ns: u64) {
        let kernel = &self.kernel;
        let has = |program: &Program| {
            program.groups.iter().filter(|id| kernel.groups[**id as usize].place != Place::Absent).count()
        };
        let largest = (0..self.programs.len())
            .filter(|place| !self.programs[*place].has_ended)
            .max_by_key(|place| has(&self.programs[*place]));
        if let Some(program) = largest {
            self.programs[program].end(&mut self.kernel);
            self.outcome.kills.push(Kill { at_ns: now_ns, program });
        }
    }
}
