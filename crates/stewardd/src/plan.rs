//! Which running tasks get or lose a grant, and why. No I/O: processes, tables and what is held come in, steps
//! go out.
//!
//! New programs are matched in the kernel, at exec. This is for the programs that run already: when the daemon
//! starts (nothing is held yet) and when the table of specifications changes.
//!
//! The rules are those of exec and fork (Yang 2009, 7.2): a program gets its own specification; only its main
//! thread does, unless the specification is inherited, and then all its threads and those descendants that have
//! none of their own do. What a person gave or took by hand goes before every specification.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use steward_core::mechanism::{FileIdentity, Grant};
use steward_core::spec::SpecPath;
use steward_kernel::processes::{Process, TaskId};

/// What an entry of the table is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An executable; `None` while there is none at its path.
    Executable(Option<FileIdentity>),
    /// The kernel's threads that this name matches.
    KernelThread(SpecPath),
}

/// One specification, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The path, or `[name]`: what the entry is known by from one table to the next.
    pub name: String,
    /// What it is for.
    pub subject: Subject,
    /// What it gives; its `spec_id` is the same for the same name in every table.
    pub grant: Grant,
}

/// All specifications, the ones that take precedence first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Table {
    /// The entry with that id.
    pub fn by_id(&self, spec_id: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.grant.spec_id == spec_id)
    }

    /// What the mechanism is told: each executable once, with the first entry that names it.
    pub fn executables(&self) -> Vec<(FileIdentity, Grant)> {
        let mut seen = BTreeSet::new();
        let mut executables = Vec::new();
        for entry in &self.entries {
            if let Subject::Executable(Some(identity)) = entry.subject
                && seen.insert(identity)
            {
                executables.push((identity, entry.grant));
            }
        }
        executables
    }

    /// Pairs of entries that name one file by two paths but give it different things: (unused, used).
    pub fn conflicts(&self) -> Vec<(&Entry, &Entry)> {
        let mut first: BTreeMap<FileIdentity, &Entry> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for entry in &self.entries {
            let Subject::Executable(Some(identity)) = entry.subject else { continue };
            match first.get(&identity) {
                Some(used) if !same_promise(&used.grant, &entry.grant) => conflicts.push((entry, *used)),
                Some(_) => {}
                None => _ = first.insert(identity, entry),
            }
        }
        conflicts
    }

    /// The entry for a running process, if there is one. A fork that has not executed anything is not the
    /// program that its parent executed: it can only inherit.
    pub(crate) fn entry_for(&self, process: &Process) -> Option<&Entry> {
        if process.kernel_thread {
            let matching = self.entries.iter().filter(|entry| match &entry.subject {
                Subject::KernelThread(path) => path.matches_kernel_thread(&process.name),
                Subject::Executable(_) => false,
            });
            return matching.max_by_key(|entry| entry.name.len());
        }
        if process.forked_without_exec {
            return None;
        }
        let runs = Subject::Executable(process.executable);
        self.entries.iter().find(|entry| process.executable.is_some() && entry.subject == runs)
    }
}

/// Whether two grants promise the same, whichever specification they come from.
fn same_promise(one: &Grant, other: &Grant) -> bool {
    Grant { spec_id: 0, ..*one } == Grant { spec_id: 0, ..*other }
}

/// What a person gave to a process (`None`: took from it) with `run`, `set` or `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ByHand {
    /// The process.
    pub process: TaskId,
    /// What it was given.
    pub grant: Option<Grant>,
}

/// What a task holds now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// What it has.
    pub grant: Grant,
}

/// Why a step is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The program runs already and has this specification.
    AlreadyRunning(String),
    /// An ancestor's grant is inherited.
    Inherited(i32),
    /// A person gave it before the daemon or the scheduler started again.
    Restored,
    /// Its specification reads differently now.
    Changed(String),
    /// Its specification is gone.
    Removed(String),
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::AlreadyRunning(spec) => write!(formatter, "it was running when {spec} came into force"),
            Why::Inherited(pid) => write!(formatter, "inherited from process {pid}"),
            Why::Restored => formatter.write_str("given by hand before, and restored"),
            Why::Changed(spec) => write!(formatter, "the specification of {spec} has changed"),
            Why::Removed(spec) => write!(formatter, "the specification of {spec} was removed"),
        }
    }
}

/// One thing to be done to one task.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// What it gets; `None`: it becomes best-effort.
    pub grant: Option<Grant>,
    /// Why.
    pub why: Why,
}

/// What each running task gets when nothing is held yet: at the start of the daemon or of a scheduler.
pub fn at_start(table: &Table, running: &[Process], by_hand: &[ByHand]) -> Vec<Step> {
    let mut roots = BTreeMap::new();
    for process in running {
        if let Some(hand) = by_hand.iter().find(|hand| hand.process == process.id) {
            roots.insert(process.id.tid, hand.grant.map(|grant| (grant, Why::Restored)));
        } else if let Some(entry) = table.entry_for(process) {
            let why = Why::AlreadyRunning(entry.name.clone());
            roots.insert(process.id.tid, Some((entry.grant, why)));
        }
    }
    spread(&roots, running)
}

/// What changes for running tasks when `old` is replaced by `new`, given what they hold.
///
/// A task that holds nothing although its unchanged specification would fit it was not entitled when it started
/// (its parent was best-effort), and still is not.
pub fn at_reload(
    old: &Table,
    new: &Table,
    running: &[Process],
    held: &[Held],
    by_hand: &[ByHand],
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut roots = BTreeMap::new();
    for process in running {
        let kept_by_hand = by_hand.iter().any(|hand| hand.process == process.id);
        let Some(entry) = new.entry_for(process).filter(|_| !kept_by_hand) else {
            if kept_by_hand {
                roots.insert(process.id.tid, None);
            }
            continue;
        };
        let why = match old.by_id(entry.grant.spec_id) {
            None => Why::AlreadyRunning(entry.name.clone()),
            Some(before) if before.grant != entry.grant && holds(held, process, entry) => {
                Why::Changed(entry.name.clone())
            }
            Some(_) => {
                roots.insert(process.id.tid, None);
                continue;
            }
        };
        roots.insert(process.id.tid, Some((entry.grant, why)));
    }
    steps.extend(spread(&roots, running));
    let decided: BTreeSet<i32> = steps.iter().map(|step| step.tid).collect();
    steps.extend(
        held.iter()
            .filter(|held| !decided.contains(&held.tid))
            .filter_map(|held| follow(held, old, new, running)),
    );
    steps.retain(|step| !held_by_hand(held, step) && !already_so(held, step));
    steps
}

/// What becomes of a task that holds something of a specification and was not decided by its own program: it
/// inherited it, or runs an executable that has since been replaced.
fn follow(held: &Held, old: &Table, new: &Table, running: &[Process]) -> Option<Step> {
    let before = old.by_id(held.grant.spec_id)?;
    let step = |grant, why| Some(Step { tid: held.tid, pid: held.pid, grant, why });
    match new.by_id(held.grant.spec_id) {
        None => step(None, Why::Removed(before.name.clone())),
        Some(after) if after.grant == before.grant => None,
        // No longer inherited: only the main threads of the program itself keep it.
        Some(after)
            if before.grant.inherit && !after.grant.inherit && !is_main_thread_of(held, before, running) =>
        {
            step(None, Why::Changed(after.name.clone()))
        }
        Some(after) => step(Some(after.grant), Why::Changed(after.name.clone())),
    }
}

fn is_main_thread_of(held: &Held, entry: &Entry, running: &[Process]) -> bool {
    let process = running.iter().find(|process| process.id.tid == held.tid);
    process.is_some_and(|process| {
        Subject::Executable(process.executable) == entry.subject && process.executable.is_some()
    })
}

fn holds(held: &[Held], process: &Process, entry: &Entry) -> bool {
    held.iter().any(|held| held.pid == process.id.tid && held.grant.spec_id == entry.grant.spec_id)
}

fn held_by_hand(held: &[Held], step: &Step) -> bool {
    held.iter().any(|held| held.tid == step.tid && held.grant.spec_id == 0)
}

fn already_so(held: &[Held], step: &Step) -> bool {
    held.iter().any(|held| held.tid == step.tid && Some(held.grant) == step.grant)
}

type Roots = BTreeMap<i32, Option<(Grant, Why)>>;

/// Steps for the processes in `roots` (`None`: it takes no step and passes nothing on), for their threads, and
/// for the descendants that inherit.
fn spread(roots: &Roots, running: &[Process]) -> Vec<Step> {
    let by_pid: BTreeMap<i32, &Process> = running.iter().map(|process| (process.id.tid, process)).collect();
    let mut steps = Vec::new();
    for process in running {
        let Some((grant, why)) = effective(process, roots, &by_pid) else { continue };
        for thread in &process.threads {
            let main = thread.id.tid == process.id.tid;
            if main || grant.inherit {
                let step =
                    Step { tid: thread.id.tid, pid: process.id.tid, grant: Some(grant), why: why.clone() };
                steps.push(step);
            }
        }
    }
    steps
}

/// The grant of a process: its own, or that of the nearest ancestor which has one, if that one is inherited.
fn effective(process: &Process, roots: &Roots, by_pid: &BTreeMap<i32, &Process>) -> Option<(Grant, Why)> {
    let own = roots.get(&process.id.tid);
    let mut ancestor = process;
    // The list was read while processes came and went, so that a chain of parents need not end: bound it.
    for _ in 0..by_pid.len() {
        let Some(parent) = by_pid.get(&ancestor.parent) else { break };
        ancestor = parent;
        let Some(given) = roots.get(&ancestor.id.tid) else { continue };
        let Some((grant, _)) = given else { break };
        if grant.inherit && (own.is_none() || grant.keep_over_exec) {
            return match own {
                // By hand goes before what an ancestor was given by hand.
                Some(None) | Some(Some((_, Why::Restored))) => break,
                _ => Some((*grant, Why::Inherited(ancestor.id.tid))),
            };
        }
        break;
    }
    own.cloned().flatten()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
