//! The server as its users see it, without a daemon: no request is lost, whatever becomes of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steward_server::{
    Goal, GoalError, Otherwise, Outcome, Refused, RouteId, RouteSnapshot, RunError, Server, Settings,
    StartError, Why,
};

/// Far longer than anything here takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

fn settings(goal: Goal, plain_workers: usize) -> Settings {
    Settings { plain_workers, cpus: 1, socket: None, ..Settings::default() }.route("/a", goal)
}

fn server(goal: Goal, plain_workers: usize) -> (Server, RouteId) {
    let server = Server::start(settings(goal, plain_workers)).expect("valid");
    let route = server.route("/a").expect("it was given");
    (server, route)
}

/// Two requests are accepted for as long as a test takes.
fn two_in_400_seconds() -> Goal {
    Goal::new(Duration::from_secs(400), 0.6).costing(Duration::from_secs(100))
}

fn seen(server: &Server) -> RouteSnapshot {
    server.snapshot().routes.remove(0)
}

/// Waits for something that another thread does.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now();
    while !is_so() {
        assert!(patience.elapsed() < LONG, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// Occupies a worker until what is returned is dropped.
fn occupy(server: &Server, route: RouteId) -> Sender<()> {
    let (hold, held) = channel::<()>();
    let (tell, told) = channel();
    server.arrive(route).expect("let in").serve(move || {
        let _ = tell.send(());
        let _ = held.recv();
    });
    told.recv_timeout(LONG).expect("it begins");
    hold
}

#[test]
fn every_request_is_served_and_counted() {
    let (server, route) = server(Goal::new(Duration::from_secs(600), 0.5), 3);
    let served = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (server, served) = (server.clone(), served.clone());
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let served = served.clone();
                    server.arrive(route).expect("let in").serve(move || {
                        served.fetch_add(1, Ordering::Relaxed);
                    });
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    until("costs", || seen(&server).cost_average_ms.is_some());
    // Now that it is known how little they cost, more than the first four are accepted.
    assert_eq!(server.run(route, || 1), Ok(1));
    assert_eq!(server.close(LONG), 0);
    assert_eq!(served.load(Ordering::Relaxed), 400);
    let seen = seen(&server);
    assert_eq!(seen.counts.met + seen.counts.best_effort_met, 401);
    assert!(seen.counts.met > 4 && seen.cost_average_ms.is_some(), "{seen:?}");
    assert_eq!((seen.in_hand, seen.waiting), (0, 0));
}

#[test]
fn accepted_requests_are_served_before_others_by_deadline() {
    let goal = two_in_400_seconds();
    let sooner = Goal::new(Duration::from_secs(300), 0.2).costing(Duration::from_secs(10));
    let server = Server::start(settings(goal, 1).route("/b", sooner)).expect("valid");
    let (a, b) = (server.route("/a").expect("given"), server.route("/b").expect("given"));
    let hold = occupy(&server, a);
    let order = Arc::new(Mutex::new(Vec::new()));
    // One more of /a is accepted, two are not; /b is due sooner.
    for (route, name) in [(a, "accepted"), (a, "best-effort"), (a, "best-effort"), (b, "sooner")] {
        let (order, place) = (order.clone(), server.arrive(route).expect("let in"));
        assert_eq!(place.is_accepted(), name != "best-effort");
        place.serve(move || order.lock().expect("no panic").push(name));
    }
    drop(hold);
    assert_eq!(server.close(LONG), 0);
    assert_eq!(*order.lock().expect("no panic"), ["sooner", "accepted", "best-effort", "best-effort"]);
}

#[test]
fn a_panic_ends_its_request_and_nothing_else() {
    let (server, route) = server(two_in_400_seconds(), 1);
    for _ in 0..2 {
        let result: Result<(), _> = server.run(route, || std::panic::resume_unwind(Box::new("a panic")));
        assert_eq!(result, Err(RunError::Panicked));
    }
    assert_eq!(server.run(route, || 1), Ok(1));
    assert_eq!(server.close(LONG), 0);
    assert_eq!((seen(&server).counts.panicked, seen(&server).in_hand), (2, 0));
}

#[test]
fn what_is_refused_is_told_when_to_come_back() {
    let (server, route) = server(two_in_400_seconds().otherwise(Otherwise::Refuse), 1);
    assert_eq!(server.run(route, || 1), Ok(1));
    assert_eq!(server.run(route, || 2), Ok(2));
    let refused = server.arrive(route).expect_err("two were accepted");
    assert_eq!(refused.why, Why::Full);
    assert!(refused.retry_after > Duration::ZERO && refused.retry_after <= Duration::from_secs(400));
    assert!(
        refused
            .to_string()
            .starts_with("as many requests as can be answered in time were accepted: try again in")
    );
    assert_eq!(seen(&server).counts.refused, 1);
}

#[test]
fn who_waits_is_served_in_turn_though_nothing_else_happens() {
    let goal = Goal::new(Duration::from_millis(40), 0.5).costing(Duration::from_millis(15));
    let (server, route) = server(goal.otherwise(Otherwise::Queue), 1);
    let served = (0..4).map(|number| {
        let (tell, told) = channel();
        server.arrive(route).expect("let in").serve(move || tell.send(number).expect("heard"));
        told
    });
    let served: Vec<_> = served.collect();
    for (number, told) in served.into_iter().enumerate() {
        assert_eq!(told.recv_timeout(LONG), Ok(number));
    }
    assert_eq!(server.close(LONG), 0);
    assert_eq!(seen(&server).counts.accepted, 4);
}

#[test]
fn who_waits_when_the_server_closes_is_served_all_the_same() {
    let (server, route) = server(two_in_400_seconds().otherwise(Otherwise::Queue), 1);
    let hold = occupy(&server, route);
    let (tell, told) = channel();
    for number in 0..5 {
        let tell = tell.clone();
        server.arrive(route).expect("let in").serve(move || tell.send(number).expect("heard"));
    }
    let place = server.arrive(route).expect("let in");
    drop(server);
    drop(hold);
    // Even one whose work is told only now.
    place.serve(move || tell.send(5).expect("heard"));
    let served: Vec<_> = (0..6).map(|_| told.recv_timeout(LONG).expect("served")).collect();
    assert_eq!(served.iter().sum::<i32>(), 15);
}

#[test]
fn more_do_not_wait_than_the_settings_say() {
    let settings = Settings { waiting_max: 2, ..settings(two_in_400_seconds(), 1) };
    let server = Server::start(settings).expect("valid");
    let route = server.route("/a").expect("given");
    let hold = occupy(&server, route);
    (0..2).for_each(|_| server.arrive(route).expect("let in").serve(|| ()));
    let Refused { why, .. } = server.arrive(route).expect_err("two wait");
    assert_eq!(why, Why::TooManyWait);
    drop(hold);
    assert_eq!(server.close(LONG), 0);
    assert_eq!(server.arrive(route).expect_err("closed").why, Why::Closed);
    let counts = seen(&server).counts;
    assert_eq!((counts.refused, counts.met + counts.best_effort_met), (1, 3));
}

#[test]
fn a_place_that_is_not_used_uses_up_nothing() {
    let (server, route) = server(two_in_400_seconds(), 1);
    for _ in 0..5 {
        let place = server.arrive(route).expect("let in");
        assert!(place.is_accepted());
        drop(place);
    }
    assert_eq!((seen(&server).counts.abandoned, seen(&server).in_hand), (5, 0));
}

/// From four threads at once, in all ways in which a request can end.
#[test]
fn whatever_becomes_of_requests_no_worker_and_no_specification_is_lost() {
    let goal = Goal::new(Duration::from_millis(20), 0.5).costing(Duration::from_millis(1));
    let (server, route) = server(goal.otherwise(Otherwise::Refuse), 3);
    let send = |number: u64| {
        let Ok(place) = server.arrive(route) else { return };
        match number % 6 {
            0 => place.serve(|| panic!("a request panics")),
            1 => drop(place),
            2 => place.serve_until(|| Outcome::Abandoned { has_begun: false }),
            3 => place.serve_until(|| Outcome::Abandoned { has_begun: true }),
            4 => place.serve_until(|| Outcome::Failed),
            _ => place.serve(|| ()),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..300).for_each(send));
        }
    });
    until("the end of all", || seen(&server).in_hand == 0);
    let counts = seen(&server).counts;
    assert!(counts.panicked > 0 && counts.abandoned > 0 && counts.met + counts.missed > 0, "{counts:?}");
    // When the last ones that were used are eligible again, all can be had at once.
    let places = Mutex::new(Vec::new());
    until("as many as there are", || {
        let mut places = places.lock().expect("no panic");
        places.extend(server.arrive(route).ok().filter(steward_server::Place::is_accepted));
        places.len() as u64 >= seen(&server).specifications
    });
    drop(places);
    // They are started, and replaced, by another thread, which may not have had its turn yet.
    until("all workers", || server.snapshot().best_effort_workers == 3);
    assert_eq!(server.close(LONG), 0);
}

#[test]
fn a_request_that_never_ends_gives_its_worker_s_place_to_another() {
    let goal = Goal::new(Duration::from_millis(5), 0.5).costing(Duration::from_millis(1));
    let (server, route) = server(goal, 1);
    let hold = occupy(&server, route);
    // The only worker does not come back; another one takes its place after four response times.
    assert_eq!(server.run(route, || 1), Ok(1));
    assert!(seen(&server).counts.overdue >= 1);
    assert_eq!(server.close(LONG), 0, "nothing waits for it");
    drop(hold);
    until("the end of the request", || seen(&server).counts.overdue == 0);
    assert_eq!(seen(&server).in_hand, 0);
}

#[test]
fn settings_that_cannot_be_followed_are_refused_with_the_route_that_is_wrong() {
    let start = |settings: Settings| Server::start(settings).expect_err("refused");
    let zero = start(settings(Goal::new(Duration::ZERO, 0.5), 1)).to_string();
    assert!(zero.starts_with("/a: a response time of 0ns cannot be held"), "{zero}");
    let much = start(settings(Goal::new(Duration::from_secs(1), 0.9), 1));
    assert!(matches!(much, StartError::Goal { error: GoalError::TooMuch { .. }, .. }));
    assert!(matches!(start(Settings::default()), StartError::NoRoutes));
    assert!(matches!(start(settings(Goal::new(LONG, 0.5), 0)), StartError::NoWorkers));
}

#[test]
fn a_new_goal_is_in_force_at_once_and_a_wrong_one_never() {
    let (server, route) = server(two_in_400_seconds(), 1);
    assert!(server.set_goal(route, Goal::new(Duration::ZERO, 0.5)).is_err());
    assert_eq!(seen(&server).specifications, 2);
    server.set_goal(route, Goal::new(Duration::from_secs(3_600), 0.6)).expect("valid");
    assert_eq!(seen(&server).specifications, 21);
}
