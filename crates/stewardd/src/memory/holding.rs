//! The thread that holds the file pages of protected domains in memory: their libraries, executables and mapped files,
//! which are mostly charged to who touched them first, so that no minimum of their own cgroup covers them.
//!
//! It has a thread of its own because a process can keep it waiting ([`Holder`]).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use steward_core::process::TaskId;
use steward_kernel::cgroup::tree::CgroupTree;
use steward_kernel::memory::hold::{Capacity, Holder};
use steward_kernel::{KernelError, Roots, process};

use super::shared::Shared;

/// As long as not everything has been looked at since others are to be protected, this much may be spent on it without
/// a pause: what is not held yet may be taken.
const AT_ONCE: Duration = Duration::from_millis(500);
/// Of the time that passes, such a part may be spent so again, once that is used up.
const HURRY_PART: u32 = 50;
/// Between two looks at what the processes use, while nothing else is due.
const LOOK: Duration = Duration::from_secs(2);
/// How long a look may take.
const BUDGET: Duration = Duration::from_millis(20);
/// A look that took so long is followed by a pause of so many times that: half a percent of a CPU.
const PAUSE: u32 = 200;
/// But by one of so long at most: meanwhile a limit may be set for whose pages are held.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How many areas of the daemon's address space may be taken for it; the kernel allows 65,530 for everything.
const AREAS_MAX: u64 = 16_384;

/// What is to be held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The cgroups whose processes are looked after, by path, of each user.
    pub(crate) paths: BTreeMap<u32, Vec<String>>,
    /// How much may be held of them together, in bytes.
    pub(crate) bytes_max: u64,
}

/// What is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// In bytes.
    pub(crate) bytes: u64,
    /// Why something is not held, in a sentence.
    pub(crate) problem: Option<String>,
}

/// The thread, as the memory loop sees it. Dropping it has it end, without waiting for it: all it holds is let go then.
pub(super) struct Holding(Arc<Shared<State>>);

#[derive(Default)]
struct State {
    wanted: Wanted,
    held: Held,
    /// Whether what is wanted cannot wait for the next look.
    is_urgent: bool,
    ends: bool,
}

impl Holding {
    /// Starts the thread, which has nothing to hold yet.
    ///
    /// # Errors
    /// When there can be no more threads, in a sentence.
    pub(super) fn start(roots: &Roots) -> Result<Self, String> {
        let shared = Arc::<Shared<State>>::default();
        let (own, roots) = (Arc::clone(&shared), roots.clone());
        let builder = std::thread::Builder::new().name("hold".into());
        let started = builder.spawn(move || hold(&own, &roots));
        started.map_err(|error| format!("no pages of files can be held: {error}"))?;
        Ok(Holding(shared))
    }

    /// Has it hold this from now on.
    pub(super) fn want(&self, wanted: Wanted) {
        let mut state = self.0.lock();
        // How much may be held changes all the time, and can wait for the next look; unless nothing may be.
        let is_urgent =
            state.wanted.paths != wanted.paths || (wanted.bytes_max == 0) != (state.wanted.bytes_max == 0);
        state.wanted = wanted;
        if is_urgent {
            state.is_urgent = true;
            self.0.changed.notify_one();
        }
    }

    /// What it holds.
    pub(super) fn held(&self) -> Held {
        self.0.lock().held.clone()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.lock().ends = true;
        self.0.changed.notify_one();
    }
}

fn hold(shared: &Shared<State>, roots: &Roots) {
    let mut holders = BTreeMap::new();
    let mut wanted = Wanted::default();
    let mut hurry = Hurry::default();
    loop {
        let begun = Instant::now();
        let outcome = refresh(&mut holders, &wanted, roots);
        let took = begun.elapsed();
        let is_complete = outcome.as_ref().is_ok_and(|(_, is_complete)| *is_complete);
        hurry.took(took, is_complete);
        let pause = if hurry.is_on { Duration::ZERO } else { (took * PAUSE).clamp(LOOK, PAUSE_MAX) };
        let mut state = shared.lock();
        match outcome {
            Ok((held, _)) => state.held = held,
            Err(error) => state.held.problem = Some(error.to_string()),
        }
        let waits = |state: &mut State| !state.ends && !state.is_urgent;
        let (mut state, _) =
            shared.changed.wait_timeout_while(state, pause, waits).unwrap_or_else(PoisonError::into_inner);
        if state.ends {
            return;
        }
        hurry.passed(begun.elapsed());
        hurry.is_on |= std::mem::take(&mut state.is_urgent);
        wanted.clone_from(&state.wanted);
    }
}

/// How long it may go on without pauses when others are to be held. What was used of that comes back slowly: whoever
/// changes all the time who is protected does not have it look all the time.
#[derive(Debug)]
struct Hurry {
    left: Duration,
    is_on: bool,
}

impl Default for Hurry {
    fn default() -> Self {
        Hurry { left: AT_ONCE, is_on: false }
    }
}

impl Hurry {
    fn took(&mut self, took: Duration, is_complete: bool) {
        if self.is_on {
            self.left = self.left.saturating_sub(took);
            self.is_on = !is_complete && !self.left.is_zero();
        }
    }

    fn passed(&mut self, passed: Duration) {
        self.left = AT_ONCE.min(self.left + passed / HURRY_PART);
    }
}

/// What is held for one user.
struct OfUser {
    holder: Holder,
    /// What it wanted at the last look, in bytes, and in areas.
    wanted: [u64; 2],
}

/// Looks once; whether everything has been looked at, too. Each user has a part of the room, so that nobody takes it
/// from all others: whose pages they are is not asked, and anybody may map what is in memory.
fn refresh(
    holders: &mut BTreeMap<u32, OfUser>,
    wanted: &Wanted,
    roots: &Roots,
) -> Result<(Held, bool), KernelError> {
    holders.retain(|user, _| wanted.paths.contains_key(user));
    if wanted.paths.is_empty() {
        return Ok((Held::default(), true));
    }
    let room = [wanted.bytes_max, AREAS_MAX];
    for user in wanted.paths.keys() {
        if !holders.contains_key(user) {
            let nothing = Capacity { bytes_max: 0, areas_max: 0 };
            holders.insert(*user, OfUser { holder: new_holder(nothing, roots)?, wanted: [0; 2] });
        }
    }
    let given = parts(holders, room);
    // All of them first: who has too much makes room for who has too little.
    for (user, one) in &mut *holders {
        let [bytes_max, areas_max] = given[user];
        let areas_max = usize::try_from(areas_max).unwrap_or(usize::MAX);
        one.holder.set_capacity(Capacity { bytes_max, areas_max });
    }
    let tree = CgroupTree::open(roots)?;
    let budget = BUDGET / u32::try_from(holders.len()).unwrap_or(u32::MAX);
    let (mut held, mut is_complete) = (Held::default(), true);
    for (user, one) in &mut *holders {
        // Processes that have ended meanwhile, and cgroups that have gone, need nothing.
        let pids = wanted.paths[user].iter().flat_map(|path| tree.processes(path).unwrap_or_default());
        let processes: Vec<TaskId> =
            pids.filter_map(|pid| Some(process::stat(pid, roots).ok()?.id)).collect();
        let refreshed = one.holder.refresh(&processes, budget)?;
        let (bytes, areas) = one.holder.wanted();
        one.wanted = [bytes, areas as u64];
        held.bytes += refreshed.held_bytes;
        is_complete &= refreshed.complete;
        let problem = refreshed.failure.map(|error| format!("some pages of files are not held: {error}"));
        held.problem = held.problem.or(problem);
    }
    let then = parts(holders, room);
    let grows = |(user, one): (&u32, &OfUser)| {
        (0..2).any(|of| one.wanted[of] > given[user][of] && then[user][of] > given[user][of])
    };
    Ok((held, is_complete && !holders.iter().any(grows)))
}

/// What each may have of the room, in bytes and in areas.
fn parts(holders: &BTreeMap<u32, OfUser>, room: [u64; 2]) -> BTreeMap<u32, [u64; 2]> {
    let wanted = |of: usize| holders.iter().map(|(user, one)| (*user, one.wanted[of])).collect();
    let [bytes, areas] = [0, 1].map(|of| divided(&wanted(of), room[of]));
    bytes.into_iter().map(|(user, bytes)| (user, [bytes, areas[&user]])).collect()
}

/// How much of the room each may have: what they want, those who want much the same as each other, and of what is left
/// an equal part for what they may want by the next look.
fn divided(wanted: &BTreeMap<u32, u64>, bytes_max: u64) -> BTreeMap<u32, u64> {
    let mut by_want: Vec<(u64, u32)> = wanted.iter().map(|(user, bytes)| (*bytes, *user)).collect();
    by_want.sort_unstable();
    let (mut left_bytes, mut parts) = (bytes_max, BTreeMap::new());
    for ((wanted_bytes, user), others) in by_want.iter().zip((1..=by_want.len() as u64).rev()) {
        let part = (*wanted_bytes).min(left_bytes / others);
        left_bytes -= part;
        parts.insert(*user, part);
    }
    let spare_bytes = left_bytes / (parts.len() as u64).max(1);
    parts.values_mut().for_each(|part| *part += spare_bytes);
    parts
}

/// One that holds nothing that a cgroup with limited memory is charged for.
fn new_holder(capacity: Capacity, roots: &Roots) -> Result<Holder, KernelError> {
    let tree = CgroupTree::open(roots)?;
    // Where that cannot be known, nothing is held, and it is said.
    tree.is_memory_limited(tree.find("")?.id)?;
    // One that has gone meanwhile is charged for nothing any more: those above it are, at the next look.
    Holder::new(capacity, Box::new(move |id| tree.is_memory_limited(id).unwrap_or(true)), roots)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nobody_has_less_of_the_room_than_an_equal_part_if_they_want_that_and_none_is_left_that_somebody_wants(
            wanted in prop::collection::btree_map(0u32..9, 0u64..3000, 0..6),
            bytes_max in prop_oneof![0u64..5000, Just(u64::MAX)],
        ) {
            let parts = divided(&wanted, bytes_max);
            prop_assert!(parts.keys().eq(wanted.keys()));
            let users = wanted.len() as u64;
            let all: u64 = parts.values().sum();
            prop_assert!(all <= bytes_max);
            prop_assert!(users == 0 || bytes_max - all < users, "{parts:?} of {bytes_max}");
            for (user, part) in &parts {
                prop_assert!(*part >= wanted[user].min(bytes_max / users), "{parts:?} of {wanted:?}");
                // Who has less than they want: nobody has more than that beyond what they want.
                let more = |other: &u64| *other > *part + 1;
                prop_assert!(*part >= wanted[user] || !parts.values().any(more), "{parts:?} of {wanted:?}");
            }
        }
    }

    #[test]
    fn who_changes_all_the_time_who_is_protected_has_it_look_a_fiftieth_of_the_time_once_a_hurry_is_used_up()
    {
        let (look, change) = (Duration::from_millis(20), Duration::from_millis(500));
        let mut hurry = Hurry::default();
        let (mut hurried, mut all) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..1000 {
            hurry.is_on = true;
            while hurry.is_on {
                hurry.took(look, false);
                (hurried, all) = (hurried + look, all + look);
            }
            hurry.passed(change);
            all += change;
        }
        assert!(hurried >= AT_ONCE + look * 900 && hurried < all / 20, "{hurried:?} of {all:?}");
        // One that is complete uses what it took.
        let mut hurry = Hurry { is_on: true, ..Hurry::default() };
        hurry.took(look, true);
        assert!(!hurry.is_on && hurry.left == AT_ONCE - look);
        hurry.passed(look * 60);
        assert_eq!(hurry.left, AT_ONCE);
    }
}
