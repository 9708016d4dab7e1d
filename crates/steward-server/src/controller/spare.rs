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

use std::collections::BTreeMap;

use super::history::Costs;

/// The pace before anything was measured: this part of each CPU.
const FIRST_PACE: f64 = 0.05;
/// What the first pace counts for, in nanoseconds of measured time.
const FIRST_BUSY_NS: f64 = 20e6;
/// The pace is that of the last requests, about so many.
const REQUESTS: f64 = 20.0;
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
    cpus: f64,
    /// CPU time of those that ended, and the time that it took, in nanoseconds; what is long ago counts less.
    work_ns: f64,
    busy_ns: f64,
    /// How long those that were watched waited for something else than a CPU, and what they have cost, in nanoseconds,
    /// in the same way.
    slept_ns: f64,
    watched_ns: f64,
    /// When `busy_ns` was added to last; meaningful while there are any.
    since_ns: u64,
    /// How many best-effort requests there are.
    in_hand: usize,
    /// What is to be done before one that comes now: the expected cost of each hopeful request, and of each other one
    /// that is at work, in nanoseconds.
    ahead: BTreeMap<u64, u64>,
    ahead_ns: u64,
    trust: f64,
    /// Whether one has ended.
    is_measured: bool,
}

impl Spare {
    pub(super) fn new(cpus: u32) -> Self {
        let cpus = f64::from(cpus);
        Spare {
            cpus,
            work_ns: FIRST_PACE * cpus * FIRST_BUSY_NS,
            busy_ns: FIRST_BUSY_NS,
            slept_ns: 0.0,
            watched_ns: 0.0,
            since_ns: 0,
            in_hand: 0,
            ahead: BTreeMap::new(),
            ahead_ns: 0,
            trust: TRUST_FIRST,
            is_measured: false,
        }
    }

    /// CPU time in each unit of time, in CPUs.
    pub(super) fn pace(&self, now_ns: u64) -> f64 {
        // That nothing has ended for longer than usual says something, too.
        let is_silent = self.is_measured && self.in_hand > 0;
        let silent_ns = if is_silent { now_ns.saturating_sub(self.since_ns) as f64 } else { 0.0 };
        let overtime_ns = (silent_ns - self.busy_ns / REQUESTS * 2.0).max(0.0);
        (self.work_ns / (self.busy_ns + overtime_ns)).min(self.cpus)
    }

    /// The pace as of the last request that ended; `None` before the first.
    pub(super) fn last_pace(&self) -> Option<f64> {
        self.is_measured.then(|| (self.work_ns / self.busy_ns).min(self.cpus))
    }

    /// Whether a request of such costs can be answered by `deadline_ns`, behind all that is there.
    pub(super) fn is_hopeful(&self, costs: Costs, now_ns: u64, deadline_ns: u64) -> bool {
        let left_ns = deadline_ns.saturating_sub(now_ns) as f64 * self.trust;
        left_ns >= self.needed_ns(costs, now_ns)
    }

    /// Whether a request that costs so much could be answered in a response time if nobody were before it.
    pub(super) fn is_short(&self, cost_ns: u64, response_time_ns: u64, now_ns: u64) -> bool {
        response_time_ns as f64 * self.trust >= cost_ns as f64 / self.pace(now_ns).min(1.0)
    }

    /// The deadline of the most urgent request of such costs that is hopeful now.
    pub(super) fn earliest_ns(&self, costs: Costs, now_ns: u64) -> u64 {
        now_ns.saturating_add((self.needed_ns(costs, now_ns) / self.trust) as u64)
    }

    /// How long it takes until a request is answered that may cost as much as 95 % of them do. Where many are before
    /// it, that is what it has to reckon with: somebody else can have the time. Where few are, it takes what there is.
    fn needed_ns(&self, costs: Costs, now_ns: u64) -> f64 {
        let pace = self.pace(now_ns);
        let ahead_ns = self.ahead_ns as f64 / pace;
        // One request is served on one CPU.
        let own_ns = |cost_ns: u64| cost_ns as f64 / pace.min(1.0);
        let (average_ns, largest_ns) = (own_ns(costs.average_ns), own_ns(costs.largest_ns));
        ahead_ns + ahead_ns.min(largest_ns).max(average_ns)
    }

    /// Whether no best-effort request is there.
    pub(super) fn is_idle(&self) -> bool {
        self.in_hand == 0
    }

    /// Whether one may be tried where little is known: none is there, and not many were late lately.
    pub(super) fn may_be_tried(&self) -> bool {
        self.is_idle() && self.trust >= TRUST_FIRST
    }

    /// Whether best-effort requests compute, rather than wait: then more of them at once are none the sooner.
    pub(super) fn computes(&self) -> bool {
        self.is_measured && self.slept_ns <= self.watched_ns * SLEPT_MAX
    }

    /// One that is about to leave, and has cost so much, has waited for something else than a CPU for so long.
    pub(super) fn slept(&mut self, slept_ns: u64, cpu_ns: u64) {
        let kept = 1.0 - 1.0 / WATCHED;
        self.slept_ns = self.slept_ns * kept + slept_ns as f64;
        self.watched_ns = self.watched_ns * kept + cpu_ns as f64;
    }

    /// A best-effort request is there.
    pub(super) fn enter(&mut self, now_ns: u64) {
        if self.in_hand == 0 {
            self.since_ns = now_ns;
        }
        self.in_hand += 1;
    }

    /// That one is to be done before those that come later.
    pub(super) fn goes_ahead(&mut self, number: u64, cost_ns: u64) {
        self.ahead_ns += cost_ns;
        self.ahead_ns -= self.ahead.insert(number, cost_ns).unwrap_or(0);
    }

    /// It is not.
    pub(super) fn steps_back(&mut self, number: u64) {
        self.ahead_ns -= self.ahead.remove(&number).unwrap_or(0);
    }

    /// A best-effort request is gone, with what it used, if it began; `is_met` says whether it was answered in time, if
    /// it was hopeful and was answered.
    pub(super) fn leave(&mut self, number: u64, cpu_ns: Option<u64>, is_met: Option<bool>, now_ns: u64) {
        self.steps_back(number);
        self.in_hand = self.in_hand.saturating_sub(1);
        if let Some(cpu_ns) = cpu_ns {
            let busy_ns = now_ns.saturating_sub(self.since_ns) as f64;
            self.since_ns = now_ns.max(self.since_ns);
            self.is_measured = true;
            let kept = 1.0 - 1.0 / REQUESTS;
            self.work_ns = self.work_ns * kept + (cpu_ns as f64).max(1.0);
            self.busy_ns = self.busy_ns * kept + busy_ns.max(1.0);
        }
        match is_met {
            Some(true) => self.trust = (self.trust + TRUST_GAINED).min(TRUST_MAX),
            Some(false) => self.trust = (self.trust * TRUST_LEFT).max(TRUST_MIN),
            // Others are tried some day, though none is hopeful.
            None => self.trust = (self.trust + TRUST_GAINED).min(TRUST_FIRST.max(self.trust)),
        }
    }
}
