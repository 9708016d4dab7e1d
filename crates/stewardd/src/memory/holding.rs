//! The thread that holds the file pages of protected domains in memory: their libraries, executables and mapped files,
//! which are mostly charged to who touched them first, so that no minimum of their own cgroup covers them.
//!
//! It has a thread of its own because a process can keep it waiting ([`Holder`]).

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
/// How many areas of the daemon's address space may be taken for it; the kernel allows 65,530 for everything.
const AREAS_MAX: usize = 16_384;

/// What is to be held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The cgroups whose processes are looked after, by path.
    pub(crate) paths: Vec<String>,
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
    let mut holder = None;
    let mut wanted = Wanted::default();
    let mut hurry = Hurry::default();
    loop {
        let begun = Instant::now();
        let outcome = refresh(&mut holder, &wanted, roots);
        let took = begun.elapsed();
        let is_complete = outcome.as_ref().is_ok_and(|(_, is_complete)| *is_complete);
        hurry.took(took, is_complete);
        let pause = if hurry.is_on { Duration::ZERO } else { LOOK.max(took * PAUSE) };
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

/// Looks once; whether everything has been looked at, too.
fn refresh(holder: &mut Option<Holder>, wanted: &Wanted, roots: &Roots) -> Result<(Held, bool), KernelError> {
    let capacity = Capacity { bytes_max: wanted.bytes_max, areas_max: AREAS_MAX };
    if wanted.paths.is_empty() {
        *holder = None;
        return Ok((Held::default(), true));
    }
    let tree = CgroupTree::open(roots)?;
    // Processes that have ended meanwhile, and cgroups that have gone, need nothing.
    let pids = wanted.paths.iter().flat_map(|path| tree.processes(path).unwrap_or_default());
    let processes: Vec<TaskId> = pids.filter_map(|pid| Some(process::stat(pid, roots).ok()?.id)).collect();
    let holder = match holder {
        Some(holder) => holder,
        None => holder.insert(Holder::new(capacity, roots)?),
    };
    holder.set_capacity(capacity);
    let refreshed = holder.refresh(&processes, BUDGET)?;
    let problem = refreshed.failure.map(|error| format!("some pages of files are not held: {error}"));
    let held = Held { bytes: refreshed.held_bytes, problem };
    Ok((held, refreshed.complete))
}

#[cfg(test)]
mod tests {
    use super::*;

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
