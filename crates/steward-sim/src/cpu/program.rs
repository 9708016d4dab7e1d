//! What tasks do: programs of phases, the disk and the buffers that they share.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::random::{Amount, Random};

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// Uses the CPU.
    Run(Amount),
    /// Sleeps of its own will.
    Sleep(Amount),
    /// Waits for the disk, which needs so long for the request once its turn has come.
    Disk(Amount),
    /// Waits, not of its own will, for something that takes as long as it takes: a page, a lock, a disk as recorded.
    Wait(Amount),
    /// Ends a frame: sleeps until the next one begins. Frame `i` begins at `i` times this (in nanoseconds) after the
    /// task's start, and is late if it ends after the next one has begun.
    Until(u64),
    /// Puts a piece into the buffer with this index; waits while it is full.
    Put(u32),
    /// Takes a piece out of the buffer with this index; waits while it is empty.
    Take(u32),
}

/// What a task does, over and over.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The steps of one iteration.
    pub phases: Arc<[Phase]>,
    /// How many iterations; `None`: without an end.
    pub repeat: Option<u64>,
}

/// A bounded buffer between tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) capacity: u32,
    pub(crate) level: u32,
    pub(crate) putting: VecDeque<u32>,
    pub(crate) taking: VecDeque<u32>,
}

impl Buffer {
    /// A task puts a piece in. `None`: it must wait; else the task that had waited for the piece, if one had.
    pub(crate) fn put(&mut self, task: u32) -> Option<Option<u32>> {
        if let Some(taker) = self.taking.pop_front() {
            return Some(Some(taker));
        }
        if self.level >= self.capacity {
            self.putting.push_back(task);
            return None;
        }
        self.level += 1;
        Some(None)
    }

    /// A task takes a piece out. `None`: it must wait; else the task that had waited for room, if one had.
    pub(crate) fn take(&mut self, task: u32) -> Option<Option<u32>> {
        if self.level == 0 {
            self.taking.push_back(task);
            return None;
        }
        let putter = self.putting.pop_front();
        if putter.is_none() {
            self.level -= 1;
        }
        Some(putter)
    }
}

/// A disk that serves one request at a time, first come first served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    queue: VecDeque<(u32, u64)>,
    pub(crate) busy_ns: u64,
}

impl Disk {
    /// Takes a request. Returns how long it will take if the disk begins with it at once.
    pub(crate) fn submit(&mut self, task: u32, service_ns: u64) -> Option<u64> {
        self.queue.push_back((task, service_ns));
        (self.queue.len() == 1).then_some(service_ns)
    }

    /// The first request is done: whose it was, and how long the next one takes.
    pub(crate) fn complete(&mut self) -> Option<(u32, Option<u64>)> {
        let (task, service_ns) = self.queue.pop_front()?;
        self.busy_ns += service_ns;
        Some((task, self.queue.front().map(|(_, service_ns)| *service_ns)))
    }
}

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It wants the CPU for so many nanoseconds.
    Run(u64),
    /// It sleeps for so many nanoseconds.
    Sleep(u64),
    /// It waits for so many nanoseconds.
    Wait(u64),
    /// It hands the disk a request of so many nanoseconds.
    Disk(u64),
    /// A frame is done; the next one begins at this period.
    FrameDone(u64),
    Put(u32),
    Take(u32),
    /// An iteration is done.
    IterationDone,
    Exit,
}

/// Where a task is in its program.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    program: Program,
    position: usize,
    iterations: u64,
    random: Random,
}

impl Progress {
    pub(crate) fn new(program: Program, random: Random) -> Self {
        Progress { program, position: 0, iterations: 0, random }
    }

    pub(crate) fn draw(&mut self, amount: Amount) -> u64 {
        amount.draw(&mut self.random)
    }

    /// Whether the next step is to use the CPU.
    pub(crate) fn is_to_run(&self) -> bool {
        matches!(self.program.phases.get(self.position), Some(Phase::Run(_)))
    }

    /// Takes the next step.
    pub(crate) fn step(&mut self) -> Next {
        if self.program.repeat.is_some_and(|repeat| self.iterations >= repeat) {
            return Next::Exit;
        }
        let Some(phase) = self.program.phases.get(self.position).copied() else {
            self.position = 0;
            self.iterations += 1;
            return Next::IterationDone;
        };
        self.position += 1;
        match phase {
            Phase::Run(amount) => Next::Run(self.draw(amount)),
            Phase::Sleep(amount) => Next::Sleep(self.draw(amount)),
            Phase::Wait(amount) => Next::Wait(self.draw(amount)),
            Phase::Disk(amount) => Next::Disk(self.draw(amount)),
            Phase::Until(period_ns) => Next::FrameDone(period_ns),
            Phase::Put(buffer) => Next::Put(buffer),
            Phase::Take(buffer) => Next::Take(buffer),
        }
    }
}
