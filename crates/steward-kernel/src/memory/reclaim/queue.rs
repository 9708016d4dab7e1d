//! The jobs that wait, those in hand, and what became of the others. No thread is in here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::job::{End, ReclaimJob, ReclaimOutcome};

/// Whether a job in hand is to be given up after its present piece.
pub(super) type Running = Arc<AtomicBool>;

/// A job that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) job: ReclaimJob,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Oldest first.
    waiting: VecDeque<Waiting>,
    waiting_max: usize,
    in_hand: BTreeMap<u64, Running>,
    /// Those that nobody has taken yet.
    pub(super) outcomes: Vec<ReclaimOutcome>,
    last_number: u64,
    /// Nothing more will come.
    ends: bool,
}

impl Queue {
    pub(super) fn new(waiting_max: usize) -> Self {
        Queue {
            waiting: VecDeque::with_capacity(waiting_max),
            waiting_max,
            in_hand: BTreeMap::new(),
            outcomes: Vec::new(),
            last_number: 0,
            ends: false,
        }
    }

    pub(super) fn push(&mut self, job: ReclaimJob) -> Result<u64, ReclaimJob> {
        if self.waiting.len() >= self.waiting_max {
            return Err(job);
        }
        self.last_number += 1;
        self.waiting.push_back(Waiting { number: self.last_number, job });
        Ok(self.last_number)
    }

    /// Whether a thread has to go on waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.ends
    }

    pub(super) fn pop(&mut self) -> Option<(Waiting, Running)> {
        let waiting = self.waiting.pop_front()?;
        let running = Running::default();
        self.in_hand.insert(waiting.number, Arc::clone(&running));
        Some((waiting, running))
    }

    pub(super) fn finished(&mut self, outcome: ReclaimOutcome) {
        self.in_hand.remove(&outcome.number);
        self.outcomes.push(outcome);
    }

    /// Whether that made an outcome.
    pub(super) fn cancel(&mut self, number: u64) -> bool {
        if let Some(running) = self.in_hand.get(&number) {
            running.store(true, Ordering::Relaxed);
            return false;
        }
        let Some(place) = self.waiting.iter().position(|waiting| waiting.number == number) else {
            return false;
        };
        let Some(Waiting { number, job }) = self.waiting.remove(place) else { return false };
        let (duration, end) = (Duration::ZERO, End::Cancelled);
        self.outcomes.push(ReclaimOutcome { number, job, taken_bytes: 0, pieces: 0, duration, end });
        true
    }

    pub(super) fn unfinished(&self) -> usize {
        self.waiting.len() + self.in_hand.len()
    }

    /// Gives up what waits, and what is in hand after its present piece.
    pub(super) fn end(&mut self) {
        self.ends = true;
        self.waiting.clear();
        self.in_hand.values().for_each(|running| running.store(true, Ordering::Relaxed));
    }
}
