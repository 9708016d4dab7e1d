//! The disk machine: takes events in order, lets programs do what they want, and asks the kernel.

use steward_core::disk::plan::Plan;
use steward_core::domain::name;

use super::decide::Decide;
use super::event::Event;
use super::kernel::Kernel;
use super::measure::{Counts, Outcome};
use super::program::{Next, Program};
use super::scenario::Scenario;
use super::steward::{Steward, Thread};
use crate::random::Random;

/// How often what is in the cache is written, however little it is (jbd2 commits as often), in nanoseconds.
const FLUSH_EVERY_NS: u64 = 5_000_000_000;

/// The first thread of the program at this place.
fn tid_of(place: usize) -> i32 {
    place as i32 + 1
}

/// A discrete-event machine with a disk.
pub struct Machine {
    scenario: Scenario,
    kernel: Kernel,
    steward: Option<Steward>,
    programs: Vec<Program>,
    next_tid: i32,
    now_ns: u64,
}

impl Machine {
    /// Sets the machine up, under Steward's own rules if Steward is there.
    pub fn new(scenario: &Scenario) -> Self {
        Machine::with(scenario, Box::<Plan>::default())
    }

    /// The same, with somebody else who decides.
    pub fn with(scenario: &Scenario, decides: Box<dyn Decide>) -> Self {
        let scenario = scenario.clone();
        let random = |stream| Random::new(scenario.seed, stream);
        let place = |path: &str| scenario.cgroups.iter().position(|cgroup| cgroup.path == path);
        let above = |path: &str| name::parent_of(path).and_then(place).map_or(0, |place| place + 1);
        let parents = scenario.cgroups.iter().map(|cgroup| above(&cgroup.path)).collect();
        let mut kernel = Kernel::new(scenario.device, scenario.cache, parents, random(1));
        let programs: Vec<Program> = (1..)
            .zip(&scenario.programs)
            .map(|(tid, spec)| Program::new(spec, tid, random(tid as u64 + 1)))
            .collect();
        let steward = scenario.steward.map(|settings| Steward::new(settings, decides));
        if steward.is_some() {
            kernel.events.push(0, Event::Look);
        }
        kernel.events.push(FLUSH_EVERY_NS, Event::Flush);
        for (place, change) in scenario.changes.iter().enumerate() {
            kernel.events.push(change.at_ns, Event::Change { place });
        }
        for (program, spec) in scenario.programs.iter().enumerate() {
            kernel.own(programs[program].tid, program, spec.process.unwrap_or(program));
            kernel.events.push(spec.start_ns, Event::Step { program });
            if let Some(end_ns) = spec.end_ns {
                kernel.events.push(end_ns, Event::End { program });
            }
        }
        let next_tid = programs.len() as i32 + 1;
        Machine { kernel, steward, programs, scenario, next_tid, now_ns: 0 }
    }

    /// Goes on until this moment, in nanoseconds.
    pub fn run_until(&mut self, until_ns: u64) {
        while self.kernel.events.next_ns().is_some_and(|next_ns| next_ns <= until_ns) {
            let Some((now_ns, event)) = self.kernel.events.pop() else { break };
            self.handle(now_ns, event);
        }
        self.now_ns = until_ns;
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        let mut counts: Vec<Counts> = self.programs.iter().map(|program| program.counts).collect();
        for (tid, of_thread) in &self.kernel.counts {
            if let Some(program) = self.kernel.owners.get(tid) {
                counts[*program].add(of_thread);
            }
        }
        for (tid, since_ns) in self.kernel.unserved() {
            if let Some(program) = self.kernel.owners.get(&tid) {
                let counts = &mut counts[*program];
                counts.wait_max_ns = counts.wait_max_ns.max(self.now_ns.saturating_sub(since_ns));
            }
        }
        Outcome {
            programs: counts,
            busy_ns: self.kernel.busy_ns,
            set_back: self.steward.as_ref().map_or(0, |steward| steward.set_back),
            elevators: self.kernel.elevators,
        }
    }

    fn handle(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Step { program } => self.step(now_ns, program),
            Event::End { program } => self.programs[program].has_ended = true,
            Event::Served { id } => self.kernel.served(now_ns, id),
            Event::Elevator => self.kernel.kick(now_ns),
            Event::Flush => {
                self.kernel.flush_all(now_ns);
                self.kernel.events.push(now_ns + FLUSH_EVERY_NS, Event::Flush);
            }
            Event::Change { place } => {
                let change = self.scenario.changes[place];
                self.scenario.cgroups[change.cgroup].given = change.given;
            }
            Event::Look | Event::Apply { .. } | Event::Told | Event::Quiet => self.of_steward(now_ns, event),
        }
    }

    fn of_steward(&mut self, now_ns: u64, event: Event) {
        let Some(steward) = &mut self.steward else { return };
        let kernel = &mut self.kernel;
        match event {
            Event::Look => {
                let runs = |program: &&Program| program.has_begun && !program.has_ended;
                let threads: Vec<Thread<'_>> = self
                    .programs
                    .iter()
                    .zip(&self.scenario.programs)
                    .enumerate()
                    .filter(|(_, (program, _))| runs(program))
                    .flat_map(|(place, (program, spec))| {
                        // Who has started it is there as well.
                        let parent =
                            (spec.starts_anew && program.tid != tid_of(place)).then(|| tid_of(place));
                        parent.into_iter().chain([program.tid]).map(move |tid| (place, tid, spec))
                    })
                    .map(|(place, tid, spec)| Thread {
                        tid,
                        place,
                        process: kernel.process_of(tid),
                        program: spec,
                    })
                    .collect();
                steward.look(now_ns, kernel, &self.scenario.cgroups, &threads);
            }
            Event::Apply { number } => steward.apply(now_ns, number, kernel, &self.scenario.device),
            Event::Told => steward.told(now_ns, kernel),
            Event::Quiet => steward.ask(now_ns, kernel),
            _ => {}
        }
    }

    /// A program goes on until it has to wait.
    fn step(&mut self, now_ns: u64, place: usize) {
        let program = &mut self.programs[place];
        if program.has_ended {
            return;
        }
        let was_in_sync = program.is_in_sync;
        let next = program.next(now_ns);
        let (tid, is_in_sync) = (program.tid, program.is_in_sync);
        if was_in_sync && !is_in_sync {
            self.kernel.end_sync(now_ns, tid);
        }
        if program.is_another() {
            program.tid = self.next_tid;
            let (process, parent) = match self.scenario.programs[place].starts_anew {
                // No program has this place.
                true => (self.programs.len() + self.next_tid as usize, tid_of(place)),
                false => (self.kernel.process_of(tid), tid),
            };
            self.kernel.own(self.next_tid, place, process);
            self.kernel.hand_down(parent, self.next_tid);
            self.next_tid += 1;
        }
        let group = self.scenario.programs[place].cgroup.map_or(0, |place| place + 1);
        match next {
            Next::Sleep { until_ns } => self.kernel.events.push(until_ns, Event::Step { program: place }),
            Next::Submit { bytes } => self.kernel.submit(now_ns, tid, group, bytes, is_in_sync),
            Next::Commit => self.kernel.commit(now_ns, place),
            Next::Write { bytes } => {
                if self.kernel.write(now_ns, place, tid, group, bytes) {
                    self.kernel.events.push(now_ns, Event::Step { program: place });
                }
            }
        }
    }
}
