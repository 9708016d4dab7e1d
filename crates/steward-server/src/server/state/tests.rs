//! Who gives way to whom, and who wakes whom.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::clock::simulated;
use crate::controller::Decision;
use crate::goal::Goal;
use crate::server::entry::Outcome;

const MS: u64 = 1_000_000;

/// A server with a worker of each kind, whose requests cost 100 ms and are to be answered within a second.
struct World {
    state: State,
    route: RouteId,
    reserved: u64,
    best_effort: u64,
    /// What the worker without a reservation is at.
    at_work: Option<Ticket>,
}

impl World {
    /// At 1,000 ms, when all four specifications have just become eligible again, and a best-effort request is at work
    /// that is due at 1,030 ms; an earlier one slept for so long.
    fn new(cpus: u32, slept_ns: u64) -> Self {
        simulated::begin();
        let mut controller = Controller::new(cpus);
        let goal =
            Goal::new(Duration::from_secs(1), 0.5 / f64::from(cpus)).costing(Duration::from_millis(100));
        let route = controller.add("/a", goal, 0).expect("a goal that can be held");
        let mut state = State::new(controller, cpus, 1);
        state.want_best_effort(1);
        state.want_reserved(route, 1);
        let mut add = |class, tid| {
            let task = Task { tid, requests_at: 0, is_done: Arc::new(AtomicBool::new(false)) };
            state.add(class, None, task, std::thread::current())
        };
        let (reserved, best_effort) = (add(Class::Reserved(route), 1), add(Class::BestEffort, 2));
        let mut world = World { state, route, reserved, best_effort, at_work: None };
        assert!(matches!(world.state.ask(reserved), Told::Rest(None)));
        assert!(matches!(world.state.ask(best_effort), Told::Rest(None)));
        for _ in 0..4 {
            assert!(world.arrives());
            let ticket = world.serves(reserved).expect("an accepted request");
            world.state.finish(reserved, ticket, End::Answered, Some(100 * MS));
            assert!(world.serves(reserved).is_none());
        }
        for at_ms in [10, 30] {
            simulated::set_now(at_ms * MS);
            assert!(!world.arrives());
            let ticket = world.serves(best_effort).expect("the only one");
            assert!(ticket.is_hopeful());
            if at_ms == 10 {
                simulated::set_now(20 * MS);
                world.state.controller.slept(&ticket, slept_ns, 100 * MS);
                world.state.finish(best_effort, ticket, End::Answered, Some(100 * MS));
                assert!(world.serves(best_effort).is_none());
            } else {
                world.at_work = Some(ticket);
            }
        }
        simulated::set_now(1_000 * MS);
        world
    }

    /// A request comes. Whether it was accepted.
    fn arrives(&mut self) -> bool {
        let arrived_ns = clock::now_ns();
        self.state.look(self.route, arrived_ns);
        let (Decision::Accepted(ticket) | Decision::BestEffort(ticket)) =
            self.state.controller.arrive(self.route, arrived_ns)
        else {
            panic!("nothing else is asked for")
        };
        let is_accepted = ticket.is_accepted();
        let job = Box::new(|| Outcome::Done.into());
        self.state.put(self.route, Entry { ticket: Some(ticket), arrived_ns, job });
        is_accepted
    }

    fn serves(&mut self, worker: u64) -> Option<Ticket> {
        match self.state.ask(worker) {
            Told::Serve(entry) => entry.ticket,
            _ => None,
        }
    }

    /// When the worker with a reservation looks by itself, in milliseconds.
    fn looks_ms(&mut self) -> Option<u64> {
        let Told::Rest(at_ns) = self.state.ask(self.reserved) else { panic!("it gives way") };
        at_ns.map(|at_ns| at_ns / MS)
    }
}

#[test]
fn an_accepted_request_gives_way_to_one_that_is_due_sooner_until_that_is_done() {
    let mut world = World::new(1, 0);
    assert!(world.arrives());
    assert_eq!(world.looks_ms(), Some(1_030));
    simulated::set_now(1_010 * MS);
    let ticket = world.at_work.take().expect("it is at work");
    world.state.finish(world.best_effort, ticket, End::Answered, Some(100 * MS));
    assert!(world.serves(world.reserved).is_some_and(|ticket| ticket.is_accepted()));
}

#[test]
fn its_worker_looks_again_by_itself_when_nobody_wakes_it() {
    let mut world = World::new(1, 0);
    assert!(world.arrives());
    assert_eq!(world.looks_ms(), Some(1_030));
    simulated::set_now(1_029 * MS);
    assert_eq!(world.looks_ms(), Some(1_030), "not yet");
    simulated::set_now(1_030 * MS);
    assert!(world.serves(world.reserved).is_some(), "the other one is late whatever is done");
}

#[test]
fn nobody_gives_way_for_longer_than_all_that_were_accepted_can_afford() {
    let mut world = World::new(1, 0);
    // One needs 200 ms with half a CPU, and may be as dear as 100: it could give way for 500 ms.
    assert!(world.arrives());
    assert_eq!(world.looks_ms(), Some(1_030));
    // Two need twice that, and 900 of 1,000 ms are more than it can wait for any of them.
    assert!(world.arrives());
    assert_eq!(world.looks_ms(), Some(1_030));
    assert!(world.arrives());
    assert!(world.serves(world.reserved).is_some(), "three need 1,300 ms");
}

#[test]
fn nobody_gives_way_where_a_cpu_is_free_or_others_wait_for_something_else() {
    for (cpus, slept_ns) in [(2, 0), (1, 100 * MS)] {
        let mut world = World::new(cpus, slept_ns);
        assert!(world.arrives());
        assert!(world.serves(world.reserved).is_some(), "{cpus} CPUs, and one slept for {slept_ns} ns");
    }
}

#[test]
fn who_gives_way_is_served_when_the_server_closes() {
    let mut world = World::new(1, 0);
    assert!(world.arrives());
    assert_eq!(world.looks_ms(), Some(1_030));
    world.state.close();
    assert!(world.serves(world.reserved).is_some());
}

#[test]
fn a_worker_that_is_busy_ends_what_it_is_at_before_it_goes() {
    let mut world = World::new(1, 0);
    let ticket = world.at_work.take().expect("it is at work");
    world.state.finish(world.best_effort, ticket, End::Answered, Some(100 * MS));
    let extra = {
        let task = Task { tid: 3, requests_at: 0, is_done: Arc::new(AtomicBool::new(false)) };
        world.state.want_reserved(world.route, 2);
        world.state.add(Class::Reserved(world.route), None, task, std::thread::current())
    };
    assert!(matches!(world.state.ask(extra), Told::Rest(None)));
    (0..3).for_each(|_| assert!(world.arrives()));
    let busy = world.serves(world.reserved).expect("one is there");
    world.state.want_reserved(world.route, 1);
    assert_eq!(world.state.workers().0, 2, "both are at work, or have something in hand");
    let other = world.serves(extra).expect("one was handed to it");
    world.state.finish(extra, other, End::Answered, Some(MS));
    assert!(matches!(world.state.ask(extra), Told::End), "it is the one too many");
    world.state.finish(world.reserved, busy, End::Answered, Some(MS));
    assert!(world.serves(world.reserved).is_some(), "the third is left to the one that stays");
}

#[test]
fn a_worker_without_a_reservation_that_is_done_takes_the_next_request_and_wakes_nobody() {
    let mut world = World::new(1, 0);
    let other = {
        let task = Task { tid: 3, requests_at: 0, is_done: Arc::new(AtomicBool::new(false)) };
        world.state.want_best_effort(2);
        world.state.add(Class::BestEffort, None, task, std::thread::current())
    };
    assert!(matches!(world.state.ask(other), Told::Rest(None)));
    simulated::set_now(500 * MS);
    assert!(!world.arrives());
    let ticket = world.at_work.take().expect("it is at work");
    world.state.finish(world.best_effort, ticket, End::Answered, Some(100 * MS));
    assert!(world.state.workers[&other].is_idle);
    assert!(world.serves(world.best_effort).is_some());
}

/// What is handed to a worker that has not begun with it is as good as at work: the CPU is not free.
#[test]
fn no_other_request_is_begun_while_a_worker_that_was_woken_for_a_more_urgent_accepted_one_waits_for_a_cpu() {
    let mut world = World::new(1, 0);
    let ticket = world.at_work.take().expect("it is at work");
    (0..4).for_each(|_| assert!(world.arrives()));
    simulated::set_now(1_001 * MS);
    assert!(!world.arrives());
    world.state.finish(world.best_effort, ticket, End::Answered, Some(100 * MS));
    assert!(world.state.workers[&world.reserved].hand.is_some(), "it has not asked yet");
    assert!(world.serves(world.best_effort).is_none());
    assert!(world.serves(world.reserved).is_some());
}
