//! Domains: made, given, refused, entered, removed, and what becomes of them when somebody ends.

use std::sync::atomic::Ordering;

use crate::common::{self, Machine, Running, Sleeper, reservation};
use libsteward::api::{DomainSettings, EventKind};
use libsteward::wire::Call;
use libsteward::{ApiError, Error, api};
use steward_core::cpu::best_effort::BestEffortOrder;
use steward_core::cpu::mechanism::MechanismKind;
use steward_core::resource::Resource;
use steward_kernel::cgroup::reading::MemoryUse;
use stewardd::daemon::Daemon;
use stewardd::server::Answer;
use stewardd::server::peer::Caller;
use stewardd::server::pieces::Put;

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> ApiError {
    match result.expect_err("it is refused") {
        Error::Api(error) => error,
        other => panic!("the daemon did not answer: {other}"),
    }
}

fn create(domain: &str, cpu: Option<f64>) -> api::CreateDomain {
    let settings = DomainSettings { cpu, ..DomainSettings::default() };
    api::CreateDomain { domain: domain.into(), settings, ..api::CreateDomain::default() }
}

fn set(domain: &str, settings: DomainSettings) -> api::SetDomain {
    api::SetDomain { domain: domain.into(), settings, ..api::SetDomain::default() }
}

fn reserve(domain: &str, cpu: f64) -> api::SetDomain {
    set(domain, DomainSettings { cpu: Some(cpu), ..DomainSettings::default() })
}

fn enter(pid: i32, domain: &str) -> api::MoveProcess {
    api::MoveProcess { pid: Some(pid), domain: domain.into() }
}

fn remove(domain: &str, kill: bool) -> api::RemoveDomain {
    api::RemoveDomain { domain: domain.into(), kill: Some(kill) }
}

fn list(daemon: &Running) -> Vec<api::Domain> {
    daemon.client().call(&api::ListDomains {}).expect("everyone may read").domains
}

fn names(daemon: &Running) -> Vec<String> {
    list(daemon).into_iter().map(|domain| domain.name).collect()
}

fn find(daemon: &Running, name: &str) -> Option<api::Domain> {
    list(daemon).into_iter().find(|domain| domain.name == name)
}

/// Asks for the list until it is as wanted. Each question is a turn of the daemon's loop.
fn until(daemon: &Running, wanted: impl Fn(&[api::Domain]) -> bool) {
    for _ in 0..100_000 {
        if wanted(&list(daemon)) {
            return;
        }
    }
    panic!("never: {:?}", names(daemon));
}

/// What the scheduler was told that a domain has reserved, as a fraction of the cgroup above it.
fn told(machine: &Machine, path: &str) -> Option<f64> {
    let id = machine.cgroups.tree().id(path);
    machine.fake.machine().domains.get(&id).map(|policy| policy.reserved)
}

#[test]
fn a_domain_is_made_with_what_it_reserves_and_told_to_the_scheduler() {
    let machine = Machine::new();
    let daemon = machine.start();
    let made = daemon.client().call(&create("batch", Some(0.2))).expect("there is room").domain;
    assert_eq!((made.name.as_str(), made.path.as_str()), ("batch", "/steward.batch"));
    assert_eq!((made.parent.as_deref(), made.cpu, made.made, made.user), (Some("/"), Some(0.2), true, 0));
    // Of the rest nothing is sure: the root's own tasks weigh as much as there are.
    assert!((made.cpu_guaranteed - 0.2).abs() < 1e-9, "{made:?}");
    assert_eq!(told(&machine, "steward.batch"), Some(0.2));
    let root = find(&daemon, "/").expect("the root is always there");
    assert_eq!((root.cpu_sum, root.cpu_reservable, root.parent), (0.2, 0.95, None));
    let nested = daemon.client().call(&create("batch/night", Some(1.0))).expect("all of it").domain;
    assert_eq!((nested.parent.as_deref(), nested.cpu), (Some("batch"), Some(1.0)));
    assert_eq!(told(&machine, "steward.batch/night"), Some(1.0));
}

#[test]
fn a_level_is_never_overcommitted_and_a_refusal_leaves_nothing_behind() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut watcher = daemon.client().stream(&api::WatchDomains::default()).expect("sent");
    daemon.client().call(&create("a", Some(0.6))).expect("there is room");
    daemon.client().call(&reserve("user.slice", 0.3)).expect("there is room");
    let ApiError::Overcommitted { reason, asked, reserved, limit, .. } =
        refusal(daemon.client().call(&create("b", Some(0.1))))
    else {
        panic!("only 5 % are left")
    };
    assert!((asked, limit) == (0.1, 0.95) && (reserved - 0.9).abs() < 1e-9, "{reason}");
    assert!(reason.contains("5 % is left") && reason.contains("a 60 %"), "{reason}");
    assert!(!machine.cgroups.tree().has("steward.b"));
    assert!(matches!(refusal(daemon.client().call(&reserve("a", 0.66))), ApiError::Overcommitted { .. }));
    assert_eq!(find(&daemon, "a").expect("it is there").cpu, Some(0.6));
    let kinds: Vec<EventKind> = watcher
        .by_ref()
        .take(4)
        .map(|change| change.expect("a change").event.expect("an event").kind)
        .collect();
    use EventKind::{DomainChanged, DomainCreated, DomainRefused};
    assert_eq!(kinds, [DomainCreated, DomainChanged, DomainRefused, DomainRefused]);
}

#[test]
fn what_is_no_name_no_fraction_or_no_place_is_refused() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = daemon.client();
    for name in ["", "..", "a/../b", "a//b", "/a", "a\n", "\u{1b}[31m", ".own", "a/.own", &"x".repeat(256)] {
        let error = refusal(client.call(&create(name, None)));
        assert!(
            matches!(&error, ApiError::InvalidParameter { parameter, .. } if parameter == "domain"),
            "{name:?}: {error}"
        );
    }
    for cpu in [0.0, -0.5, 1.01, 1e300] {
        let error = refusal(client.call(&create("a", Some(cpu))));
        assert!(
            matches!(&error, ApiError::InvalidParameter { parameter, .. } if parameter == "cpu"),
            "{cpu}: {error}"
        );
    }
    let unknown = DomainSettings { reset: vec!["colour".into()], ..DomainSettings::default() };
    assert!(refusal(client.call(&set("user.slice", unknown))).to_string().contains("no setting \"colour\""));
    assert_eq!(
        refusal(client.call(&create("web/front", None))),
        ApiError::NoSuchDomain { domain: "web".into() }
    );
    assert_eq!(refusal(client.call(&reserve("web", 0.1))), ApiError::NoSuchDomain { domain: "web".into() });
    // The name of a slice, and of a domain that is there.
    client.call(&create("web", None)).expect("there is room");
    for name in ["user.slice", "web", "steward.web"] {
        assert!(matches!(refusal(client.call(&create(name, None))), ApiError::DomainExists { .. }), "{name}");
    }
    assert_eq!(names(&daemon), ["/", "web", "system.slice", "user.slice", "user.slice/user-1000.slice"]);
}

#[test]
fn a_domain_goes_with_its_last_process_and_its_reservation_too() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    daemon.client().call(&create("batch", Some(0.9))).expect("there is room");
    let moved = daemon.client().call(&enter(sleeper.pid(), "batch")).expect("root may");
    assert_eq!((moved.from.as_str(), moved.domain.as_str()), ("/", "batch"));
    let shown = api::ShowDomain { pid: Some(sleeper.pid()), domain: None };
    let shown = daemon.client().call(&shown).expect("it runs");
    assert_eq!((shown.domain.name.as_str(), shown.processes), ("batch", vec![sleeper.pid()]));
    let explained = daemon.client().call(&api::Explain { pid: sleeper.pid() }).expect("it runs").text;
    assert!(explained.contains("in the domain batch, which has 90 % reserved"), "{explained}");
    drop(sleeper);
    until(&daemon, |domains| !domains.iter().any(|domain| domain.name == "batch"));
    assert!(!machine.cgroups.tree().has("steward.batch"));
    daemon.client().call(&create("other", Some(0.9))).expect("there is room again");
    let events = daemon.client().call(&api::ListEvents {}).expect("everyone may read").events;
    let removed = events.iter().find(|event| event.kind == EventKind::DomainRemoved).expect("it was told");
    assert!(removed.text.contains("Domain batch was removed: its last process has gone"), "{}", removed.text);
}

#[test]
fn a_domain_that_is_to_stay_or_was_not_used_yet_stays() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let kept = api::CreateDomain { keep: Some(true), ..create("kept", Some(0.1)) };
    daemon.client().call(&kept).expect("there is room");
    daemon.client().call(&create("unused", None)).expect("there is room");
    daemon.client().call(&create("used", None)).expect("there is room");
    daemon.client().call(&enter(sleeper.pid(), "kept")).expect("root may");
    daemon.client().call(&enter(sleeper.pid(), "used")).expect("root may");
    drop(sleeper);
    until(&daemon, |domains| !domains.iter().any(|domain| domain.name == "used"));
    let left = names(&daemon);
    assert!(left.contains(&"kept".into()) && left.contains(&"unused".into()), "{left:?}");
}

#[test]
fn a_domain_with_children_keeps_its_own_processes_in_a_leaf_and_takes_its_children_along() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let other = Sleeper::start(&machine.program("other"));
    let mut client = daemon.client();
    let own = DomainSettings { own_weight: Some(300), own_priority: Some(6), ..DomainSettings::default() };
    let web = api::CreateDomain { settings: own, ..create("web", None) };
    client.call(&web).expect("there is room");
    client.call(&enter(sleeper.pid(), "web")).expect("root may");
    client.call(&create("web/front", Some(0.5))).expect("there is room");
    client.call(&enter(other.pid(), "web/front")).expect("root may");
    assert_eq!(machine.cgroups.tree().members[&sleeper.pid()], "steward.web/.own");
    let leaf = machine.cgroups.tree().id("steward.web/.own");
    let policy = machine.fake.machine().domains[&leaf];
    assert_eq!((policy.weight, policy.priority), (Some(300), 6));
    let shown = api::ShowDomain { domain: Some("web".into()), pid: None };
    assert_eq!(client.call(&shown).expect("it is there").processes, [sleeper.pid()]);
    assert!(!names(&daemon).iter().any(|name| name.contains(".own")));
    let removed = client.call(&remove("web", false)).expect("root may");
    assert_eq!((removed.removed, removed.moved), (2, 2));
    assert_eq!(machine.cgroups.tree().members[&other.pid()], "");
    assert!(!machine.cgroups.tree().has("steward.web"));
    assert!(machine.fake.machine().domains.is_empty());
}

#[test]
fn a_removed_childs_processes_go_to_the_parent_or_end_as_asked() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let mut client = daemon.client();
    client.call(&create("web", None)).expect("there is room");
    client.call(&create("web/front", None)).expect("there is room");
    client.call(&enter(sleeper.pid(), "web/front")).expect("root may");
    assert_eq!(client.call(&remove("web/front", false)).expect("root may").moved, 1);
    assert_eq!(machine.cgroups.tree().members[&sleeper.pid()], "steward.web/.own");
    client.call(&remove("web", true)).expect("root may");
    assert_eq!(machine.cgroups.tree().killed, [sleeper.pid()]);
    assert!(!machine.cgroups.tree().has("steward.web"));
}

/// What the daemon answers when it is asked to remove this, and in how many pieces.
fn removed_in_pieces(
    daemon: &mut Daemon,
    uid: u32,
    request: &api::RemoveDomain,
) -> (api::DomainRemoved, usize) {
    let Ok(serde_json::Value::Object(parameters)) = serde_json::to_value(request) else {
        unreachable!("a struct with named fields")
    };
    let method = <api::RemoveDomain as api::Method>::NAME.to_owned();
    let call = Call { method, parameters, ..Call::default() };
    let caller = Caller::of_process(uid, uid, std::process::id() as i32);
    let mut answer = daemon.answer(&caller, call.clone());
    let mut pieces = 1;
    loop {
        match answer {
            Answer::Again(made) => {
                pieces += 1;
                answer = daemon.answer(&caller, Put { call: call.clone(), made: Some(made) });
            }
            Answer::Reply(reply) => {
                return (serde_json::from_value(reply.into()).expect("it was removed"), pieces);
            }
            Answer::Error(error) => panic!("{error}"),
            _ => panic!("neither an answer nor a part of one"),
        }
    }
}

#[test]
fn a_domain_with_many_below_it_is_removed_in_pieces() {
    let machine = Machine::new();
    let mut daemon = machine.daemon().expect("it starts");
    let call = |request: &api::CreateDomain| {
        let Ok(serde_json::Value::Object(parameters)) = serde_json::to_value(request) else {
            unreachable!("a struct with named fields")
        };
        let method = <api::CreateDomain as api::Method>::NAME.to_owned();
        Call { method, parameters, ..Call::default() }
    };
    let root = Caller::of_process(0, 0, std::process::id() as i32);
    for kill in [false, true] {
        let own = api::CreateDomain { user: Some(1001), ..create("own", None) };
        assert!(matches!(daemon.answer(&root, call(&own)), Answer::Reply(_)));
        for number in 0..100 {
            let below = create(&format!("own/d{number:02}"), None);
            assert!(matches!(daemon.answer(&root, call(&below)), Answer::Reply(_)));
        }
        let (removed, pieces) = removed_in_pieces(&mut daemon, 1001, &remove("own", kill));
        assert_eq!((removed.removed, removed.moved), (101, 0));
        // 8 domains in each; and before, whose the processes are in 4 to 32 cgroups: itself, its leaf and those below.
        let looks = if kill { 3..=25 } else { 0..=0 };
        assert!(looks.contains(&(pieces - 13)), "{pieces}");
        assert!(!machine.cgroups.tree().has("steward.own"));
    }
}

/// Whose the processes are that are to be ended is known only where all of them can be listed.
#[test]
fn a_domain_whose_processes_or_cgroups_cannot_be_listed_is_not_ended_by_its_owner() {
    let machine = Machine::new();
    let daemon = machine.start();
    let own = api::CreateDomain { user: Some(1001), keep: Some(true), ..create("own", None) };
    daemon.client().call(&own).expect("root may");
    daemon.client().call(&create("own/part", None)).expect("root may");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    for unreadable in ["steward.own/cgroup.procs", "steward.own/part/cgroup.procs", "steward.own/part"] {
        machine.cgroups.tree().unreadable = [unreadable.to_owned()].into();
        let error = refusal(daemon.client().call(&remove("own", true)));
        assert!(matches!(error, ApiError::MechanismFailed { .. }), "{unreadable}: {error}");
        assert!(machine.cgroups.tree().has("steward.own/part"), "{unreadable}");
    }
    machine.cgroups.tree().unreadable.clear();
    daemon.client().call(&remove("own", true)).expect("one's own");
    assert!(!machine.cgroups.tree().has("steward.own"));
}

/// What root has held a user to, the user does not get out of by removing the domain that does it.
#[test]
fn nobody_leaves_the_limits_of_a_domain_of_their_own_by_removing_it() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let slow = || DomainSettings { weight: Some(10), ..DomainSettings::default() };
    let slice = "user.slice/user-1001.slice";
    for path in ["user.slice", slice] {
        machine.cgroups.tree().add(path, 0);
    }
    let first = |name: &str| api::CreateDomain { user: Some(1001), keep: Some(true), ..create(name, None) };
    let as_root = || machine.caller_uid.store(0, Ordering::SeqCst);
    let limits = [
        slow(),
        DomainSettings { priority: Some(0), ..DomainSettings::default() },
        DomainSettings { memory_max: Some(1 << 30), ..DomainSettings::default() },
        DomainSettings { io_max_bytes: Some(1 << 20), ..DomainSettings::default() },
        DomainSettings { io: Some(api::IoClass::Background), ..DomainSettings::default() },
    ];
    for settings in limits {
        as_root();
        let own = api::CreateDomain { settings: settings.clone(), ..first("own") };
        daemon.client().call(&own).expect("root may");
        daemon.client().call(&enter(sleeper.pid(), "own")).expect("root may");
        machine.caller_uid.store(1001, Ordering::SeqCst);
        let error = refusal(daemon.client().call(&remove("own", false))).to_string();
        assert!(error.contains("whose limits would hold its processes no more"), "{settings:?}: {error}");
        assert_eq!(machine.cgroups.tree().members[&sleeper.pid()], "steward.own");
        // What they make below it is theirs, limits included.
        let part = api::CreateDomain { settings, ..create("own/part", None) };
        daemon.client().call(&part).expect("it is below their own");
        daemon.client().call(&remove("own/part", false)).expect("it is below their own");
        // Without processes it limits nobody.
        machine.cgroups.tree().members.clear();
        daemon.client().call(&remove("own", false)).expect("one's own");
    }
    as_root();
    daemon.client().call(&set(slice, slow())).expect("root may");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let error = refusal(daemon.client().call(&remove(slice, true))).to_string();
    assert!(error.contains("whose limits would hold its processes no more"), "{error}");
    // What was reserved for them they give back.
    as_root();
    let more = DomainSettings { cpu: Some(0.1), weight: Some(200), ..DomainSettings::default() };
    daemon.client().call(&set(slice, more)).expect("there is room");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    daemon.client().call(&remove(slice, false)).expect("one's own");
}

#[test]
fn a_cgroup_that_somebody_else_removes_is_noticed_and_its_reservation_is_free() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut watcher = daemon.client().stream(&api::WatchDomains::default()).expect("sent");
    daemon.client().call(&reserve("user.slice/user-1000.slice", 0.5)).expect("there is room");
    machine.cgroups.tree().delete("user.slice/user-1000.slice");
    let mut changes = watcher.by_ref().map(|change| change.expect("a change").event.expect("an event"));
    let vanished = changes.nth(1).expect("it is told");
    assert_eq!(vanished.kind, EventKind::DomainVanished);
    assert!(machine.fake.machine().domains.is_empty());
    // Another cgroup of the same name is another domain.
    machine.cgroups.tree().add("user.slice/user-1000.slice", 0);
    assert_eq!(find(&daemon, "user.slice/user-1000.slice").expect("it is there").cpu, None);
}

/// systemd has the root hand out what its own units ask for, each time it reads its files again.
#[test]
fn domains_have_theirs_again_when_somebody_has_the_root_hand_the_cpu_out_no_longer() {
    let machine = Machine::new();
    let daemon = machine.start();
    let memory = DomainSettings { memory_max: Some(64 << 20), ..DomainSettings::default() };
    daemon.client().call(&create("batch", Some(0.2))).expect("there is room");
    daemon.client().call(&set("batch", memory)).expect("there is room");
    let max = || machine.cgroups.tree().memory("steward.batch").max_bytes;
    until(&daemon, |_| max() == Some(64 << 20));
    machine.fake.machine().domains.clear();
    for resource in [Resource::Cpu, Resource::Memory] {
        machine.cgroups.tree().close("", resource);
    }
    until(&daemon, |_| told(&machine, "steward.batch") == Some(0.2));
    until(&daemon, |_| machine.cgroups.tree().hands_out("", Resource::Memory));
    assert!(machine.cgroups.tree().hands_out("", Resource::Cpu));
}

#[test]
fn others_divide_only_what_is_their_own() {
    let machine = Machine::new();
    let daemon = machine.start();
    let own = api::CreateDomain { user: Some(1001), ..create("own", Some(0.4)) };
    daemon.client().call(&own).expect("root may");
    daemon.client().call(&create("roots", Some(0.1))).expect("root may");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let denied = |result: Result<(), Error>| {
        let error = refusal(result);
        assert!(matches!(error, ApiError::PermissionDenied { .. }), "{error}");
    };
    let mut client = daemon.client();
    denied(client.call(&create("mine", None)).map(drop));
    denied(client.call(&reserve("own", 0.5)).map(drop));
    denied(client.call(&reserve("roots", 0.05)).map(drop));
    denied(client.call(&reserve("user.slice", 0.1)).map(drop));
    denied(client.call(&remove("roots", false)).map(drop));
    denied(client.call(&create("roots/mine", None)).map(drop));
    client.call(&reserve("own", 0.3)).expect("less is always possible");
    client.call(&create("own/part", Some(0.5))).expect("what one has, one divides");
    client.call(&reserve("own/part", 0.9)).expect("it is paid out of one's own");
    let limit =
        DomainSettings { cpu_reservable: Some(0.95), own_weight: Some(500), ..DomainSettings::default() };
    client.call(&set("own", limit)).expect("that takes from nobody else");
    client.call(&remove("own/part", false)).expect("one's own");
    client.call(&remove("own", false)).expect("one's own");
}

#[test]
fn others_move_only_their_own_processes_into_domains_of_their_own() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let own = api::CreateDomain { user: Some(1001), ..create("own", None) };
    daemon.client().call(&own).expect("root may");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    // The test's processes belong to the user that runs it, which the daemon takes for somebody else.
    let error = refusal(daemon.client().call(&enter(sleeper.pid(), "own")));
    assert!(matches!(error, ApiError::PermissionDenied { .. }), "{error}");
    machine.caller_uid.store(0, Ordering::SeqCst);
    let error = refusal(daemon.client().call(&enter(sleeper.pid(), "user.slice")));
    assert!(error.to_string().contains("not made by Steward"), "{error}");
    let error = refusal(daemon.client().call(&enter(i32::MAX, "own")));
    assert_eq!(error, ApiError::NoSuchTask { pid: i32::MAX });
}

/// A slice of a user belongs to the user, but what it limits (`pids.max`, say) limits the user: a domain of their own
/// elsewhere is no way out of it.
#[test]
fn nobody_leaves_the_slice_that_limits_them_by_way_of_a_domain_of_their_own() {
    use std::os::unix::process::CommandExt;
    let machine = Machine::new();
    let daemon = machine.start();
    // SAFETY: plain system call.
    let tester = unsafe { libc::getuid() };
    let mut command = std::process::Command::new("sleep");
    command.arg("1000");
    let user = if tester == 0 { 1001 } else { tester };
    if tester == 0 {
        command.uid(user);
    }
    let mut process = command.spawn().expect("every machine has sleep");
    let pid = process.id() as i32;
    daemon.client().call(&api::CreateDomain { user: Some(user), ..create("own", None) }).expect("root may");
    machine.caller_uid.store(user, Ordering::SeqCst);
    let slice = format!("user.slice/user-{user}.slice");
    for (path, uid) in
        [("user.slice".to_owned(), 0), (slice.clone(), user), (format!("{slice}/session"), user)]
    {
        machine.cgroups.tree().add(&path, uid);
    }
    for from in [format!("{slice}/session"), slice] {
        machine.cgroups.tree().members.insert(pid, from.clone());
        let error = refusal(daemon.client().call(&enter(pid, "own"))).to_string();
        assert!(error.contains("whose limits it would leave"), "{error}");
        assert_eq!(machine.cgroups.tree().members[&pid], from);
    }
    // What a manager has left to them to divide, with `Delegate=`, is not theirs to leave either.
    for path in ["system.slice/theirs.service", "system.slice/theirs.service/part"] {
        machine.cgroups.tree().add(path, user);
        machine.cgroups.tree().members.insert(pid, path.to_owned());
        let error = refusal(daemon.client().call(&enter(pid, "own"))).to_string();
        assert!(error.contains("whose limits are its manager's"), "{error}");
        assert_eq!(machine.cgroups.tree().members[&pid], path);
    }
    // Within what they were given they go about.
    machine.cgroups.tree().add("steward.own/part", user);
    machine.cgroups.tree().members.insert(pid, "steward.own/part".to_owned());
    daemon.client().call(&enter(pid, "own")).expect("both are theirs");
    // It is the slice that keeps them: from the root of the tree, which limits nobody, they may.
    machine.cgroups.tree().members.insert(pid, String::new());
    daemon.client().call(&enter(pid, "own")).expect("it is their process, and their domain");
    assert_eq!(machine.cgroups.tree().members[&pid], "steward.own");
    process.kill().expect("it runs");
    process.wait().expect("it ends");
}

#[test]
fn run_enters_a_domain_and_leaves_it_when_the_reservation_is_refused() {
    let machine = Machine::new();
    let daemon = machine.start();
    let own = std::process::id() as i32;
    let kept = api::CreateDomain { keep: Some(true), ..create("batch", None) };
    daemon.client().call(&kept).expect("there is room");
    let run = |cpu| api::Run { domain: Some("batch".into()), cpu, ..api::Run::default() };
    let refused = refusal(daemon.client().call(&run(Some(reservation(90, 100)))));
    assert!(matches!(refused, ApiError::AdmissionRefused { .. }), "{refused}");
    assert_eq!(machine.cgroups.tree().members[&own], "");
    daemon.client().call(&run(None)).expect("root may");
    assert_eq!(machine.cgroups.tree().members[&own], "steward.batch");
    assert!(machine.fake.machine().allowed.is_empty());
    daemon.client().call(&run(Some(reservation(5, 100)))).expect("it fits");
    assert!(machine.fake.machine().tasks.contains_key(&own));
}

#[test]
fn domains_outlive_the_daemon_and_the_scheduler() {
    let machine = Machine::new();
    let sleeper = Sleeper::start(&machine.program("program"));
    let daemon = machine.start();
    let mut client = daemon.client();
    client.call(&api::CreateDomain { keep: Some(true), ..create("kept", Some(0.1)) }).expect("there is room");
    client.call(&create("used", Some(0.2))).expect("there is room");
    client.call(&create("used/child", Some(0.5))).expect("there is room");
    client.call(&enter(sleeper.pid(), "used/child")).expect("root may");
    client.call(&reserve("user.slice", 0.3)).expect("there is room");
    let before = machine.fake.machine().domains.clone();
    machine.fake.eject("a test");
    until(&daemon, |_| machine.fake.machine().domains.len() == before.len());
    assert_eq!(machine.fake.machine().domains, before);
    daemon.stop();
    assert!(machine.fake.machine().domains.is_empty());
    assert!(!machine.cgroups.tree().has("steward.kept"), "empty ones are removed");
    assert_eq!(machine.cgroups.tree().members[&sleeper.pid()], "steward.used/child");
    let daemon = machine.start();
    let cpu = |name: &str| find(&daemon, name).and_then(|domain| domain.cpu);
    assert_eq!((cpu("kept"), cpu("used"), cpu("used/child")), (Some(0.1), Some(0.2), Some(0.5)));
    assert_eq!(cpu("user.slice"), Some(0.3));
    assert_eq!(machine.fake.machine().domains.len(), before.len());
    drop(sleeper);
    until(&daemon, |domains| !domains.iter().any(|domain| domain.name == "used"));
}

#[test]
fn what_the_scheduler_cannot_see_or_do_is_said_and_nothing_is_left() {
    let machine = Machine::new();
    let daemon = machine.start();
    let unseen = machine.cgroups.tree().id("user.slice");
    machine.fake.machine().unseen.push(unseen);
    let error = refusal(daemon.client().call(&reserve("user.slice", 0.1)));
    assert!(error.to_string().contains("CPUWeight=100"), "{error}");
    assert_eq!(find(&daemon, "user.slice").expect("it is there").cpu, None);
    daemon.stop();
    let lacking = stewardd::cpu::mechanisms::LoadFailure { reason: "none".into(), kernel_lacks_it: true };
    machine.fake.machine().broken.push((MechanismKind::SchedExt, lacking));
    let daemon = machine.start();
    let error = refusal(daemon.client().call(&create("batch", Some(0.1))));
    assert!(error.to_string().contains("sched_ext"), "{error}");
    assert!(!machine.cgroups.tree().has("steward.batch"));
}

#[test]
fn complaints_are_counted_for_the_process_and_its_domain() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = daemon.client();
    client.call(&api::CreateDomain { keep: Some(true), ..create("batch", None) }).expect("there is room");
    client.call(&api::Run { domain: Some("batch".into()), ..api::Run::default() }).expect("root may");
    client.call(&common::set(std::process::id() as i32, reservation(1, 100))).expect("it fits");
    let complain = |missed| api::Complain { missed, of: Some("frames".into()) };
    client.call(&complain(2)).expect("anyone may");
    assert_eq!(client.call(&complain(3)).expect("anyone may").complaints, 5);
    assert_eq!(find(&daemon, "batch").expect("it is there").complaints, 5);
    assert_eq!(daemon.status().cpu.tasks[0].complaints, 5);
    for missed in [0, u64::MAX] {
        assert!(matches!(refusal(client.call(&complain(missed))), ApiError::InvalidParameter { .. }));
    }
}

#[test]
fn the_order_among_domains_is_set_and_changed_by_the_configuration() {
    let machine = Machine::new();
    let write = |text: &str| std::fs::write(machine.path("steward.toml"), text).expect("written");
    write("[cpu]\nbest_effort = \"wrr\"\nservice_cycle = \"100ms\"\n");
    let daemon = machine.start();
    let settings = machine.fake.machine().best_effort;
    assert_eq!((settings.order, settings.service_cycle_ns), (BestEffortOrder::Wrr, 100_000_000));
    write("[cpu]\nbest_effort = \"wrr\"\n");
    daemon.client().call(&api::Reload {}).expect("root may");
    assert_eq!(machine.fake.machine().best_effort.order, BestEffortOrder::Wrr);
    let shown = daemon.client().call(&api::ListDomains {}).expect("everyone may read").best_effort;
    assert_eq!((shown.order.as_str(), shown.service_cycle_ns), ("wrr", 500_000_000));
}

/// Writes a file that declares domains, and has the daemon read it.
fn declare(machine: &Machine, daemon: &Running, text: &str) -> Vec<api::Problem> {
    machine.declare_domains(text);
    daemon.client().call(&api::Reload {}).expect("root may").problems
}

#[test]
fn a_declared_domain_is_there_from_the_start_and_stays_while_it_is_empty() {
    let machine = Machine::new();
    machine.declare_domains(
        "[[domain]]\nname = \"web/front\"\nuser = 1002\n[[domain]]\nname = \"web\"\ncpu = \"30%\"\n",
    );
    let daemon = machine.start();
    assert!(daemon.status().problems.is_empty(), "{:?}", daemon.status().problems);
    let web = find(&daemon, "web").expect("it is declared");
    assert_eq!((web.cpu, web.keep, web.user, web.made), (Some(0.3), true, 0, true));
    assert_eq!(find(&daemon, "web/front").expect("it is declared").user, 1002);
    assert_eq!(told(&machine, "steward.web"), Some(0.3));
    // Its last process goes.
    let sleeper = Sleeper::start(&machine.program("program"));
    daemon.client().call(&enter(sleeper.pid(), "web/front")).expect("root may");
    drop(sleeper);
    daemon.client().call(&create("other", None)).expect("there is room");
    until(&daemon, |domains| domains.iter().any(|domain| domain.name == "other"));
    assert!(find(&daemon, "web/front").is_some());
    // A restart within this boot finds it as it was, and a boot without any state makes it again.
    drop(daemon);
    let daemon = machine.start();
    assert_eq!(find(&daemon, "web").expect("it is declared").cpu, Some(0.3));
    drop(daemon);
    std::fs::remove_dir_all(machine.path("state")).expect("removed");
    assert_eq!(find(&machine.start(), "web").expect("it is declared").cpu, Some(0.3));
}

#[test]
fn a_declaration_that_changes_changes_its_domain_and_what_is_given_by_hand_stays_until_then() {
    let machine = Machine::new();
    let daemon = machine.start();
    let both = |a: &str, b: &str| {
        format!("[[domain]]\nname = \"a\"\ncpu = \"{a}\"\n[[domain]]\nname = \"b\"\ncpu = \"{b}\"\n")
    };
    assert_eq!(declare(&machine, &daemon, &both("30%", "60%")), vec![]);
    // What b gives up makes room for a.
    assert_eq!(declare(&machine, &daemon, &both("60%", "30%")), vec![]);
    assert_eq!((told(&machine, "steward.a"), told(&machine, "steward.b")), (Some(0.6), Some(0.3)));
    daemon.client().call(&reserve("a", 0.5)).expect("root may");
    assert_eq!(declare(&machine, &daemon, &format!("# moved\n{}", both("60%", "30%"))), vec![]);
    assert_eq!(told(&machine, "steward.a"), Some(0.5), "its declaration is as it was");
    // A mistake takes nothing away.
    let problems = declare(&machine, &daemon, &both("60%", "30%").replace("cpu", "cpus"));
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(problems[1].line, Some(6));
    assert!(problems[1].message.ends_with("the earlier version of b is in force"), "{problems:?}");
    assert_eq!(told(&machine, "steward.b"), Some(0.3));
}

#[test]
fn a_domain_that_is_declared_no_longer_goes_when_it_is_empty() {
    let machine = Machine::new();
    let daemon = machine.start();
    let row = |name: &str| format!("[[domain]]\nname = \"{name}\"\ncpu = \"10%\"\n");
    declare(&machine, &daemon, &format!("{}{}", row("idle"), row("busy")));
    let sleeper = Sleeper::start(&machine.program("program"));
    daemon.client().call(&enter(sleeper.pid(), "busy")).expect("root may");
    assert_eq!(declare(&machine, &daemon, ""), vec![]);
    assert!(find(&daemon, "idle").is_none());
    assert_eq!(find(&daemon, "busy").expect("it has a process").cpu, Some(0.1));
    drop(sleeper);
    until(&daemon, |domains| domains.iter().all(|domain| domain.name != "busy"));
}

#[test]
fn what_is_declared_and_cannot_be_is_listed_with_its_file_and_line() {
    let machine = Machine::new();
    let daemon = machine.start();
    let text = "[[domain]]\nname = \"a\"\ncpu = \"90%\"\n[[domain]]\nname = \"b\"\ncpu = \"10%\"\n\
                [[domain]]\nname = \"lost/child\"\n";
    let problems = declare(&machine, &daemon, text);
    let lines: Vec<Option<u64>> = problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(4), Some(7)], "{problems:?}");
    assert!(problems[0].message.contains("so 5 % is left"), "{problems:?}");
    assert!(problems[1].message.contains("lost"), "{problems:?}");
    assert_eq!(daemon.status().problems, problems);
    assert!(find(&daemon, "b").is_none() && !machine.cgroups.tree().has("steward.b"));
    assert_eq!(declare(&machine, &daemon, &text.replace("90", "80")).len(), 1);
    assert!(find(&daemon, "b").is_some());
}

#[test]
fn one_among_thousands_is_shown_without_a_look_at_each_and_those_given_something_count() {
    let machine = Machine::new();
    let used =
        |mib: u64| MemoryUse { used_bytes: mib << 20, anonymous_bytes: mib << 20, ..MemoryUse::default() };
    {
        let mut tree = machine.cgroups.tree();
        tree.add("crowd", 0);
        (0..1000).for_each(|number| tree.add(&format!("crowd/{number}"), 0));
        tree.used.insert("crowd".to_owned(), used(1000));
        (0..1000).for_each(|number| _ = tree.used.insert(format!("crowd/{number}"), used(1)));
    }
    let daemon = machine.start();
    let show = |name: &str| {
        let request = api::ShowDomain { domain: Some(name.into()), pid: None };
        daemon.client().call(&request).expect("everyone may read").domain
    };
    daemon.client().call(&reserve("crowd/7", 0.5)).expect("there is room");
    let reads = || machine.cgroups.tree().memory_reads;
    let before = reads();
    let (one, other) = (show("crowd/7"), show("crowd/8"));
    assert!(reads() - before < 40, "each of the others was read for these two: {}", reads() - before);
    assert_eq!(
        [&one, &other].map(|shown| shown.memory.as_ref().map(|memory| memory.used)),
        [Some(1 << 20); 2]
    );
    // The root's own tasks weigh what they weigh, so that nothing but what is reserved is sure.
    assert_eq!((one.cpu, other.cpu, other.weight), (Some(0.5), None, 100));
    let listed = list(&daemon);
    assert_eq!(listed.len(), 1005);
    let in_list =
        |name: &str| listed.iter().find(|domain| domain.name == name).cloned().expect("it is there");
    let without_memory = |shown: api::Domain| api::Domain { memory: None, cpu_guaranteed: 0.0, ..shown };
    for shown in [one, other] {
        let listed = in_list(&shown.name);
        assert!((listed.cpu_guaranteed - shown.cpu_guaranteed).abs() < 1e-3, "{listed:?} {shown:?}");
        assert_eq!(without_memory(listed), without_memory(shown));
    }
}
