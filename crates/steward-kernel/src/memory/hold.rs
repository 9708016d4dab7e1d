//! Keeps the file pages of some processes in memory, whoever is charged for them.
//!
//! **The problem.** The kernel charges a page of a file to the cgroup that touched it first, for ever. `memory.min` of
//! a program's cgroup protects what is charged to it, so it does not protect the program's libraries, its executable
//! and its mapped files where another touched them before. They are taken, and the program waits for the disk.
//!
//! **What is done.** A [`Holder`] maps the same files, for reading, and locks in memory (mlock2(2)) the pages that are
//! in memory and in the page tables of the processes that it is given. Locking changes nobody's charge: the pages still
//! count for who touched them first, as `unevictable` in its memory.stat; they are only not taken from it any more.
//! Pages that a process has copied are its own, anonymous and charged to its cgroup; they are left alone. Shared memory
//! without a path is held as well.
//!
//! - A page that is not in memory is not read, and a file that is not mapped is not looked at.
//! - Of a mapping of up to 32 MiB, as programs and libraries are, all that is in memory is held, and not only what the
//!   processes have in their page tables: what a program does for the first time after a pause is mostly read already,
//!   and not mapped yet. Nor is all in the page tables that a process has used: of 20 MiB that one had touched, 6 were
//!   there a few seconds later, without any pressure (seen with ext4 on Linux 7.3).
//! - A page that a cgroup is charged for whose memory is limited (`memory.high`, `memory.max`), by itself or by one
//!   above it, is not held, and one that is held is let go by the first refresh after the limit was set: else the tasks
//!   of that cgroup would be slowed, or ended, for what others map. Who is charged is asked before a page is locked.
//!   Nothing is held of a window of 64 MiB of a file that more than 64 cgroups are charged for, or of which that would
//!   leave more pieces than there may be areas.
//! - A page is let go when no process that is to be protected maps it any more, and all are when the holder is dropped
//!   or its process dies. Of a larger mapping that is as long as the page is in a process's page tables, which may be
//!   shorter than it is used. What may be held in all is limited ([`Capacity`]).
//! - What is held of a page is all of the kernel's folio that it is in, where a file system keeps larger ones.
//! - Held pages are in no generation of the kernel's page ages.
//! - Until it is let go, a held file keeps its disk space when it is removed, and its file system cannot be unmounted.
//!   That is so for the processes too; here it lasts until the next refresh.
//!
//! **Safe from those it works for.** Processes belong to users, who may map anything. Nothing is opened that may wait
//! for a server ([`systems`]): the device in `maps` is looked up before. Files are reached through the kernel's own
//! links (`map_files`), so that removed and replaced files and other mount namespaces are right, and looked at before
//! they are opened, so that no device is. Held pages are never touched, so that a file that is cut cannot end this
//! process. A refresh goes in small steps and stops when its time is over; the next goes on there, and no process takes
//! more than a quarter of the time while others wait.
//!
//! One wait remains: the kernel gives a process's mappings out under the lock of its address space, and a process can
//! hold that for as long as it likes (in mmap(2) of a file on its own FUSE). So call [`Holder::refresh`] from a thread
//! for which nobody has to wait; what is held stays held meanwhile, and [`Holder::looking_at`] tells others which
//! process it is.
//!
//! It takes CAP_SYS_ADMIN (`map_files`, and who is charged: `kpagecgroup`), CAP_SYS_PTRACE (other users' processes),
//! and CAP_IPC_LOCK or an unlimited RLIMIT_MEMLOCK. Without CAP_FOWNER the kernel does not tell which pages of other
//! users' files are in memory: then a page that is taken in the moment between looking and locking is read again.

mod charges;
mod files;
mod maps;
mod pages;
mod ranges;
mod scan;
pub mod systems;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::getpid;
use steward_core::process::TaskId;

pub use charges::IsLimited;
pub use files::{Capacity, FileKey};

use crate::error::KernelError;
use crate::mounts::MountTable;
use crate::roots::Roots;
use charges::Charges;
use files::{HeldFiles, WindowKey};
use pages::PageTables;
use ranges::PageRanges;
use scan::{Found, Scan, Surroundings};
use systems::LocalFileSystems;

/// How many processes may be left half-way at a time. Each keeps three descriptors open.
const HALF_WAY_MAX: usize = 32;

/// What part of a refresh's time one process may take while others wait.
const TURNS_MIN: u32 = 4;

/// What a refresh did.
#[derive(Debug)]
pub struct Refreshed {
    /// Whether all processes were looked at to the end since the last refresh that was complete, and all was let go
    /// that nobody needs. Where not, the next refresh goes on.
    pub complete: bool,
    /// What is held now, in bytes.
    pub held_bytes: u64,
    /// How many areas of this process's address space are taken for it, at most.
    pub areas: usize,
    /// How many processes are looked after.
    pub processes: usize,
    /// How long it took.
    pub duration: Duration,
    /// The last thing that failed in it. The rest was done.
    pub failure: Option<KernelError>,
}

/// What is held for one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldForProcess {
    /// The process.
    pub process: TaskId,
    /// Held pages that it maps, in bytes. What several map counts for each.
    pub held_bytes: u64,
    /// Pages that it maps and that are not held because there was no room for them in the [`Capacity`], in bytes.
    pub unfitting_bytes: u64,
    /// Its mappings of files that are not held because opening them might wait ([`systems`]).
    pub foreign_mappings: u64,
    /// Its mappings of files that could not be held, or had gone when it was tried.
    pub failed_mappings: u64,
}

/// One process that is looked after.
#[derive(Debug, Default)]
struct Protected {
    /// What the last whole way through it found.
    found: Found,
    /// The way through it that is not at its end.
    scan: Option<Scan>,
}

impl Protected {
    /// What is to stay held of one window for it: until a way through is at its end, also what the last one found.
    fn pages(&self, window: &WindowKey) -> impl Iterator<Item = &PageRanges> {
        let half_way = self.scan.as_ref().and_then(|scan| scan.found.pages.get(window));
        self.found.pages.get(window).into_iter().chain(half_way)
    }

    /// All windows of which anything is held for it.
    fn windows(&self) -> impl Iterator<Item = &WindowKey> {
        self.found.pages.keys().chain(self.scan.iter().flat_map(|scan| scan.found.pages.keys()))
    }
}

/// Holds the file pages of processes in memory, for as long as it lives.
#[derive(Debug)]
pub struct Holder {
    roots: Roots,
    page_bytes: u64,
    files: HeldFiles,
    processes: BTreeMap<TaskId, Protected>,
    /// Whose turn it is.
    turns: VecDeque<TaskId>,
    /// Those that were not looked at to the end since the last refresh that was complete.
    unseen: BTreeSet<TaskId>,
    /// Windows of which something may have to be let go.
    doubtful: BTreeSet<WindowKey>,
    refreshes: u64,
    looking_at: Arc<AtomicI32>,
}

impl Holder {
    /// Holds nothing yet. `is_limited` says whether the memory of the cgroup with an id is limited: pages that such a
    /// one is charged for are not held.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming this process's pagemap, or `kpagecgroup`.
    pub fn new(capacity: Capacity, is_limited: IsLimited, roots: &Roots) -> Result<Self, KernelError> {
        let path = roots.proc.join("self/pagemap");
        let own = File::open(&path).map_err(|source| KernelError::Read { path, source })?;
        let page_bytes = window::page_bytes();
        Ok(Holder {
            roots: roots.clone(),
            page_bytes,
            files: HeldFiles::new(
                capacity,
                PageTables::new(own, page_bytes),
                Charges::new(is_limited, roots)?,
                page_bytes,
            ),
            processes: BTreeMap::new(),
            turns: VecDeque::new(),
            unseen: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            refreshes: 0,
            looking_at: Arc::default(),
        })
    }

    /// The pid of the process that a refresh is looking at, 0 while it looks at none: for another thread, to learn
    /// which process keeps a refresh waiting.
    pub fn looking_at(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.looking_at)
    }

    /// Looks after exactly these processes, and takes about `budget` for it: at least one small step is done, so that
    /// it comes to an end with any budget. Where not all fits, what is held stays, and of what is new the first comes
    /// first. Processes that have ended are left out, and so is the caller, in whose page tables all held pages are.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming mountinfo, without which no file is opened. What was held still is.
    pub fn refresh(&mut self, processes: &[TaskId], budget: Duration) -> Result<Refreshed, KernelError> {
        let start = Instant::now();
        self.refreshes += 1;
        self.look_after(processes);
        let systems = LocalFileSystems::of_caller(&self.roots)?;
        let began = self.files.begin(self.refreshes);
        let mut failure = began.err().map(|source| {
            let path = self.roots.proc.join("kpagecgroup");
            KernelError::Read { path, source }
        });
        self.scan(&systems, start, budget, &mut failure);
        self.release(start, budget);
        let complete = self.unseen.is_empty() && self.doubtful.is_empty();
        if complete {
            self.unseen.extend(&self.turns);
        }
        let (held_bytes, areas) = self.files.totals();
        Ok(Refreshed {
            complete,
            held_bytes,
            areas,
            processes: self.processes.len(),
            duration: start.elapsed(),
            failure,
        })
    }

    /// Holds within another capacity from now on. What is too much is let go at once; the next refresh holds what fits.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.files.set_capacity(capacity);
    }

    /// What would be held with more room, as far as that is known, in bytes, and in areas of this process's address
    /// space ([`Capacity`]); of the latter all there are where something did not fit.
    pub fn wanted(&self) -> (u64, usize) {
        let unfitting_pages =
            self.processes.values().fold(0_u64, |sum, one| sum.saturating_add(one.found.unfitting_pages));
        let bytes = unfitting_pages.saturating_mul(self.page_bytes).saturating_add(self.files.locked_bytes());
        (bytes, if unfitting_pages > 0 { usize::MAX } else { self.files.totals().1 })
    }

    /// How many bytes are held of each file.
    pub fn files(&self) -> BTreeMap<FileKey, u64> {
        self.files.bytes()
    }

    /// What is held for each process, by the last whole way through it.
    pub fn processes(&self) -> Vec<HeldForProcess> {
        let of = |(process, protected): (&TaskId, &Protected)| HeldForProcess {
            process: *process,
            held_bytes: self.bytes_of(&[*process]),
            unfitting_bytes: protected.found.unfitting_pages * self.page_bytes,
            foreign_mappings: protected.found.foreign_mappings,
            failed_mappings: protected.found.failed_mappings,
        };
        self.processes.iter().map(of).collect()
    }

    /// How many bytes are held of what any of these processes maps, each page once.
    pub fn bytes_of(&self, processes: &[TaskId]) -> u64 {
        let all: Vec<&Protected> =
            processes.iter().filter_map(|process| self.processes.get(process)).collect();
        let windows: BTreeSet<&WindowKey> = all.iter().flat_map(|protected| protected.windows()).collect();
        let held = |window: &WindowKey| Some(wanted(&all, window).common(self.files.held(*window)?).pages());
        windows.into_iter().filter_map(held).sum::<u64>() * self.page_bytes
    }

    fn look_after(&mut self, processes: &[TaskId]) {
        let own = getpid().as_raw_nonzero().get();
        let wanted: BTreeSet<TaskId> =
            processes.iter().copied().filter(|process| process.tid != own).collect();
        let others: Vec<TaskId> =
            self.processes.keys().filter(|process| !wanted.contains(process)).copied().collect();
        for process in others {
            self.forget(process);
        }
        for process in processes.iter().filter(|process| wanted.contains(process)) {
            if !self.processes.contains_key(process) {
                self.processes.insert(*process, Protected::default());
                self.turns.push_back(*process);
                self.unseen.insert(*process);
            }
        }
    }

    fn forget(&mut self, process: TaskId) {
        if let Some(protected) = self.processes.remove(&process) {
            self.doubtful.extend(protected.windows());
        }
        self.turns.retain(|other| *other != process);
        self.unseen.remove(&process);
    }

    /// Goes through the processes by turns, through each once. Who has been seen since the last way through all of them
    /// waits for the others: what a way finds that begins before the last one is at its end may be gone when it is.
    fn scan(
        &mut self,
        systems: &LocalFileSystems,
        start: Instant,
        budget: Duration,
        failure: &mut Option<KernelError>,
    ) {
        let mut mounts = MountTable::default();
        let mut left = self.unseen.clone();
        while !left.is_empty()
            && let Some(process) = self.turns.pop_front()
        {
            self.turns.push_back(process);
            if !left.contains(&process) {
                continue;
            }
            let time = start.elapsed().saturating_add(budget / TURNS_MIN).min(budget);
            self.looking_at.store(process.tid, Ordering::Relaxed);
            let outcome = self.turn(process, systems, &mut mounts, failure, || start.elapsed() < time);
            self.looking_at.store(0, Ordering::Relaxed);
            let is_done = match outcome {
                Ok(is_done) => is_done,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    self.forget(process);
                    true
                }
                Err(error) => {
                    *failure = Some(failed(process, error));
                    true
                }
            };
            if is_done {
                left.remove(&process);
                self.unseen.remove(&process);
            }
            if start.elapsed() >= budget {
                return;
            }
        }
    }

    /// One turn of a process, as long as there is time; returns whether the way through it is at its end.
    fn turn(
        &mut self,
        process: TaskId,
        systems: &LocalFileSystems,
        mounts: &mut MountTable,
        failure: &mut Option<KernelError>,
        is_time: impl Fn() -> bool,
    ) -> io::Result<bool> {
        let half_way = self.processes.values().filter(|protected| protected.scan.is_some()).count();
        let Some(protected) = self.processes.get_mut(&process) else { return Ok(true) };
        let mut scan = match protected.scan.take() {
            Some(scan) => scan,
            None if half_way >= HALF_WAY_MAX => return Ok(false),
            None => match Scan::begin(process, self.page_bytes, &self.roots)? {
                Some(scan) => scan,
                None => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            },
        };
        let mut failed_file = None;
        let mut with = Surroundings {
            roots: &self.roots,
            page_bytes: self.page_bytes,
            refresh: self.refreshes,
            systems,
            mounts,
            files: &mut self.files,
            failure: &mut failed_file,
        };
        let outcome = loop {
            match scan.step(&mut with) {
                Ok(false) if is_time() => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(false) => protected.scan = Some(scan),
            Ok(true) => {
                self.doubtful.extend(changed(&protected.found, &scan.found));
                protected.found = scan.found;
            }
            // What was found before is the best that is known.
            Err(_) => self.doubtful.extend(scan.found.pages.keys()),
        }
        if let Some(error) = failed_file {
            *failure = Some(failed(process, error));
        }
        outcome
    }

    /// Lets go what nobody needs.
    fn release(&mut self, start: Instant, budget: Duration) {
        while let Some(window) = self.doubtful.pop_first() {
            let all: Vec<&Protected> = self.processes.values().collect();
            let pages = wanted(&all, &window);
            self.files.keep(window, &pages);
            if start.elapsed() >= budget {
                return;
            }
        }
    }
}

fn failed(process: TaskId, source: io::Error) -> KernelError {
    KernelError::Task { tid: process.tid, action: "holding the file pages", source }
}

/// What any of these needs of a window.
fn wanted(processes: &[&Protected], window: &WindowKey) -> PageRanges {
    let pages = processes.iter().flat_map(|protected| protected.pages(window));
    pages.fold(PageRanges::default(), |all, pages| all.union(pages))
}

/// The windows of which less was found than before.
fn changed(before: &Found, after: &Found) -> Vec<WindowKey> {
    let is_less = |(window, pages): &(&WindowKey, &PageRanges)| {
        after.pages.get(window).is_none_or(|after| !pages.minus(after).is_empty())
    };
    before.pages.iter().filter(is_less).map(|(window, _)| *window).collect()
}
