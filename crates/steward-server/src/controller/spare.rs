//! How fast best-effort requests are served, and whether one more can be answered in time at that pace.
//!
//! What is not promised depends on everything else on the machine, so nothing is assumed of it: the pace is the CPU
//! time of the best-effort requests that ended, over the time in which there were any. It starts low. A guess that is
//! too low costs little, for as soon as the first requests end it is replaced by what they show; one that is too high
//! makes every request late that relied on it.
//!
//! A request is *hopeful* when all that is before it, and itself, can be done at that pace within its response time. It
//! may cost far more than the mean, and a dear one that is late was in the way of many cheap ones. So it is taken to
//! cost what is enough for 95 % of requests, but for no more than all that is before it, and for no less than the mean:
//! a line is kept short where requests differ, and is as long as can be where they do not.
//!
//! The pace is that of the past: when several accepted requests in a row turn out to be dear, they need what is not
//! promised themselves, and both they and those that relied on it are late. That is seen by how many are in hand. So a
//! request is hopeful only if all that is in hand, the accepted ones too, would be done in time at the pace of all
//! requests were it as dear as the dearest, or [`DEARER`] times as dear as the mean. Where more come than can be served
//! that costs nothing: the CPU never goes idle for it.

//!
//! Where requests wait for something else than a CPU, all of that says little: how many are in hand is no matter of how
//! dear they are. Then the pace alone counts.

use std::collections::BTreeMap;

use super::history::Costs;
use super::pace::Pace;

/// The pace before anything was measured: this part of each CPU.
const FIRST_PACE: f64 = 0.05;
/// The same for that of all requests. Much is promised to the accepted ones.
const FIRST_PACE_OF_ALL: f64 = 0.5;
/// The pace is that of the last requests, about so many: of those that were not accepted, and of all.
const REQUESTS: f64 = 20.0;
const REQUESTS_OF_ALL: f64 = 40.0;
/// All that is in hand may be so many times as dear as the mean, where there are such requests. By simulation (example
/// `loads`): with less more are late, and with more too few are let in where the load is about what can be served.
const DEARER: f64 = 4.0;
/// The part of a response time that is relied on: at first, at least, and at most; the rest is for what the pace and
/// the mean cost do not say.
const TRUST_FIRST: f64 = 0.8;
const TRUST_MIN: f64 = 0.3;
const TRUST_MAX: f64 = 0.9;
/// How much that grows with a hopeful request that was answered in time, and the part that is left of it after one that
/// was not: one in six or so may be late, such as those that cost far more than the mean.
const TRUST_GAINED: f64 = 0.01;
const TRUST_LEFT: f64 = 0.94;
/// Of the last requests that were watched for whether they sleep, about so many count.
const WATCHED: f64 = 10.0;
/// Requests that sleep for no more than this part of the CPU time that they use only compute.
const SLEPT_MAX: f64 = 0.25;

/// What is known of the time that accepted requests leave.
#[derive(Clone, Debug)]
pub(super) struct Spare {
    /// How fast those that were not accepted are served, and how fast all.
    rest: Pace,
    all: Pace,
    /// Of those that were not accepted, and of all: what they waited for.
    rest_watched: Watched,
    all_watched: Watched,
    /// What is to be done before one that comes now: the expected cost of each hopeful request, and of each other one
    /// that is at work, in nanoseconds.
    ahead: Costing,
    /// The same of the accepted requests.
    accepted: Costing,
    trust: f64,
}

/// How long requests waited for something else than a CPU, and what they have cost, in nanoseconds; what is long ago
/// counts less.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    slept_ns: f64,
    cpu_ns: f64,
}

impl Watched {
    fn note(&mut self, slept_ns: u64, cpu_ns: u64) {
        let kept = 1.0 - 1.0 / WATCHED;
        self.slept_ns = self.slept_ns * kept + slept_ns as f64;
        self.cpu_ns = self.cpu_ns * kept + cpu_ns as f64;
    }

    /// Whether they compute, rather than wait.
    fn compute(&self) -> bool {
        self.slept_ns <= self.cpu_ns * SLEPT_MAX
    }
}

/// Requests, with what each is expected to cost, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Costing {
    each_ns: BTreeMap<u64, u64>,
    sum_ns: u64,
}

impl Costing {
    fn insert(&mut self, number: u64, cost_ns: u64) {
        self.sum_ns += cost_ns;
        self.sum_ns -= self.each_ns.insert(number, cost_ns).unwrap_or(0);
    }

    fn remove(&mut self, number: u64) {
        self.sum_ns -= self.each_ns.remove(&number).unwrap_or(0);
    }
}

impl Spare {
    pub(super) fn new(cpus: u32) -> Self {
        let cpus = f64::from(cpus);
        Spare {
            rest: Pace::new(FIRST_PACE * cpus, cpus, REQUESTS),
            all: Pace::new(FIRST_PACE_OF_ALL * cpus, cpus, REQUESTS_OF_ALL),
            rest_watched: Watched::default(),
            all_watched: Watched::default(),
            ahead: Costing::default(),
            accepted: Costing::default(),
            trust: TRUST_FIRST,
        }
    }

    /// The pace as of the last best-effort request that ended, in CPUs; `None` before the first.
    pub(super) fn last_pace(&self) -> Option<f64> {
        self.rest.last()
    }

    /// Whether a request of such costs can be answered by `deadline_ns`, behind all that is there.
    pub(super) fn is_hopeful(&self, costs: Costs, now_ns: u64, deadline_ns: u64) -> bool {
        let left_ns = deadline_ns.saturating_sub(now_ns) as f64 * self.trust;
        left_ns >= self.needed_ns(costs, now_ns)
    }

    /// Whether a request that costs so much could be answered in a response time if nobody were before it.
    pub(super) fn is_short(&self, cost_ns: u64, response_time_ns: u64, now_ns: u64) -> bool {
        response_time_ns as f64 * self.trust >= cost_ns as f64 / self.rest.cpus(now_ns).min(1.0)
    }

    /// The deadline of the most urgent request of such costs that is hopeful now.
    pub(super) fn earliest_ns(&self, costs: Costs, now_ns: u64) -> u64 {
        now_ns.saturating_add((self.needed_ns(costs, now_ns) / self.trust) as u64)
    }

    /// How much of its response time a request has to have for it to be hopeful, in nanoseconds.
    fn needed_ns(&self, costs: Costs, now_ns: u64) -> f64 {
        let behind_ns = answered_ns(costs, self.ahead.sum_ns as f64, self.rest.cpus(now_ns));
        if !self.all_watched.compute() {
            return behind_ns;
        }
        // Of those that are at work one is likely to be done soon: where few fit into a response time, it counts much.
        let in_hand_ns = (self.ahead.sum_ns + self.accepted.sum_ns).saturating_sub(costs.average_ns);
        let dearer = (costs.largest_ns as f64 / costs.average_ns as f64).clamp(1.0, DEARER);
        behind_ns.max(answered_ns(costs, in_hand_ns as f64 * dearer, self.all.cpus(now_ns)))
    }

    /// Whether no best-effort request is there.
    pub(super) fn is_idle(&self) -> bool {
        self.rest.in_hand() == 0
    }

    /// Whether one may be tried where little is known: none is there, and not many were late lately.
    pub(super) fn may_be_tried(&self) -> bool {
        self.is_idle() && self.trust >= TRUST_FIRST
    }

    /// Whether best-effort requests compute, rather than wait: then more of them at once are none the sooner.
    pub(super) fn computes(&self) -> bool {
        self.rest.last().is_some() && self.rest_watched.compute()
    }

    /// One that is about to leave, accepted or not, and has cost so much, has waited for something else than a CPU for
    /// so long.
    pub(super) fn slept(&mut self, is_accepted: bool, slept_ns: u64, cpu_ns: u64) {
        if !is_accepted {
            self.rest_watched.note(slept_ns, cpu_ns);
        }
        self.all_watched.note(slept_ns, cpu_ns);
    }

    /// An accepted request is there, which is expected to cost so much, in nanoseconds.
    pub(super) fn enter_accepted(&mut self, number: u64, cost_ns: u64, now_ns: u64) {
        self.all.enter(now_ns);
        self.accepted.insert(number, cost_ns);
    }

    /// It is gone, with what it used, if it began.
    pub(super) fn leave_accepted(&mut self, number: u64, cpu_ns: Option<u64>, now_ns: u64) {
        self.all.leave(cpu_ns, now_ns);
        self.accepted.remove(number);
    }

    /// A best-effort request is there.
    pub(super) fn enter(&mut self, now_ns: u64) {
        self.all.enter(now_ns);
        self.rest.enter(now_ns);
    }

    /// That one is to be done before those that come later.
    pub(super) fn goes_ahead(&mut self, number: u64, cost_ns: u64) {
        self.ahead.insert(number, cost_ns);
    }

    /// It is not.
    pub(super) fn steps_back(&mut self, number: u64) {
        self.ahead.remove(number);
    }

    /// A best-effort request is gone, with what it used, if it began; `is_met` says whether it was answered in time, if
    /// it was hopeful and was answered.
    pub(super) fn leave(&mut self, number: u64, cpu_ns: Option<u64>, is_met: Option<bool>, now_ns: u64) {
        self.steps_back(number);
        self.all.leave(cpu_ns, now_ns);
        self.rest.leave(cpu_ns, now_ns);
        match is_met {
            Some(true) => self.trust = (self.trust + TRUST_GAINED).min(TRUST_MAX),
            Some(false) => self.trust = (self.trust * TRUST_LEFT).max(TRUST_MIN),
            // Others are tried some day, though none is hopeful.
            None => self.trust = (self.trust + TRUST_GAINED).min(TRUST_FIRST.max(self.trust)),
        }
    }
}

/// How long it takes until a request is answered that may cost as much as 95 % of them do, at a pace in CPUs. Where
/// much is before it, that is what it has to reckon with: somebody else can have the time. Where little is, it takes
/// what there is.
fn answered_ns(costs: Costs, before_ns: f64, pace: f64) -> f64 {
    let before_ns = before_ns / pace;
    // One request is served on one CPU.
    let own_ns = |cost_ns: u64| cost_ns as f64 / pace.min(1.0);
    let (average_ns, largest_ns) = (own_ns(costs.average_ns), own_ns(costs.largest_ns));
    before_ns + before_ns.min(largest_ns).max(average_ns)
}
