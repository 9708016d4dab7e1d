//! Writes the minimum and the maximum of a cgroup's memory. The worker does it: it may wait for the disk (the undo
//! journal), and for memory to be taken from the cgroup.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use steward_core::memory::limits::Told;
use steward_core::quantity::format_size;
use steward_kernel::cgroup::place;
use steward_kernel::memory::room;
use steward_kernel::{KernelError, Roots};

use crate::files::journal::OwnJournal;
use crate::turn::worker::Progress;

/// How much is taken at once from a cgroup that uses more than it may: the kernel does not end before it has that.
const PIECE_BYTES: u64 = 1 << 20;
/// For how long memory is taken before others have the worker's turn.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often nothing at all may be had before that counts as an answer.
const TRIES_MAX: u32 = 5;

/// A cgroup, as it was when it was decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its path, without a leading slash.
    pub path: String,
    /// Its id: a later cgroup of that path has another one.
    pub cgroup_id: u64,
}

/// What writes them.
pub trait Knobs: fmt::Debug + Send + Sync {
    /// Has a cgroup have this minimum and this maximum; what is not set is as it was before Steward set it. Waits, but
    /// not for all of the memory that it may have to take first: what is left of that goes on when it is called again.
    ///
    /// # Errors
    /// Why not, in a sentence.
    fn set(&self, place: &Place, wanted: Told) -> Result<Progress, String>;

    /// The cgroup is gone, and what it had with it.
    fn forget(&self, cgroup_id: u64);
}

/// The kernel's, through the undo journal.
pub struct KernelKnobs {
    roots: Roots,
    journal: OwnJournal,
    /// The numbers of the changes in force, by cgroup and file.
    changes: Mutex<HashMap<(u64, &'static str), u64>>,
}

impl fmt::Debug for KernelKnobs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KernelKnobs").field("roots", &self.roots).finish_non_exhaustive()
    }
}

impl KernelKnobs {
    /// Nothing is changed yet.
    pub fn new(roots: &Roots, journal: &OwnJournal) -> Self {
        KernelKnobs { roots: roots.clone(), journal: journal.clone(), changes: Mutex::default() }
    }

    fn write(&self, place: &Place, file: &'static str, bytes: Option<u64>) -> Result<(), String> {
        let key = (place.cgroup_id, file);
        let journal = self.journal.as_ref().map_err(Clone::clone)?;
        let before = self.changes.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        // One change for each file, from what was there before Steward: so the one before is undone first.
        if let Some(number) = before {
            journal.undo(number, &self.roots).map_err(|error| sentence(&error))?;
            let _ = journal.close(number);
        }
        let Some(bytes) = bytes else { return Ok(()) };
        let path = self.directory(place)?.join(file);
        let change = journal.write_file(&path, &bytes.to_string()).map_err(|error| error.to_string())?;
        if let Some(number) = change {
            self.changes.lock().unwrap_or_else(PoisonError::into_inner).insert(key, number);
        }
        Ok(())
    }

    /// The cgroup's directory, if it is still the same cgroup.
    fn directory(&self, place: &Place) -> Result<PathBuf, String> {
        use std::os::unix::fs::MetadataExt;
        let directory = place::directory(&place.path, &self.roots);
        match std::fs::metadata(&directory).map(|found| found.ino()) {
            Ok(id) if id == place.cgroup_id => Ok(directory),
            _ => Err(format!("the cgroup {} is gone", directory.display())),
        }
    }
}

impl Knobs for KernelKnobs {
    fn set(&self, place: &Place, wanted: Told) -> Result<Progress, String> {
        let directory = self.directory(place)?;
        self.write(place, "memory.min", wanted.min_bytes)?;
        if let Some(max_bytes) = wanted.max_bytes
            && make_room(&directory, max_bytes)? == Progress::GoesOn
        {
            return Ok(Progress::GoesOn);
        }
        self.write(place, "memory.max", wanted.max_bytes)?;
        Ok(Progress::Done)
    }

    fn forget(&self, cgroup_id: u64) {
        let Ok(journal) = &self.journal else { return };
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.retain(|(id, _), number| {
            let is_gone = *id == cgroup_id;
            if is_gone {
                let _ = journal.close(*number);
            }
            !is_gone
        });
    }
}

/// Takes memory from a cgroup until it uses no more than its maximum will be. Written above what it uses, a maximum has
/// the kernel end processes in it as soon as it cannot take enough.
fn make_room(directory: &Path, max_bytes: u64) -> Result<Progress, String> {
    let (mut tries_left, begun) = (TRIES_MAX, Instant::now());
    loop {
        let used = room::current_bytes(directory).map_err(|error| sentence(&error))?;
        if used <= max_bytes {
            return Ok(Progress::Done);
        }
        if begun.elapsed() > PATIENCE {
            return Ok(Progress::GoesOn);
        }
        match room::reclaim(directory, PIECE_BYTES.min(used - max_bytes)) {
            Ok(()) => tries_left = TRIES_MAX,
            Err(error) if error.errno() == Some(libc::EAGAIN) && tries_left > 0 => tries_left -= 1,
            Err(error) if error.errno() == Some(libc::EAGAIN) => {
                return Err(format!(
                    "it uses {} and no more can be taken from it (without swap, only what is in files can): its maximum of \
                     {} is not in force; end something in it, or give it more",
                    format_size(used),
                    format_size(max_bytes)
                ));
            }
            Err(error) => return Err(sentence(&error)),
        }
    }
}

fn sentence(error: &KernelError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
