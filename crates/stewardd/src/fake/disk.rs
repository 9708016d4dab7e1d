//! Disks in memory, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use steward_core::disk::ledger::{Key, Reading};

use crate::disk::counts::Counts;
use crate::disk::knobs::{Knobs, Wanted};
use crate::disk::outcome::Outcome;

/// Keeps what was wanted; shared between the test and the daemon.
#[derive(Clone, Debug, Default)]
pub struct FakeDisk(Arc<Mutex<State>>, Arc<Mutex<Option<Reading>>>);

#[derive(Debug, Default)]
struct State {
    applied: Vec<Wanted>,
    /// What the next application ends with.
    faults: Vec<String>,
    /// Whether the last one failed.
    failed: bool,
    /// What came of the last one beside that.
    outcome: Outcome,
    /// How often counting began.
    begun: usize,
    /// Each time the kernel's flusher was to come round often, or as before.
    flushes: Vec<bool>,
}

impl FakeDisk {
    /// How often somebody began to count what disks do.
    pub fn times_begun(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).begun
    }

    /// Each time the kernel's flusher was to come round often, or as before.
    pub fn flushes(&self) -> Vec<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flushes.clone()
    }

    /// What was wanted last, and whose priority was to be taken back in all.
    pub fn wanted(&self) -> Wanted {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let heirs = state.applied.iter().flat_map(|wanted| wanted.heirs.clone()).collect();
        let left = state.applied.iter().flat_map(|wanted| wanted.left.clone()).collect();
        Wanted { heirs, left, ..state.applied.last().cloned().unwrap_or_default() }
    }

    /// All that was wanted, oldest first.
    pub fn applied(&self) -> Vec<Wanted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).applied.clone()
    }

    /// From now on this is counted.
    pub fn set_counted(&self, reading: Reading) {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }

    fn counted(&self) -> Option<Reading> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on each application ends with these faults.
    pub fn fail(&self, faults: &[&str]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
    }
}

impl FakeDisk {
    /// From now on this is what comes of it, beside failures.
    pub fn set_outcome(&self, outcome: Outcome) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).outcome = outcome;
    }
}

impl Knobs for FakeDisk {
    fn apply(&self, wanted: &Wanted) -> Result<(), Vec<String>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.applied.push(wanted.clone());
        state.failed = !state.faults.is_empty();
        if state.failed { Err(state.faults.clone()) } else { Ok(()) }
    }

    fn given_elevators(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn outcome(&self) -> Outcome {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Outcome { may_succeed_later: state.failed, ..state.outcome.clone() }
    }

    fn spent_on_moments_ns(&self) -> u64 {
        0
    }

    fn flush_often(&self, often: bool) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flushes.push(often);
        Ok(())
    }

    fn flush(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flushes.extend([true, false]);
    }

    fn count(&self) -> Result<Box<dyn Counts>, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).begun += 1;
        match self.counted() {
            None => Err("nobody counts here".to_owned()),
            Some(_) => Ok(Box::new(self.clone())),
        }
    }
}

impl Counts for FakeDisk {
    fn read(&mut self, now_ns: u64) -> std::io::Result<Reading> {
        Ok(Reading { at_ns: now_ns, ..self.counted().unwrap_or_default() })
    }

    fn forget(&mut self, _: &Key) {}

    fn lacks(&self) -> Vec<&'static str> {
        Vec::new()
    }
}
