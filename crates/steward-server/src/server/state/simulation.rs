//! A machine in memory whose clock the dispatcher reads: its CPUs serve workers that have a reservation by earliest
//! deadline while they have budget, and then share what is left. So the whole of a server but its threads and its locks
//! is tried on loads drawn at random, beside pools as people use them.
//!
//! What it leaves out: the kernel's slices (what shares a CPU shares it evenly), and how long the daemon takes (who is
//! to have a reservation has it at once).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::clock::simulated;
use crate::controller::Decision;
use crate::goal::{Goal, Otherwise};
use crate::server::entry::Outcome;

const MS: u64 = 1_000_000;
/// As many best-effort workers as [`Settings`](crate::Settings) has on few CPUs, and the most with a reservation.
const BEST_EFFORT_WORKERS: usize = 4;
const RESERVED_WORKERS_MAX: usize = 128;
/// The index of requests that are not counted: those before the load.
const WARM_UP: usize = usize::MAX;

/// What comes, and on what machine.
#[derive(Clone, Debug)]
pub struct Load {
    /// What is wanted of them.
    pub goal: Goal,
    /// Of the machine.
    pub cpus: u32,
    /// The part of what reservations leave that others do not take.
    pub left: f64,
    /// CPU time, in nanoseconds, of taking a request in, which goes before all else.
    pub intake_ns: u64,
    /// Of a worker for each request.
    pub serving_ns: u64,
    /// What the first ones cost, one after another, in nanoseconds.
    pub warm_up: Vec<u64>,
    /// When each one comes, and what it costs, in nanoseconds.
    pub requests: Vec<(u64, u64)>,
}

/// What became of the requests of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Result {
    /// Those that were answered in time.
    pub met: usize,
    /// Those that were not refused.
    pub served: usize,
    /// Those that were.
    pub refused: usize,
    /// Of those that were accepted, how many were answered in time.
    pub accepted_met: usize,
    /// And how many were not.
    pub accepted_missed: usize,
    /// CPU time, in nanoseconds, of requests that were late.
    pub wasted_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Budget {
    pair: (u64, u64),
    left_ns: f64,
    deadline_ns: f64,
}

impl Budget {
    /// The rule of a worker that wakes up or announces a request: a new period, unless what is left of the one that
    /// there is could be used up in it at the reserved rate.
    fn begin(&mut self, now_ns: f64) {
        let (budget_ns, period_ns) = (self.pair.0 as f64, self.pair.1 as f64);
        if now_ns >= self.deadline_ns || self.left_ns * period_ns > budget_ns * (self.deadline_ns - now_ns) {
            (self.left_ns, self.deadline_ns) = (budget_ns, now_ns + period_ns);
        }
    }

    fn is_eligible(&self) -> bool {
        self.left_ns > 0.5
    }
}

/// A worker's thread.
struct Serving {
    number: u64,
    tid: i32,
    is_done: Arc<AtomicBool>,
    budget: Option<Budget>,
    cpu_ns: f64,
    at: Option<At>,
    /// When it looks by itself, in nanoseconds.
    looks_ns: Option<u64>,
}

struct At {
    ticket: Ticket,
    index: usize,
    left_ns: f64,
    cost_ns: u64,
}

/// A pool of threads that shares the CPUs evenly, with one queue or a limit of how many are at work.
pub fn pool(load: &Load, threads: usize, refuses: bool) -> Result {
    let (mut line, mut at_work) = (VecDeque::new(), Vec::<(f64, usize)>::new());
    let (mut now_ns, mut next, mut result) = (0.0f64, 0, Result::default());
    loop {
        while at_work.len() < threads
            && let Some(index) = line.pop_front()
        {
            let (_, cost_ns): (u64, u64) = load.requests[index];
            at_work.push(((cost_ns + load.serving_ns) as f64, index));
        }
        let each = (f64::from(load.cpus) * load.left / at_work.len() as f64).min(1.0);
        let first = at_work.iter().map(|(left_ns, _)| *left_ns).fold(f64::INFINITY, f64::min);
        let ends_ns = now_ns + first / each;
        let arrives_ns = load.requests.get(next).map_or(f64::INFINITY, |(at_ns, _)| *at_ns as f64);
        let until_ns = ends_ns.min(arrives_ns).max(now_ns);
        if until_ns == f64::INFINITY {
            return result;
        }
        at_work.iter_mut().for_each(|(left_ns, _)| *left_ns -= (until_ns - now_ns) * each);
        now_ns = until_ns;
        if arrives_ns <= ends_ns {
            now_ns += load.intake_ns as f64 / f64::from(load.cpus);
            if refuses && at_work.len() >= threads {
                result.refused += 1;
            } else {
                line.push_back(next);
            }
            next += 1;
            continue;
        }
        let ended = at_work.iter().position(|(left_ns, _)| *left_ns < 1.0).expect("one has ended");
        let (_, index) = at_work.swap_remove(ended);
        result.ended(load, index, now_ns);
    }
}

impl Result {
    fn ended(&mut self, load: &Load, index: usize, now_ns: f64) -> bool {
        let (arrived_ns, cost_ns) = load.requests[index];
        let is_met = now_ns as u64 <= arrived_ns + load.goal.response_time.as_nanos() as u64;
        self.served += 1;
        self.met += usize::from(is_met);
        self.wasted_ns += if is_met { 0 } else { cost_ns };
        is_met
    }
}

/// A server on its machine.
struct World<'a> {
    load: &'a Load,
    state: State,
    route: RouteId,
    threads: Vec<Serving>,
    now_ns: f64,
    tids: i32,
    result: Result,
    costs: BTreeMap<usize, u64>,
    index: Arc<AtomicUsize>,
}

/// Serves a load with the server. Each request that is not refused is served once.
pub fn server(load: &Load, otherwise: Otherwise) -> Result {
    simulated::begin();
    let mut world = World::new(load);
    for cost_ns in &load.warm_up {
        world.arrive(WARM_UP, *cost_ns);
        while world.state.controller.snapshot().routes[0].in_hand > 0 {
            world.advance(f64::INFINITY);
        }
    }
    // Until what was used is eligible again.
    let begins_ns = world.now_ns + load.goal.response_time.as_nanos() as f64 * 2.0 + 1e9;
    while world.now_ns < begins_ns {
        world.advance(begins_ns);
    }
    world
        .state
        .controller
        .set_goal(world.route, load.goal.otherwise(otherwise), world.now_ns as u64)
        .expect("as before");
    let begins_ns = begins_ns as u64;
    for (index, (at_ns, cost_ns)) in load.requests.iter().enumerate() {
        let at_ns = (begins_ns + at_ns) as f64;
        while world.now_ns < at_ns {
            world.advance(at_ns);
        }
        world.arrive(index, *cost_ns);
    }
    while world.state.waiting() > 0 || world.state.at_work() > 0 {
        world.advance(f64::INFINITY);
    }
    simulated::end();
    let mut result = world.result;
    let seen = world.state.controller.snapshot().routes.remove(0);
    assert_eq!((seen.in_hand, seen.waiting), (0, 0));
    assert_eq!(result.served + result.refused, load.requests.len(), "each is served or refused, once");
    result.refused = seen.counts.refused as usize;
    result
}

impl<'a> World<'a> {
    fn new(load: &'a Load) -> Self {
        let mut controller = Controller::new(load.cpus);
        let route = controller.add("/", load.goal, 0).expect("a goal that can be held");
        let mut state = State::new(controller, load.cpus, 32);
        state.want_best_effort(BEST_EFFORT_WORKERS);
        let mut world = World {
            load,
            state,
            route,
            threads: Vec::new(),
            now_ns: 0.0,
            tids: 0,
            result: Result::default(),
            costs: BTreeMap::new(),
            index: Arc::new(AtomicUsize::new(0)),
        };
        (0..BEST_EFFORT_WORKERS).for_each(|_| world.start(Class::BestEffort, None));
        world
    }

    fn start(&mut self, class: Class, pair: Option<(u64, u64)>) {
        self.tids += 1;
        let is_done = Arc::new(AtomicBool::new(false));
        let task = Task { tid: self.tids, requests_at: 0, is_done: is_done.clone() };
        let number = self.state.add(class, pair, task, std::thread::current());
        let budget = pair.map(|pair| Budget { pair, left_ns: 0.0, deadline_ns: 0.0 });
        let (tid, cpu_ns, at, looks_ns) = (self.tids, 0.0, None, None);
        self.threads.push(Serving { number, tid, is_done, budget, cpu_ns, at, looks_ns });
    }

    /// As `Server::arrive` and `Place::serve`.
    fn arrive(&mut self, index: usize, cost_ns: u64) {
        // What takes requests in goes before all else, on one CPU.
        let takes_ns = self.load.intake_ns as f64 / f64::from(self.load.cpus);
        let arrived_ns = self.now_ns as u64;
        self.now_ns += takes_ns;
        simulated::set_now(self.now_ns as u64);
        self.state.look(self.route, arrived_ns);
        let ticket = match self.state.controller.arrive(self.route, arrived_ns) {
            Decision::Accepted(ticket) | Decision::BestEffort(ticket) => Some(ticket),
            Decision::Waits => None,
            Decision::Refused { .. } => {
                self.result.refused += usize::from(index != WARM_UP);
                return;
            }
        };
        self.costs.insert(index, cost_ns);
        let told = self.index.clone();
        let job = Box::new(move || {
            told.store(index, Ordering::Relaxed);
            Outcome::Done.into()
        });
        self.state.put(self.route, Entry { ticket, arrived_ns, job });
        self.hand_out();
    }

    /// Has everybody ask who has something to do, and gives reservations to those who are to have one.
    fn hand_out(&mut self) {
        simulated::set_now(self.now_ns as u64);
        if std::mem::take(&mut self.state.is_changed) {
            self.reserve();
        }
        let mut which = 0;
        while which < self.threads.len() {
            let thread = &mut self.threads[which];
            let rests = self.state.workers[&thread.number].is_idle;
            let is_woken = self.state.alarm_ns(self.state.workers[&thread.number].class, thread.number)
                != thread.looks_ns
                || thread.looks_ns.is_some_and(|at_ns| at_ns as f64 <= self.now_ns);
            if thread.at.is_some() || rests && !is_woken {
                which += 1;
                continue;
            }
            simulated::set_thread(thread.tid, thread.cpu_ns as u64);
            match self.state.ask(thread.number) {
                Told::Rest(until_ns) => {
                    thread.looks_ns = until_ns;
                    which += 1;
                }
                Told::End => drop(self.threads.remove(which)),
                Told::Serve(entry) => {
                    thread.looks_ns = None;
                    (entry.job)();
                    let index = self.index.load(Ordering::Relaxed);
                    let cost_ns = self.costs[&index];
                    let ticket = entry.ticket.expect("it was let in");
                    thread.is_done.store(false, Ordering::Relaxed);
                    if let Some(budget) = &mut thread.budget {
                        budget.begin(self.now_ns);
                    }
                    let left_ns = (cost_ns + self.load.serving_ns) as f64;
                    thread.at = Some(At { ticket, index, left_ns, cost_ns });
                }
            }
        }
    }

    /// What the reserver does, at once.
    fn reserve(&mut self) {
        let route = self.route;
        let wished = self.state.controller.workers_wished(route);
        let wanted = self.state.controller.costs(route).map_or(0, |_| wished.min(RESERVED_WORKERS_MAX));
        let period_ns = self.load.goal.response_time.as_nanos() as u64;
        let pair = (self.state.controller.budget_ns(route, wanted), period_ns);
        self.state.want_reserved(route, wanted);
        for worker in self.state.reserved(route) {
            self.state.set_reserved(worker.worker, pair);
        }
        for budget in self.threads.iter_mut().filter_map(|thread| thread.budget.as_mut()) {
            budget.pair = pair;
        }
        for _ in self.state.reserved(route).len()..wanted {
            self.start(Class::Reserved(route), Some(pair));
        }
    }

    /// What each thread gets of a CPU now.
    fn rates(&self) -> Vec<f64> {
        let mut rates = vec![0.0; self.threads.len()];
        let mut first: Vec<(f64, usize)> = Vec::new();
        let mut rest = Vec::new();
        for (index, thread) in self.threads.iter().enumerate().filter(|(_, thread)| thread.at.is_some()) {
            match &thread.budget {
                Some(budget) if budget.is_eligible() => first.push((budget.deadline_ns, index)),
                _ => rest.push(index),
            }
        }
        first.sort_by(|a, b| a.partial_cmp(b).expect("a time"));
        let cpus = self.load.cpus as usize;
        first.iter().take(cpus).for_each(|(_, index)| rates[*index] = 1.0);
        let left = (cpus - first.len().min(cpus)) as f64 * self.load.left;
        rest.iter().for_each(|index| rates[*index] = (left / rest.len() as f64).min(1.0));
        rates
    }

    /// Goes on to what happens next, at most to then.
    fn advance(&mut self, until_ns: f64) {
        let rates = self.rates();
        let mut next_ns = until_ns;
        for (thread, rate) in self.threads.iter().zip(&rates) {
            next_ns =
                next_ns.min(thread.looks_ns.map_or(f64::INFINITY, |at_ns| (at_ns as f64).max(self.now_ns)));
            let Some(at) = &thread.at else { continue };
            if *rate > 0.0 {
                next_ns = next_ns.min(self.now_ns + at.left_ns / rate);
            }
            match &thread.budget {
                Some(budget) if budget.is_eligible() && *rate > 0.0 => {
                    next_ns = next_ns.min(self.now_ns + budget.left_ns / rate);
                }
                Some(budget) if !budget.is_eligible() => {
                    next_ns = next_ns.min(budget.deadline_ns.max(self.now_ns))
                }
                _ => {}
            }
        }
        let timeout_ns = self.state.controller.poll_timeout(self.now_ns as u64);
        next_ns =
            next_ns.min(timeout_ns.map_or(f64::INFINITY, |at_ns| (at_ns as f64 + 1.0).max(self.now_ns)));
        assert!(next_ns < f64::INFINITY, "something happens");
        let passed_ns = next_ns - self.now_ns;
        self.now_ns = next_ns;
        for (thread, rate) in self.threads.iter_mut().zip(&rates) {
            let Some(at) = &mut thread.at else { continue };
            at.left_ns -= passed_ns * rate;
            thread.cpu_ns += passed_ns * rate;
            simulated::set_thread(thread.tid, thread.cpu_ns as u64);
            match &mut thread.budget {
                Some(budget) if budget.is_eligible() => {
                    budget.left_ns -= passed_ns * rate;
                    if !budget.is_eligible() && budget.deadline_ns <= self.now_ns + 0.5 {
                        (budget.left_ns, budget.deadline_ns) =
                            (budget.pair.0 as f64, self.now_ns + budget.pair.1 as f64);
                    }
                }
                Some(budget) if budget.deadline_ns <= self.now_ns + 0.5 => {
                    budget.left_ns = budget.pair.0 as f64;
                    budget.deadline_ns += budget.pair.1 as f64;
                }
                _ => {}
            }
        }
        simulated::set_now(self.now_ns as u64);
        for which in 0..self.threads.len() {
            if self.threads[which].at.as_ref().is_some_and(|at| at.left_ns < 0.5) {
                let at = self.threads[which].at.take().expect("it is there");
                self.end(which, at);
            }
        }
        self.state.let_in(self.now_ns as u64);
        self.hand_out();
    }

    fn end(&mut self, which: usize, at: At) {
        let thread = &self.threads[which];
        thread.is_done.store(true, Ordering::Relaxed);
        let is_accepted = at.ticket.is_accepted();
        if at.index != WARM_UP {
            let (arrived_ns, _) = self.load.requests[at.index];
            let began_ns = at.ticket.deadline_ns() as f64 - self.load.goal.response_time.as_nanos() as f64;
            let is_met = self.result.ended(self.load, at.index, self.now_ns - began_ns + arrived_ns as f64);
            self.result.accepted_met += usize::from(is_accepted && is_met);
            self.result.accepted_missed += usize::from(is_accepted && !is_met);
        }
        self.state.slept(&at.ticket, 0, at.cost_ns);
        self.state.finish(thread.number, at.ticket, End::Answered, Some(at.cost_ns));
    }
}

/// Ten seconds of requests that come evenly, of which one in ten, drawn at random, costs 50 ms and the others 5.6: as
/// `server-rates` in the lab.
pub fn stream(per_second: u64, seed: u64) -> Load {
    let mut random = Random(seed);
    let mut cost_ns = || if random.next() < 0.1 { 50 * MS } else { 5_555_555 };
    let warm_up = (0..60).map(|_| cost_ns()).collect();
    let requests = (0..per_second * 10).map(|index| (index * 1_000 * MS / per_second, cost_ns())).collect();
    Load {
        goal: Goal::new(Duration::from_millis(500), 0.75),
        cpus: 1,
        left: 1.0,
        intake_ns: MS / 10,
        serving_ns: MS / 10,
        warm_up,
        requests,
    }
}

/// A load drawn at random: 1 to 4 CPUs, of which others take up to 70 % of what is not reserved in every second one; 50
/// ms to 2 s to answer; up to a fifth of the requests cost up to ten times as much; 0.3 to 4 times as many come as can
/// be served, evenly or not.
pub fn random_load(seed: u64) -> Load {
    let mut random = Random(seed);
    let _ = (0..10).map(|_| random.next()).last();
    let cpus = 1 + (random.next() * 4.0) as u32;
    let left = if random.next() < 0.5 { 1.0 } else { 0.3 + 0.7 * random.next() };
    let response_time_ms = (50.0 * 40f64.powf(random.next())) as u64;
    let part = 0.3 + 0.45 * random.next();
    let dear = 0.2 * random.next();
    let dearer = 1.0 + 9.0 * random.next();
    let mean_ns = response_time_ms as f64 * 1e6 / (4.0 + 96.0 * random.next());
    let cheap_ns = mean_ns / (1.0 - dear + dear * dearer);
    let times = 0.3 * 13f64.powf(random.next());
    let is_even = random.next() < 0.3;
    let overhead_ns = (mean_ns * 0.02 * random.next()) as u64;
    let cost_ns =
        |random: &mut Random| if random.next() < dear { (cheap_ns * dearer) as u64 } else { cheap_ns as u64 };
    let warm_up = (0..60).map(|_| cost_ns(&mut random)).collect();
    let gap_ns = mean_ns / f64::from(cpus) / times;
    let count = ((20.0 * response_time_ms as f64 * 1e6 / gap_ns) as usize).clamp(100, 2_000);
    let mut at_ns = 0.0;
    let requests = (0..count).map(|_| {
        at_ns += if is_even { gap_ns } else { -gap_ns * (1.0 - random.next()).max(1e-9).ln() };
        (at_ns as u64, cost_ns(&mut random))
    });
    let requests = requests.collect();
    let goal = Goal::new(Duration::from_millis(response_time_ms), part);
    Load { goal, cpus, left, intake_ns: overhead_ns / 2, serving_ns: overhead_ns / 2, warm_up, requests }
}

struct Random(u64);

impl Random {
    /// A number from 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What became of the requests of several loads together.
#[derive(Debug, Default)]
pub struct Sums {
    /// All of them.
    pub requests: usize,
    /// With the server, which serves others when there is time.
    pub server: Result,
    /// The same, which refuses others.
    pub refusing: Result,
    /// Pools that refuse what none of 1, 2, 5, 10, 20 or 40 threads for each CPU is free for.
    pub limits: [usize; 6],
    /// The best of them for each load, which nobody knows before.
    pub best: usize,
    /// A pool of 10 threads for each CPU with one queue.
    pub queue: usize,
}

const LIMITS: [usize; 6] = [1, 2, 5, 10, 20, 40];

/// Serves each of these loads with the server, and with pools.
pub fn sums(loads: impl Iterator<Item = Load>) -> Sums {
    let mut sums = Sums::default();
    for load in loads {
        sums.requests += load.requests.len();
        sums.server += server(&load, Otherwise::BestEffort);
        sums.refusing += server(&load, Otherwise::Refuse);
        let limits = LIMITS.map(|threads| pool(&load, threads * load.cpus as usize, true).met);
        sums.limits.iter_mut().zip(limits).for_each(|(sum, met)| *sum += met);
        sums.best += limits.into_iter().max().unwrap_or(0);
        sums.queue += pool(&load, 10 * load.cpus as usize, false).met;
    }
    sums
}

impl std::ops::AddAssign for Result {
    fn add_assign(&mut self, other: Self) {
        self.met += other.met;
        self.served += other.served;
        self.refused += other.refused;
        self.accepted_met += other.accepted_met;
        self.accepted_missed += other.accepted_missed;
        self.wasted_ns += other.wasted_ns;
    }
}

#[cfg(test)]
mod tests;
