//! Reservations, asked of a daemon that is played by the test.

#[path = "../../libsteward/tests/daemon/mod.rs"]
mod daemon;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libsteward::ApiError;
use libsteward::api::{Method, Release, Set, Standings, Status};
use serde_json::{Map, Value, json};
use steward_server::{Goal, Server, Settings, Snapshot};

/// What a daemon was asked for, and how much room it has: milliseconds of CPU time in a second.
#[derive(Default)]
struct Asked {
    given: Vec<(i64, u64, u64)>,
    released: Vec<i64>,
    calls: usize,
    /// Where threads announce their requests, of those that were given something.
    requests_at: Vec<u64>,
    /// It is an older one, which knows nothing of that.
    is_old: bool,
    /// It ends: each client is closed at its next call, and what was given is forgotten.
    is_ending: bool,
}

fn status(admit_below: f64, kind: Option<&str>) -> Map<String, Value> {
    let thresholds = json!({"reactivate_below": 0.6, "admit_below": admit_below, "revoke_above": 0.95});
    let cpu = json!({"mechanism": {"kind": kind, "restarts": 0}, "thresholds": thresholds, "cpus": [], "tasks": []});
    let reply = json!({
        "version": "0", "pid": 1, "specs": 0, "events_lost": 0, "cpu": cpu, "problems": [],
        "memory": serde_json::to_value(libsteward::api::MemoryState::default()).expect("JSON"),
    });
    daemon::parameters(&reply)
}

/// A daemon with room for so many parts of a CPU.
fn play(socket: &Path, room: f64, kind: Option<&'static str>) -> Arc<Mutex<Asked>> {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let told = asked.clone();
    daemon::serve(socket, move |mut client| {
        while let Some(call) = client.next_call() {
            let parameters = Value::Object(call.parameters.clone());
            let mut asked = told.lock().expect("no panic");
            asked.calls += 1;
            if asked.is_ending {
                asked.given.clear();
                return;
            }
            let answer = match call.method.as_str() {
                Status::NAME => Ok(status(0.8, kind)),
                Set::NAME => set(&mut asked, &parameters, room),
                Release::NAME => {
                    let pid = parameters["pid"].as_i64().expect("a number");
                    asked.given.retain(|(tid, ..)| *tid != pid);
                    asked.released.push(pid);
                    Ok(daemon::parameters(&json!({"released": 1})))
                }
                other => Err(ApiError::MethodNotFound { method: other.to_owned() }),
            };
            drop(asked);
            client.answer(answer);
        }
    });
    asked
}

fn set(asked: &mut Asked, parameters: &Value, room: f64) -> Result<Map<String, Value>, ApiError> {
    let requests_at = parameters.get("requests_at").and_then(Value::as_u64);
    if asked.is_old && requests_at.is_some() {
        let reason = "unknown field `requests_at`".to_owned();
        return Err(ApiError::InvalidParameter { parameter: "parameters".to_owned(), reason });
    }
    let pid = parameters["pid"].as_i64().expect("a number");
    let (budget_ns, period_ns) = (
        parameters["cpu"]["budget_ns"].as_u64().expect("a number"),
        parameters["cpu"]["period_ns"].as_u64().expect("one"),
    );
    asked.given.retain(|(tid, ..)| *tid != pid);
    let part = |budget_ns: u64, period_ns: u64| budget_ns as f64 / period_ns as f64;
    let sum: f64 = asked.given.iter().map(|(_, budget_ns, period_ns)| part(*budget_ns, *period_ns)).sum();
    if sum + part(budget_ns, period_ns) >= room {
        let reason = "no room".to_owned();
        return Err(ApiError::AdmissionRefused {
            reason,
            bandwidth: part(budget_ns, period_ns),
            admit_below: room,
        });
    }
    asked.given.push((pid, budget_ns, period_ns));
    asked.requests_at.extend(requests_at);
    Ok(daemon::parameters(&Standings::default()))
}

/// Requests of 10 ms that are to be answered in 1 s.
fn server(socket: &Path, cpu: f64) -> Server {
    let goal = Goal::new(Duration::from_secs(1), cpu).costing(Duration::from_millis(10));
    let settings =
        Settings { socket: Some(socket.to_owned()), cpus: 1, best_effort_workers: 10, ..Settings::default() };
    Server::start(settings.route("/a", goal)).expect("valid")
}

/// Waits for something that another thread does.
fn until(what: &str, server: &Server, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let patience = Instant::now();
    loop {
        let snapshot = server.snapshot();
        if is_so(&snapshot) {
            return snapshot;
        }
        assert!(patience.elapsed().as_secs() < 60, "{what} did not come about: {snapshot}");
        std::thread::yield_now();
    }
}

#[test]
fn each_specification_has_a_worker_with_a_reservation_which_changes_with_the_goal() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let asked = play(&socket, 0.8, Some("sched_ext"));
    let server = server(&socket, 0.5);
    // The largest N with N x 10 ms < 1 s x 0.5, and the small pool beside it.
    until("reservations", &server, |seen| (seen.reserved_workers, seen.best_effort_workers) == (49, 10));
    {
        let asked = asked.lock().expect("no panic");
        assert_eq!(asked.given.len(), 49);
        assert!(
            asked
                .given
                .iter()
                .all(|(_, budget_ns, period_ns)| (*budget_ns, *period_ns) == (10_500_000, 1_000_000_000))
        );
    }
    let route = server.route("/a").expect("given");
    assert_eq!(server.run(route, || 1), Ok(1));
    server
        .set_goal(route, Goal::new(Duration::from_secs(1), 0.1).costing(Duration::from_millis(10)))
        .expect("valid");
    until("fewer workers", &server, |seen| seen.reserved_workers == 9);
    assert_eq!(server.run(route, || 1), Ok(1));
    assert_eq!(server.close(Duration::from_secs(60)), 0);
}

#[test]
fn no_more_is_promised_than_could_be_reserved() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let asked = play(&socket, 0.205, Some("sched_ext"));
    let server = server(&socket, 0.5);
    let seen = until("refusal", &server, |seen| seen.unreserved.is_some());
    assert_eq!(seen.unreserved.as_deref(), Some("no room"));
    let seen = until("fewer promises", &server, |seen| seen.routes[0].specifications == 19);
    assert_eq!((seen.reserved_workers, seen.best_effort_workers), (19, 10));
    assert_eq!(asked.lock().expect("no panic").given.len(), 19);
}

#[test]
fn where_nothing_can_be_reserved_a_plain_pool_serves_and_says_why() {
    for (room, kind, why) in
        [(0.0, Some("sched_ext"), "no room"), (0.8, None, "the daemon reserves nothing now")]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        play(&socket, room, kind);
        let server = server(&socket, 0.5);
        let seen = until("a reason", &server, |seen| seen.unreserved.is_some());
        assert!(seen.unreserved.as_ref().is_some_and(|reason| reason.starts_with(why)), "{seen}");
        assert_eq!((seen.reserved_workers, seen.routes[0].specifications), (0, 49));
        let route = server.route("/a").expect("given");
        assert_eq!(server.run(route, || 1), Ok(1));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let server = server(&directory.path().join("nobody"), 0.5);
    let seen = until("a reason", &server, |seen| seen.unreserved.is_some());
    assert!(seen.unreserved.is_some_and(|reason| reason.starts_with("cannot reach stewardd at")));
}

#[test]
fn a_request_that_never_ends_loses_its_reservation_and_another_worker_gets_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let asked = play(&socket, 0.8, Some("sched_ext"));
    let goal = Goal::new(Duration::from_millis(10), 0.5).costing(Duration::from_millis(4));
    let settings = Settings { socket: Some(socket), cpus: 1, ..Settings::default() };
    let server = Server::start(settings.route("/a", goal)).expect("valid");
    until("a reservation", &server, |seen| seen.reserved_workers == 1);
    let tid = asked.lock().expect("no panic").given[0].0;
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let place = server.arrive(server.route("/a").expect("given")).expect("let in");
    assert!(place.is_accepted());
    place.serve(move || assert!(held.recv().is_err()));
    until("another worker", &server, |seen| seen.routes[0].counts.overdue == 1 && seen.reserved_workers == 1);
    let asked = asked.lock().expect("no panic");
    assert_eq!(asked.released, [tid]);
    assert!(asked.given.len() == 1 && asked.given[0].0 != tid);
    drop(hold);
}

#[test]
fn a_thread_that_takes_requests_in_gets_what_it_asks_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let asked = play(&socket, 0.8, Some("sched_ext"));
    let server = server(&socket, 0.5);
    server.reserve_for_this_thread(Duration::from_millis(1), Duration::from_millis(10));
    let is_given = |given: &[(i64, u64, u64)]| given.iter().any(|(_, budget_ns, _)| *budget_ns == 1_000_000);
    until("a reservation", &server, |_| is_given(&asked.lock().expect("no panic").given));
}

#[test]
fn each_worker_says_where_it_announces_requests_and_an_older_daemon_is_not_asked_again() {
    for is_old in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let asked = play(&socket, 0.8, Some("sched_ext"));
        asked.lock().expect("no panic").is_old = is_old;
        let server = server(&socket, 0.5);
        until("reservations", &server, |seen| seen.reserved_workers == 49);
        let mut asked = asked.lock().expect("no panic");
        let places = asked.requests_at.len();
        asked.requests_at.sort_unstable();
        asked.requests_at.dedup();
        assert_eq!((places, asked.requests_at.len()), if is_old { (0, 0) } else { (49, 49) });
        // One status, one call for each worker, and of an older daemon one that it does not understand.
        assert_eq!(asked.calls, 50 + usize::from(is_old));
    }
}

/// The daemon ends in the middle of a burst, and another one begins: all that were let in are served, at first without
/// reservations, and then there are some again.
#[test]
fn a_daemon_that_ends_in_the_middle_of_a_burst_costs_no_request_and_the_next_one_is_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let asked = play(&socket, 0.8, Some("sched_ext"));
    let server = server(&socket, 0.5);
    let route = server.route("/a").expect("given");
    until("reservations", &server, |seen| seen.reserved_workers == 49);
    let (tell, told) = std::sync::mpsc::channel();
    let burst = |from: usize| {
        for number in from..from + 200 {
            let tell = tell.clone();
            server.arrive(route).expect("let in").serve(move || tell.send(number).expect("it is read"));
        }
    };
    burst(0);
    asked.lock().expect("no panic").is_ending = true;
    // The next call is refused by closing the connection: a new goal makes the server ask.
    server
        .set_goal(route, Goal::new(Duration::from_secs(1), 0.4).costing(Duration::from_millis(10)))
        .expect("valid");
    until("the end of the daemon", &server, |seen| seen.unreserved.is_some());
    burst(200);
    asked.lock().expect("no panic").is_ending = false;
    burst(400);
    let mut served: Vec<usize> = told.iter().take(600).collect();
    served.sort_unstable();
    assert_eq!(served, (0..600).collect::<Vec<_>>());
    let seen =
        until("reservations again", &server, |seen| seen.unreserved.is_none() && seen.reserved_workers > 0);
    let counts = &seen.routes[0].counts;
    assert_eq!((counts.accepted + counts.best_effort, counts.overdue, counts.panicked), (600, 0, 0));
    let expected = seen.reserved_workers as usize;
    until("what the new daemon gave", &server, |_| asked.lock().expect("no panic").given.len() >= expected);
    assert_eq!(server.close(Duration::from_secs(60)), 0);
}
