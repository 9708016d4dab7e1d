//! Disks in memory, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use steward_core::disk::ledger::{Key, Reading};

use crate::disk::counts::Counts;
use crate::disk::knobs::{Knobs, Wanted};

/// Keeps what was wanted; shared between the test and the daemon.
#[derive(Clone, Debug, Default)]
pub struct FakeDisk(Arc<Mutex<(Vec<Wanted>, Vec<String>)>>, Arc<Mutex<Option<Reading>>>);

impl FakeDisk {
    /// What was wanted last, and whose priority was to be taken back in all.
    pub fn wanted(&self) -> Wanted {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let heirs = state.0.iter().flat_map(|wanted| wanted.heirs.clone()).collect();
        Wanted { heirs, ..state.0.last().cloned().unwrap_or_default() }
    }

    /// All that was wanted, oldest first.
    pub fn applied(&self) -> Vec<Wanted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
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
        state.1 = faults.iter().map(|fault| (*fault).to_owned()).collect();
    }
}

impl Knobs for FakeDisk {
    fn apply(&self, wanted: &Wanted) -> Result<(), Vec<String>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.push(wanted.clone());
        if state.1.is_empty() { Ok(()) } else { Err(state.1.clone()) }
    }

    fn given_elevators(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn count(&self) -> Result<Box<dyn Counts>, String> {
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
