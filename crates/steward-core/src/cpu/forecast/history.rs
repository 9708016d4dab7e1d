//! What the kernel counted lately, and what each task did of it within the last second.
//!
//! Most tasks of a machine sleep. So every observation is kept as a list of the counters of *lively* tasks only, those
//! that did something in the two seconds before; what a task had counted when it rested is kept with the task. Lists of
//! all tasks, of every ten seconds for a hundred seconds, are kept beside them for tasks that waited nearly all of the
//! last second (CPU Futures, section 4.2).
//!
//! A task's counters mean something from its *origin* on: its birth when that was seen, else the first observation of
//! it, or the one at which its counters went back.

use std::collections::{BTreeMap, VecDeque};

use super::terms::{DomainCounters, TaskSample};

/// The figures are about so much time.
const WINDOW_NS: u64 = 1_000_000_000;
/// An observation may be so much younger than the window and still begin it.
const WINDOW_SLACK_NS: u64 = 50_000_000;
/// Observations closer together than this are kept as one.
const SPACING_MIN_NS: u64 = 50_000_000;
/// After a longer gap than this between two observations all begins anew: the clock jumped, or nobody looked.
pub const GAP_MAX_NS: u64 = 10_000_000_000;
/// Time between two lists of the long history, and how far it goes back.
const LONG_SPACING_NS: u64 = 10_000_000_000;
const LONG_WINDOW_NS: u64 = 100_000_000_000;
/// A task that waited for a larger part of the window than this told too little about itself in it (CPU Futures,
/// section 4.2: 900 ms).
const WAIT_MAX: f64 = 0.9;
/// What a task did in a life shorter than this is taken as spread over so much.
pub(super) const LIFE_MIN_NS: u64 = 100_000_000;
/// A task that did nothing for so long rests: it has surely done nothing within the window.
const LIVELY_NS: u64 = 2 * WINDOW_NS;
/// A counter that is read while it changes may seem to go back by so much.
const JITTER_NS: u64 = 10_000_000;

/// One task's counters at some moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    tid: i32,
    run_ns: u64,
    wait_ns: u64,
}

#[derive(Debug, Default)]
struct Snapshot {
    at_ns: u64,
    /// CPU time used by all tasks since the snapshot before.
    busy_ns: u64,
    /// How long CPUs had been idle by then, where that is known.
    idle_ns: Option<u64>,
    /// What the scheduler had counted for domains by then, ordered by cgroup; empty where that is not known.
    domains: Vec<DomainCounters>,
    /// Of those that were lively, ordered by thread id.
    counted: Vec<Counted>,
}

/// All tasks at one moment.
#[derive(Debug)]
struct Census {
    at_ns: u64,
    /// Ordered by thread id.
    counted: Vec<Counted>,
}

/// What is known of a task of the latest observation.
#[derive(Clone, Copy, Debug)]
struct Track {
    now: Counted,
    /// Its weight.
    weight: f64,
    /// From when on, and from which values, its counters mean something.
    origin_ns: u64,
    origin: Counted,
    /// When the task started.
    started_ns: u64,
    /// The last observation at which its counters had changed, or it was runnable.
    moved_ns: u64,
    /// Its counters while it rested last.
    rest: Option<Counted>,
}

impl Track {
    /// A task that is met for the first time. It begins at its birth if that was within the window, else now.
    fn new(at_ns: u64, task: &TaskSample) -> Self {
        let age_ns = at_ns.checked_sub(task.started_ns).unwrap_or(u64::MAX);
        let is_birth = age_ns <= WINDOW_NS && task.run_ns <= age_ns.saturating_add(JITTER_NS);
        let now = counted(task);
        let (origin_ns, origin) = if is_birth {
            (task.started_ns, Counted { tid: task.tid, ..Counted::default() })
        } else {
            (at_ns, now)
        };
        let (weight, started_ns) = (task.weight, task.started_ns);
        Track { now, weight, origin_ns, origin, started_ns, moved_ns: at_ns, rest: None }
    }

    /// Whether the task is still the same, with counters that did not go back.
    fn goes_on(&self, task: &TaskSample) -> bool {
        self.started_ns == task.started_ns
            && task.run_ns.saturating_add(JITTER_NS) >= self.now.run_ns
            && task.wait_ns.saturating_add(JITTER_NS) >= self.now.wait_ns
    }

    /// Whether the task was not there before its origin.
    fn is_birth(&self) -> bool {
        self.origin_ns == self.started_ns
    }

    fn is_lively(&self, at_ns: u64) -> bool {
        at_ns.saturating_sub(self.moved_ns) <= LIVELY_NS
    }
}

fn counted(task: &TaskSample) -> Counted {
    Counted { tid: task.tid, run_ns: task.run_ns, wait_ns: task.wait_ns }
}

/// What a task did within the window. All are fractions of one CPU, 0 to 1, but for the weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// It ran.
    pub(super) actual: f64,
    /// It ran, or waited for a CPU.
    pub(super) eligible: f64,
    /// It would have run on an idle machine.
    pub(super) desired: f64,
    /// Its mean weight.
    pub(super) weight: f64,
    /// The part of the window for which it is known.
    pub(super) known: f64,
}

/// What a domain's own tasks did within the window, as the scheduler counted it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DomainRate {
    pub(super) cgroup_id: u64,
    /// CPUs' worth of time that they used.
    pub(super) used: f64,
    /// How many ran or waited, in the mean.
    pub(super) runnable: f64,
}

/// A task that did something within the window, or is about to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    /// Its place among the tasks.
    pub(super) place: u32,
    /// The index of its domain.
    pub(super) home: u32,
    pub(super) usage: Usage,
}

/// The counters of the last second, and coarser ones of the last hundred.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Oldest first. The first begins the window.
    recent: VecDeque<Snapshot>,
    /// Oldest first, ten seconds apart.
    long: VecDeque<Census>,
    /// The tasks of the latest observation, in its order.
    tracks: Vec<Track>,
    /// Places of those that are lively, ascending.
    lively: Vec<u32>,
    /// The weight that a task had until a moment of the window, by its thread id and that moment. Hardly anything is
    /// ever in here.
    reweighted: BTreeMap<(i32, u64), f64>,
}

impl History {
    /// When the latest observation was.
    pub(super) fn at_ns(&self) -> Option<u64> {
        self.recent.back().map(|latest| latest.at_ns)
    }

    /// Over how long the figures are.
    pub(super) fn window_ns(&self) -> u64 {
        match (self.recent.front(), self.recent.back()) {
            (Some(first), Some(last)) => last.at_ns - first.at_ns,
            _ => 0,
        }
    }

    /// CPUs' worth of time that all tasks used within the window, with those that have ended.
    pub(super) fn busy(&self) -> f64 {
        let window_ns = self.window_ns();
        if window_ns == 0 {
            return 0.0;
        }
        let busy_ns: u64 = self.recent.iter().skip(1).map(|snapshot| snapshot.busy_ns).sum();
        busy_ns as f64 / window_ns as f64
    }

    /// How long CPUs had been idle by the latest observation, in nanoseconds.
    pub(super) fn set_idle(&mut self, idle_ns: u64) {
        if let Some(latest) = self.recent.back_mut() {
            latest.idle_ns = Some(idle_ns);
        }
    }

    /// CPUs' worth of time that was idle within the window; `None` where that is not known.
    pub(super) fn idle(&self) -> Option<f64> {
        let (first, latest) = (self.recent.front()?, self.recent.back()?);
        let idle_ns = latest.idle_ns?.checked_sub(first.idle_ns?)?;
        let window_ns = self.window_ns();
        (window_ns > 0).then(|| idle_ns as f64 / window_ns as f64)
    }

    /// What the scheduler had counted for domains by the latest observation.
    pub(super) fn set_domain_counters(&mut self, mut domains: Vec<DomainCounters>) {
        domains.sort_unstable_by_key(|domain| domain.cgroup_id);
        if let Some(latest) = self.recent.back_mut() {
            latest.domains = domains;
        }
    }

    /// What domains' own tasks did within the window, where that is known: a domain that was not there when it began
    /// had used nothing then, and one whose counters went back is left out.
    pub(super) fn domain_rates(&self) -> Vec<DomainRate> {
        let (Some(first), Some(latest)) = (self.recent.front(), self.recent.back()) else {
            return Vec::new();
        };
        if first.domains.is_empty() || first.at_ns == latest.at_ns {
            return Vec::new();
        }
        let window_ns = self.window_ns() as f64;
        let rate = |now: &DomainCounters| {
            let before = first.domains.binary_search_by_key(&now.cgroup_id, |domain| domain.cgroup_id);
            let (used_ns, runnable_ns) = before.map_or((0, 0), |place| {
                let before = &first.domains[place];
                (before.used_ns, before.runnable_ns)
            });
            Some(DomainRate {
                cgroup_id: now.cgroup_id,
                used: now.used_ns.checked_sub(used_ns)? as f64 / window_ns,
                runnable: now.runnable_ns.checked_sub(runnable_ns)? as f64 / window_ns,
            })
        };
        latest.domains.iter().filter_map(rate).collect()
    }

    /// Whether an observation at that time goes on where the latest was.
    fn goes_on(&self, at_ns: u64) -> bool {
        self.at_ns().is_some_and(|last_ns| at_ns >= last_ns && at_ns - last_ns <= GAP_MAX_NS)
    }

    /// Takes an observation: all tasks, ordered by thread id.
    pub(super) fn observe(&mut self, at_ns: u64, tasks: &[TaskSample]) {
        if !self.goes_on(at_ns) {
            *self = History::default();
        }
        let before = std::mem::replace(&mut self.tracks, Vec::with_capacity(tasks.len()));
        let mut index = 0;
        let mut busy_ns = 0;
        for task in tasks {
            while before.get(index).is_some_and(|old| old.now.tid < task.tid) {
                index += 1;
            }
            let old = before.get(index).filter(|old| old.now.tid == task.tid);
            let (track, used_ns) = self.follow(old.copied(), task, at_ns);
            self.tracks.push(track);
            busy_ns += used_ns;
        }
        self.lively = (0..tasks.len() as u32).collect();
        self.push(at_ns, busy_ns);
    }

    /// Takes an observation of which is known that the tasks are those of the one before, in the same order, and that
    /// only the counters of those at `places` have changed. False, with nothing done, where none can go before this
    /// one.
    pub(super) fn advance(&mut self, at_ns: u64, tasks: &[TaskSample], places: &[u32]) -> bool {
        if !self.goes_on(at_ns) || self.tracks.len() != tasks.len() {
            return false;
        }
        let mut busy_ns = 0;
        for place in places.iter().map(|place| *place as usize) {
            let (track, used_ns) = self.follow(Some(self.tracks[place]), &tasks[place], at_ns);
            self.tracks[place] = track;
            busy_ns += used_ns;
        }
        self.lively.extend_from_slice(places);
        self.lively.sort_unstable();
        self.lively.dedup();
        self.push(at_ns, busy_ns);
        true
    }

    /// Follows a task from the observation before, where it was met then, to this one. Returns what it used in between,
    /// too.
    fn follow(&mut self, before: Option<Track>, task: &TaskSample, at_ns: u64) -> (Track, u64) {
        let Some(old) = before.filter(|old| old.goes_on(task)) else {
            let new = Track::new(at_ns, task);
            return (new, task.run_ns - new.origin.run_ns);
        };
        if old.weight.to_bits() != task.weight.to_bits() {
            self.reweighted.insert((task.tid, at_ns), old.weight);
        }
        let now = counted(task);
        let has_moved = task.runnable || (old.now.run_ns, old.now.wait_ns) != (now.run_ns, now.wait_ns);
        let rest = if has_moved && !old.is_lively(at_ns) { Some(old.now) } else { old.rest };
        let moved_ns = if has_moved { at_ns } else { old.moved_ns };
        (Track { now, weight: task.weight, moved_ns, rest, ..old }, now.run_ns.saturating_sub(old.now.run_ns))
    }

    /// Ends an observation, when all tasks were followed and `lively` has at least those that are.
    fn push(&mut self, at_ns: u64, busy_ns: u64) {
        let mut counted = self.make_room(at_ns);
        let tracks = &self.tracks;
        self.lively.retain(|place| tracks[*place as usize].is_lively(at_ns));
        counted.clear();
        counted.extend(self.lively.iter().map(|place| tracks[*place as usize].now));
        let busy_ns = busy_ns + self.merge_close(at_ns);
        self.recent.push_back(Snapshot { at_ns, busy_ns, idle_ns: None, domains: Vec::new(), counted });
        self.reweighted.retain(|(_, until_ns), _| at_ns - until_ns <= LIVELY_NS);
        self.keep_long(at_ns);
    }

    /// Drops what the window no longer needs; returns a list to be used again.
    fn make_room(&mut self, at_ns: u64) -> Vec<Counted> {
        let mut spare = Vec::new();
        let begins = |at: u64| at_ns - at >= WINDOW_NS - WINDOW_SLACK_NS;
        while self.recent.get(1).is_some_and(|second| begins(second.at_ns)) {
            if let Some(dropped) = self.recent.pop_front() {
                spare = dropped.counted;
            }
        }
        spare
    }

    /// Drops the latest observation if this one comes so soon that it can stand for both. Returns what was used in it.
    fn merge_close(&mut self, at_ns: u64) -> u64 {
        let last = self.recent.len().wrapping_sub(1);
        let before_last = self.recent.get(last.wrapping_sub(1));
        let is_last = self.at_ns() == Some(at_ns);
        if is_last || before_last.is_some_and(|before| at_ns - before.at_ns < SPACING_MIN_NS) {
            return self.recent.pop_back().map_or(0, |dropped| dropped.busy_ns);
        }
        0
    }

    fn keep_long(&mut self, at_ns: u64) {
        if self.long.back().is_some_and(|last| at_ns - last.at_ns < LONG_SPACING_NS) {
            return;
        }
        while self.long.get(1).is_some_and(|second| at_ns - second.at_ns >= LONG_WINDOW_NS) {
            self.long.pop_front();
        }
        let counted = self.tracks.iter().map(|track| track.now).collect();
        self.long.push_back(Census { at_ns, counted });
    }

    /// What the tasks of the latest observation did within the window, for those that did anything or are runnable now.
    /// `home` says which domain is a cgroup's.
    pub(super) fn active(&self, tasks: &[TaskSample], home: impl Fn(u64) -> u32) -> Vec<Active> {
        let (Some(first), Some(latest)) = (self.recent.front(), self.recent.back()) else {
            return Vec::new();
        };
        // What did not move since then did nothing within the window; of a life that fits into the window all counts.
        let since_ns = (first.at_ns + 1).min(latest.at_ns.saturating_sub(WINDOW_NS));
        let mut active = Vec::with_capacity(self.lively.len());
        let mut index = 0;
        for place in self.lively.iter().map(|place| *place as usize) {
            let (track, task) = (&self.tracks[place], &tasks[place]);
            if track.moved_ns < since_ns {
                continue;
            }
            while first.counted.get(index).is_some_and(|old| old.tid < task.tid) {
                index += 1;
            }
            let is_older = track.origin_ns <= first.at_ns && latest.at_ns - track.origin_ns > WINDOW_NS;
            // One that was not lively then rested.
            let old = first.counted.get(index).filter(|old| old.tid == task.tid).or(track.rest.as_ref());
            let span = match old.filter(|_| is_older) {
                Some(old) => Span::between(latest.at_ns - first.at_ns, &track.now, old),
                None => Span::since_origin(latest.at_ns, track),
            };
            let usage = Usage { weight: self.weight(&span, task), ..self.usage(&span, track) };
            active.push(Active { place: place as u32, home: home(task.cgroup_id), usage });
        }
        active
    }

    /// The task's mean weight over a span that ends with the latest observation.
    fn weight(&self, span: &Span, task: &TaskSample) -> f64 {
        if self.reweighted.is_empty() || span.elapsed_ns == 0 {
            return task.weight;
        }
        let at_ns = self.at_ns().unwrap_or_default();
        let mut from_ns = at_ns.saturating_sub(span.elapsed_ns);
        let mut sum = 0.0;
        for ((_, until_ns), before) in self.reweighted.range((task.tid, from_ns)..=(task.tid, at_ns)) {
            sum += before * (until_ns - from_ns) as f64;
            from_ns = *until_ns;
        }
        ((sum + task.weight * (at_ns - from_ns) as f64) / span.elapsed_ns as f64).min(f64::MAX)
    }

    /// All but the weight.
    fn usage(&self, span: &Span, track: &Track) -> Usage {
        if span.elapsed_ns == 0 {
            return Usage::default();
        }
        let elapsed = span.elapsed_ns as f64;
        let actual = (span.run_ns as f64 / elapsed).min(1.0);
        let waited = (span.wait_ns as f64 / elapsed).min(1.0 - actual);
        let desired = if waited > WAIT_MAX { self.long_span(track).desired() } else { span.desired() };
        let known = (elapsed / self.window_ns().max(1) as f64).min(1.0);
        Usage { actual, eligible: actual + waited, desired, known, ..Usage::default() }
    }

    /// The longest span known of a task, up to a hundred seconds.
    fn long_span(&self, track: &Track) -> Span {
        let at_ns = self.at_ns().unwrap_or(track.origin_ns);
        let is_of_it = |first: &&Census| first.at_ns >= track.origin_ns && first.at_ns < at_ns;
        let first = self.long.front().filter(is_of_it);
        let old = first.and_then(|first| {
            let place = first.counted.binary_search_by_key(&track.now.tid, |counted| counted.tid).ok()?;
            Some(Span::between(at_ns - first.at_ns, &track.now, &first.counted[place]))
        });
        old.unwrap_or_else(|| Span::since_origin(at_ns, track))
    }
}

/// What a task did between two moments.
#[derive(Clone, Copy, Debug)]
struct Span {
    elapsed_ns: u64,
    run_ns: u64,
    wait_ns: u64,
}

impl Span {
    fn between(elapsed_ns: u64, now: &Counted, old: &Counted) -> Self {
        Span {
            elapsed_ns,
            run_ns: now.run_ns.saturating_sub(old.run_ns),
            wait_ns: now.wait_ns.saturating_sub(old.wait_ns),
        }
    }

    fn since_origin(at_ns: u64, track: &Track) -> Self {
        let passed_ns = at_ns - track.origin_ns;
        Span {
            elapsed_ns: if track.is_birth() { passed_ns.max(LIFE_MIN_NS) } else { passed_ns },
            run_ns: track.now.run_ns.saturating_sub(track.origin.run_ns),
            wait_ns: track.now.wait_ns.saturating_sub(track.origin.wait_ns),
        }
    }

    /// The fraction of a CPU that would have been used on an idle machine: `actual * period / (period - wait)` (CPU
    /// Futures, equation 1). One that did nothing but wait might want all of a CPU, and nothing speaks against it.
    fn desired(&self) -> f64 {
        let elapsed = self.elapsed_ns as f64;
        let actual = (self.run_ns as f64 / elapsed).min(1.0);
        let waited = (self.wait_ns as f64 / elapsed).min(1.0 - actual);
        if self.wait_ns >= self.elapsed_ns || waited >= 1.0 - f64::EPSILON {
            return 1.0;
        }
        (actual / (1.0 - waited)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
impl History {
    /// How many observations are kept, of the last second and of the last hundred.
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.recent.len(), self.long.len())
    }
}
