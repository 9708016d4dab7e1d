//! One undo journal for everybody in a process who changes something in the kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::change::{Change, Undone};
use super::error::JournalError;
use super::file::Journal;
use super::given::given_elevators;
use super::undo::undo;
use crate::cgroup::place::Place;
use crate::error::KernelError;
use crate::roots::Roots;

/// A handle on the journal. Each call waits for those of others, and for the disk where it says so.
#[derive(Clone, Debug)]
pub struct SharedJournal(Arc<Mutex<Journal>>);

impl From<Journal> for SharedJournal {
    fn from(journal: Journal) -> Self {
        SharedJournal(Arc::new(Mutex::new(journal)))
    }
}

impl SharedJournal {
    fn lock(&self) -> MutexGuard<'_, Journal> {
        // Whoever panicked with it had recorded what they did: it is written before anything is changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Journal::record`]; waits for the disk.
    ///
    /// # Errors
    /// As there.
    pub fn record(&self, change: Change) -> Result<u64, JournalError> {
        self.lock().record(change)
    }

    /// The elevators that disks were given and that are not put back yet, by the disk's name.
    pub fn given_elevators(&self) -> BTreeMap<String, String> {
        given_elevators(self.lock().outstanding().values())
    }

    /// How many changes are in force.
    pub fn outstanding(&self) -> usize {
        self.lock().outstanding().len()
    }

    /// As [`Journal::close`]; waits for the disk.
    ///
    /// # Errors
    /// As there.
    pub fn close(&self, number: u64) -> Result<(), JournalError> {
        self.lock().close(number)
    }

    /// As [`Journal::write_file`]; waits for the disk.
    ///
    /// # Errors
    /// As there.
    pub fn write_file(&self, path: &Path, value: &str) -> Result<Option<u64>, JournalError> {
        self.lock().write_file(path, value)
    }

    /// As [`Journal::write_file_of`]; waits for the disk.
    ///
    /// # Errors
    /// As there.
    pub fn write_file_of(
        &self,
        disk: Option<String>,
        path: &Path,
        value: &str,
    ) -> Result<Option<u64>, JournalError> {
        self.lock().write_file_of(disk, path, value)
    }

    /// As [`Journal::write_knob`]; waits for the disk, and for the kernel to take the value.
    ///
    /// # Errors
    /// As there.
    pub fn write_knob(
        &self,
        place: &Place,
        file: &str,
        value: &str,
        roots: &Roots,
    ) -> Result<Option<u64>, JournalError> {
        self.lock().write_knob(place, file, value, roots)
    }

    /// As [`Journal::undo_knob`]; waits for the disk.
    ///
    /// # Errors
    /// As there.
    pub fn undo_knob(
        &self,
        place: &Place,
        file: &str,
        roots: &Roots,
    ) -> Result<Option<Undone>, JournalError> {
        self.lock().undo_knob(place, file, roots)
    }

    /// As [`Journal::forget_knobs`]; waits for the disk.
    pub fn forget_knobs(&self, cgroup_id: u64) {
        self.lock().forget_knobs(cgroup_id);
    }

    /// Undoes a change that is outstanding, and leaves it so: see [`SharedJournal::close`].
    ///
    /// # Errors
    /// As [`undo`].
    pub fn undo(&self, number: u64, roots: &Roots) -> Result<(), KernelError> {
        let change = self.lock().outstanding().get(&number).cloned();
        change.map_or(Ok(()), |change| undo(&change, roots).map(drop))
    }
}
