//! A timesharing scheduler of the kind that CPU Futures' timesharing model (section 4.3.1) is about, on one CPU in
//! memory: levels of priority, round robin within a level, and a task's level follows from how much it slept lately.
//!
//! It is there to hold [`steward_core::cpu::forecast::timesharing`] against something; Steward has no such scheduler
//! itself. Time goes by in steps of a millisecond.

use std::collections::VecDeque;

use steward_core::cpu::forecast::timesharing::PriorityGroup;

use crate::cpu::program::{Next, Program, Progress};
use crate::random::Random;

/// How many levels there are; a higher one is better.
pub const LEVELS: usize = 40;
/// A task that slept so much more than it ran is at its best.
const CREDIT_MAX_MS: u32 = 1000;
/// From the best to the worst, sleeping makes a difference of so many levels.
const BONUS_LEVELS: u32 = 10;
/// Between two rounds of all tasks at least those that wait get a turn: a task's turn of the CPU in one round.
const TURN_MS: u32 = 50;
/// Within its turn a task gives way to the next one of its level after so long.
const QUANTUM_MS: u32 = 10;

/// A task, and what it did so far.
#[derive(Clone, Debug)]
struct Timeshared {
    progress: Progress,
    nice: i32,
    /// 0 to [`CREDIT_MAX_MS`]: grows while it sleeps, shrinks while it runs.
    credit_ms: u32,
    turn_left_ms: u32,
    quantum_left_ms: u32,
    work_left_ms: u64,
    wakes_at_ms: u64,
    slept_from_ms: u64,
    ready: bool,
    ended: bool,
    run_ms: u64,
    wait_ms: u64,
}

impl Timeshared {
    /// Its level: by its nice value, better or worse by how much it slept lately.
    fn level(&self) -> usize {
        let bonus = (self.credit_ms * BONUS_LEVELS / CREDIT_MAX_MS) as i32 - BONUS_LEVELS as i32 / 2;
        (19 - self.nice + bonus).clamp(0, LEVELS as i32 - 1) as usize
    }
}

/// What has been counted for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// It ran, in milliseconds.
    pub run_ms: u64,
    /// It waited for the CPU, in milliseconds.
    pub wait_ms: u64,
    /// Its level now, or the one on which it would be if it woke now.
    pub level: usize,
}

/// A machine with one CPU under the timesharing scheduler.
#[derive(Debug)]
pub struct Timesharing {
    now_ms: u64,
    tasks: Vec<Timeshared>,
    /// Those that wait and have some of their turn left, by level.
    active: Vec<VecDeque<usize>>,
    /// Those that have had their turn; they wait for the next round.
    expired: Vec<VecDeque<usize>>,
    /// What each level got, and how many of its tasks were ready, summed over milliseconds.
    given_ms: [u64; LEVELS],
    ready_ms: [u64; LEVELS],
}

impl Timesharing {
    /// Tasks with their programs and nice values; equal seeds give equal runs. Of a program's phases all but running
    /// take their time asleep.
    pub fn new(seed: u64, tasks: Vec<(Program, i32)>) -> Self {
        let tasks = tasks
            .into_iter()
            .enumerate()
            .map(|(index, (program, nice))| Timeshared {
                progress: Progress::new(program, Random::new(seed, index as u64)),
                nice,
                credit_ms: CREDIT_MAX_MS / 2,
                turn_left_ms: TURN_MS,
                quantum_left_ms: QUANTUM_MS,
                work_left_ms: 0,
                wakes_at_ms: 0,
                slept_from_ms: 0,
                ready: false,
                ended: false,
                run_ms: 0,
                wait_ms: 0,
            })
            .collect();
        Timesharing {
            now_ms: 0,
            tasks,
            active: vec![VecDeque::new(); LEVELS],
            expired: vec![VecDeque::new(); LEVELS],
            given_ms: [0; LEVELS],
            ready_ms: [0; LEVELS],
        }
    }

    /// Runs up to a moment, in milliseconds from the start.
    pub fn run_until(&mut self, end_ms: u64) {
        while self.now_ms < end_ms {
            self.wake_all();
            let running = self.choose();
            self.count(running);
            self.now_ms += 1;
            if let Some(index) = running {
                self.put_back(index);
            }
        }
    }

    /// What was counted for each task so far.
    pub fn counters(&self) -> Vec<Counters> {
        let counters =
            |task: &Timeshared| Counters { run_ms: task.run_ms, wait_ms: task.wait_ms, level: task.level() };
        self.tasks.iter().map(counters).collect()
    }

    /// What each level got so far, in milliseconds, and how many of its tasks were ready, summed over milliseconds.
    /// Worst level first.
    pub fn levels(&self) -> [(u64, u64); LEVELS] {
        std::array::from_fn(|level| (self.given_ms[level], self.ready_ms[level]))
    }

    /// The levels between two moments, for the model: what is idle first, then from the worst to the best.
    pub fn groups(
        before: &[(u64, u64); LEVELS],
        after: &[(u64, u64); LEVELS],
        elapsed_ms: u64,
    ) -> Vec<PriorityGroup> {
        let per_second = 1000.0 / elapsed_ms.max(1) as f64;
        let group =
            |((given, ready), (given_before, ready_before)): (&(u64, u64), &(u64, u64))| PriorityGroup {
                allocation_ms_per_s: (given - given_before) as f64 * per_second,
                ready: (ready - ready_before) as f64 * per_second / 1000.0,
            };
        let mut groups = vec![PriorityGroup::default()];
        groups.extend(after.iter().zip(before).map(group));
        let given: f64 = groups.iter().map(|group| group.allocation_ms_per_s).sum();
        groups[0] = PriorityGroup { allocation_ms_per_s: (1000.0 - given).max(0.0), ready: 1.0 };
        groups
    }

    fn wake_all(&mut self) {
        for index in 0..self.tasks.len() {
            let task = &self.tasks[index];
            if !task.ready && !task.ended && task.wakes_at_ms <= self.now_ms && self.proceed(index) {
                let task = &mut self.tasks[index];
                let slept_ms = (self.now_ms - task.slept_from_ms).min(u64::from(CREDIT_MAX_MS)) as u32;
                task.credit_ms = (task.credit_ms + slept_ms).min(CREDIT_MAX_MS);
                task.ready = true;
                task.quantum_left_ms = QUANTUM_MS;
                let level = task.level();
                self.active[level].push_back(index);
            }
        }
    }

    /// Takes the program's next steps. True when the task wants the CPU.
    fn proceed(&mut self, index: usize) -> bool {
        const NS_PER_MS: u64 = 1_000_000;
        let now_ms = self.now_ms;
        let task = &mut self.tasks[index];
        loop {
            match task.progress.step() {
                Next::Run(ns) if ns >= NS_PER_MS => {
                    task.work_left_ms = ns / NS_PER_MS;
                    return true;
                }
                Next::Sleep(ns) | Next::Wait(ns) | Next::Disk(ns) | Next::FrameDone(ns) => {
                    task.wakes_at_ms = now_ms + (ns / NS_PER_MS).max(1);
                    return false;
                }
                Next::Exit => {
                    task.ended = true;
                    return false;
                }
                Next::Run(_) | Next::Put(_) | Next::Take(_) | Next::IterationDone => {}
            }
        }
    }

    /// The first task of the best level that has any; when all have had their turn, a new round begins.
    fn choose(&mut self) -> Option<usize> {
        if self.active.iter().all(VecDeque::is_empty) {
            std::mem::swap(&mut self.active, &mut self.expired);
        }
        self.active.iter_mut().rev().find_map(VecDeque::pop_front)
    }

    fn count(&mut self, running: Option<usize>) {
        for (index, task) in self.tasks.iter_mut().enumerate().filter(|(_, task)| task.ready) {
            self.ready_ms[task.level()] += 1;
            if running == Some(index) {
                self.given_ms[task.level()] += 1;
                task.run_ms += 1;
            } else {
                task.wait_ms += 1;
            }
        }
    }

    /// A task has run for a millisecond: it goes on later, waits for the next round, or sleeps.
    fn put_back(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        task.credit_ms = task.credit_ms.saturating_sub(1);
        task.turn_left_ms -= 1;
        task.quantum_left_ms -= 1;
        task.work_left_ms -= 1;
        let turn_over = task.turn_left_ms == 0;
        if turn_over {
            task.turn_left_ms = TURN_MS;
        }
        if task.work_left_ms == 0 {
            task.slept_from_ms = self.now_ms;
            task.ready = false;
            if !self.proceed(index) {
                return;
            }
            self.tasks[index].ready = true;
        }
        let task = &mut self.tasks[index];
        let quantum_over = task.quantum_left_ms == 0;
        if quantum_over {
            task.quantum_left_ms = QUANTUM_MS;
        }
        let level = task.level();
        match (turn_over, quantum_over) {
            (true, _) => self.expired[level].push_back(index),
            (false, true) => self.active[level].push_back(index),
            (false, false) => self.active[level].push_front(index),
        }
    }
}
