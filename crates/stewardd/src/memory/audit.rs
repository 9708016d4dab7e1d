//! The record of promises of memory: what the kernel counted for domains with a minimum or a protection period, judged
//! about once a second by `steward_core::memory::audit`, and kept on the disk with the names of who broke them.
//!
//! While no domain is promised memory this reads nothing. In calm seconds it reads six files of each that is; all other
//! cgroups, two files each, are read while one of those stalls, and every ten seconds, to know who takes memory.
//! Anybody may have thousands of them: so that is done in pieces, each is followed by a rest of twenty times as long as
//! it took, and of the seconds until all were read nobody is named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use steward_core::domain::name::domain_of;
use steward_core::memory::audit::{
    Audited, Auditor, Blame, Culprit, Promise, Reading, Taker, Tally, blame_key,
};
use steward_core::record::Counted;

use crate::files::record::RecordFile;
use crate::health::Topic;
use crate::turn::worker::Worker;

mod judging;

/// From one reading to the next, in nanoseconds.
const EVERY_NS: u64 = 1_000_000_000;
/// So many that broke promises to one domain have a counter each; the rest have one together.
const BLAMED_MAX: usize = 16;
/// Looking at who takes memory may take 1 of so many parts of a CPU.
const COST_PART: u64 = 20;
/// How long a piece of that goes on, in nanoseconds; the cgroup that is in hand then is finished.
const PIECE_NS: u64 = 2_000_000;

/// The record and what keeps it.
pub(crate) struct Audit {
    auditor: Auditor,
    pub(crate) kept: RecordFile<Tally>,
    /// Who broke promises, by the paths of both.
    pub(crate) blamed: RecordFile<Blame>,
    /// Since the daemon started, by path: what only grows, for the metrics.
    pub(crate) totals: BTreeMap<String, Tally>,
    /// The same of who broke promises: by the path of whose it was, and by whom; all others by the empty name.
    pub(crate) blamed_totals: BTreeMap<String, BTreeMap<String, u64>>,
    due_at_ns: u64,
    /// No sooner is looked at who takes memory.
    takers_at_ns: u64,
    /// Who is known to take memory, while not all were looked at, or nobody has asked since.
    looking: Option<Looking>,
    /// Whether memory is promised to any domain.
    busy: bool,
}

impl Audit {
    /// What an earlier daemon has left, and what was wrong with it. `boot_id` is the kernel's name of this boot.
    pub(crate) fn load(state_directory: &Path, boot_id: &str) -> (Self, Vec<String>) {
        let path = |name: &str| state_directory.join("audit").join(name);
        let otherwise = "after a restart, the record of promises of memory will be old";
        let (kept, message) = RecordFile::load(path("memory"), Topic::MemoryAudit, otherwise, boot_id);
        let otherwise = "after a restart, who broke promises of memory will be known of earlier times only";
        let (blamed, of_blame) =
            RecordFile::load(path("memory-blame"), Topic::MemoryBlame, otherwise, boot_id);
        let audit = Audit {
            auditor: Auditor::default(),
            kept,
            blamed,
            totals: BTreeMap::new(),
            blamed_totals: BTreeMap::new(),
            due_at_ns: 0,
            takers_at_ns: 0,
            looking: None,
            busy: false,
        };
        (audit, message.into_iter().chain(of_blame).collect())
    }

    /// When it has something to do that nothing else announces.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        let due = self.busy.then_some(self.due_at_ns);
        let looks = self.looking.as_ref().is_some_and(|looking| !looking.left.is_empty());
        let goes_on = (self.busy && looks).then_some(self.takers_at_ns);
        [due, goes_on, self.kept.save_at_ns, self.blamed.save_at_ns].into_iter().flatten().min()
    }

    /// Who takes memory, where that is to be known, and is not too soon after what it took to know last. Where many
    /// cgroups are there, this begins to look at them, and what was found is returned at a later time.
    fn takers(
        &mut self,
        at_ns: u64,
        is_wanted: bool,
        look: impl FnMut(&str) -> Found,
        cpu_time_ns: impl Fn() -> u64,
    ) -> Option<Vec<Taker>> {
        if is_wanted && self.looking.is_none() && at_ns >= self.takers_at_ns {
            self.looking = Some(Looking { left: vec![String::new()], takers: Vec::new() });
        }
        self.look_on(at_ns, look, cpu_time_ns);
        self.looking.take_if(|looking| looking.left.is_empty()).map(|looking| looking.takers)
    }

    /// Looks at some more of those of whom it is not known yet, if some are left and it is time.
    fn look_on(&mut self, at_ns: u64, mut look: impl FnMut(&str) -> Found, cpu_time_ns: impl Fn() -> u64) {
        let Some(looking) = self.looking.as_mut().filter(|looking| !looking.left.is_empty()) else { return };
        if at_ns < self.takers_at_ns {
            return;
        }
        let begun_ns = cpu_time_ns();
        let mut cost_ns = 0;
        while cost_ns < PIECE_NS
            && let Some(path) = looking.left.pop()
        {
            match look(&path) {
                Found::Parent(children) => looking.left.extend(children),
                Found::Leaf(taker) => looking.takers.extend(taker),
            }
            cost_ns = cpu_time_ns().saturating_sub(begun_ns);
        }
        self.takers_at_ns = at_ns.saturating_add(cost_ns.saturating_mul(COST_PART));
    }

    /// Takes in a reading; returns what was found, with the promises' paths.
    fn observe(&mut self, reading: &Reading<'_>, promises: &[Promise], since_boot_s: u64) -> Vec<Broken> {
        let (at_s, blamed_s) = (self.kept.now_s(since_boot_s), self.blamed.now_s(since_boot_s));
        let mut broken = Vec::new();
        for Audited { promise, tally, culprit } in self.auditor.observe(reading, promises) {
            let Some(Promise { path, user, .. }) = promises.get(promise) else { continue };
            self.kept.add(path, *user, at_s, reading.at_ns, &tally);
            self.totals.entry(path.clone()).or_default().add(&tally);
            if tally.broken == 0 {
                continue;
            }
            if let Some(Culprit { path: by, taken_bytes }) = &culprit {
                let blame = Blame { seconds: 1, taken_bytes: *taken_bytes };
                let key = blame_key(path, domain_of(by));
                self.blamed.add(&key, *user, blamed_s, reading.at_ns, &blame);
                count_blame(self.blamed_totals.entry(path.clone()).or_default(), domain_of(by));
            }
            broken.push(Broken { path: path.clone(), stalled_ns: tally.stalled_ns, culprit });
        }
        let promised: BTreeSet<&str> = promises.iter().map(|promise| promise.path.as_str()).collect();
        self.totals.retain(|path, _| promised.contains(path.as_str()));
        self.blamed_totals.retain(|path, _| promised.contains(path.as_str()));
        broken
    }

    /// Has written what is not written yet.
    pub(crate) fn finish(&mut self, worker: &mut Worker) {
        self.kept.finish(worker);
        self.blamed.finish(worker);
    }
}

/// A look at who takes memory, made in pieces.
struct Looking {
    /// The paths of those that were not looked at.
    left: Vec<String>,
    takers: Vec<Taker>,
}

/// What a look at a cgroup has found.
enum Found {
    /// The paths of those directly below it.
    Parent(Vec<String>),
    /// None below it, and what it takes; `None` where that cannot be told, as of one that has gone.
    Leaf(Option<Taker>),
}

/// Counts a second in which a promise was broken by this one.
fn count_blame(blamed: &mut BTreeMap<String, u64>, by: &str) {
    let is_one_of_many = !blamed.contains_key(by) && blamed.len() >= BLAMED_MAX;
    *blamed.entry(if is_one_of_many { String::new() } else { by.to_owned() }).or_default() += 1;
}

/// A promise that was broken in the last second.
pub(crate) struct Broken {
    /// Whose.
    pub(crate) path: String,
    /// For how long tasks of it stood still, in nanoseconds.
    pub(crate) stalled_ns: u64,
    /// Who took the most memory meanwhile.
    pub(crate) culprit: Option<Culprit>,
}

#[cfg(test)]
mod tests;
