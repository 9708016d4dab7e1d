//! The controller: what holds whatever happens, and what becomes of bad input.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::goal::Otherwise;

const MS: u64 = 1_000_000;

fn one(goal: Goal) -> (Controller, RouteId) {
    let mut controller = Controller::new(1);
    let route = controller.add("/a", goal, 0).expect("a goal that can be held");
    (controller, route)
}

fn goal(response_time_ms: u64, cpu: f64) -> Goal {
    Goal::new(Duration::from_millis(response_time_ms), cpu)
}

/// Lets a request in at `now_ns` and has it end at once, having cost so much.
fn serve(controller: &mut Controller, route: RouteId, cost_ns: u64, now_ns: u64) -> bool {
    match controller.arrive(route, now_ns) {
        Decision::Accepted(ticket) => {
            controller.finish(ticket, End::Answered, Some(cost_ns), now_ns);
            true
        }
        Decision::BestEffort(ticket) => {
            controller.finish(ticket, End::Answered, Some(cost_ns), now_ns);
            false
        }
        _ => false,
    }
}

fn route_of(controller: &Controller) -> crate::snapshot::RouteSnapshot {
    controller.snapshot().routes.remove(0)
}

#[test]
fn as_many_are_accepted_as_the_dissertation_says() {
    let (mut controller, route) = one(goal(1_000, 0.8));
    (0..100).for_each(|_| {
        serve(&mut controller, route, 10 * MS, 0);
    });
    // Equation 12.1: the largest N with N x 10 < 1000 x 0.8.
    assert_eq!(controller.specifications(route), 79);
    // Almost as much as the CPU has: 79 x 10.5 would be more than 0.8.
    assert_eq!(controller.budget_ns(route, 79), 792 * MS / 79);
    assert_eq!(controller.budget_ns(route, 100), 792 * MS / 100);
}

#[test]
fn several_cpus_serve_as_many_times_more() {
    let mut controller = Controller::new(4);
    let route = controller.add("/a", goal(100, 0.5).costing(Duration::from_millis(1)), 0).expect("valid");
    assert_eq!(controller.specifications(route), 199);
}

#[test]
fn a_request_of_95_in_100_fits_into_its_reservation_and_all_of_them_into_what_the_route_may_have() {
    let (mut controller, route) = one(goal(1_000, 0.5));
    (0..10).for_each(|_| {
        serve(&mut controller, route, 10 * MS, 0);
    });
    (0..100).for_each(|number| {
        serve(&mut controller, route, if number % 10 == 0 { 40 * MS } else { 5 * MS }, 0);
    });
    // Cavg is 8.5 ms and Cmax 40 ms: 58 specifications of 40 ms would be 2.3 CPUs.
    assert_eq!(controller.specifications(route), 58);
    assert_eq!(controller.budget_ns(route, 58), 760 * MS / 58);
    assert_eq!(controller.budget_ns(route, 5), 152 * MS);
}

#[test]
fn goals_that_cannot_be_held_are_refused_with_what_to_do() {
    let mut controller = Controller::new(1);
    let mut refusal = |goal| controller.add("/a", goal, 0).expect_err("no goal").to_string();
    assert!(
        refusal(goal(0, 0.5)).starts_with("a response time of 0ns cannot be held: write one between 1ms")
    );
    assert!(refusal(goal(10_000_000, 0.5)).starts_with("a response time of 10000s cannot be held"));
    for cpu in [0.0, -1.0, 1.0, f64::NAN, f64::INFINITY] {
        assert!(refusal(goal(10, cpu)).contains("is no part of the CPU: write a number above 0 and below 1"));
    }
    assert!(
        refusal(goal(10, 0.9))
            .starts_with("0.9 of the CPU for this route and 0 for the others are more than the 0.8")
    );
    assert!(refusal(goal(10, 0.5).costing(Duration::ZERO)).starts_with("a cost of 0 says nothing"));
    controller.add("/a", goal(10, 0.5), 0).expect("valid");
    assert!(matches!(controller.add("/a", goal(10, 0.1), 0), Err(GoalError::Twice(_))));
    assert!(matches!(controller.add("/b", goal(10, 0.4), 0), Err(GoalError::TooMuch { others: 0.5, .. })));
    let second = controller.add("/b", goal(10, 0.3), 0).expect("0.8 in all");
    assert!(controller.set_goal(second, goal(0, 0.1), 0).is_err());
    assert_eq!(*controller.goal(second), goal(10, 0.3), "a goal that is refused changes nothing");
    assert!(controller.set_reservable(0.5).is_err());
    assert!(controller.set_goal(second, goal(10, 0.1), 0).is_err());
    controller.set_goal(second, goal(10, 0.0001), 0).expect_err("0.5 is taken");
}

#[test]
fn costs_are_taken_anew_after_requests_after_time_and_when_the_goal_changes() {
    let (mut controller, route) = one(goal(100, 0.5).costing(Duration::from_millis(1)));
    assert_eq!(controller.specifications(route), 49);
    // A number of requests.
    (0..10).for_each(|_| {
        serve(&mut controller, route, 2 * MS, 0);
    });
    assert_eq!((controller.specifications(route), route_of(&controller).counts.adjustments), (24, 1));
    (0..99).for_each(|_| {
        serve(&mut controller, route, 5 * MS, MS);
    });
    assert_eq!(controller.specifications(route), 24, "not yet");
    serve(&mut controller, route, 5 * MS, MS);
    assert_eq!(controller.specifications(route), 9);
    // Some time.
    (0..20).for_each(|_| {
        serve(&mut controller, route, MS, 2 * MS);
    });
    assert_eq!(controller.specifications(route), 9, "not yet");
    serve(&mut controller, route, MS, 1_002 * MS);
    assert_eq!(controller.specifications(route), 49);
    // Another response time, another part of the CPU.
    controller.set_goal(route, goal(1_000, 0.5), 1_002 * MS).expect("valid");
    assert_eq!(controller.specifications(route), 499);
    controller.set_goal(route, goal(1_000, 0.25), 1_002 * MS).expect("valid");
    assert_eq!(controller.specifications(route), 249);
}

#[test]
fn what_requests_of_one_route_cost_says_nothing_of_another() {
    let mut controller = Controller::new(1);
    let search = controller.add("/search", goal(100, 0.4), 0).expect("valid");
    let report = controller.add("/report", goal(2_000, 0.2), 0).expect("valid");
    for _ in 0..10 {
        serve(&mut controller, search, MS, 0);
    }
    assert_eq!((controller.specifications(search), controller.costs(report)), (39, None));
    for _ in 0..10 {
        serve(&mut controller, report, 25 * MS, 0);
    }
    let average_ms = |route| controller.costs(route).expect("known").average_ns / MS;
    assert_eq!((average_ms(search), average_ms(report)), (1, 25));
    assert_eq!((controller.specifications(search), controller.specifications(report)), (39, 15));
}

#[test]
fn dear_requests_that_only_compute_share_few_large_reservations_and_all_others_have_one_each() {
    let serve = |cost_ms: fn(u64) -> u64, slept_ms: u64| {
        let (mut controller, route) = one(goal(500, 0.75));
        for number in 0..100 {
            let now_ns = number * 500 * MS;
            let Decision::Accepted(ticket) = controller.arrive(route, now_ns) else {
                panic!("there are some")
            };
            controller.slept(&ticket, slept_ms * MS, cost_ms(number) * MS);
            controller.finish(ticket, End::Answered, Some(cost_ms(number) * MS), now_ns);
        }
        let workers = controller.workers_wished(route);
        (workers, controller.specifications(route), controller.budget_ns(route, workers) * workers as u64)
    };
    let mixed = |number| if number % 10 == 9 { 55 } else { 5 };
    // All of them together have 0.76 of 500 ms, or less where that is enough.
    assert_eq!(serve(mixed, 0), (2, 37, 380 * MS));
    let (workers, specifications, all_ns) = serve(|_| 10, 0);
    assert_eq!((workers, specifications), (37, 37));
    assert!(all_ns <= 380 * MS && all_ns > 370 * MS);
    assert_eq!(serve(mixed, 30).0, 37, "they hold their workers while they wait");
}

#[test]
fn what_could_not_be_reserved_is_not_promised() {
    let (mut controller, route) = one(goal(100, 0.5).costing(Duration::from_millis(1)));
    controller.set_granted(route, Some(0.1), 0);
    assert_eq!((controller.specifications(route), route_of(&controller).cpu_in_force), (9, 0.1));
    assert_eq!(
        controller.specifications_wished(route),
        49,
        "what is asked for does not shrink with what is given"
    );
    controller.set_granted(route, None, 0);
    assert_eq!((controller.specifications(route), route_of(&controller).cpu_in_force), (49, 0.5));
}

#[test]
fn a_cost_that_jumps_a_hundredfold_and_back_is_followed() {
    let (mut controller, route) = one(goal(1_000, 0.8).otherwise(Otherwise::Refuse));
    let mut now_ns = 0;
    for cost_ns in [10 * MS, 1_000 * MS, 10 * MS] {
        let before = route_of(&controller).counts;
        for _ in 0..40 {
            now_ns += 1_000 * MS;
            serve(&mut controller, route, cost_ns, now_ns);
        }
        let seen = route_of(&controller);
        assert!(seen.counts.accepted > before.accepted, "nothing is refused for ever");
        let expected = if cost_ns == 10 * MS { 79 } else { 1 };
        assert_eq!(seen.specifications, expected);
        assert_eq!(seen.note.is_some(), expected == 1, "{seen:?}");
    }
}

/// Many accepted requests of one route wait for something else than a CPU. That so many are in hand, and that little
/// CPU time is used meanwhile, says nothing of how soon one that computes is served.
#[test]
fn who_waits_in_numbers_takes_no_hope_from_who_computes() {
    let mut controller = Controller::new(1);
    let cost = Duration::from_millis(1);
    let waiting = controller.add("/waits", goal(1_000, 0.4).costing(cost), 0).expect("valid");
    let computing = controller.add("/computes", goal(1_000, 1e-9).costing(cost), 0).expect("valid");
    let arrive = |controller: &mut Controller| match controller.arrive(waiting, 0) {
        Decision::Accepted(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let mut in_hand: Vec<Ticket> = (0..100).map(|_| arrive(&mut controller)).collect();
    let now_ns = 500 * MS;
    for ticket in in_hand.drain(..20) {
        controller.slept(&ticket, 499 * MS, MS);
        controller.finish(ticket, End::Answered, Some(MS), now_ns);
    }
    // The only one that is promised anything on the other route.
    assert!(matches!(controller.arrive(computing, now_ns), Decision::Accepted(_)));
    let Decision::BestEffort(first) = controller.arrive(computing, now_ns) else { panic!("one is accepted") };
    controller.slept(&first, 0, MS);
    controller.finish(first, End::Answered, Some(MS), now_ns + MS);
    // The first that comes then is tried in any case.
    let next: Vec<Decision> = (0..2).map(|_| controller.arrive(computing, now_ns + 2 * MS)).collect();
    let is_hopeful =
        |decision: &Decision| matches!(decision, Decision::BestEffort(ticket) if ticket.is_hopeful());
    assert!(next.iter().all(is_hopeful), "{next:?} beside {} in hand", in_hand.len());
}

#[test]
fn a_request_that_never_ends_holds_no_specification_for_ever() {
    let (mut controller, route) = one(goal(100, 0.5).costing(Duration::from_millis(40)));
    assert_eq!(controller.specifications(route), 1);
    let Decision::Accepted(ticket) = controller.arrive(route, 0) else { panic!("there is one") };
    let Decision::BestEffort(other) = controller.arrive(route, 400 * MS) else { panic!("there was one") };
    controller.take_back(route, ticket.number(), 400 * MS, 400 * MS);
    controller.take_back(route, ticket.number(), 400 * MS, 400 * MS);
    let Decision::Accepted(next) = controller.arrive(route, 400 * MS) else { panic!("it was given back") };
    assert_eq!(route_of(&controller).counts.overdue, 1);
    // Should it end after all, it is counted, and gives nothing back twice.
    controller.finish(ticket, End::Answered, Some(500 * MS), 500 * MS);
    controller.finish(next, End::Answered, Some(40 * MS), 500 * MS);
    controller.finish(other, End::Answered, Some(40 * MS), 450 * MS);
    let seen = route_of(&controller);
    assert_eq!(
        (seen.counts.overdue, seen.counts.missed, seen.counts.met, seen.counts.best_effort_met),
        (0, 1, 1, 1)
    );
    assert_eq!((seen.in_hand, seen.specifications), (0, 1));
}

#[test]
fn a_client_that_goes_before_its_request_began_uses_up_nothing() {
    let (mut controller, route) = one(goal(100, 0.5).costing(Duration::from_millis(40)));
    let Decision::Accepted(ticket) = controller.arrive(route, 0) else { panic!("there is one") };
    controller.finish(ticket, End::Abandoned, None, 1);
    assert!(matches!(controller.arrive(route, 2), Decision::Accepted(_)));
    assert_eq!(route_of(&controller).counts.abandoned, 1);
}

#[test]
fn who_is_refused_is_told_when_one_is_accepted_again() {
    let (mut controller, route) =
        one(goal(100, 0.5).costing(Duration::from_millis(40)).otherwise(Otherwise::Refuse));
    assert!(serve(&mut controller, route, 40 * MS, 0));
    let Decision::Refused { retry_after_ns } = controller.arrive(route, 30 * MS) else {
        panic!("one was used")
    };
    assert_eq!(retry_after_ns, 70 * MS);
    assert!(matches!(controller.arrive(route, 30 * MS + retry_after_ns), Decision::Accepted(_)));
}

#[test]
fn who_waits_is_let_in_in_turn_and_not_overtaken() {
    let (mut controller, route) =
        one(goal(100, 0.5).costing(Duration::from_millis(20)).otherwise(Otherwise::Queue));
    assert_eq!(controller.specifications(route), 2);
    assert!(serve(&mut controller, route, 20 * MS, 0) && serve(&mut controller, route, 20 * MS, 0));
    assert_eq!(controller.arrive(route, 10 * MS), Decision::Waits);
    assert_eq!(controller.poll_timeout(10 * MS), Some(100 * MS));
    assert_eq!(controller.admit_waiting(route, 10 * MS, 99 * MS), None);
    assert_eq!(controller.arrive(route, 100 * MS), Decision::Waits);
    let ticket = controller.admit_waiting(route, 10 * MS, 100 * MS).expect("its turn");
    assert_eq!(ticket.deadline_ns(), 110 * MS);
    controller.leave(route);
    assert_eq!(controller.waiting(route), 0);
    assert!(matches!(controller.arrive(route, 100 * MS), Decision::Accepted(_)));
    controller.finish(ticket, End::Panicked, Some(MS), 105 * MS);
    assert_eq!((route_of(&controller).counts.panicked, route_of(&controller).counts.abandoned), (1, 1));
}

/// Something that happens to a controller.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive,
    Finish { which: usize, cost_us: u64, end: End },
    TakeBack { which: usize },
    Leave,
    Pass { us: u64 },
    Change { response_time_ms: u64, cpu: f64, otherwise: Otherwise },
    Granted { cpu: f64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![Just(End::Answered), Just(End::Panicked), Just(End::Abandoned)];
    let otherwise = prop_oneof![Just(Otherwise::BestEffort), Just(Otherwise::Refuse), Just(Otherwise::Queue)];
    let step = prop_oneof![
        8 => Just(Step::Arrive),
        6 => (any::<usize>(), 0u64..60_000, end).prop_map(|(which, cost_us, end)| Step::Finish { which, cost_us, end }),
        1 => any::<usize>().prop_map(|which| Step::TakeBack { which }),
        1 => Just(Step::Leave),
        4 => (0u64..40_000).prop_map(|us| Step::Pass { us }),
        1 => (1u64..300, 0.01f64..0.8, otherwise)
            .prop_map(|(response_time_ms, cpu, otherwise)| Step::Change { response_time_ms, cpu, otherwise }),
        1 => (0.0f64..1.0).prop_map(|cpu| Step::Granted { cpu }),
    ];
    prop::collection::vec(step, 1..400)
}

/// A controller, and all that is in hand of those who use it.
struct World {
    controller: Controller,
    route: RouteId,
    now_ns: u64,
    tickets: Vec<Ticket>,
    taken_back: Vec<u64>,
    waiting: VecDeque<u64>,
    arrived: u64,
    /// When each was accepted, with the response time of that moment.
    accepted: Vec<(u64, u64)>,
    specifications_max: usize,
}

impl World {
    fn take(&mut self, step: Step) {
        match step {
            Step::Arrive => self.arrive(),
            Step::Finish { which, cost_us, end } if !self.tickets.is_empty() => {
                let ticket = self.tickets.swap_remove(which % self.tickets.len());
                let is_overdue = self.taken_back.contains(&ticket.number());
                // One that never began leaves no cost, and nobody takes it back.
                let cost = (end != End::Abandoned || is_overdue).then_some(cost_us * 1_000);
                self.controller.finish(ticket, end, cost, self.now_ns);
            }
            Step::TakeBack { which } if !self.tickets.is_empty() => {
                let number = self.tickets[which % self.tickets.len()].number();
                self.taken_back.push(number);
                self.controller.take_back(self.route, number, MS, self.now_ns);
            }
            Step::Leave if self.waiting.pop_back().is_some() => self.controller.leave(self.route),
            Step::Pass { us } => self.now_ns += us * 1_000,
            Step::Change { response_time_ms, cpu, otherwise } => {
                let changed = goal(response_time_ms, cpu).otherwise(otherwise);
                self.controller
                    .set_goal(self.route, changed, self.now_ns)
                    .expect("within what is reservable");
            }
            Step::Granted { cpu } => self.controller.set_granted(self.route, Some(cpu), self.now_ns),
            _ => {}
        }
        while let Some(arrived_ns) = self.waiting.front()
            && let Some(ticket) = self.controller.admit_waiting(self.route, *arrived_ns, self.now_ns)
        {
            self.waiting.pop_front();
            self.accept(ticket);
        }
    }

    fn arrive(&mut self) {
        self.arrived += 1;
        match self.controller.arrive(self.route, self.now_ns) {
            Decision::Accepted(ticket) => self.accept(ticket),
            Decision::BestEffort(ticket) => self.tickets.push(ticket),
            Decision::Waits => self.waiting.push_back(self.now_ns),
            Decision::Refused { retry_after_ns } => assert!(retry_after_ns > 0),
        }
    }

    fn accept(&mut self, ticket: Ticket) {
        assert!(ticket.is_accepted());
        let response_time = self.controller.goal(self.route).response_time;
        self.accepted.push((self.now_ns, response_time.as_nanos() as u64));
        self.tickets.push(ticket);
    }
}

fn world() -> World {
    let (controller, route) = one(goal(100, 0.5));
    let specifications_max = controller.specifications(route);
    World {
        controller,
        route,
        now_ns: 0,
        tickets: Vec::new(),
        taken_back: Vec::new(),
        waiting: VecDeque::new(),
        arrived: 0,
        accepted: Vec::new(),
        specifications_max,
    }
}

proptest! {
    /// Whatever happens in whichever order: every request that arrived is in exactly one place, and once all have
    /// ended, all specifications are there.
    #[test]
    fn no_request_is_lost_and_no_specification_leaks(steps in steps()) {
        let mut world = world();
        for step in steps {
            world.take(step);
            let seen = route_of(&world.controller);
            let counts = seen.counts;
            let ended = counts.met + counts.missed + counts.best_effort_met + counts.best_effort_missed
                + counts.panicked + counts.abandoned;
            prop_assert_eq!(world.arrived, ended + counts.refused + seen.in_hand + counts.overdue + seen.waiting);
            prop_assert_eq!(world.tickets.len() as u64, seen.in_hand + counts.overdue);
            prop_assert_eq!(world.waiting.len() as u64, seen.waiting);
            prop_assert!(seen.specifications >= 1);
        }
        while let Some(ticket) = world.tickets.pop() {
            world.controller.finish(ticket, End::Answered, Some(MS), world.now_ns);
        }
        while world.waiting.pop_front().is_some() {
            world.controller.leave(world.route);
        }
        // Long after, exactly as many are accepted at once as there are specifications.
        let later_ns = world.now_ns + 1_000_000 * MS;
        let refusing = goal(100, 0.3).otherwise(Otherwise::Refuse);
        world.controller.set_goal(world.route, refusing, later_ns).expect("valid");
        let expected = world.controller.specifications(world.route);
        let mut accepted = Vec::new();
        while let Decision::Accepted(ticket) = world.controller.arrive(world.route, later_ns) {
            accepted.push(ticket);
        }
        prop_assert_eq!(accepted.len(), expected);
        for ticket in accepted {
            world.controller.finish(ticket, End::Answered, Some(MS), later_ns);
        }
    }

    /// In no response time are more requests accepted that begin than there were specifications at most, as long as the
    /// goal stays the same.
    #[test]
    fn no_specification_is_used_twice_in_a_response_time(steps in steps()) {
        let mut world = world();
        let begins = |step: &Step| !matches!(step, Step::Change { .. } | Step::Finish { end: End::Abandoned, .. });
        for step in steps.into_iter().filter(begins) {
            world.take(step);
            world.specifications_max = world.specifications_max.max(world.controller.specifications(world.route));
            let (now_ns, most) = (world.now_ns, world.specifications_max);
            let lately = world.accepted.iter().filter(|(at_ns, length_ns)| at_ns + length_ns > now_ns).count();
            prop_assert!(lately <= most, "{lately} of {most}");
        }
    }
}
