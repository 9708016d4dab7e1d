//! The thread that finds out who uses the pages of files that are charged to others, for shares and victims by claims
//! (Walfield, section 4.3). The kernel charges who touched a page first; who has it mapped, each process tells.
//!
//! It has a thread of its own because reading that walks the page tables of a process, and waits while its memory map
//! is being changed. It looks only while somebody has to pay, at those processes alone that have much of files mapped,
//! the largest first, and rests five hundred times as long as that took. Whoever lets it wait is left out ([`asking`]).

mod asking;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use steward_core::domain::name;
use steward_core::memory::principal::Principal;
use steward_kernel::cgroup::reading::CgroupReader;
use steward_kernel::cgroup::tree::CgroupTree;
use steward_kernel::memory::sharing::{mapped_bytes, part_bytes};
use steward_kernel::{KernelError, Roots, process};

use self::asking::Asking;
use super::shared::Shared;
use crate::turn::clock::cpu_time_ns;

/// Between two looks at least.
const LOOK: Duration = Duration::from_secs(5);
/// A look that took so much CPU time is followed by a pause of so many times that: a fifth of a percent of a CPU.
const PAUSE: u32 = 500;
/// A look ends after so much CPU time, in nanoseconds: it finds nothing out about those that are left.
const COST_MAX_NS: u64 = 100_000_000;
/// No process is waited for longer than this: it is read again once it has come back.
const PATIENCE: Duration = Duration::from_secs(2);
/// Whose a process is that belongs to no one user.
const NOBODYS: u32 = u32::MAX;
/// Of processes that have less of files mapped nothing is read, in bytes.
const PROCESS_MIN_BYTES: u64 = 2 << 20;
/// Below this, what a cgroup uses and what is charged to it are as good as the same, in bytes.
const DIFFERENCE_MIN_BYTES: u64 = 4 << 20;

/// What processes of a cgroup and all below it use of pages of files, and how much of what is charged to it is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileUse {
    /// Over all processes, each page divided among all who have it mapped, in bytes.
    pub(crate) used_bytes: u64,
    /// Of what is charged to it, what anybody has mapped, in bytes.
    pub(crate) mapped_bytes: u64,
}

impl FileUse {
    /// The same principal, with what it claims.
    pub(crate) fn claims_of(&self, principal: Principal) -> Principal {
        principal.claiming(self.used_bytes, self.mapped_bytes)
    }
}

/// What was found out, by path of the cgroup; the others claim what is charged to them.
pub(crate) type FileUses = BTreeMap<String, FileUse>;

/// The thread, as the memory loop sees it. Dropping it has it end, without waiting for it.
pub(super) struct Sharing(Arc<Shared<State>>);

#[derive(Default)]
struct State {
    is_wanted: bool,
    found: Arc<FileUses>,
    ends: bool,
}

impl Sharing {
    /// Starts the thread, which has nothing to look at yet.
    ///
    /// # Errors
    /// When there can be no more threads, in a sentence.
    pub(super) fn start(roots: &Roots) -> Result<Self, String> {
        let shared = Arc::<Shared<State>>::default();
        let (own, roots) = (Arc::clone(&shared), roots.clone());
        let started = std::thread::Builder::new().name("share".into()).spawn(move || follow(&own, &roots));
        started.map_err(|error| format!("nobody finds out who uses pages of files: {error}"))?;
        Ok(Sharing(shared))
    }

    /// Has it look as soon as it may again, because somebody has to pay.
    pub(super) fn want(&self) {
        self.0.lock().is_wanted = true;
        self.0.changed.notify_one();
    }

    /// What it found out last.
    pub(super) fn found(&self) -> Arc<FileUses> {
        Arc::clone(&self.0.lock().found)
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.0.lock().ends = true;
        self.0.changed.notify_one();
    }
}

fn follow(shared: &Shared<State>, roots: &Roots) {
    let own = roots.clone();
    let read = move |pid| part_bytes(pid, &own).ok().map(Option::unwrap_or_default);
    let mut asking = Asking::new(Arc::new(read), PATIENCE);
    loop {
        let waits = |state: &mut State| !state.ends && !state.is_wanted;
        let mut state =
            shared.changed.wait_while(shared.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        if state.ends {
            return;
        }
        state.is_wanted = false;
        drop(state);
        let begun_ns = cpu_time_ns();
        asking.cost_ns = 0;
        let took_ns = |asking: &Asking| cpu_time_ns().saturating_sub(begun_ns).saturating_add(asking.cost_ns);
        // What cannot be read is not known: everybody claims what is charged to them.
        let found = look(roots, &mut asking, &|asking| took_ns(asking) < COST_MAX_NS).unwrap_or_default();
        let took = Duration::from_nanos(took_ns(&asking));
        let mut state = shared.lock();
        state.found = Arc::new(found);
        let ends = |state: &mut State| !state.ends;
        let pause = LOOK.max(took * PAUSE);
        drop(shared.changed.wait_timeout_while(state, pause, ends));
    }
}

/// Looks at all cgroups whose processes have much of files mapped, as long as it may go on.
fn look(
    roots: &Roots,
    asking: &mut Asking,
    may_go_on: &dyn Fn(&Asking) -> bool,
) -> Result<FileUses, KernelError> {
    let tree = CgroupTree::open(roots)?;
    let page_bytes = rustix::param::page_size() as u64;
    let mut processes: Vec<(u64, i32, String)> = Vec::new();
    let mut small: BTreeMap<String, u64> = BTreeMap::new();
    for cgroup in tree.list()? {
        // One that has gone meanwhile has no processes.
        for pid in tree.processes(&cgroup.path).unwrap_or_default() {
            let bytes = mapped_bytes(pid, page_bytes, roots).ok().flatten().unwrap_or(0);
            if bytes >= PROCESS_MIN_BYTES {
                processes.push((bytes, pid, cgroup.path.clone()));
            } else {
                for path in std::iter::successors(Some(cgroup.path.as_str()), |path| name::parent_of(path)) {
                    let sum = small.entry(path.to_owned()).or_default();
                    *sum = sum.saturating_add(bytes);
                }
            }
        }
    }
    processes.sort_by(|one, other| other.cmp(one));
    // One that has ended uses nothing; of one that was not looked at nothing is known.
    let used = used_by(&processes, |pid| {
        // One that has ended uses nothing, whoever it was.
        let user = process::user(pid, roots).ok().flatten().unwrap_or(NOBODYS);
        if may_go_on(asking) { asking.ask(pid, user) } else { None }
    });
    let mut found = FileUses::new();
    for path in tree.list()?.into_iter().map(|cgroup| cgroup.path).filter(|path| !path.is_empty()) {
        // Who has no large process uses little, and others may use what is charged to it.
        let Some(used_bytes) = used.get(path.as_str()).copied().unwrap_or(Some(0)) else { continue };
        let stat = CgroupReader::open(&path, roots).and_then(|reader| reader.memory_stat());
        let Ok(Some(stat)) = stat else { continue };
        let small_bytes = small.get(&path).copied().unwrap_or(0);
        let mapped_bytes = stat.file_mapped_bytes;
        let file_use =
            FileUse { used_bytes: with_small(used_bytes, small_bytes, mapped_bytes), mapped_bytes };
        if file_use.used_bytes.abs_diff(file_use.mapped_bytes) >= DIFFERENCE_MIN_BYTES {
            found.insert(path, file_use);
        }
    }
    Ok(found)
}

/// What is used with small processes, too, which have so much mapped at most. They may have that of what is charged to
/// their own cgroup: many of them lend nothing to others, and borrow nothing.
fn with_small(used_bytes: u64, small_bytes: u64, mapped_bytes: u64) -> u64 {
    used_bytes.saturating_add(small_bytes.min(mapped_bytes.saturating_sub(used_bytes)))
}

/// What the processes of each cgroup and of all below it use together; `None` where that of one of them is not known.
fn used_by(
    processes: &[(u64, i32, String)],
    mut part_bytes: impl FnMut(i32) -> Option<u64>,
) -> BTreeMap<&str, Option<u64>> {
    let mut used = BTreeMap::new();
    for (_, pid, path) in processes {
        let part_bytes = part_bytes(*pid);
        for path in std::iter::successors(Some(path.as_str()), |path| name::parent_of(path)) {
            let sum = used.entry(path).or_insert(Some(0_u64));
            *sum = sum.zip(part_bytes).map(|(sum, part_bytes)| sum.saturating_add(part_bytes));
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_above_uses_what_those_below_use_and_nothing_is_known_without_one_of_them() {
        let processes = [(9, 1, "a"), (8, 2, "a/b"), (7, 3, "a/b"), (6, 4, "c")];
        let processes = processes.map(|(bytes, pid, path)| (bytes, pid, path.to_owned()));
        let all = used_by(&processes, |pid| Some(10 * u64::try_from(pid).expect("above 0")));
        assert_eq!(["", "a", "a/b", "c"].map(|path| all[path]), [Some(100), Some(60), Some(50), Some(40)]);
        let without = used_by(&processes, |pid| (pid != 3).then_some(1));
        assert_eq!(["", "a", "a/b", "c"].map(|path| without[path]), [None, None, None, Some(1)]);
    }

    #[test]
    fn who_has_a_file_mapped_by_many_small_processes_claims_it_and_nothing_of_others() {
        assert_eq!(with_small(0, 600, 500), 500, "nothing is lent");
        assert_eq!(with_small(0, 20, 500), 20);
        assert_eq!(with_small(300, 600, 500), 500);
        assert_eq!(with_small(700, 600, 500), 700, "what large ones borrow stays, and no more");
    }
}
