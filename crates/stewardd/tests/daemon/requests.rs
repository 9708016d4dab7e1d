//! What clients may ask, and what they get.

use std::sync::atomic::Ordering;

use crate::common::{Machine, Sleeper, reservation, row, set};
use libsteward::{ApiError, Error, api};

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> ApiError {
    match result.expect_err("it is refused") {
        Error::Api(error) => error,
        other => panic!("the daemon did not answer: {other}"),
    }
}

#[test]
fn only_root_and_the_owner_may_reserve_and_others_are_told_the_rule() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    for (uid, may) in [(0, true), (1000, true), (1001, false)] {
        machine.caller_uid.store(uid, Ordering::SeqCst);
        let outcomes = [
            daemon
                .client()
                .call(&api::Run { cpu: Some(reservation(1, 100)), ..Default::default() })
                .map(|_| ()),
            daemon.client().call(&api::Run::default()).map(|_| ()),
            daemon.client().call(&set(sleeper.pid(), reservation(1, 100))).map(|_| ()),
            daemon.client().call(&api::Reload {}).map(|_| ()),
        ];
        for outcome in outcomes {
            if may {
                outcome.expect("root and the owner may");
            } else {
                let ApiError::PermissionDenied { reason } = refusal(outcome) else { panic!("denied") };
                assert!(reason.contains("user 1001") && reason.contains("owner (user 1000)"), "{reason}");
            }
        }
        daemon.client().call(&api::Status {}).expect("everyone may read");
        daemon.client().call(&api::Explain { pid: sleeper.pid() }).expect("everyone may read");
    }
}

#[test]
fn run_reserves_for_the_calling_process_over_exec() {
    let machine = Machine::new();
    let daemon = machine.start();
    let request = api::Run {
        cpu: Some(reservation(5, 30)),
        inherit: Some(true),
        revocable: Some(false),
        ..api::Run::default()
    };
    let standing = daemon.client().call(&request).expect("it fits").standing;
    assert_eq!(standing, Some(api::Standing::Admitted));
    let own = std::process::id() as i32;
    let (grant, _) = machine.fake.machine().tasks[&own];
    assert!(grant.inherit && !grant.revocable && grant.keep_over_exec);
    assert_eq!(grant.reservation.budget_ns, 5_000_000);
    daemon.client().call(&api::Run::default()).expect("allowed");
    assert_eq!(machine.fake.machine().allowed, [own]);
}

#[test]
fn a_reservation_without_room_is_refused_or_waits_as_asked() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let request = set(sleeper.pid(), reservation(90, 100));
    let ApiError::AdmissionRefused { reason, bandwidth, admit_below } =
        refusal(daemon.client().call(&request))
    else {
        panic!("90 % do not fit below 80 %")
    };
    assert_eq!((bandwidth, admit_below), (0.9, 0.8));
    assert!(reason.contains("90ms/100ms") && reason.contains("80 %"), "{reason}");
    assert!(machine.fake.machine().tasks.is_empty());
    let waiting = api::Set { keep_if_refused: Some(true), ..request };
    let standing = daemon.client().call(&waiting).expect("it waits").standing;
    assert_eq!(standing, Some(api::Standing::Refused));
    assert_eq!(daemon.status().cpu.tasks.len(), 1);
}

#[test]
fn a_reservation_that_makes_no_sense_is_an_invalid_parameter() {
    let machine = Machine::new();
    let daemon = machine.start();
    for cpu in [reservation(0, 30), reservation(40, 30), reservation(1, 0), reservation(5, 60_000)] {
        let error = refusal(daemon.client().call(&set(1, cpu)));
        assert!(
            matches!(&error, ApiError::InvalidParameter { parameter, .. } if parameter == "cpu"),
            "{error}"
        );
    }
}

#[test]
fn where_a_thread_announces_its_requests_is_passed_on_and_nothing_that_makes_no_sense() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let request = |requests_at, inherit| api::Set {
        requests_at: Some(requests_at),
        inherit: Some(inherit),
        ..set(sleeper.pid(), reservation(1, 100))
    };
    for (requests_at, inherit, why) in
        [(0, false, "no address"), (4098, false, "multiple of 4"), (4096, true, "one thread")]
    {
        let ApiError::InvalidParameter { parameter, reason } =
            refusal(daemon.client().call(&request(requests_at, inherit)))
        else {
            panic!("{requests_at}, {inherit}")
        };
        assert!(parameter == "requests_at" && reason.contains(why), "{parameter}: {reason}");
    }
    assert!(machine.fake.machine().tasks.is_empty());
    let given = daemon.client().call(&request(4096, false)).expect("it fits");
    let reads = daemon.status().cpu.mechanism.kind == Some(api::MechanismKind::SchedExt);
    assert_eq!((given.standing, given.reads_requests), (Some(api::Standing::Admitted), Some(reads)));
    assert_eq!(machine.fake.machine().tasks[&sleeper.pid()].0.requests_at, Some(4096));
    let given = daemon.client().call(&set(sleeper.pid(), reservation(1, 100))).expect("it fits");
    assert_eq!(given.reads_requests, None);
    assert_eq!(machine.fake.machine().tasks[&sleeper.pid()].0.requests_at, None);
}

#[test]
fn a_process_that_does_not_exist_is_said_not_to() {
    let machine = Machine::new();
    let daemon = machine.start();
    let ended = {
        let sleeper = Sleeper::start(&machine.program("program"));
        sleeper.pid()
    };
    assert_eq!(
        refusal(daemon.client().call(&set(ended, reservation(1, 100)))),
        ApiError::NoSuchTask { pid: ended }
    );
    assert_eq!(
        refusal(daemon.client().call(&api::Release { pid: ended })),
        ApiError::NoSuchTask { pid: ended }
    );
    assert_eq!(refusal(daemon.client().call(&api::Explain { pid: -7 })), ApiError::NoSuchTask { pid: -7 });
    for pid in [0, -1, i32::MIN, i32::MAX] {
        assert_eq!(
            refusal(daemon.client().call(&set(pid, reservation(1, 100)))),
            ApiError::NoSuchTask { pid }
        );
    }
}

#[test]
fn a_thread_is_given_and_loses_a_reservation_of_its_own() {
    let machine = Machine::new();
    let daemon = machine.start();
    let (send, numbers) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("somebody waits");
        // Until the test drops its end.
        let _ = ended.recv();
    });
    let (pid, tid) = (std::process::id() as i32, numbers.recv().expect("a number"));
    let tasks = || machine.fake.machine().tasks.keys().copied().collect::<Vec<i32>>();
    daemon.client().call(&set(tid, reservation(1, 100))).expect("it fits");
    assert_eq!(tasks(), [tid], "the main thread gets nothing");
    daemon.client().call(&set(pid, reservation(1, 100))).expect("it fits");
    let released = daemon.client().call(&api::Release { pid: tid }).expect("it is there").released;
    assert_eq!((released, tasks()), (1, vec![pid]));
    daemon.client().call(&set(tid, reservation(1, 100))).expect("it fits");
    let released = daemon.client().call(&api::Release { pid }).expect("it is there").released;
    assert_eq!((released, tasks()), (2, vec![]), "a process is released with all its threads");
    drop(end);
    thread.join().expect("it ends");
    let gone = refusal(daemon.client().call(&set(tid, reservation(1, 100))));
    assert_eq!(gone, ApiError::NoSuchTask { pid: tid });
}

#[test]
fn what_was_released_by_hand_is_explained_so() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let pid = sleeper.pid();
    daemon.client().call(&set(pid, reservation(1, 100))).expect("it fits");
    let explanation = daemon.client().call(&api::Explain { pid }).expect("it runs");
    assert!(explanation.text.contains("1ms of CPU time in every 100ms"), "{}", explanation.text);
    assert_eq!(explanation.events.len(), 1);
    assert_eq!(daemon.client().call(&api::Release { pid }).expect("root may").released, 1);
    let explanation = daemon.client().call(&api::Explain { pid }).expect("it runs");
    assert!(explanation.text.contains("taken from it by hand"), "{}", explanation.text);
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let denied = refusal(daemon.client().call(&api::Release { pid }));
    assert!(matches!(denied, ApiError::PermissionDenied { .. }), "{denied}");
}

#[test]
fn decisions_are_streamed_as_they_are_taken() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let pid = sleeper.pid();
    daemon.client().call(&set(pid, reservation(1, 100))).expect("it fits");
    let mut stream = daemon.client().stream(&api::Monitor { history: Some(true) }).expect("sent");
    let first = stream.next().expect("one is remembered").expect("an event");
    assert_eq!((first.event.pid(), first.event.kind), (Some(pid), api::EventKind::Admitted));
    daemon.client().call(&set(pid, reservation(2, 100))).expect("it fits");
    let second = stream.next().expect("one was just taken").expect("an event");
    assert_eq!((second.event.cpu.map(|cpu| cpu.bandwidth), second.lost), (Some(0.02), 0));
    assert_eq!(refusal(daemon.client().call(&api::Monitor::default())), ApiError::ExpectedMore);
}

#[test]
fn more_cgroups_than_domains_are_a_problem_for_as_long_as_there_are() {
    let machine = Machine::new();
    let daemon = machine.start();
    let said = || {
        let problems = daemon.status().problems;
        let messages = problems.into_iter().map(|problem| problem.message);
        messages.filter(|message| message.contains("have no domain of their own")).collect::<Vec<String>>()
    };
    assert_eq!(said(), Vec::<String>::new());
    machine.fake.machine().cgroups_without_domain = 7;
    let first = said();
    assert!(first.len() == 1 && first[0].starts_with("7 cgroups"), "{first:?}");
    machine.fake.machine().cgroups_without_domain = 0;
    assert_eq!(said(), Vec::<String>::new());
}

/// All texts in a reply.
fn texts<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::String(text) => found.push(text),
        serde_json::Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
        serde_json::Value::Object(values) => values.values().for_each(|value| texts(value, found)),
        _ => {}
    }
}

#[test]
fn a_files_name_moves_no_cursor_and_ends_no_line_wherever_it_is_shown() {
    const SHOWN: &str = "a\\u{1b}[2J\\n.toml";
    let machine = Machine::new();
    let program = machine.program("program");
    let wrong = "[[spec]]\npath = \"/opt/\\u001b[2J/x\"\ncpu = \"\\u001b[2J\\n\"\n";
    let not_there = "[[spec]]\npath = \"/opt/\\u001b[2J/absent\"\n";
    let rows = row(&program, "5ms/30ms") + not_there + wrong;
    machine.write_specs("a\x1b[2J\n.toml", &rows);
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    let status = serde_json::to_value(daemon.status()).expect("JSON");
    let list = serde_json::to_value(daemon.client().call(&api::ListSpecs {}).expect("read")).expect("JSON");
    let explain = api::Explain { pid: sleeper.pid() };
    let explained = daemon.client().call(&explain).expect("it runs").text;
    for reply in [&status, &list] {
        let mut found = Vec::new();
        texts(reply, &mut found);
        assert!(found.iter().any(|text| text.ends_with(SHOWN)), "{reply}");
        assert!(found.iter().all(|text| !text.contains(char::is_control)), "{reply}");
    }
    assert!(explained.contains(SHOWN) && !explained.contains('\x1b'), "{explained}");
}
