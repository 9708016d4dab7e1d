//! Which running process matched which specification that gives more than CPU time: for every resource whose room has
//! to do something for that process itself.
//!
//! What CPU time a program gets is decided in the kernel as it starts. All else is done a moment later, by the kernel's
//! account of processes ([`steward_kernel::process::events`]); where there is none, all processes are looked at again
//! and again. Neither is asked for while no specification needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;

use steward_core::cpu::table::Table;
use steward_core::process::{Process, TaskId};
use steward_kernel::mounts::MountTable;
use steward_kernel::process::events::{ProcessEvent, ProcessEvents};
use steward_kernel::process::pieces::Pieces;
use steward_kernel::{Roots, process};

use crate::turn::descriptors::{Source, Wait};
use crate::turn::part::Part;

/// How often all processes are looked at where the kernel tells nothing, in nanoseconds.
const SCAN_EVERY_NS: u64 = 5_000_000_000;
/// For how long what is known of mounts is used, in nanoseconds: their ids are given out again.
const MOUNTS_FOR_NS: u64 = 30_000_000_000;
/// How many events are taken in at once: the rest waits for the loop's next turn, so that a storm of forks holds up
/// nobody.
const EVENTS_AT_ONCE: usize = 1024;

/// A process, with the specification of its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The process.
    pub process: TaskId,
    /// The user whose it is.
    pub user: u32,
    /// What the specification is known by: the executable's path.
    pub spec: String,
}

/// Something that rooms are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A process runs a program that a specification names. It may have run another before.
    Began(Matched),
    /// It has ended, or runs another program.
    Ended(Matched),
}

/// What is known of processes, and where it comes from.
#[derive(Debug, Default)]
pub struct Running {
    events: Option<ProcessEvents>,
    mounts: MountTable,
    mounts_until_ns: u64,
    known: BTreeMap<i32, Matched>,
    /// Those of them that are to be told once more: what their specifications say may have changed.
    untold: BTreeSet<i32>,
    /// Whether anybody needs it.
    wanted: bool,
    scan_at_ns: u64,
    /// Whether they could not be looked at when that was due.
    has_failed: bool,
    /// All processes, while they are looked at.
    scan: Option<Pieces>,
}

impl Running {
    /// From now on it is needed, or no longer; all processes are looked at anew from the next turn on, and those that
    /// match are told again, since what their specifications say may have changed.
    pub fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
        self.scan_at_ns = 0;
        self.scan = None;
        self.untold = self.known.keys().copied().collect();
        if !wanted {
            self.events = None;
        } else if self.events.is_none() {
            self.events = ProcessEvents::open()
                .inspect_err(|error| {
                    tracing::info!(decision = "no-process-events", %error, "programs are looked for every 5 s");
                })
                .ok();
        }
    }

    /// What has changed since the last call. `cares` says for which specifications anybody does something.
    pub fn take(
        &mut self,
        now_ns: u64,
        roots: &Roots,
        table: &Table,
        cares: &dyn Fn(&str) -> bool,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        if !self.wanted {
            changes.extend(std::mem::take(&mut self.known).into_values().map(Change::Ended));
            return changes;
        }
        if self.mounts_until_ns <= now_ns {
            (self.mounts, self.mounts_until_ns) = (MountTable::default(), now_ns + MOUNTS_FOR_NS);
        }
        let mut lost = false;
        for _ in 0..EVENTS_AT_ONCE {
            match self.events.as_mut().and_then(ProcessEvents::next_event) {
                Some(ProcessEvent::Executed { process: pid }) => {
                    let found = process::look_at(pid, roots, &mut self.mounts);
                    self.note(pid, found.as_ref(), table, cares, &mut changes);
                }
                Some(ProcessEvent::Ended { process: pid, tid }) if pid == tid => {
                    self.untold.remove(&pid);
                    changes.extend(self.known.remove(&pid).map(Change::Ended));
                }
                Some(ProcessEvent::Lost) => lost = true,
                Some(_) => {}
                None => break,
            }
        }
        let is_due =
            self.scan_at_ns == 0 || (self.events.is_none() || self.has_failed) && self.scan_at_ns <= now_ns;
        if lost || is_due {
            self.scan_at_ns = now_ns + SCAN_EVERY_NS;
            self.begin_scan(roots);
        }
        self.scan_on(roots, table, cares, &mut changes);
        changes
    }

    /// Has all processes looked at: what was not told may have been about any of them.
    fn begin_scan(&mut self, roots: &Roots) {
        match &mut self.scan {
            Some(scan) => scan.repeat(),
            None => {
                self.scan = Pieces::begin(roots, self.known.keys().copied()).ok();
                self.has_failed = self.scan.is_none();
            }
        }
    }

    /// Goes on with that for a while.
    fn scan_on(
        &mut self,
        roots: &Roots,
        table: &Table,
        cares: &dyn Fn(&str) -> bool,
        changes: &mut Vec<Change>,
    ) {
        let Some(mut scan) = self.scan.take() else { return };
        let are_left = scan.go_on(|pid| {
            let found = process::look_at_first_thread(pid, roots, &mut self.mounts);
            self.note(pid, found.as_ref(), table, cares, changes);
        });
        if are_left {
            self.scan = Some(scan);
        } else if scan.is_to_be_repeated() {
            self.begin_scan(roots);
        }
    }

    fn note(
        &mut self,
        pid: i32,
        found: Option<&Process>,
        table: &Table,
        cares: &dyn Fn(&str) -> bool,
        changes: &mut Vec<Change>,
    ) {
        let matched = found.filter(|process| !process.kernel_thread).and_then(|process| {
            let spec = table.entry_for(process).map(|entry| entry.name.clone()).filter(|name| cares(name))?;
            Some(Matched { process: process.id, user: process.uid, spec })
        });
        let is_told = !self.untold.remove(&pid);
        let is_same = self.known.get(&pid) == matched.as_ref();
        if is_same && (is_told || matched.is_none()) {
            return;
        }
        changes.extend(self.known.remove(&pid).filter(|_| !is_same).map(Change::Ended));
        if let Some(matched) = matched {
            self.known.insert(pid, matched.clone());
            changes.push(Change::Began(matched));
        }
    }
}

impl Part for Running {
    fn descriptor(&self) -> Option<Wait<'_>> {
        self.events.as_ref().map(|events| Wait::readable(Source::Programs, events.as_fd()))
    }

    fn poll_timeout(&self, _now_ns: u64) -> Option<u64> {
        let is_due = self.wanted && (self.events.is_none() || self.has_failed || self.scan_at_ns == 0);
        let scan_at_ns = (is_due || !self.wanted && !self.known.is_empty()).then_some(self.scan_at_ns);
        let scan_on_at_ns = self.scan.as_ref().map(Pieces::go_on_at_ns);
        scan_at_ns.into_iter().chain(scan_on_at_ns).min()
    }
}
