//! Who may ask for what, as a client meets it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use crate::common::{Machine, Running, Sleeper, reservation, set};
use libsteward::wire::Call;
use libsteward::{ApiError, Error, api};
use serde_json::{Value, json};
use stewardd::server::Answer;
use stewardd::server::access::Access;
use stewardd::server::dispatch::METHODS;
use stewardd::server::peer::Caller;

/// The refusal's sentence.
fn denied<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result.expect_err("it is refused") {
        Error::Api(ApiError::PermissionDenied { reason }) => reason,
        other => panic!("not a refusal by a rule: {other}"),
    }
}

/// A machine with these rules beside the shipped ones, where the caller is user 1001.
fn ruled(rules: &str) -> Machine {
    let machine = Machine::new();
    write_rules(&machine, rules);
    machine.caller_uid.store(1001, Ordering::SeqCst);
    machine
}

fn write_rules(machine: &Machine, rules: &str) {
    let directory = machine.path("rules");
    std::fs::create_dir_all(&directory).expect("created");
    std::fs::write(directory.join("50-test.toml"), rules).expect("written");
}

fn rule(who: &str, action: &str, verdict: &str) -> String {
    format!("[[rule]]\nwho = \"{who}\"\naction = \"{action}\"\nof = \"anyone\"\nverdict = \"{verdict}\"\n")
}

/// Puts a program in polkit's place.
fn polkit(machine: &Machine, then: &str) {
    let program = machine.path("pkcheck");
    // By another process: a file that is open for writing here, in a fork of another test's thread, cannot be executed
    // (ETXTBSY).
    let script = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let written = Command::new("sh").args(["-c", script]).arg(program).arg(then).status();
    assert!(written.expect("every machine has sh").success());
}

fn reserve(daemon: &Running, sleeper: &Sleeper) -> Result<api::Standings, Error> {
    daemon.client().call(&set(sleeper.pid(), reservation(1, 100)))
}

#[test]
fn a_rule_lets_a_user_reserve_and_another_takes_it_away() {
    let machine = ruled(&rule("user:1001", "reserve", "allow"));
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    reserve(&daemon, &sleeper).expect("the rule allows it");
    machine.caller_uid.store(1002, Ordering::SeqCst);
    denied(reserve(&daemon, &sleeper));
    machine.caller_uid.store(0, Ordering::SeqCst);
    let denying = rule("user:1001", "reserve", "allow") + &rule("everyone", "reserve", "deny");
    write_rules(&machine, &denying);
    daemon.client().call(&api::Reload {}).expect("root may");
    for uid in [1001, 0] {
        machine.caller_uid.store(uid, Ordering::SeqCst);
        let reason = denied(reserve(&daemon, &sleeper));
        assert!(reason.contains("50-test.toml:6 denies it"), "{reason}");
    }
}

#[test]
fn a_group_that_the_kernel_says_the_caller_is_in_counts() {
    let gid = rustix::process::getegid().as_raw();
    let machine = ruled(&rule(&format!("group:{gid}"), "reserve", "allow"));
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    reserve(&daemon, &sleeper).expect("the rule allows it");
}

#[test]
fn a_mistake_in_a_file_is_reported_and_gives_nobody_more() {
    let generous = rule("everyone", "all", "allow");
    let machine = ruled(&format!("{generous}[[rule]]\nwho = \"user:no such user\"\n"));
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let reason = denied(reserve(&daemon, &sleeper));
    assert!(reason.contains("has a mistake in it") && reason.contains("50-test.toml"), "{reason}");
    let problems = daemon.status().problems;
    assert!(problems.iter().all(|problem| problem.file.ends_with("50-test.toml")), "{problems:?}");
    assert_eq!(problems[0].line, Some(6), "{problems:?}");
}

#[test]
fn reading_can_be_denied_and_the_refusal_says_what() {
    let machine = ruled(&rule("user:1001", "read", "deny"));
    let daemon = machine.start();
    let reason = denied(daemon.client().call(&api::Status {}));
    assert!(reason.contains("user 1001 may not read what is promised to whom"), "{reason}");
    denied(daemon.client().call(&api::ListEvents {}));
    machine.caller_uid.store(1002, Ordering::SeqCst);
    daemon.status();
}

/// Rules by which all but root may read what is their own only.
const OWN_IS_READ: &str = "[[rule]]\nwho = \"root\"\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n\
    [[rule]]\nwho = \"everyone\"\naction = \"read\"\nof = [\"own\", \"below-own\"]\nverdict = \"allow\"\n";

fn replace_rules(machine: &Machine, rules: &str) {
    std::fs::create_dir_all(machine.path("rules")).expect("created");
    std::fs::write(machine.path("rules/default.toml"), rules).expect("written");
}

fn create_for(daemon: &Running, machine: &Machine, domain: &str, user: u32) {
    machine.caller_uid.store(0, Ordering::SeqCst);
    let (domain, settings) = (domain.to_owned(), api::DomainSettings::default());
    let request = api::CreateDomain { domain, settings, user: Some(user), keep: Some(true) };
    daemon.client().call(&request).expect("root may");
}

/// The domain that a decision is about.
fn about(event: &api::Event) -> String {
    event.domain.as_ref().map(|domain| domain.name.clone()).unwrap_or_default()
}

#[test]
fn two_users_are_told_of_their_own_domains_and_not_of_each_others() {
    let machine = Machine::new();
    replace_rules(&machine, OWN_IS_READ);
    let daemon = machine.start();
    create_for(&daemon, &machine, "alices", 1001);
    create_for(&daemon, &machine, "bobs", 1002);
    let as_user = |uid| machine.caller_uid.store(uid, Ordering::SeqCst);
    let mut streams = Vec::new();
    for (uid, wanted) in [(1001, "alices"), (1002, "bobs")] {
        as_user(uid);
        let list = daemon.client().call(&api::ListEvents {}).expect("what is their own").events;
        assert_eq!(list.iter().map(about).collect::<Vec<_>>(), [wanted]);
        let mut watch = daemon.client().stream(&api::WatchDomains { present: Some(true) }).expect("sent");
        let domain = watch.next().expect("it is there").expect("a reply").domain.expect("it is present");
        assert_eq!(domain.name, wanted, "and neither the root nor a slice is theirs");
        let mut monitor = daemon.client().stream(&api::Monitor { history: Some(true) }).expect("sent");
        assert_eq!(about(&monitor.next().expect("it is remembered").expect("a reply").event), wanted);
        streams.push((wanted, watch, monitor));
    }
    create_for(&daemon, &machine, "bobs/own", 1003);
    create_for(&daemon, &machine, "alices/own", 1003);
    create_for(&daemon, &machine, "bobs/last", 1002);
    for (wanted, mut watch, mut monitor) in streams {
        let told = monitor.next().expect("it is told").expect("a reply");
        // What the other is told is not lost to this one.
        assert_eq!((about(&told.event), told.lost), (format!("{wanted}/own"), 0));
        let watched = watch.next().expect("it is told").expect("a reply");
        assert_eq!(watched.domain.expect("it is there").name, format!("{wanted}/own"));
    }
    as_user(0);
    let all = daemon.client().call(&api::ListEvents {}).expect("root may").events;
    assert_eq!(all.len(), 5, "{all:?}");
}

#[test]
fn who_listens_is_held_against_rules_that_change() {
    let machine = Machine::new();
    let daemon = machine.start();
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let mut monitor = daemon.client().stream(&api::Monitor::default()).expect("sent");
    let mut watch = daemon.client().stream(&api::WatchDomains::default()).expect("sent");
    // By then both are known as that user's.
    daemon.status();
    create_for(&daemon, &machine, "first", 1002);
    assert_eq!(about(&monitor.next().expect("everyone may read").expect("a reply").event), "first");
    replace_rules(&machine, OWN_IS_READ);
    daemon.client().call(&api::Reload {}).expect("root may");
    create_for(&daemon, &machine, "bobs", 1002);
    create_for(&daemon, &machine, "alices", 1001);
    assert_eq!(about(&monitor.next().expect("it is told").expect("a reply").event), "alices");
    replace_rules(&machine, &rule("root", "all", "allow"));
    machine.caller_uid.store(0, Ordering::SeqCst);
    daemon.client().call(&api::Reload {}).expect("root may");
    let reason = denied(monitor.next().expect("it is told why").map(|told| told.event));
    assert!(reason.contains("user 1001 may not read what is promised to whom"), "{reason}");
    let told: Vec<_> =
        watch.by_ref().take(3).map(|told| told.map(|told| told.event.as_ref().map(about))).collect();
    assert!(matches!(&told[..], [Ok(_), Ok(Some(own)), Err(_)] if own == "alices"), "{told:?}");
}

#[test]
fn polkit_is_asked_where_a_rule_says_so_and_others_are_answered_meanwhile() {
    let machine = ruled(&rule("user:1001", "reserve", "ask"));
    // It answers once the test has made the file.
    polkit(&machine, "while [ ! -e \"$(dirname \"$0\")/answered\" ]; do sleep 0.01; done");
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let pid = sleeper.pid();
    let mut waiting = daemon.client();
    let asked = std::thread::spawn(move || waiting.call(&set(pid, reservation(1, 100))));
    let others: Vec<_> = (0..3).map(|_| daemon.status()).collect();
    assert!(
        others.iter().all(|status| status.cpu.tasks.is_empty()),
        "nothing is given before polkit has said yes"
    );
    std::fs::write(machine.path("answered"), "").expect("written");
    asked.join().expect("it does not panic").expect("polkit said yes");
    assert_eq!(daemon.status().cpu.tasks.len(), 1);
}

#[test]
fn when_polkit_says_no_or_is_not_there_the_refusal_says_so() {
    let machine = ruled(&rule("user:1001", "reserve", "ask"));
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let reason = denied(reserve(&daemon, &sleeper));
    assert!(reason.contains("says to ask polkit, and polkit is not there"), "{reason}");
    polkit(&machine, "exit 1");
    let reason = denied(reserve(&daemon, &sleeper));
    assert!(reason.contains("says to ask polkit, and it says no"), "{reason}");
    assert!(machine.fake.machine().tasks.is_empty());
}

#[test]
fn a_client_that_leaves_while_polkit_is_asked_takes_its_question_along() {
    let machine = ruled(&rule("user:1001", "reserve", "ask"));
    polkit(&machine, "echo $$ >\"$(dirname \"$0\")/asking\"; exec sleep 1000");
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let mut stream = std::os::unix::net::UnixStream::connect(&daemon.socket).expect("the daemon listens");
    let call = Call {
        method: <api::Set as api::Method>::NAME.to_owned(),
        parameters: match serde_json::to_value(set(sleeper.pid(), reservation(1, 100))).expect("plain data") {
            Value::Object(parameters) => parameters,
            other => panic!("parameters are an object: {other}"),
        },
        ..Default::default()
    };
    std::io::Write::write_all(&mut stream, &libsteward::wire::encode(&call)).expect("sent");
    let asking = machine.path("asking");
    let pid: i32 = loop {
        let text = std::fs::read_to_string(&asking).unwrap_or_default();
        match text.trim().parse() {
            Ok(pid) => break pid,
            Err(_) => std::thread::yield_now(),
        }
    };
    let asker = steward_kernel::process::Pidfd::open(pid, &Default::default()).expect("it asks");
    drop(stream);
    // Ends only when the daemon has ended it.
    let mut ended = [rustix::event::PollFd::new(&asker, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, None).expect("it ends");
    assert!(machine.fake.machine().tasks.is_empty());
}

#[test]
fn a_process_is_not_moved_out_of_a_domain_of_somebody_else() {
    let own = rustix::process::geteuid().as_raw();
    let machine = ruled("");
    machine.caller_uid.store(own, Ordering::SeqCst);
    // Without the shipped rules, as the test may run as root, who may do everything by them.
    let rules = "[[rule]]\nwho = \"everyone\"\naction = \"limit\"\nof = \"own\"\nverdict = \"allow\"\n";
    let rules = rule("everyone", "reserve", "allow") + rules;
    std::fs::write(machine.path("rules/default.toml"), rules).expect("written");
    let daemon = machine.start();
    let create = api::CreateDomain { domain: "mine".into(), ..api::CreateDomain::default() };
    daemon.client().call(&create).expect("the rule allows it");
    let sleeper = Sleeper::start(&machine.program("program"));
    let enter = api::MoveProcess { pid: Some(sleeper.pid()), domain: "mine".into() };
    machine.cgroups.tree().add("other.slice", own + 1);
    machine.cgroups.tree().members.insert(sleeper.pid(), "other.slice".to_owned());
    let reason = denied(daemon.client().call(&enter));
    assert!(reason.contains(&format!("other.slice of user {}, which it is in", own + 1)), "{reason}");
    assert_eq!(machine.cgroups.tree().members[&sleeper.pid()], "other.slice");
    // The root of the tree limits nobody.
    machine.cgroups.tree().members.remove(&sleeper.pid());
    daemon.client().call(&enter).expect("it may leave the root");
}

#[test]
fn a_user_leaves_the_limits_of_their_slice_neither_for_a_domain_of_their_own_nor_by_a_way_round() {
    let own = rustix::process::geteuid().as_raw();
    let machine = ruled("");
    machine.caller_uid.store(own, Ordering::SeqCst);
    // Without the shipped rules, as the test may run as root, who may do everything by them.
    let limit_own = "[[rule]]\nwho = \"everyone\"\naction = \"limit\"\nof = \"own\"\nverdict = \"allow\"\n";
    let limit_below = limit_own.replace("\"own\"", "\"below-own\"");
    let rules = rule("everyone", "reserve", "allow") + limit_own + &limit_below;
    std::fs::write(machine.path("rules/default.toml"), rules).expect("written");
    let daemon = machine.start();
    let create = api::CreateDomain { domain: "mine".into(), ..api::CreateDomain::default() };
    daemon.client().call(&create).expect("the rule allows it");
    let slice = format!("user.slice/user-{own}.slice");
    for below in ["", "/session-1.scope"] {
        machine.cgroups.tree().add(&format!("{slice}{below}"), own);
    }
    let sleeper = Sleeper::start(&machine.program("program"));
    machine.cgroups.tree().members.insert(sleeper.pid(), format!("{slice}/session-1.scope"));
    let enter = |domain: &str| api::MoveProcess { pid: Some(sleeper.pid()), domain: domain.to_owned() };
    for way in ["mine", "/"] {
        let reason = denied(daemon.client().call(&enter(way)));
        assert!(reason.contains(&format!("{slice}, whose limits it would leave")), "{reason}");
        assert_eq!(machine.cgroups.tree().members[&sleeper.pid()], format!("{slice}/session-1.scope"));
    }
    // Once somebody who may has moved it, it goes about in what is theirs.
    machine.cgroups.tree().members.insert(sleeper.pid(), "steward.mine".to_owned());
    let part = api::CreateDomain { domain: "mine/part".into(), ..api::CreateDomain::default() };
    daemon.client().call(&part).expect("it is below their own");
    daemon.client().call(&enter("mine/part")).expect("both are theirs");
}

#[test]
fn a_user_divides_a_domain_of_their_own_and_no_other() {
    let machine = ruled("");
    machine.caller_uid.store(0, Ordering::SeqCst);
    let daemon = machine.start();
    let create = |name: &str, cpu: f64, user: Option<u32>| {
        let settings = api::DomainSettings { cpu: Some(cpu), ..api::DomainSettings::default() };
        daemon.client().call(&api::CreateDomain { domain: name.into(), settings, user, keep: Some(true) })
    };
    create("theirs", 0.5, Some(1001)).expect("root may");
    create("another", 0.2, Some(1002)).expect("root may");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    create("theirs/half", 0.5, None).expect("it is paid out of their own");
    for name in ["another/part", "top"] {
        let reason = denied(create(name, 0.1, None));
        assert!(reason.contains("user 1001 may not reserve CPU time"), "{reason}");
    }
    let raise = |name: &str, cpu: f64| {
        let settings = api::DomainSettings { cpu: Some(cpu), ..api::DomainSettings::default() };
        daemon.client().call(&api::SetDomain { domain: name.into(), settings, ..api::SetDomain::default() })
    };
    raise("theirs/half", 0.75).expect("it is paid out of their own");
    raise("theirs", 0.4).expect("taking less is free");
    denied(raise("theirs", 0.45));
    denied(raise("another", 0.1));
    denied(daemon.client().call(&api::RemoveDomain { domain: "another".into(), kill: Some(false) }));
}

/// What the kernel says of a process, except whose it is. Returns the file that says that.
fn proc_of(machine: &Machine, pid: i32) -> std::path::PathBuf {
    let directory = machine.roots.proc.join(pid.to_string());
    std::fs::create_dir_all(&directory).expect("created");
    let link =
        |name: &str| std::os::unix::fs::symlink(Path::new("/proc").join(name), machine.roots.proc.join(name));
    let names = ["self".to_owned(), "sys".to_owned(), format!("{pid}/stat"), format!("{pid}/task")];
    names.iter().for_each(|name| link(name).expect("linked"));
    directory.join("status")
}

const OWN: &str = "Uid:\t1001\t1001\t1001\t1001\n";
const SET_USER_ID: &str = "Uid:\t1001\t0\t0\t0\n";

#[test]
fn a_program_that_changes_user_while_it_is_acted_on_has_what_it_had() {
    let mut machine = ruled(&rule("user:1001", "reserve", "allow"));
    machine.roots = steward_kernel::Roots::under(machine.directory.path());
    let sleeper = Sleeper::start(&machine.program("program"));
    let status = proc_of(&machine, sleeper.pid());
    let daemon = machine.start();
    let meanwhile = |text: &str| machine.fake.machine().meanwhile = Some((status.clone(), text.to_owned()));
    let held =
        || machine.fake.machine().tasks.get(&sleeper.pid()).map(|(grant, _)| grant.reservation.budget_ns);

    std::fs::write(&status, OWN).expect("written");
    meanwhile(SET_USER_ID);
    let reason = denied(reserve(&daemon, &sleeper));
    assert!(reason.contains("became another user's meanwhile"), "{reason}");
    assert_eq!(held(), None);

    std::fs::write(&status, OWN).expect("written");
    reserve(&daemon, &sleeper).expect("it is theirs");
    assert_eq!(held(), Some(1_000_000));
    meanwhile(SET_USER_ID);
    let reason = denied(daemon.client().call(&api::Release { pid: sleeper.pid() }));
    assert!(reason.contains("became another user's meanwhile"), "{reason}");
    assert_eq!(held(), Some(1_000_000));
}

/// The one who asks is the user who connected, whatever the process is by now.
#[test]
fn a_caller_that_executes_a_set_user_id_program_after_it_connected_reserves_nothing_for_it() {
    let mut machine = ruled("");
    machine.roots = steward_kernel::Roots::under(machine.directory.path());
    let own = "[[rule]]\nwho = \"everyone\"\naction = \"reserve\"\nof = \"own\"\nverdict = \"allow\"\n";
    write_rules(&machine, own);
    let sleeper = Sleeper::start(&machine.program("program"));
    let status = proc_of(&machine, sleeper.pid());
    let mut daemon = machine.daemon().expect("it starts");
    let caller = Caller::of_process(1001, 1001, sleeper.pid());
    let mut run = |meanwhile: Option<&str>| {
        machine.fake.machine().meanwhile = meanwhile.map(|text| (status.clone(), text.to_owned()));
        let cpu = json!({ "cpu": { "budget_ns": 1_000_000, "period_ns": 100_000_000 } });
        let Value::Object(parameters) = cpu else { unreachable!("it is an object") };
        let call = Call { method: <api::Run as api::Method>::NAME.into(), parameters, ..Call::default() };
        match daemon.answer(&caller, call) {
            Answer::Error(ApiError::PermissionDenied { reason }) => Some(reason),
            Answer::Error(other) => panic!("{other}"),
            _ => None,
        }
    };
    std::fs::write(&status, SET_USER_ID).expect("written");
    let reason = run(None).expect("it is nobody's own already");
    assert!(reason.contains("has the rights of several users"), "{reason}");
    std::fs::write(&status, OWN).expect("written");
    let reason = run(Some(SET_USER_ID)).expect("it is nobody's own in the end");
    assert!(reason.contains("became another user's meanwhile"), "{reason}");
    assert!(machine.fake.machine().tasks.is_empty());
    std::fs::write(&status, OWN).expect("written");
    assert_eq!(run(None), None);
    assert_eq!(machine.fake.machine().tasks.len(), 1);
}

#[test]
fn what_is_for_the_caller_is_refused_once_the_process_that_asked_has_ended() {
    let machine = Machine::new();
    let mut daemon = machine.daemon().expect("it starts");
    let sleeper = Sleeper::start(&machine.program("program"));
    // The process that connected; somebody else may have the socket by now, and its pid too.
    let caller = Caller::of_process(0, 0, sleeper.pid());
    drop(sleeper);
    let requests = [
        json!({ "cpu": { "budget_ns": 1_000_000, "period_ns": 100_000_000 } }),
        json!({}),
        json!({ "domain": "a" }),
    ];
    for parameters in requests {
        let Value::Object(parameters) = parameters else { unreachable!("they are objects") };
        let call = Call { method: <api::Run as api::Method>::NAME.into(), parameters, ..Call::default() };
        match daemon.answer(&caller, call) {
            Answer::Error(ApiError::NoSuchTask { pid }) => assert_eq!(pid, caller.pid),
            _ => panic!("the caller has ended"),
        }
    }
    assert!(machine.fake.machine().tasks.is_empty() && machine.fake.machine().allowed.is_empty());
}

#[test]
fn an_answer_of_polkit_is_used_up_by_the_call_that_it_was_about() {
    let machine = ruled(&rule("user:1001", "read", "ask"));
    // It says yes once.
    polkit(&machine, "mkdir \"$(dirname \"$0\")/asked\" 2>/dev/null || exit 1");
    let daemon = machine.start();
    let mut client = daemon.client();
    client.call(&api::Status {}).expect("polkit says yes");
    let reason = denied(client.call(&api::Status {}));
    assert!(reason.contains("it says no"), "{reason}");
    // A stream has no end of its own: were its answer kept, the fifth would be one too many.
    polkit(&machine, "exit 0");
    let streams: Vec<_> = (0..5)
        .map(|_| {
            let mut stream = daemon.client().watch_domains(true).expect("sent");
            stream.next().expect("the root is there").expect("polkit says yes");
            stream
        })
        .collect();
    client.call(&api::Status {}).expect("polkit says yes");
    drop(streams);
}

#[test]
fn who_sits_at_the_machine_reserves_for_own_programs_up_to_a_limit_and_is_told_the_amounts() {
    let own = rustix::process::geteuid().as_raw();
    let mut machine = ruled("");
    machine.roots.run = machine.path("run");
    machine.caller_uid.store(own, Ordering::SeqCst);
    // Without the other shipped rules, as the test may run as root, who may do everything by them.
    let rules = "[[rule]]\nwho = \"active-session\"\naction = \"reserve\"\nresource = \"cpu\"\nof = \"own\"\n\
                 at_most = \"50%\"\nverdict = \"allow\"\n[[rule]]\nwho = \"everyone\"\naction = \"limit\"\n\
                 of = \"own\"\nverdict = \"allow\"\n";
    std::fs::write(machine.path("rules/default.toml"), rules).expect("written");
    let daemon = machine.start();
    let program = machine.program("program");
    let (one, other) = (Sleeper::start(&program), Sleeper::start(&program));
    let ask = |sleeper: &Sleeper, budget_ms| {
        daemon.client().call(&set(sleeper.pid(), reservation(budget_ms, 100))).map(drop)
    };
    denied(ask(&one, 10));
    for directory in ["run/systemd/users", "run/systemd/sessions"] {
        std::fs::create_dir_all(machine.path(directory)).expect("created");
    }
    let session = format!("UID={own}\nACTIVE=1\nREMOTE=0\nCLASS=user\nSEAT=seat0\n");
    std::fs::write(machine.path("run/systemd/sessions/2"), session).expect("written");
    std::fs::write(machine.path(&format!("run/systemd/users/{own}")), "ACTIVE_SESSIONS=2\n")
        .expect("written");
    ask(&one, 40).expect("less than half of a CPU");
    let reason = denied(ask(&other, 20));
    let amounts =
        "at most 50 % of one CPU in all, of which 40 % is reserved by hand already, and 20 % more was asked";
    assert!(reason.contains("default.toml:1 ") && reason.contains(amounts), "{reason}");
    ask(&one, 30).expect("it replaces what the same process has");
    ask(&other, 20).expect("30 % and 20 %");
    denied(ask(&Sleeper::start(&program), 1));
    daemon.client().call(&api::Release { pid: one.pid() }).expect("it is theirs");
    drop(other);
    ask(&one, 50).expect("what was given back or has ended counts no more");
    let whole = api::SetDomain {
        domain: "user.slice".into(),
        settings: api::DomainSettings { weight: Some(10_000), ..api::DomainSettings::default() },
        ..api::SetDomain::default()
    };
    denied(daemon.client().call(&whole).map(drop));
}

/// A request that would be worth something to a stranger, for each method.
fn worth_denying(method: &str, sleeper: &Sleeper) -> Value {
    let pid = sleeper.pid();
    let cpu = json!({ "budget_ns": 1_000_000, "period_ns": 100_000_000 });
    match method.rsplit('.').next().unwrap_or_default() {
        "Status" | "ListSpecs" | "Reload" | "ListEvents" | "ListDomains" | "GetInfo" => json!({}),
        "Monitor" => json!({ "history": true }),
        "WatchDomains" => json!({ "present": true }),
        "Run" => json!({ "cpu": cpu }),
        "Set" => json!({ "pid": pid, "cpu": cpu }),
        "SetMemory" => json!({ "pid": pid, "memory_min": 1 << 20 }),
        "Explain" | "Release" => json!({ "pid": pid }),
        "ShowDomain" | "RemoveDomain" | "AuditDomain" | "ExplainDomain" | "ListForecasts"
        | "WatchForecasts" | "WatchAvailability" => {
            json!({ "domain": "theirs" })
        }
        "CreateDomain" => json!({ "domain": "mine", "settings": { "cpu": 0.1 } }),
        "SetDomain" => json!({ "domain": "theirs", "settings": { "priority": 7 } }),
        "MoveProcess" => json!({ "pid": pid, "domain": "theirs" }),
        "SuspendDomain" => json!({ "domain": "theirs", "suspended": true }),
        "LowerDomain" => json!({ "domain": "theirs", "lowered": true }),
        "Complain" => json!({ "missed": 1 }),
        "GetInterfaceDescription" => json!({ "interface": "io.steward" }),
        other => panic!("say what a stranger would ask of {other}"),
    }
}

#[test]
fn under_rules_that_deny_everything_a_stranger_learns_and_changes_nothing_by_any_method() {
    let machine = Machine::new();
    let sleeper = Sleeper::start(&machine.program("program"));
    let mut daemon = machine.daemon().expect("it starts");
    let mut ask = |uid: u32, method: &str, parameters: Value| {
        let Value::Object(parameters) = parameters else { unreachable!("they are objects") };
        let call = Call { method: method.to_owned(), parameters, ..Call::default() };
        daemon.answer(&Caller::of_process(uid, uid, sleeper.pid()), call)
    };
    let settings = json!({ "domain": "theirs", "settings": { "cpu": 0.2 }, "keep": true });
    assert!(matches!(ask(0, "io.steward.CreateDomain", settings), Answer::Reply(_)));
    write_rules(
        &machine,
        &["read", "read-availability", "limit", "reserve", "administer"]
            .map(|it| rule("everyone", it, "deny"))
            .concat(),
    );
    assert!(matches!(ask(0, "io.steward.Reload", json!({})), Answer::Reply(_)));
    let seen = |machine: &Machine| {
        let fake = machine.fake.machine();
        let held = (fake.tasks.clone(), fake.allowed.clone(), fake.domains.clone(), fake.suspended.clone());
        format!("{held:?} {:?} {:?}", fake.exec_table, machine.cgroups.tree())
    };
    let before = seen(&machine);
    for (method, access) in METHODS {
        let answer = ask(4711, method, worth_denying(method, &sleeper));
        match (access, answer) {
            (Access::Open(why), Answer::Reply(_)) => assert!(!why.is_empty(), "{method}"),
            (Access::All(..) | Access::OfTarget, Answer::Error(ApiError::PermissionDenied { .. })) => {}
            (access, Answer::Error(error)) => panic!("{method} ({access:?}): {error}"),
            (access, _) => panic!("{method} ({access:?}) is answered"),
        }
        assert_eq!(seen(&machine), before, "{method}");
    }
}

#[test]
fn every_method_of_the_interface_is_answered_and_no_other() {
    let described = libsteward::INTERFACE_DESCRIPTION.lines().filter_map(|line| line.strip_prefix("method "));
    let described: BTreeSet<String> =
        described.map(|line| format!("io.steward.{}", line.split('(').next().unwrap_or_default())).collect();
    let answered = METHODS.iter().map(|(name, _)| (*name).to_owned());
    let answered: BTreeSet<String> = answered.filter(|name| name.starts_with("io.steward.")).collect();
    assert_eq!(answered, described);
}
