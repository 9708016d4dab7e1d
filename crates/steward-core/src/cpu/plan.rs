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

use super::reservation::Grant;
use super::table::{Entry, Subject, Table};
use crate::process::{Executed, Process, TaskId};

/// What a person gave to a process, or to one of its threads alone (`None`: took from it), with `run`, `set` or
/// `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ByHand {
    /// The process, or the thread.
    pub process: TaskId,
    /// What it was given.
    pub grant: Option<Grant>,
    /// The user who asked for it.
    #[serde(default)]
    pub user: u32,
    /// Of what ends when a program is executed, what the process had executed before it; `None` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Executed>,
}

impl ByHand {
    /// Whether what was given has ended because the process has executed a program since, be it the same one again.
    /// `now` is what it executed last.
    pub fn ended_by_exec(&self, now: Option<Executed>) -> bool {
        let lasts = |grant: &Grant| grant.inherit || grant.keep_over_exec;
        let is_another = self.program.zip(now).is_some_and(|(before, now)| !before.is_same(&now));
        self.grant.is_some_and(|grant| !lasts(&grant)) && is_another
    }
}

/// Keeps of what this user took from processes the last `most`.
pub fn bound_released(by_hand: &mut Vec<ByHand>, user: u32, most: usize) {
    let is_meant = |hand: &ByHand| hand.grant.is_none() && hand.user == user;
    let count = by_hand.iter().filter(|hand| is_meant(hand)).count();
    let mut surplus = count.saturating_sub(most);
    by_hand.retain(|hand| {
        let goes = surplus > 0 && is_meant(hand);
        surplus -= usize::from(goes);
        !goes
    });
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

/// What a process has by itself, whatever its ancestors have.
enum Own {
    /// This grant.
    Gets(Given),
    /// Nothing, as its specification says.
    BestEffort,
    /// What it has already. It passes nothing on that is not passed on already.
    Settled,
}

/// A grant on its way to the tasks that get it.
#[derive(Clone)]
struct Given {
    grant: Grant,
    why: Why,
    /// As [`Entry::order`]; 0 for what was given by hand.
    order: usize,
}

type Roots = BTreeMap<i32, Own>;

/// What each running task gets when nothing is held yet: at the start of the daemon or of a scheduler.
///
/// A whole desktop is promised more than a small machine has, so the order of the steps decides who is admitted:
/// what may never be revoked first, then what was given by hand, then in the order of the files, a program before
/// those that inherit from it.
pub fn at_start(table: &Table, running: &[Process], by_hand: &[ByHand]) -> Vec<Step> {
    let mut roots = Roots::new();
    for process in running {
        let pid = process.id.tid;
        if let Some(hand) = by_hand.iter().find(|hand| hand.process == process.id) {
            let given = |grant| Own::Gets(Given { grant, why: Why::Restored, order: 0 });
            roots.insert(pid, hand.grant.map_or(Own::Settled, given));
        } else if let Some(entry) = table.entry_for(process) {
            roots.insert(pid, own(entry, Why::AlreadyRunning(entry.name.clone())));
        }
    }
    let threads = by_hand.iter().map(|hand| (hand.process, hand.grant)).collect();
    spread(&roots, &threads, running)
}

fn own(entry: &Entry, why: Why) -> Own {
    match entry.grant {
        Some(grant) => Own::Gets(Given { grant, why, order: entry.order }),
        None => Own::BestEffort,
    }
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
    let mut roots = Roots::new();
    let mut dropped = Vec::new();
    for process in running {
        let pid = process.id.tid;
        if by_hand.iter().any(|hand| hand.process == process.id) {
            roots.insert(pid, Own::Settled);
            continue;
        }
        let Some(entry) = new.entry_for(process) else { continue };
        let before = old.by_id(entry.spec_id);
        let why = match before.map(|before| before.grant) {
            None | Some(None) => Why::AlreadyRunning(entry.name.clone()),
            Some(grant) if grant != entry.grant && holds(held, process, entry) => {
                Why::Changed(entry.name.clone())
            }
            Some(_) => {
                roots.insert(pid, Own::Settled);
                continue;
            }
        };
        if entry.grant.is_none() {
            dropped.extend(held.iter().filter(|held| held.pid == pid).map(|held| Step {
                tid: held.tid,
                pid,
                grant: None,
                why: why.clone(),
            }));
        }
        roots.insert(pid, own(entry, why));
    }
    let mut steps = dropped;
    // A thread that somebody decided about by hand stays as it is.
    let threads = by_hand.iter().map(|hand| (hand.process, None)).collect();
    steps.extend(spread(&roots, &threads, running));
    let decided: BTreeSet<i32> = steps.iter().map(|step| step.tid).collect();
    steps.extend(
        held.iter()
            .filter(|held| !decided.contains(&held.tid))
            .filter_map(|held| follow(held, old, new, running)),
    );
    steps.retain(|step| !held_by_hand(held, step) && !already_so(held, step));
    // What is given back makes room for what is given.
    steps.sort_by_key(|step| step.grant.is_some());
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
        Some(after) if inherits(before) && !inherits(after) && !is_main_thread_of(held, before, running) => {
            step(None, Why::Changed(after.name.clone()))
        }
        Some(after) => step(after.grant, Why::Changed(after.name.clone())),
    }
}

fn inherits(entry: &Entry) -> bool {
    entry.grant.is_some_and(|grant| grant.inherit)
}

fn is_main_thread_of(held: &Held, entry: &Entry, running: &[Process]) -> bool {
    let process = running.iter().find(|process| process.id.tid == held.tid);
    process.is_some_and(|process| {
        Subject::Executable(process.executable) == entry.subject && process.executable.is_some()
    })
}

fn holds(held: &[Held], process: &Process, entry: &Entry) -> bool {
    held.iter().any(|held| held.pid == process.id.tid && held.grant.spec_id == entry.spec_id)
}

fn held_by_hand(held: &[Held], step: &Step) -> bool {
    held.iter().any(|held| held.tid == step.tid && held.grant.spec_id == 0)
}

fn already_so(held: &[Held], step: &Step) -> bool {
    held.iter().any(|held| held.tid == step.tid && Some(held.grant) == step.grant)
}

/// Steps for the processes in `roots`, for their threads, and for the descendants that inherit, the most important
/// first. Threads other than the first that are in `by_hand` get what stands there, and nothing else.
fn spread(roots: &Roots, by_hand: &BTreeMap<TaskId, Option<Grant>>, running: &[Process]) -> Vec<Step> {
    let by_pid: BTreeMap<i32, &Process> = running.iter().map(|process| (process.id.tid, process)).collect();
    let mut steps = Vec::new();
    for process in running {
        let pid = process.id.tid;
        let of_process = effective(process, roots, &by_pid);
        for thread in &process.threads {
            let tid = thread.id.tid;
            if let Some(grant) = by_hand.get(&thread.id).filter(|_| tid != pid) {
                let step = |grant| Step { tid, pid, grant: Some(grant), why: Why::Restored };
                steps.extend(grant.map(|grant| ((grant.revocable, 0, false), step(grant))));
                continue;
            }
            let Some(Given { grant, why, order }) = of_process.clone() else { continue };
            let inherited = tid != pid || matches!(why, Why::Inherited(_));
            if tid == pid || grant.inherit {
                let step = Step { tid, pid, grant: Some(grant), why: why.clone() };
                steps.push(((grant.revocable, order, inherited), step));
            }
        }
    }
    steps.sort_by_key(|(rank, _)| *rank);
    steps.into_iter().map(|(_, step)| step).collect()
}

/// The grant of a process: its own, or that of the nearest ancestor which has one, if that one is inherited.
fn effective(process: &Process, roots: &Roots, by_pid: &BTreeMap<i32, &Process>) -> Option<Given> {
    let own = roots.get(&process.id.tid);
    let mut ancestor = process;
    // The list was read while processes came and went, so that a chain of parents need not end: bound it.
    for _ in 0..by_pid.len() {
        let Some(parent) = by_pid.get(&ancestor.parent) else { break };
        ancestor = parent;
        let Some(given) = roots.get(&ancestor.id.tid) else { continue };
        let Own::Gets(given) = given else { break };
        // By hand goes before what an ancestor was given by hand.
        let by_hand = match own {
            Some(Own::Settled) => true,
            Some(Own::Gets(own)) => own.why == Why::Restored,
            Some(Own::BestEffort) | None => false,
        };
        if !by_hand && given.grant.inherit && (own.is_none() || given.grant.keep_over_exec) {
            return Some(Given { why: Why::Inherited(ancestor.id.tid), ..given.clone() });
        }
        break;
    }
    match own {
        Some(Own::Gets(given)) => Some(given.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
