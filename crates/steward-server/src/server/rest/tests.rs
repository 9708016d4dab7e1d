//! Workers that share some pace, requests of mixed costs that come faster or slower than that: how many are answered
//! in time, beside a plain line; and nobody is lost or passed over for ever.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::controller::{Decision, End, RouteId};
use crate::goal::Goal;

const MS: u64 = 1_000_000;

/// What comes, and who serves it.
#[derive(Clone, Debug)]
struct Load {
    /// CPU time that all workers have together in each unit of time.
    pace: f64,
    workers: usize,
    response_time_ns: u64,
    /// What comes, in nanoseconds: when, and how much CPU time it costs.
    requests: Vec<(u64, u64)>,
}

impl Load {
    fn mean_ns(&self) -> u64 {
        self.requests.iter().map(|(_, cost_ns)| *cost_ns).sum::<u64>() / self.requests.len() as u64
    }

    fn controller(&self) -> (Controller, RouteId) {
        // One specification, and it is taken: all that come are best-effort.
        let goal = Goal::new(Duration::from_nanos(self.response_time_ns), 1e-9)
            .costing(Duration::from_nanos(self.mean_ns()));
        let mut controller = Controller::new(1);
        let route = controller.add("/a", goal, 0).expect("a goal that can be held");
        let Decision::Accepted(_) = controller.arrive(route, 0) else { panic!("there is one") };
        (controller, route)
    }
}

/// A line of requests for the workers.
trait Line {
    fn arrive(&mut self, index: usize, now_ns: u64);
    fn next(&mut self, now_ns: u64) -> Option<usize>;
    fn ended(&mut self, index: usize, cost_ns: u64, now_ns: u64);
}

/// First come, first served.
#[derive(Default)]
struct Plain(VecDeque<usize>);

impl Line for Plain {
    fn arrive(&mut self, index: usize, _: u64) {
        self.0.push_back(index);
    }

    fn next(&mut self, _: u64) -> Option<usize> {
        self.0.pop_front()
    }

    fn ended(&mut self, _: usize, _: u64, _: u64) {}
}

/// What the server does.
struct Hopeful {
    response_time_ns: u64,
    controller: Controller,
    route: RouteId,
    rest: Rest<usize>,
    at_work: BTreeMap<usize, Ticket>,
    /// How often the first of those that are not hopeful was passed over, and the most that there was.
    passed_over: (u32, u32),
}

impl Hopeful {
    fn new(load: &Load) -> Self {
        let (controller, route) = load.controller();
        let (rest, at_work) = (Rest::new(1), BTreeMap::new());
        let response_time_ns = load.response_time_ns;
        Hopeful { response_time_ns, controller, route, rest, at_work, passed_over: (0, 0) }
    }
}

impl Line for Hopeful {
    fn arrive(&mut self, index: usize, now_ns: u64) {
        self.rest.look(&mut self.controller, now_ns);
        let Decision::BestEffort(ticket) = self.controller.arrive(self.route, now_ns) else {
            panic!("the only specification is taken")
        };
        self.rest.push(Entry { ticket: Some(ticket), arrived_ns: now_ns, job: index });
    }

    fn next(&mut self, now_ns: u64) -> Option<usize> {
        let others_before = self.rest.others.len();
        let late = self.at_work.values().filter(|ticket| !ticket.is_hopeful()).count();
        let shortest_ns = (self.at_work.len() > late).then_some(self.response_time_ns);
        let busy = Busy { all: self.at_work.len(), late, shortest_ns, ..Busy::default() };
        let entry = self.rest.next(&mut self.controller, now_ns, busy)?;
        let ticket = entry.ticket.expect(LET_IN);
        let is_passed = ticket.is_hopeful() && !self.rest.others.is_empty() && others_before > 0;
        self.passed_over.0 = if is_passed { self.passed_over.0 + 1 } else { 0 };
        self.passed_over.1 = self.passed_over.1.max(self.passed_over.0);
        self.at_work.insert(entry.job, ticket);
        Some(entry.job)
    }

    fn ended(&mut self, index: usize, cost_ns: u64, now_ns: u64) {
        let ticket = self.at_work.remove(&index).expect("it was at work");
        self.controller.finish(ticket, End::Answered, Some(cost_ns), now_ns);
    }
}

/// Serves all of them. Returns how many were answered in time; each has been, once.
fn serve(load: &Load, line: &mut impl Line) -> usize {
    let mut at_work: Vec<(f64, usize)> = Vec::new();
    let (mut now_ns, mut next, mut met, mut served) = (0.0f64, 0, 0, 0);
    loop {
        while at_work.len() < load.workers
            && let Some(index) = line.next(now_ns as u64)
        {
            at_work.push((load.requests[index].1 as f64, index));
        }
        let each = (load.pace / at_work.len() as f64).min(1.0);
        let first = at_work.iter().map(|(left_ns, _)| *left_ns).fold(f64::INFINITY, f64::min);
        let ends_ns = now_ns + first / each;
        let arrives_ns = load.requests.get(next).map_or(f64::INFINITY, |(at_ns, _)| *at_ns as f64);
        let until_ns = ends_ns.min(arrives_ns);
        if until_ns == f64::INFINITY {
            break;
        }
        at_work.iter_mut().for_each(|(left_ns, _)| *left_ns -= (until_ns - now_ns) * each);
        now_ns = until_ns;
        if arrives_ns <= ends_ns {
            line.arrive(next, now_ns as u64);
            next += 1;
            continue;
        }
        let index = at_work.iter().position(|(left_ns, _)| *left_ns < 1.0).expect("one has ended");
        let (_, index) = at_work.swap_remove(index);
        let (arrived_ns, cost_ns) = load.requests[index];
        met += usize::from(now_ns as u64 <= arrived_ns + load.response_time_ns);
        served += 1;
        line.ended(index, cost_ns, now_ns as u64);
    }
    assert_eq!(served, load.requests.len(), "each is served once");
    met
}

/// Requests at a rate of `times` what can be served, of which some cost `dearer` times as much.
fn load() -> impl Strategy<Value = Load> {
    let who = (0.05f64..1.0, 1usize..8, 100u64..2_000);
    let what = (1u64..20, 0.0f64..0.2, 1.0f64..10.0, 0.3f64..4.0, 100usize..600);
    let random = prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 600);
    (who, what, random).prop_map(
        |((pace, workers, response_time_ms), (cost_ms, dear, dearer, times, count), random)| {
            let mean_ns = cost_ms as f64 * 1e6 * (1.0 - dear + dear * dearer);
            let gap_ns = mean_ns / pace / times;
            let mut at_ns = 0.0;
            let requests = random.iter().take(count).map(|(gap, which)| {
                at_ns += gap_ns * 2.0 * gap;
                let cost = if *which < dear { dearer } else { 1.0 };
                (at_ns as u64, (cost_ms as f64 * 1e6 * cost) as u64)
            });
            let requests = requests.collect();
            Load { pace, workers, response_time_ns: response_time_ms * MS, requests }
        },
    )
}

proptest! {
    // Each plays two servers for minutes.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the pace and the costs, no more than one request in five, and two, are late that would be in time in a
    /// plain line: those that come while the pace is not known yet, those that are behind one that costs far more than
    /// the mean, and those that are passed over at last.
    #[test]
    fn hardly_fewer_are_in_time_than_in_a_plain_line_and_nobody_is_passed_over_for_ever(load in load()) {
        let mut hopeful = Hopeful::new(&load);
        let (met, met_in_line) = (serve(&load, &mut hopeful), serve(&load, &mut Plain::default()));
        prop_assert!(met + load.requests.len() / 5 + 2 >= met_in_line, "{met} and not {met_in_line}");
        prop_assert!(hopeful.passed_over.1 <= PASSED_OVER_MAX, "{:?}", hopeful.passed_over);
        prop_assert_eq!(hopeful.rest.len(), 0);
    }
}

/// Twenty seconds of requests of which nine in ten cost 5.6 ms, and one in ten 50 ms.
fn stream(pace: f64, times: f64) -> Load {
    let count = (20.0 * 100.0 * pace * times) as usize;
    let gap_ns = 20e9 / count as f64;
    // In no order that the service of others could fall in step with.
    let mixed = |index: usize| (index as u64).wrapping_mul(6_364_136_223_846_793_005) >> 33;
    let cost_ns = |index: usize| if mixed(index) % 10 == 9 { 50_000_000 } else { 5_555_555 };
    let requests = (0..count).map(|index| ((index as f64 * gap_ns) as u64, cost_ns(index))).collect();
    Load { pace, workers: 4, response_time_ns: 500 * MS, requests }
}

#[test]
fn when_far_more_come_than_can_be_served_most_of_what_is_served_is_in_time() {
    // One that costs 50 ms is late whatever is done at the lowest pace, and disturbs others meanwhile.
    for (pace, least) in [(0.05, 0.3), (0.1, 0.45), (0.25, 0.6), (0.5, 0.6), (1.0, 0.6)] {
        for times in [2.0, 4.0, 13.0] {
            let load = stream(pace, times);
            let can = 20.0 * 100.0 * pace;
            let met_in_line = serve(&load, &mut Plain::default()) as f64;
            let met = serve(&load, &mut Hopeful::new(&load)) as f64;
            assert!(met_in_line < can * 0.15, "{met_in_line} of {can} in time in a plain line");
            assert!(
                met > can * least,
                "{met} of {can} in time at a pace of {pace} and {times} times as many"
            );
        }
    }
}

#[test]
fn a_request_that_was_not_hopeful_becomes_so_when_others_end_sooner_and_no_more_when_its_time_is_over() {
    let load = stream(1.0, 1.0);
    let mut line = Hopeful::new(&load);
    (0..20).for_each(|index| line.arrive(index, 0));
    // At the first pace, 0.05, two of 10 ms go into 500 ms.
    assert_eq!((line.rest.hopeful.len(), line.rest.others.len()), (2, 18));
    let first = line.next(0).expect("some wait");
    line.ended(first, 10 * MS, 10 * MS);
    line.rest.look(&mut line.controller, 10 * MS);
    assert!(line.rest.hopeful.len() > 4, "{} at a pace that is far higher", line.rest.hopeful.len());
    for _ in 0..2 {
        line.rest.look(&mut line.controller, 600 * MS);
    }
    assert_eq!((line.rest.hopeful.len(), line.rest.others.len()), (0, 19));
}

#[test]
fn a_cost_that_jumps_a_hundredfold_and_back_loses_nobody_and_is_followed() {
    let mut load = stream(1.0, 2.0);
    let thirds = load.requests.len() / 3;
    for (index, (_, cost_ns)) in load.requests.iter_mut().enumerate() {
        *cost_ns = if index / thirds == 1 { 200 * MS } else { 2 * MS };
    }
    let mut line = Hopeful::new(&load);
    // A third of them take longer by far than all that there is; `serve` sees to it that each is served once.
    let met = serve(&load, &mut line);
    assert!(met >= thirds && line.rest.len() == 0, "{met} of the {thirds} that came before the jump");
    assert!(line.passed_over.1 <= PASSED_OVER_MAX);
}

/// A request of a route with a short response time comes while a CPU is busy with one that has far longer.
#[test]
fn a_hopeful_request_of_a_shorter_goal_does_not_wait_for_those_at_work() {
    let mut controller = Controller::new(1);
    let goal = |response_time_ms| Goal::new(Duration::from_millis(response_time_ms), 1e-9);
    let cost = Duration::from_millis(1);
    let short = controller.add("/short", goal(100).costing(cost), 0).expect("valid");
    let long = controller.add("/long", goal(2_000).costing(cost), 0).expect("valid");
    for route in [short, long] {
        assert!(matches!(controller.arrive(route, 0), Decision::Accepted(_)));
    }
    // One that ends says that they compute, and how fast.
    let Decision::BestEffort(first) = controller.arrive(long, 0) else { panic!("one was accepted") };
    controller.finish(first, End::Answered, Some(MS), MS);
    assert!(controller.rest_computes());
    let mut rest = Rest::new(1);
    let Decision::BestEffort(later) = controller.arrive(short, 2 * MS) else { panic!("one was accepted") };
    assert!(later.is_hopeful());
    rest.push(Entry { ticket: Some(later), arrived_ns: 2 * MS, job: 0 });
    let busy = |ms: u64| Busy { all: 1, late: 0, shortest_ns: Some(ms * MS), ..Busy::default() };
    assert!(rest.next(&mut controller, 2 * MS, busy(100)).is_none(), "one of its own kind is at work");
    assert!(rest.next(&mut controller, 2 * MS, busy(2_000)).is_some());
}
