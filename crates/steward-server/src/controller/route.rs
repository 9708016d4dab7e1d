//! One route: its goal, what its requests cost, and who is let in.

use std::collections::BTreeMap;

use super::history::{Costs, History, Watched};
use super::specifications::Specifications;
use super::ticket::Ticket;
use crate::goal::{Goal, Otherwise, nanoseconds};
use crate::snapshot::{Counts, RouteSnapshot};

/// Before anything is known of the costs, so many requests are accepted in a response time, for each CPU.
const FIRST: usize = 4;
/// No route has more specifications: by then a request takes so little that it is served before another one comes.
const SPECIFICATIONS_MAX: usize = 10_000;
/// A reservation is so much larger than a request: the worker that takes the request and gives back its specification
/// needs some CPU time, too.
const SERVING: f64 = 1.05;
/// An adjustment after so many requests, and after this many before there was one. Fewer than that are never enough.
const ADJUST_AFTER: usize = 100;
const ADJUST_FIRST_AFTER: usize = 10;
/// An adjustment after so long, in nanoseconds, or after the response time, if that is longer.
const ADJUST_EVERY_NS: u64 = 1_000_000_000;

/// Requests that wait for no more than this part of the CPU time that they use only compute.
const SLEPT_MAX: f64 = 0.25;
/// Of the last requests that were watched, about so many count.
const WATCHED: f64 = 20.0;
/// After so many requests it is decided whether there are dear ones: those that cost so many times the mean.
const DECIDED_AFTER: usize = 40;
const DEAR: f64 = 2.0;
/// Where some are dear and all only compute, so many workers have a reservation, for each CPU. The fewer, the more of
/// what is reserved is there for the one that turns out to be dear; one alone would leave admission a part that fits
/// on no CPU where anybody else has a reservation, and the CPU to nobody while its request waits for something.
const COMPUTING_WORKERS: usize = 2;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was answered.
    Answered,
    /// The code that served it panicked.
    Panicked,
    /// Nobody waits for the answer any more.
    Abandoned,
}

/// What [`Route::arrive`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Accepted,
    BestEffort { is_hopeful: bool },
    Waits,
    Refused { retry_after_ns: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Route {
    name: String,
    goal: Goal,
    cpus: u32,
    /// The part of the machine that is reserved for it; as much as it wants when nothing is.
    granted: f64,
    costs: Option<Costs>,
    history: History,
    specifications: Specifications,
    /// Each request that was let in and has not ended, with when its specification was used; one without is
    /// best-effort.
    running: BTreeMap<u64, Option<u64>>,
    /// What those have cost so far of which that is known, up to the last adjustment and now.
    at_work: BTreeMap<u64, Watched>,
    waiting: u64,
    counts: Counts,
    adjusted_ns: u64,
    /// For how long requests that were watched waited for something else than a CPU, and what those have cost, in
    /// nanoseconds; what is long ago counts less.
    slept_ns: f64,
    watched_ns: f64,
    watched: usize,
    /// The dearest request that was watched, and all of them together, in nanoseconds.
    dearest_ns: u64,
    all_ns: u64,
    /// Whether few workers have large reservations, where that is decided.
    few_workers: Option<bool>,
}

impl Route {
    pub(super) fn new(name: &str, goal: Goal, cpus: u32, now_ns: u64) -> Self {
        let mut route = Route {
            name: name.to_owned(),
            goal,
            cpus,
            granted: f64::INFINITY,
            costs: first_costs(&goal),
            history: History::default(),
            specifications: Specifications::default(),
            running: BTreeMap::new(),
            at_work: BTreeMap::new(),
            waiting: 0,
            counts: Counts::default(),
            adjusted_ns: now_ns,
            slept_ns: 0.0,
            watched_ns: 0.0,
            watched: 0,
            dearest_ns: 0,
            all_ns: 0,
            // Who says what requests cost says that they cost the same.
            few_workers: goal.cost.map(|_| false),
        };
        route.apply(now_ns);
        route
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn goal(&self) -> &Goal {
        &self.goal
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Whether a request that was accepted is in hand.
    pub(super) fn has_accepted(&self) -> bool {
        self.specifications.out() > 0
    }

    /// The user changes the response time or the part of the CPU: the first two triggers.
    pub(super) fn set_goal(&mut self, goal: Goal, now_ns: u64) {
        self.costs = if goal.cost == self.goal.cost { self.costs } else { first_costs(&goal).or(self.costs) };
        self.goal = goal;
        self.adjust(now_ns);
    }

    /// The part of the machine that could be reserved for it.
    pub(super) fn set_granted(&mut self, granted: f64, now_ns: u64) {
        if self.granted != granted {
            self.granted = granted;
            self.apply(now_ns);
        }
    }

    /// `is_hopeful` says whether it can be answered in time though it is not accepted, and `is_tried` whether it
    /// is served all the same.
    pub(super) fn arrive(
        &mut self,
        number: u64,
        now_ns: u64,
        is_tried: bool,
        is_hopeful: impl FnOnce(&Self) -> bool,
    ) -> Admission {
        self.look_at_the_clock(now_ns);
        // Nobody overtakes who waits.
        if self.waiting == 0 && self.accept(number, now_ns) {
            return Admission::Accepted;
        }
        if self.goal.otherwise == Otherwise::Queue {
            self.waiting += 1;
            return Admission::Waits;
        }
        let is_hopeful = is_hopeful(self);
        if self.goal.otherwise == Otherwise::Refuse && !is_hopeful && !is_tried {
            self.counts.refused += 1;
            return Admission::Refused { retry_after_ns: self.retry_after_ns(now_ns) };
        }
        self.counts.best_effort += 1;
        self.running.insert(number, None);
        Admission::BestEffort { is_hopeful }
    }

    /// Whether the one that has waited longest is to be served now.
    pub(super) fn admit_waiting(&mut self, number: u64, now_ns: u64) -> bool {
        let is_accepted = self.waiting > 0 && self.accept(number, now_ns);
        if is_accepted {
            self.waiting -= 1;
        }
        is_accepted
    }

    /// The one that has waited longest is served as best-effort.
    pub(super) fn let_in_late(&mut self, number: u64) {
        self.waiting = self.waiting.saturating_sub(1);
        self.counts.best_effort += 1;
        self.running.insert(number, None);
    }

    /// One that waits does not any more.
    pub(super) fn leave(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
        self.counts.abandoned += 1;
    }

    /// One that was let in cannot be served after all: there is no room where it would have to wait.
    pub(super) fn refuse(&mut self, number: u64, now_ns: u64) -> u64 {
        match self.running.remove(&number) {
            Some(Some(_)) => {
                self.counts.accepted -= 1;
                self.specifications.give_back(None);
            }
            Some(None) => self.counts.best_effort -= 1,
            None => {}
        }
        self.counts.refused += 1;
        self.retry_after_ns(now_ns)
    }

    /// One that would have waited is refused instead.
    pub(super) fn refuse_waiting(&mut self, now_ns: u64) -> u64 {
        self.waiting = self.waiting.saturating_sub(1);
        self.counts.refused += 1;
        self.retry_after_ns(now_ns)
    }

    /// A request ends, having used so much CPU time; `None` if it never began. Whether it was counted on still.
    pub(super) fn finish(&mut self, ticket: &Ticket, end: End, cpu_ns: Option<u64>, now_ns: u64) -> bool {
        let is_in_time = now_ns <= ticket.deadline_ns;
        match (end, ticket.is_accepted) {
            (End::Answered, true) if is_in_time => self.counts.met += 1,
            (End::Answered, true) => self.counts.missed += 1,
            (End::Answered, false) if is_in_time => self.counts.best_effort_met += 1,
            (End::Answered, false) => self.counts.best_effort_missed += 1,
            (End::Panicked, _) => self.counts.panicked += 1,
            (End::Abandoned, _) => self.counts.abandoned += 1,
        }
        let Some(specification) = self.running.remove(&ticket.number) else {
            // It was overdue: what it used was learned then.
            self.at_work.remove(&ticket.number);
            self.counts.overdue = self.counts.overdue.saturating_sub(1);
            return false;
        };
        if let Some(used_ns) = specification {
            // As if it had never been used, if its request did not begin.
            self.specifications.give_back(cpu_ns.map(|_| used_ns));
        }
        self.learn(ticket.number, cpu_ns, now_ns);
        true
    }

    /// A request has not ended long after it should have: it is no longer counted on. What it used so far is learned,
    /// and its specification is free for another one. What was known of it: when its specification was used, if it had
    /// one.
    pub(super) fn take_back(&mut self, number: u64, cpu_ns: u64, now_ns: u64) -> Option<Option<u64>> {
        let specification = self.running.remove(&number)?;
        if let Some(used_ns) = specification {
            self.specifications.give_back(Some(used_ns));
        }
        self.counts.overdue += 1;
        self.learn(number, Some(cpu_ns), now_ns);
        Some(specification)
    }

    /// When something is to be looked at though nothing happens: one that waits can be let in.
    pub(super) fn timeout_ns(&self, now_ns: u64) -> Option<u64> {
        let next_ns = self.specifications.next_ns(now_ns, self.goal.response_time_ns())?;
        (self.waiting > 0).then(|| now_ns.saturating_add(next_ns))
    }

    /// What a reservation for each of `workers` has to be, in nanoseconds of CPU time in every response time: enough
    /// for 95 % of requests, and together no more than the part `all` of the machine's CPU time. Workers that are fewer
    /// than the specifications serve several requests in that time.
    pub(super) fn budget_ns(&self, workers: usize, all: f64) -> u64 {
        let all_ns = self.goal.response_time_ns() as f64 * f64::from(self.cpus) * all;
        let workers = workers.max(1) as f64;
        let each_ns = self.costs.map_or(f64::INFINITY, |costs| costs.largest_ns.max(costs.average_ns) as f64);
        let wanted_ns = each_ns * SERVING * (self.wished() as f64 / workers).max(1.0);
        wanted_ns.min(all_ns / workers).max(1.0) as u64
    }

    pub(super) fn costs(&self) -> Option<Costs> {
        self.costs
    }

    /// How long so many accepted requests take at least with what is promised to the route, in nanoseconds; `None` if
    /// nothing is known of what they cost.
    pub(super) fn takes_ns(&self, count: usize) -> Option<u64> {
        let cpus = self.cpu() * f64::from(self.cpus);
        Some((count as f64 * self.costs?.average_ns as f64 / cpus) as u64)
    }

    /// A request that has cost so much waited for something else than a CPU for so long, in nanoseconds.
    pub(super) fn slept(&mut self, slept_ns: u64, cpu_ns: u64) {
        let kept = 1.0 - 1.0 / WATCHED;
        self.watched = self.watched.saturating_add(1);
        self.slept_ns = self.slept_ns * kept + slept_ns as f64;
        self.watched_ns = self.watched_ns * kept + cpu_ns as f64;
        self.dearest_ns = self.dearest_ns.max(cpu_ns);
        self.all_ns = self.all_ns.saturating_add(cpu_ns);
        let waits = self.slept_ns >= self.watched_ns * SLEPT_MAX;
        if self.watched >= ADJUST_FIRST_AFTER && waits {
            self.few_workers = Some(false);
        } else if self.watched >= DECIDED_AFTER && self.few_workers.is_none() {
            let mean_ns = self.all_ns as f64 / self.watched as f64;
            self.few_workers = Some(self.dearest_ns as f64 > mean_ns * DEAR);
        }
    }

    /// How many workers are to have a reservation, were all granted that the goal says.
    ///
    /// The dissertation has one for each specification (Yang 2009, 12.2.1), each with enough for the largest requests.
    /// Where these cost far more than the mean, that is more than there is; and were it cut into as many parts, a dear
    /// request would use up its own, while cheap ones leave most of theirs. So where some are dear, and all only
    /// compute, few workers have large parts, and serve one request after another. Where all cost the same, each has
    /// its own: nobody's is then used up half-way by another. Requests that wait hold their worker meanwhile: those
    /// have one each, too. It is decided once that many have small parts: under load admission would not let few have
    /// large ones while those are still counted.
    pub(super) fn workers(&self) -> usize {
        let wished = self.wished();
        if self.few_workers.unwrap_or(true) {
            wished.min(COMPUTING_WORKERS.saturating_mul(self.cpus as usize))
        } else {
            wished
        }
    }

    /// How many specifications there would be if all that the goal says could be reserved.
    pub(super) fn wished(&self) -> usize {
        self.number(self.goal.cpu)
    }

    pub(super) fn specifications(&self) -> usize {
        self.specifications.count()
    }

    pub(super) fn snapshot(&self) -> RouteSnapshot {
        RouteSnapshot {
            route: self.name.clone(),
            response_time_ms: self.goal.response_time.as_secs_f64() * 1e3,
            cpu: self.goal.cpu,
            cpu_in_force: self.cpu(),
            specifications: self.specifications.count() as u64,
            cost_average_ms: self.costs.map(|costs| costs.average_ns as f64 / 1e6),
            cost_largest_ms: self.costs.map(|costs| costs.largest_ns as f64 / 1e6),
            in_hand: self.running.len() as u64,
            waiting: self.waiting,
            counts: self.counts,
            note: self.note(),
        }
    }

    fn note(&self) -> Option<String> {
        let costs = self.costs.filter(|_| self.is_too_dear())?;
        Some(format!(
            "a request costs {:.1} ms of CPU time, which is all that {:.3} of the CPU gives in {:?}, or more: one at a \
             time is accepted, to learn whether that changes",
            costs.average_ns as f64 / 1e6,
            self.cpu(),
            self.goal.response_time
        ))
    }

    /// Whether a request costs all that it may, or more.
    pub(super) fn is_too_dear(&self) -> bool {
        self.costs.is_some_and(|costs| self.affordable(costs.average_ns, self.cpu()) < 1.0)
    }

    /// The part of the machine that counts.
    fn cpu(&self) -> f64 {
        self.goal.cpu.min(self.granted)
    }

    /// The largest number N with N x Cavg < RT x P (Yang 2009, 12.1), where P is a part of all CPUs.
    fn affordable(&self, average_ns: u64, cpu: f64) -> f64 {
        let time_ns = self.goal.response_time_ns() as f64 * f64::from(self.cpus) * cpu;
        ((time_ns / average_ns as f64).ceil() - 1.0).max(0.0)
    }

    fn retry_after_ns(&self, now_ns: u64) -> u64 {
        let response_time_ns = self.goal.response_time_ns();
        self.specifications.next_ns(now_ns, response_time_ns).unwrap_or(response_time_ns).max(1)
    }

    fn accept(&mut self, number: u64, now_ns: u64) -> bool {
        if !self.specifications.take(now_ns, self.goal.response_time_ns()) {
            return false;
        }
        self.counts.accepted += 1;
        self.running.insert(number, Some(now_ns));
        true
    }

    /// Whether costs are taken anew when a request arrives now, or `ends` now: then it is time to say what those that
    /// are at work have cost so far.
    pub(super) fn is_about_to_adjust(&self, ends: bool, now_ns: u64) -> bool {
        let fresh = self.history.fresh() + usize::from(ends);
        fresh >= self.enough() || fresh > 0 && self.is_time(now_ns)
    }

    /// A request that is at work has used so much CPU time so far.
    pub(super) fn has_used(&mut self, number: u64, cpu_ns: u64) {
        if self.running.contains_key(&number) {
            self.at_work.entry(number).or_insert(Watched { from_ns: 0, to_ns: 0 }).to_ns = cpu_ns;
        }
    }

    fn learn(&mut self, number: u64, cpu_ns: Option<u64>, now_ns: u64) {
        let from_ns = self.at_work.remove(&number).map_or(0, |watched| watched.from_ns);
        if let Some(to_ns) = cpu_ns {
            self.history.add(Watched { from_ns, to_ns });
        }
        if self.history.fresh() >= self.enough() {
            self.adjust(now_ns);
        } else {
            self.look_at_the_clock(now_ns);
        }
    }

    /// So many requests end between two adjustments at most.
    fn enough(&self) -> usize {
        if self.counts.adjustments == 0 { ADJUST_FIRST_AFTER } else { ADJUST_AFTER }
    }

    fn is_time(&self, now_ns: u64) -> bool {
        let every_ns = ADJUST_EVERY_NS.max(self.goal.response_time_ns());
        now_ns.saturating_sub(self.adjusted_ns) >= every_ns
    }

    fn look_at_the_clock(&mut self, now_ns: u64) {
        if self.history.fresh() > 0 && self.is_time(now_ns) {
            self.adjust(now_ns);
        }
    }

    /// Takes what was learned since the last time for granted (Yang 2009, 12.2.3).
    fn adjust(&mut self, now_ns: u64) {
        // A single request says little of the others.
        if self.history.fresh() > 0 && self.history.count() >= ADJUST_FIRST_AFTER {
            let at_work: Vec<Watched> = self.at_work.values().copied().collect();
            self.costs = self.history.take(&at_work, self.costs);
            self.at_work.values_mut().for_each(|watched| watched.from_ns = watched.to_ns);
            self.counts.adjustments += 1;
        }
        self.adjusted_ns = now_ns;
        self.apply(now_ns);
    }

    fn apply(&mut self, now_ns: u64) {
        self.specifications.resize(self.number(self.cpu()), now_ns, self.goal.response_time_ns());
    }

    /// How many specifications there are to be with such a part of the CPU.
    fn number(&self, cpu: f64) -> usize {
        match self.costs {
            None => FIRST.saturating_mul(self.cpus as usize),
            // One at least: if none were accepted where the others are refused, nothing would ever be learned again.
            Some(costs) => (self.affordable(costs.average_ns, cpu) as usize).clamp(1, SPECIFICATIONS_MAX),
        }
    }
}

fn first_costs(goal: &Goal) -> Option<Costs> {
    let cost_ns = nanoseconds(goal.cost?);
    Some(Costs { average_ns: cost_ns, largest_ns: cost_ns })
}
