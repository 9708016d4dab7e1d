//! What each domain is to have of the memory, and what became of it. The worker writes it into the kernel: until then a
//! domain says that it is not in force yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use steward_core::domain::name::parent_of;
use steward_core::memory::limits::{Limits as Wanted, Told};
use steward_core::resource::Resource;
use steward_kernel::cgroup::place::Place;

use super::knobs::{Knobs, pages};
use crate::domains::cgroups::Cgroups;
use crate::turn::outstanding::Outstanding;
use crate::turn::worker::{About, Job, Progress};

/// What a domain says until the worker has done it.
const NOT_YET: &str = "its memory is being limited: what it uses above its maximum is being taken from it";

/// How often what is not in force is tried again, in nanoseconds.
const AGAIN_NS: u64 = 2_000_000_000;

/// What the kernel was told, and what it is to be told.
#[derive(Debug, Default)]
pub struct Limits {
    /// By path: the cgroup's id and what it was told last.
    told: BTreeMap<String, (u64, Told)>,
    /// What the worker has not said anything of yet, by path.
    pending: BTreeSet<String>,
    /// Why something is not in force, by path.
    failed: BTreeMap<String, String>,
    jobs: VecDeque<Job>,
    /// What the worker is to tell the kernel when it comes to it, by path, with the cgroup's id.
    waiting: Arc<Outstanding<BTreeMap<String, (u64, Told)>>>,
    /// The cgroups that hand memory out because of us.
    hand_out: BTreeSet<String>,
    /// When what is not in force is tried again.
    again_at_ns: u64,
}

impl Limits {
    /// Takes in what is wanted, of which `id_of` knows the cgroups; what is to be done for it waits in
    /// [`Limits::take_jobs`].
    pub fn want(&mut self, cgroups: &dyn Cgroups, wanted: &Wanted, id_of: &dyn Fn(&str) -> Option<u64>) {
        let knobs = cgroups.memory_knobs();
        let gone: Vec<String> =
            self.told.keys().filter(|path| !wanted.cgroups.contains_key(*path)).cloned().collect();
        for path in gone {
            let (id, _) = self.told.remove(&path).unwrap_or_default();
            self.failed.remove(&path);
            let is_there = id_of(&path) == Some(id);
            if is_there {
                self.tell(&knobs, &path, id, Told::default())
            } else {
                self.forget(&knobs, &path, id)
            }
        }
        let shut = self.open(cgroups, wanted);
        let why = |path: &str| {
            let mut above = std::iter::successors(parent_of(path), |path| parent_of(path));
            above.find_map(|above| shut.get(above))
        };
        self.failed.retain(|path, _| wanted.cgroups.contains_key(path));
        let all = wanted.cgroups.keys().chain(&wanted.protected);
        self.failed.extend(all.filter_map(|path| Some((path.clone(), why(path)?.clone()))));
        // The worker writes one after the other: those that are to be left more come first.
        let least = |told: Option<&(u64, Told)>| told.and_then(|(_, told)| told.min_bytes).unwrap_or(0);
        let is_raised = |path: &str, settings: &Told| settings.min_bytes > Some(least(self.told.get(path)));
        let (raised, others): (Vec<_>, Vec<_>) =
            wanted.cgroups.iter().partition(|(path, settings)| is_raised(path, settings));
        // A maximum comes last: what those below it are left no longer has to be taken from them for it.
        let (maxima, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, settings)| settings.max_bytes.is_some());
        for (path, settings) in raised.into_iter().chain(others).chain(maxima) {
            let Some(id) = id_of(path).filter(|_| why(path).is_none()) else { continue };
            if self.told.get(path) != Some(&(id, *settings)) {
                self.failed.remove(path);
                self.tell(&knobs, path, id, *settings);
                self.told.insert(path.clone(), (id, *settings));
            }
        }
    }

    /// Has all be given anew by the next [`Limits::want`] where somebody has had the root hand memory out no longer:
    /// with that, what was written is gone. Returns whether that is so.
    pub fn forget_shut(&mut self, cgroups: &dyn Cgroups) -> bool {
        let is_shut = !self.told.is_empty() && matches!(cgroups.hands_out("", Resource::Memory), Ok(false));
        if is_shut {
            self.told.clear();
        }
        is_shut
    }

    /// Has the cgroups above those that are to have something hand memory out. Returns those that cannot, with a
    /// sentence why: one that has just gone, or whose user has it so, is nobody else's misfortune.
    fn open(&mut self, cgroups: &dyn Cgroups, wanted: &Wanted) -> BTreeMap<String, String> {
        let mut shut = BTreeMap::new();
        for path in &wanted.hand_out {
            match cgroups.hands_out(path, Resource::Memory) {
                Ok(true) => continue,
                Err(error) => {
                    shut.insert(path.clone(), error.to_string());
                    continue;
                }
                Ok(false) => {}
            }
            match cgroups.hand_out(path, Resource::Memory, true) {
                Ok(()) => {
                    self.hand_out.insert(path.clone());
                }
                Err(error) => {
                    let sentence = format!(
                        "{error}; the kernel's memory controller must be in the unified hierarchy (cgroup.controllers), and not in \
                         one of version 1"
                    );
                    shut.insert(path.clone(), sentence);
                }
            }
        }
        shut
    }

    fn tell(&mut self, knobs: &Arc<dyn Knobs>, path: &str, cgroup_id: u64, wanted: Told) {
        let waits = self.waiting.change(|waiting| waiting.insert(path.to_owned(), (cgroup_id, wanted)));
        if waits.is_some() {
            // The one that waits already tells what is wanted by then.
            self.pending.insert(path.to_owned());
            return;
        }
        let (knobs, waiting, of) = (Arc::clone(knobs), Arc::clone(&self.waiting), path.to_owned());
        let set = move |newest| match newest {
            Some((path, (cgroup_id, wanted))) => knobs.set(&Place { path, cgroup_id }, wanted),
            None => Ok(Progress::Done),
        };
        let work = move || waiting.take_on(|waiting| waiting.remove_entry(&of), set);
        self.push(path, Box::new(work));
    }

    fn forget(&mut self, knobs: &Arc<dyn Knobs>, path: &str, cgroup_id: u64) {
        let knobs = Arc::clone(knobs);
        let work = move || {
            knobs.forget(cgroup_id);
            Ok(Progress::Done)
        };
        // Another cgroup may be there by now, about which another job says something.
        self.push(&format!("{path} ({cgroup_id})"), Box::new(work));
    }

    fn push(&mut self, path: &str, work: Box<dyn FnOnce() -> Result<Progress, String> + Send>) {
        self.pending.insert(path.to_owned());
        self.jobs.push_back(Job { about: About::Memory(path.to_owned()), work });
    }

    /// What is to be done, for the worker.
    pub fn take_jobs(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.jobs.drain(..)
    }

    /// Whether the worker still has something to do.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Has what is not in force be tried again now and then: the disk of the undo journal has room again, or somebody
    /// has ended something. Returns whether all that is wanted is to be given anew, for want of what it needs above it.
    pub fn try_again(&mut self, cgroups: &dyn Cgroups, now_ns: u64) -> bool {
        if self.failed.is_empty() || now_ns < self.again_at_ns {
            return false;
        }
        self.again_at_ns = now_ns + AGAIN_NS;
        let knobs = cgroups.memory_knobs();
        let failed: Vec<String> =
            self.failed.keys().filter(|path| !self.pending.contains(*path)).cloned().collect();
        let mut is_untold = false;
        for path in failed {
            match self.told.get(&path).copied() {
                Some((id, settings)) => self.tell(&knobs, &path, id, settings),
                None => is_untold = true,
            }
        }
        is_untold
    }

    /// Has those be told again that say something else by now: of the cgroups `of_others`, which their manager may
    /// write anew at any time (systemd does when it has others hand something out, for one).
    pub fn look_again(&mut self, cgroups: &dyn Cgroups, of_others: &dyn Fn(&str) -> bool) {
        let is_other = |told: &Told, path: &str| {
            let Some(has) = cgroups.memory_bounds(path) else { return false };
            let min_lacks = |bytes| has.min.limit_bytes().is_some_and(|min| pages(min) < pages(bytes));
            let high_lacks = |bytes| has.high.limit_bytes().is_none_or(|high| pages(high) > pages(bytes));
            let max_differs = |bytes| has.max.limit_bytes().map(pages) != Some(pages(bytes));
            told.min_bytes.is_some_and(min_lacks)
                || told.high_bytes.is_some_and(high_lacks)
                || told.max_bytes.is_some_and(max_differs)
        };
        let known = self.told.iter().filter(|(path, _)| of_others(path) && self.problem(path).is_none());
        let others: Vec<(String, u64, Told)> = known
            .filter(|(path, (_, told))| is_other(told, path))
            .map(|(path, (id, told))| (path.clone(), *id, *told))
            .collect();
        for (path, id, told) in others {
            self.tell(&cgroups.memory_knobs(), &path, id, told);
        }
    }

    /// Takes in what became of a job; what `goes_on` is another one.
    pub fn note(&mut self, cgroups: &dyn Cgroups, path: &str, goes_on: bool, failure: Option<String>) {
        self.pending.remove(path);
        if let Some((id, settings)) = self.told.get(path).copied().filter(|_| goes_on) {
            self.tell(&cgroups.memory_knobs(), path, id, settings);
        }
        match failure {
            Some(failure) if self.told.contains_key(path) => {
                self.failed.insert(path.to_owned(), failure);
            }
            // It is in force; it may not have been the first time.
            None if !goes_on => {
                self.failed.remove(path);
            }
            _ => {}
        }
    }

    /// The minimum that the kernel was told of a cgroup, in bytes; 0 where it was told none.
    pub fn told_min_bytes(&self, path: &str) -> u64 {
        self.told.get(path).and_then(|(_, told)| told.min_bytes).unwrap_or(0)
    }

    /// Why a cgroup does not have what it is to have; `None` when it has.
    pub fn problem(&self, path: &str) -> Option<&str> {
        let failed = self.failed.get(path).map(String::as_str);
        failed.or_else(|| self.pending.contains(path).then_some(NOT_YET))
    }

    /// All that is not in force for good, by path.
    pub fn failures(&self) -> impl Iterator<Item = (&String, &String)> {
        self.failed.iter()
    }

    /// Puts everything back, at once. What the worker has begun is waited for, and what it has not it finds done: it
    /// writes nothing after this.
    pub fn stop(&mut self, cgroups: &dyn Cgroups) {
        let knobs = cgroups.memory_knobs();
        let told = std::mem::take(&mut self.told);
        self.waiting.take_on(std::mem::take, |waiting| {
            // Of those that wait, some are to have nothing any more, and are told nothing but that.
            let all = told.into_iter().chain(waiting).map(|(path, (cgroup_id, _))| (path, cgroup_id));
            for (path, cgroup_id) in all.collect::<BTreeSet<_>>() {
                // What cannot be put back stays in the journal, for the next daemon or `steward revert`.
                let _ = knobs.set(&Place { path, cgroup_id }, Told::default());
            }
        });
        for path in std::mem::take(&mut self.hand_out).iter().rev() {
            // Where it is gone, or somebody has set something below it since, it stays.
            let _ = cgroups.hand_out(path, Resource::Memory, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::cgroups::FakeCgroups;

    const PATHS: [&str; 3] = ["user.slice", "user.slice/user-1000.slice", "steward.a"];

    /// What may happen before a daemon stops.
    #[derive(Clone, Debug)]
    enum Step {
        /// Each of [`PATHS`] is to have this minimum, in MiB, and the last one a maximum, too.
        Want([Option<u64>; 3]),
        /// Somebody else writes what they have themselves, which is nothing.
        WrittenAnew(&'static str),
        /// It is looked whether somebody has.
        Look,
        /// The worker comes to the next job.
        Work,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::array::uniform3(prop::option::of(1u64..3)).prop_map(Step::Want),
            prop::sample::select(&PATHS[..]).prop_map(Step::WrittenAnew),
            Just(Step::Look),
            Just(Step::Work),
        ]
    }

    /// The daemon's loop and its worker, which do one thing at a time.
    #[derive(Default)]
    struct Machine {
        cgroups: FakeCgroups,
        limits: Limits,
        jobs: VecDeque<Job>,
    }

    impl Machine {
        fn new() -> Self {
            let machine = Machine::default();
            machine.cgroups.tree().add("steward.a", 0);
            // systemd has them hand memory out, for itself.
            for path in ["", "user.slice"] {
                machine.cgroups.hand_out(path, Resource::Memory, true).expect("it is there");
            }
            machine
        }

        fn take(&mut self, step: Step) {
            match step {
                Step::Want(minima) => {
                    let told = |(path, mib): (&str, Option<u64>)| {
                        let bytes = mib? << 20;
                        let max_bytes = (path == PATHS[2]).then_some(bytes << 4);
                        let high_bytes = max_bytes.map(|max_bytes| max_bytes / 16 * 15);
                        let told = Told { min_bytes: Some(bytes), high_bytes, max_bytes, ..Told::default() };
                        Some((path.to_owned(), told))
                    };
                    let cgroups = PATHS.into_iter().zip(minima).filter_map(told).collect();
                    let id_of = |path: &str| self.cgroups.find(path).ok().map(|cgroup| cgroup.id);
                    self.limits.want(&self.cgroups, &Wanted { cgroups, ..Wanted::default() }, &id_of);
                }
                Step::WrittenAnew(path) => self.cgroups.tree().limit(path, Told::default()),
                Step::Look => self.limits.look_again(&self.cgroups, &|path| path.starts_with("user.slice")),
                Step::Work => self.work(),
            }
            self.give();
        }

        /// Gives the worker what is to be done; a job that has not begun gives way to a later one about the same thing.
        fn give(&mut self) {
            for job in self.limits.take_jobs() {
                match self.jobs.iter_mut().find(|waiting| waiting.about == job.about) {
                    Some(waiting) => *waiting = job,
                    None => self.jobs.push_back(job),
                }
            }
        }

        fn work(&mut self) {
            let Some(Job { about, work }) = self.jobs.pop_front() else { return };
            let outcome = work();
            let About::Memory(path) = about else { return };
            let goes_on = outcome == Ok(Progress::GoesOn);
            self.limits.note(&self.cgroups, &path, goes_on, outcome.err());
        }

        /// As the daemon does it: the worker does last what is left.
        fn stop(&mut self) {
            self.limits.stop(&self.cgroups);
            self.give();
            while !self.jobs.is_empty() {
                self.work();
            }
        }

        fn has(&self) -> [Told; 3] {
            PATHS.map(|path| self.cgroups.tree().memory(path))
        }
    }

    #[test]
    fn what_was_to_be_written_again_after_somebody_else_is_not_once_all_has_been_put_back() {
        let mut machine = Machine::new();
        machine.take(Step::Want([Some(1); 3]));
        (0..3).for_each(|_| machine.take(Step::Work));
        let wanted = Told { min_bytes: Some(1 << 20), ..Told::default() };
        let limited = Told { high_bytes: Some(15 << 20), max_bytes: Some(16 << 20), ..wanted };
        assert_eq!(machine.has(), [wanted, wanted, limited]);
        machine.take(Step::WrittenAnew("user.slice"));
        machine.take(Step::Look);
        assert_eq!(machine.jobs.len(), 1, "it is seen");
        machine.stop();
        assert_eq!(machine.has(), [Told::default(); 3]);
    }

    proptest! {
        #[test]
        fn a_daemon_that_stops_leaves_nothing_whatever_its_worker_has_not_come_to(
            steps in prop::collection::vec(step(), 0..24),
            goes_on in 0u32..4,
        ) {
            let mut machine = Machine::new();
            machine.cgroups.tree().memory_goes_on = goes_on;
            for step in steps {
                machine.take(step);
            }
            machine.stop();
            prop_assert_eq!(machine.has(), [Told::default(); 3]);
        }
    }

    #[test]
    fn where_one_cannot_hand_memory_out_those_below_it_say_so_and_all_others_have_theirs() {
        let cgroups = FakeCgroups::default();
        for path in ["steward.a", "steward.b"] {
            cgroups.tree().add(path, 0);
        }
        let told = Told { min_bytes: Some(4096), ..Told::default() };
        // One that is above another has gone a moment ago.
        let mut wanted = Wanted::default();
        for path in ["steward.a", "steward.gone/x"] {
            wanted.cgroups.insert(path.to_owned(), told);
        }
        wanted.hand_out.extend([String::new(), "steward.gone".to_owned()]);
        let mut limits = Limits::default();
        limits.want(&cgroups, &wanted, &|path| Some(path.len() as u64));
        let given: Vec<String> = limits.take_jobs().map(|job| format!("{:?}", job.about)).collect();
        assert_eq!(given.len(), 1, "{given:?}");
        assert!(limits.told.contains_key("steward.a"), "{given:?}");
        assert_eq!(limits.failures().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["steward.gone/x"]);
        // It is not wanted any more.
        wanted.cgroups.remove("steward.gone/x");
        wanted.hand_out.remove("steward.gone");
        limits.want(&cgroups, &wanted, &|path| Some(path.len() as u64));
        assert_eq!(limits.failures().count(), 0);
    }

    #[test]
    fn what_is_to_be_raised_comes_first_and_what_waits_tells_what_is_wanted_by_then() {
        let cgroups = FakeCgroups::default();
        for path in ["steward.a", "steward.b"] {
            cgroups.tree().add(path, 0);
        }
        let id_of = |path: &str| cgroups.find(path).ok().map(|cgroup| cgroup.id);
        let mut limits = Limits::default();
        let mut want = |a: u64, b: u64| {
            let mut wanted = Wanted::default();
            wanted.hand_out.insert(String::new());
            for (path, mib) in [("steward.a", a), ("steward.b", b)] {
                let told = Told { min_bytes: Some(mib << 20), ..Told::default() };
                wanted.cgroups.insert(path.to_owned(), told);
            }
            limits.want(&cgroups, &wanted, &id_of);
            limits.take_jobs().collect::<Vec<Job>>()
        };
        let about = |jobs: &[Job]| jobs.iter().map(|job| format!("{:?}", job.about)).collect::<Vec<_>>();
        let first = want(8, 8);
        assert_eq!(first.len(), 2);
        assert!(want(9, 12).is_empty(), "the same jobs wait");
        for job in first {
            assert_eq!((job.work)(), Ok(Progress::Done));
        }
        let min_mib = |path| cgroups.tree().memory(path).min_bytes.map(|bytes| bytes >> 20);
        assert_eq!(["steward.a", "steward.b"].map(min_mib), [Some(9), Some(12)]);
        let later = want(5, 20);
        assert!(about(&later)[0].contains("steward.b"), "{:?}", about(&later));
    }
}
