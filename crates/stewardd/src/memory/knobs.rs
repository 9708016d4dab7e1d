//! Writes the minimum and the maximum of a cgroup's memory, and above how much who allocates there is slowed. The
//! worker does it: it may wait for the disk (the undo journal), and for memory to be taken from the cgroup. Where that
//! takes long, what is used more is held back meanwhile (`memory.high`), which ends nobody.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use steward_core::memory::limits::Told;
use steward_core::quantity::format_size;
use steward_kernel::cgroup::place::{self, Place};
use steward_kernel::cgroup::reading::{Bound, CgroupReader};
use steward_kernel::memory::bounds::{self, BoundFile};
use steward_kernel::memory::reclaim;
use steward_kernel::{KernelError, Roots};

use crate::files::journal::OwnJournal;
use crate::turn::worker::Progress;

/// For how long memory is taken before others have the worker's turn.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often nothing at all may be had before that counts as an answer.
const TRIES_MAX: u32 = 5;

/// What writes them.
pub trait Knobs: fmt::Debug + Send + Sync {
    /// Has a cgroup be told this; what is not set is as it was before Steward set it. Waits, but not for all of the
    /// memory that it may have to take first: what is left of that goes on when it is called again.
    ///
    /// # Errors
    /// Why not, in a sentence.
    fn set(&self, place: &Place, wanted: Told) -> Result<Progress, String>;

    /// The cgroup is gone, and what it had with it.
    fn forget(&self, cgroup_id: u64);
}

/// The kernel's, through the undo journal, which alone knows what was there before.
#[derive(Debug)]
pub struct KernelKnobs {
    roots: Roots,
    journal: OwnJournal,
    /// Those in which who allocates is slowed by what was written here, by cgroup id.
    held: Mutex<BTreeSet<u64>>,
}

impl KernelKnobs {
    /// Nothing is changed yet.
    pub fn new(roots: &Roots, journal: &OwnJournal) -> Self {
        KernelKnobs { roots: roots.clone(), journal: journal.clone(), held: Mutex::default() }
    }

    fn write(&self, place: &Place, file: BoundFile, bytes: Option<u64>) -> Result<(), String> {
        let journal = self.journal.as_ref().map_err(Clone::clone)?;
        let outcome = match bytes {
            Some(bytes) => bounds::set(journal, place, file, Bound::Bytes(bytes), &self.roots).map(drop),
            None => bounds::unset(journal, place, file, &self.roots).map(drop),
        };
        outcome.map_err(|error| error.to_string())
    }

    /// What somebody else's cgroup is to be promised, unless what it has itself is more: that shows once what was
    /// written is put back.
    fn beyond_own(&self, cgroup: &CgroupReader, place: &Place, bytes: u64) -> Result<Option<u64>, String> {
        let has_more = || {
            let bounds = cgroup.memory_bounds().map_err(|error| sentence(&error))?;
            Ok::<bool, String>(bounds.is_some_and(|has| has.min.limit_bytes().is_none_or(|own| own > bytes)))
        };
        if has_more()? {
            self.write(place, BoundFile::Min, None)?;
            if has_more()? {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    /// Has who allocates in a cgroup that has more than this have memory taken there first, and be slowed where none
    /// can be. What somebody else has set lower than that stays.
    fn hold(&self, cgroup: &CgroupReader, place: &Place, bytes: u64) -> Result<(), String> {
        let mut high = high_bytes(cgroup)?;
        if high.is_some_and(|high| pages(high) < pages(bytes)) {
            // What somebody else has set shows once what was written is put back.
            self.let_go(place)?;
            high = high_bytes(cgroup)?;
        }
        if high.is_none_or(|high| pages(high) > pages(bytes)) {
            self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(place.cgroup_id);
            self.write(place, BoundFile::High, Some(bytes))?;
        }
        Ok(())
    }

    /// Has who allocates in a cgroup be slowed above this. What it uses more is taken first, in pieces, and meanwhile
    /// it gets no more than it has: written at once, the kernel would take all of it before this returns.
    fn lower(&self, cgroup: &CgroupReader, place: &Place, bytes: u64) -> Result<Progress, String> {
        if high_bytes(cgroup)?.map(pages) == Some(pages(bytes)) {
            return Ok(Progress::Done);
        }
        // Where no more can be taken, who allocates there is slowed until the memory loop sees that.
        let room = make_room(cgroup, bytes).unwrap_or(Progress::Done);
        let used = cgroup.memory_current_bytes().map_err(|error| sentence(&error))?.unwrap_or(0);
        let meanwhile = if room == Progress::Done { bytes } else { bytes.max(used) };
        self.hold(cgroup, place, meanwhile)?;
        Ok(room)
    }

    /// Holds it no longer.
    fn let_go(&self, place: &Place) -> Result<(), String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains(&place.cgroup_id) {
            self.write(place, BoundFile::High, None)?;
            held.remove(&place.cgroup_id);
        }
        Ok(())
    }

    /// The cgroup, if it is still the same one. What has gone has nothing to be put back.
    fn cgroup(&self, place: &Place) -> Result<CgroupReader, String> {
        match CgroupReader::open_same(place, &self.roots) {
            Ok(Some(cgroup)) => return Ok(cgroup),
            Err(error) if !error.is_absent() => return Err(sentence(&error)),
            Ok(None) | Err(_) => {}
        }
        self.forget(place.cgroup_id);
        Err(format!("the cgroup {} is gone", place::directory(&place.path, &self.roots).display()))
    }
}

impl Knobs for KernelKnobs {
    fn set(&self, place: &Place, wanted: Told) -> Result<Progress, String> {
        let cgroup = self.cgroup(place)?;
        let min_bytes = match wanted.min_bytes {
            Some(bytes) if wanted.is_passed_on => self.beyond_own(&cgroup, place, bytes)?,
            min_bytes => min_bytes,
        };
        self.write(place, BoundFile::Min, min_bytes)?;
        match wanted.max_bytes.map_or(Ok(Progress::Done), |max_bytes| make_room(&cgroup, max_bytes)) {
            Ok(Progress::Done) => self.write(place, BoundFile::Max, wanted.max_bytes)?,
            // Programs that use more than that fetch it back as fast as it is taken, and it would never be in force
            // (seen).
            Ok(Progress::GoesOn) => {
                let bounds = wanted.max_bytes.into_iter().chain(wanted.high_bytes);
                self.hold(&cgroup, place, bounds.min().unwrap_or(u64::MAX))?;
                return Ok(Progress::GoesOn);
            }
            Err(why) => {
                self.let_go(place)?;
                return Err(why);
            }
        }
        match wanted.high_bytes {
            Some(high_bytes) => self.lower(&cgroup, place, high_bytes),
            None => self.let_go(place).map(|()| Progress::Done),
        }
    }

    fn forget(&self, cgroup_id: u64) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&cgroup_id);
        if let Ok(journal) = &self.journal {
            journal.forget_knobs(cgroup_id);
        }
    }
}

/// Takes memory from a cgroup until it uses no more than its maximum will be. Written above what it uses, a maximum has
/// the kernel end processes in it as soon as it cannot take enough.
fn make_room(cgroup: &CgroupReader, max_bytes: u64) -> Result<Progress, String> {
    let (mut tries_left, begun) = (TRIES_MAX, Instant::now());
    loop {
        let used = cgroup.memory_current_bytes().map_err(|error| sentence(&error))?;
        // Where nobody counts it, there is no maximum to be written either, and the kernel says so.
        let used = used.unwrap_or(0);
        if used <= max_bytes {
            return Ok(Progress::Done);
        }
        if begun.elapsed() > PATIENCE {
            return Ok(Progress::GoesOn);
        }
        match reclaim::take_waiting(cgroup.directory(), reclaim::PIECE_BYTES_MAX.min(used - max_bytes)) {
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

/// Above how much of what is charged to a cgroup who allocates there is slowed, in bytes.
fn high_bytes(cgroup: &CgroupReader) -> Result<Option<u64>, String> {
    let bounds = cgroup.memory_bounds().map_err(|error| sentence(&error))?;
    Ok(bounds.and_then(|has| has.high.limit_bytes()))
}

/// The kernel keeps whole pages.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes / rustix::param::page_size() as u64
}

fn sentence(error: &KernelError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
