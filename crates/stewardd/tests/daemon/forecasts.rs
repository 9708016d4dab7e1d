//! Forecasts through the socket: whose they are, what is left out, and what a wrong question gets.

use std::sync::atomic::Ordering;

use crate::common::{Machine, Running};
use libsteward::wire::Call;
use libsteward::{ApiError, Error, api};
use stewardd::fake::tasks::FakeTask;
use stewardd::server::Answer;
use stewardd::server::peer::Caller;
use stewardd::server::pieces::Put;

/// Rules under which nobody sees what is others'.
const PRIVATE: &str =
    "[[rule]]\nwho = [\"root\", \"owner\"]\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n";

/// Two tasks of user 1000 (one of them in a slice of theirs), one of user 1001, one of root in that slice.
fn machine() -> Machine {
    let machine = Machine::new();
    let slice = machine.cgroups.tree().id("user.slice/user-1000.slice");
    machine.tasks.tasks().extend([
        FakeTask::new(10, 1000, 1, 0.25, 0.25),
        FakeTask::new(11, 1000, slice, 0.5, 0.0),
        FakeTask::new(12, 1001, 1, 0.125, 0.0),
        FakeTask::new(13, 0, slice, 0.0, 0.0),
    ]);
    machine
}

fn list(daemon: &Running, request: api::ListForecasts) -> Result<api::Forecasts, Error> {
    daemon.client().call(&request)
}

/// Once there is a window.
fn forecasts(daemon: &Running, request: &api::ListForecasts) -> api::Forecasts {
    loop {
        let forecasts = list(daemon, request.clone()).expect("it may be asked");
        if forecasts.window_ns > 0 {
            return forecasts;
        }
    }
}

fn tids(forecasts: &api::Forecasts) -> Vec<i32> {
    forecasts.tasks.iter().map(|task| task.tid).collect()
}

fn names(forecasts: &api::Forecasts) -> Vec<&str> {
    forecasts.domains.iter().map(|domain| domain.name.as_str()).collect()
}

fn refusal(outcome: Result<api::Forecasts, Error>) -> ApiError {
    match outcome.expect_err("it is refused") {
        Error::Api(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn one_read_has_all_tasks_and_domains_with_what_they_got_and_wanted() {
    let machine = machine();
    let daemon = machine.start();
    let all = forecasts(&daemon, &api::ListForecasts::default());
    assert_eq!((all.model.as_str(), all.source.as_str(), all.hidden), ("steward", "fake", 0));
    assert_eq!(tids(&all), [10, 11, 12, 13]);
    assert_eq!(names(&all), ["/", "system.slice", "user.slice", "user.slice/user-1000.slice"]);
    let [first, second, _, idle] = &all.tasks[..] else { panic!("{all:?}") };
    // Half the time it had no CPU: on an idle machine it would have run for twice as long.
    assert!((first.forecast.actual_ms_per_s - 250.0).abs() < 0.1, "{first:?}");
    assert!(first.forecast.slowdown.expect("it wanted something") > 1.2, "{first:?}");
    assert!((second.forecast.slowdown.expect("it wanted something") - 1.0).abs() < 0.01, "{second:?}");
    assert_eq!((idle.forecast.desired_ms_per_s, idle.forecast.slowdown), (0.0, None));
    assert_eq!((second.name.as_str(), second.domain.as_str()), ("task-11", "user.slice/user-1000.slice"));
    assert!((all.machine.actual_ms_per_s - 875.0).abs() < 0.1 && all.machine == all.others, "{all:?}");
    assert_eq!(
        (all.domains[0].tasks, all.domains[3].tasks, all.domains[3].parent.as_deref()),
        (4, 2, Some("user.slice"))
    );
}

#[test]
fn a_part_is_given_with_all_others_summed() {
    let machine = machine();
    let daemon = machine.start();
    let slice = Some("user.slice".to_owned());
    let part = forecasts(&daemon, &api::ListForecasts { domain: slice.clone(), ..Default::default() });
    assert_eq!((tids(&part), names(&part)[0]), (vec![11, 13], "user.slice"));
    assert!((part.others.actual_ms_per_s - 375.0).abs() < 0.1, "{part:?}");
    let sums = api::ListForecasts { domain: slice, domains_only: Some(true), pid: None };
    assert!(forecasts(&daemon, &sums).tasks.is_empty());
    let process = forecasts(&daemon, &api::ListForecasts { pid: Some(12), ..Default::default() });
    assert_eq!((tids(&process), process.domains.len()), (vec![12], 0));
    assert!((process.others.actual_ms_per_s - 750.0).abs() < 0.1, "{process:?}");
}

#[test]
fn what_is_others_is_hidden_by_the_rules_and_what_is_ones_own_never() {
    let machine = machine();
    std::fs::create_dir(machine.path("rules")).expect("created");
    std::fs::write(machine.path("rules/default.toml"), PRIVATE).expect("written");
    std::fs::write(machine.path("steward.toml"), "").expect("written");
    let daemon = machine.start();
    machine.caller_uid.store(1000, Ordering::SeqCst);
    let own = forecasts(&daemon, &api::ListForecasts::default());
    assert_eq!((tids(&own), own.hidden), (vec![10, 11, 13], 1));
    assert_eq!(names(&own), ["user.slice/user-1000.slice"]);
    assert!((own.machine.actual_ms_per_s - 875.0).abs() < 0.1, "the sums are of all: {own:?}");

    machine.caller_uid.store(1001, Ordering::SeqCst);
    assert_eq!(tids(&forecasts(&daemon, &api::ListForecasts::default())), [12]);
    let of_process = api::ListForecasts { pid: Some(12), ..Default::default() };
    assert_eq!(tids(&forecasts(&daemon, &of_process)), [12]);
    for request in [
        api::ListForecasts { pid: Some(11), ..Default::default() },
        api::ListForecasts { domain: Some("user.slice/user-1000.slice".into()), ..Default::default() },
        api::ListForecasts { domain: Some("/".into()), ..Default::default() },
    ] {
        let ApiError::PermissionDenied { reason } = refusal(list(&daemon, request)) else {
            panic!("it is refused for lack of permission")
        };
        assert!(reason.contains("user 1001 may not read the forecast of"), "{reason}");
    }
}

#[test]
fn a_wrong_question_is_answered_with_what_is_wrong() {
    let machine = machine();
    let daemon = machine.start();
    let of_process = |pid| api::ListForecasts { pid: Some(pid), ..Default::default() };
    for pid in [0, -1, i32::MIN, 99] {
        assert_eq!(refusal(list(&daemon, of_process(pid))), ApiError::NoSuchTask { pid });
    }
    let of_domain = |name: &str| api::ListForecasts { domain: Some(name.into()), ..Default::default() };
    assert!(matches!(refusal(list(&daemon, of_domain("gone"))), ApiError::NoSuchDomain { .. }));
    assert!(matches!(refusal(list(&daemon, of_domain("a//b"))), ApiError::InvalidParameter { .. }));
    let both = api::ListForecasts { pid: Some(10), ..of_domain("/") };
    assert!(matches!(refusal(list(&daemon, both)), ApiError::InvalidParameter { .. }));
    for every_ms in [0, 99, 60_001, u64::MAX] {
        let watch = api::WatchForecasts { every_ms: Some(every_ms), ..Default::default() };
        let first = daemon.client().watch_forecasts(&watch).expect("sent").next().expect("an answer");
        assert!(
            matches!(&first, Err(Error::Api(ApiError::InvalidParameter { parameter, .. })) if parameter == "every_ms"),
            "{first:?}"
        );
    }
    let not_more = refusal(daemon.client().call(&api::WatchForecasts::default()));
    assert_eq!(not_more, ApiError::ExpectedMore);
}

#[test]
fn whoever_watches_is_told_again_and_again_until_what_they_watch_is_gone() {
    let machine = machine();
    machine.cgroups.tree().add("batch.slice", 0);
    let id = machine.cgroups.tree().id("batch.slice");
    machine.tasks.tasks().push(FakeTask::new(20, 0, id, 0.5, 0.0));
    let daemon = machine.start();
    let watch = api::WatchForecasts { domain: Some("batch.slice".into()), ..Default::default() };
    let mut replies = daemon.client().watch_forecasts(&watch).expect("sent");
    let mut last_ns = 0;
    for _ in 0..3 {
        let reply = replies.next().expect("it goes on").expect("it may be asked");
        assert!(reply.at_ns > last_ns && tids(&reply) == [20], "{reply:?}");
        last_ns = reply.at_ns;
    }
    machine.cgroups.tree().delete("batch.slice");
    let end = replies.find(Result::is_err).expect("it ends").expect_err("with an error");
    assert!(matches!(end, Error::Api(ApiError::NoSuchDomain { .. })), "{end}");
}

#[test]
fn a_process_that_has_just_started_is_known_when_it_is_asked_about() {
    let machine = machine();
    let daemon = machine.start();
    let own = std::process::id() as i32;
    forecasts(&daemon, &api::ListForecasts::default());
    machine.tasks.tasks().push(FakeTask::new(own, 0, 1, 0.5, 0.0));
    let process = list(&daemon, api::ListForecasts { pid: Some(own), ..Default::default() });
    assert_eq!(tids(&process.expect("it runs")), [own]);
}

#[test]
fn a_new_domain_and_a_new_promise_are_in_the_next_answer() {
    let machine = machine();
    let daemon = machine.start();
    forecasts(&daemon, &api::ListForecasts::default());
    let settings = api::DomainSettings { cpu: Some(0.3), ..Default::default() };
    let create = api::CreateDomain { domain: "batch".into(), settings, ..Default::default() };
    daemon.client().call(&create).expect("there is room");
    let all = list(&daemon, api::ListForecasts::default()).expect("it may be asked");
    let batch = all.domains.iter().find(|domain| domain.name == "batch").expect("it is there");
    assert!(batch.guaranteed >= 0.3 && !batch.suspended && batch.tasks == 0, "{batch:?}");
}

/// What a watcher of a domain is told of those outside that are slowed, once there is a window.
fn slowed(daemon: &Running, domain: &str) -> api::Forecasts {
    let watch = api::WatchForecasts {
        domain: Some(domain.into()),
        domains_only: Some(true),
        slowed: Some(true),
        ..Default::default()
    };
    let replies = daemon.client().watch_forecasts(&watch).expect("sent");
    let mut replies = replies.map(|reply| reply.expect("it may be asked"));
    // Two looks at pressure.
    replies.find(|reply| reply.window_ns > 150_000_000).expect("they go on")
}

fn told(forecasts: &api::Forecasts) -> Vec<(api::Lack, u64, Option<&str>)> {
    let slowed = forecasts.slowed.iter();
    slowed.map(|slowed| (slowed.by, slowed.id, slowed.name.as_deref())).collect()
}

#[test]
fn who_is_slowed_is_told_one_by_one_and_not_what_is_lowered_itself() {
    let machine = machine();
    machine.cgroups.tree().add("batch.slice", 0);
    machine.cgroups.tree().add("other.slice", 0);
    let id = |path: &str| machine.cgroups.tree().id(path);
    let (batch, other) = (id("batch.slice"), id("other.slice"));
    machine.tasks.tasks().extend([
        FakeTask::new(20, 0, batch, 0.1, 0.8),
        FakeTask::new(21, 0, other, 0.1, 0.7),
        // A small one: it wants 20 ms of a second, and gets 2.
        FakeTask::new(22, 0, 1, 0.002, 0.9),
        // It wants next to nothing.
        FakeTask::new(23, 0, 1, 0.0001, 0.9),
    ]);
    let daemon = machine.start();
    let seen = slowed(&daemon, "batch.slice");
    let cpu = |tid, name| (api::Lack::Cpu, tid, Some(name));
    assert_eq!(told(&seen), [cpu(22, "task-22"), cpu(21, "task-21"), cpu(10, "task-10")]);
    assert!((seen.slowed[0].slowdown - 10.0).abs() < 0.2, "{seen:?}");
    let before = seen.others.actual_ms_per_s;
    let mut client = daemon.client();
    client.call(&api::LowerDomain { domain: "other.slice".into(), lowered: true }).expect("root may");
    let seen = slowed(&daemon, "batch.slice");
    assert_eq!(told(&seen), [cpu(22, "task-22"), cpu(10, "task-10")], "that one is background work, too");
    assert!((before - seen.others.actual_ms_per_s - 100.0).abs() < 1.0, "{before} {seen:?}");
    drop(client);
    let watch = api::WatchForecasts { slowed: Some(true), ..Default::default() };
    let first = daemon.client().watch_forecasts(&watch).expect("sent").next().expect("an answer");
    assert!(
        matches!(&first, Err(Error::Api(ApiError::InvalidParameter { parameter, .. })) if parameter == "slowed"),
        "{first:?}"
    );
}

#[test]
fn who_waits_for_the_disk_or_memory_is_told_by_cgroup_and_never_the_work_itself() {
    let mut machine = machine();
    machine.cgroups.tree().add("user.slice/work", 0);
    let root = machine.path("cgroup");
    machine.roots.cgroup = root.clone();
    let pressure = |path: &str, file: &str, total_us: u64| {
        std::fs::create_dir_all(root.join(path)).expect("a directory");
        let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\nfull total=0\n");
        let beside = root.join(path).join("beside");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, root.join(path).join(file)).expect("renamed");
    };
    let count = |total_us: u64| {
        pressure("system.slice", "io.pressure", total_us);
        pressure("user.slice/user-1000.slice", "memory.pressure", total_us * 2);
        // The work's own, and with it that of what it is in.
        pressure("user.slice/work", "io.pressure", total_us * 3);
        pressure("user.slice", "io.pressure", total_us * 3);
    };
    count(0);
    let daemon = machine.start();
    let watch = api::WatchForecasts {
        domain: Some("user.slice/work".into()),
        domains_only: Some(true),
        slowed: Some(true),
        ..Default::default()
    };
    let mut replies = daemon.client().watch_forecasts(&watch).expect("sent");
    let mut total_us = 0;
    let seen = loop {
        let seen = replies.next().expect("it goes on").expect("it may be asked");
        let slowed: Vec<_> =
            seen.slowed.iter().filter(|slowed| slowed.by != api::Lack::Cpu).cloned().collect();
        if slowed.len() >= 2 {
            break slowed;
        }
        total_us += 10_000;
        count(total_us);
    };
    let mut seen: Vec<(api::Lack, Option<String>)> =
        seen.into_iter().map(|slowed| (slowed.by, slowed.name)).collect();
    seen.sort();
    let named = |name: &str| Some(name.to_owned());
    let expected =
        [(api::Lack::Memory, named("user.slice/user-1000.slice")), (api::Lack::Disk, named("system.slice"))];
    assert_eq!(seen, expected);
}

#[test]
fn of_those_whom_the_caller_may_not_see_only_how_slow_the_slowest_is_is_told() {
    let machine = machine();
    std::fs::create_dir(machine.path("rules")).expect("created");
    std::fs::write(machine.path("rules/default.toml"), PRIVATE).expect("written");
    std::fs::write(machine.path("steward.toml"), "").expect("written");
    machine.cgroups.tree().add("theirs", 1001);
    machine
        .tasks
        .tasks()
        .extend([FakeTask::new(20, 1002, 1, 0.1, 0.8), FakeTask::new(21, 1001, 1, 0.1, 0.3)]);
    let daemon = machine.start();
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let seen = slowed(&daemon, "theirs");
    assert_eq!(told(&seen), [(api::Lack::Cpu, 0, None), (api::Lack::Cpu, 21, Some("task-21"))]);
    machine.caller_uid.store(0, Ordering::SeqCst);
    let names: Vec<Option<&str>> = [Some("task-20"), Some("task-21"), Some("task-10")].into();
    let seen = slowed(&daemon, "theirs");
    let all: Vec<Option<&str>> = told(&seen).into_iter().map(|(_, _, name)| name).collect();
    assert_eq!(all, names, "what root is told is nobody else's text");
}

/// As many tasks as one user may have, of whom the last alone does something.
fn crowded() -> Machine {
    let machine = Machine::new();
    let tasks = (1..=4000).map(|pid| FakeTask::new(pid, 1000, 1, if pid == 4000 { 0.5 } else { 0.0 }, 0.0));
    machine.tasks.tasks().extend(tasks);
    machine
}

/// Somebody on a connection of their own.
fn caller(uid: u32) -> Caller {
    Caller::of_process(uid, uid, std::process::id() as i32)
}

#[test]
fn what_is_said_of_thousands_of_tasks_is_made_in_pieces_and_is_what_was_known_when_it_was_begun() {
    let machine = crowded();
    let mut daemon = machine.daemon().expect("it starts");
    let call = || Call { method: <api::ListForecasts as api::Method>::NAME.into(), ..Call::default() };
    let (first, second) = (caller(1000), caller(1000));
    let mut answer = daemon.answer(&first, call());
    let (mut pieces, mut beside) = (0, None);
    let text = loop {
        match answer {
            Answer::Text(text) => break text,
            Answer::Again(made) => {
                pieces += 1;
                if pieces == 3 {
                    // Another connection of that user waits, and has nothing made for it meanwhile.
                    let Answer::Again(made) = daemon.answer(&second, call()) else { panic!("it waits") };
                    assert!(!made.is_begun());
                    beside = Some(made);
                    // What is changed now is of the next reply, and does not make this one begin anew.
                    machine.tasks.tasks().truncate(10);
                    let settings = api::DomainSettings { cpu: Some(0.1), ..Default::default() };
                    let create = api::CreateDomain { domain: "new".into(), settings, ..Default::default() };
                    let Ok(serde_json::Value::Object(parameters)) = serde_json::to_value(&create) else {
                        unreachable!("a struct with named fields")
                    };
                    let method = <api::CreateDomain as api::Method>::NAME.into();
                    let changed = daemon.answer(&caller(0), Call { method, parameters, ..Call::default() });
                    assert!(matches!(changed, Answer::Reply(_) | Answer::Text(_)));
                }
                answer = daemon.answer(&first, Put { call: call(), made: Some(made) });
            }
            _ => panic!("neither a list nor a part of one"),
        }
    };
    let list: api::Forecasts = serde_json::from_str(&text).expect("JSON");
    assert_eq!(tids(&list), (1..=4000).collect::<Vec<_>>());
    // Reading them is one piece, and each of the others is about some hundreds.
    assert!((10..40).contains(&pieces), "{pieces}");
    let made = beside.expect("it was asked");
    assert!(!matches!(daemon.answer(&second, Put { call: call(), made: Some(made) }), Answer::Error(_)));
}

#[test]
fn what_is_said_of_many_domains_is_made_in_pieces_too_and_is_all_of_it() {
    let machine = machine();
    (0..300).for_each(|number| machine.cgroups.tree().add(&format!("d{number:03}"), 1001));
    let mut daemon = machine.daemon().expect("it starts");
    let call = || Call { method: <api::ListForecasts as api::Method>::NAME.into(), ..Call::default() };
    let asker = caller(1000);
    let mut answer = daemon.answer(&asker, call());
    let mut begun = 0;
    let text = loop {
        match answer {
            Answer::Text(text) => break text,
            Answer::Again(made) => {
                begun += usize::from(made.is_begun());
                answer = daemon.answer(&asker, Put { call: call(), made: Some(made) });
            }
            _ => panic!("neither a list nor a part of one"),
        }
    };
    let list: api::Forecasts = serde_json::from_str(&text).expect("JSON");
    let expected: Vec<String> = ["/".to_owned()]
        .into_iter()
        .chain((0..300).map(|number| format!("d{number:03}")))
        .chain(["system.slice", "user.slice", "user.slice/user-1000.slice"].map(str::to_owned))
        .collect();
    assert_eq!(names(&list), expected);
    assert_eq!((tids(&list), begun), (vec![10, 11, 12, 13], 4), "64 of them in each piece");
}

#[test]
fn who_lists_and_who_watches_get_what_was_made_in_pieces_as_a_whole() {
    let machine = crowded();
    let daemon = machine.start();
    let request = api::WatchForecasts::default();
    let mut watchers: Vec<_> =
        (0..3).map(|_| daemon.client().watch_forecasts(&request).expect("sent")).collect();
    assert_eq!(tids(&forecasts(&daemon, &api::ListForecasts::default())).len(), 4000);
    for _ in 0..3 {
        for watcher in &mut watchers {
            let reply = watcher.next().expect("it goes on").expect("it may be asked");
            assert_eq!(tids(&reply).len(), 4000);
        }
    }
    let one = forecasts(&daemon, &api::ListForecasts { pid: Some(4000), ..Default::default() });
    assert!(tids(&one) == [4000] && one.tasks[0].forecast.actual_ms_per_s > 499.0, "{one:?}");
}
