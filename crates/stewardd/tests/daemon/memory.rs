//! Memory of domains: promised, limited, refused, given back, and what becomes of it when somebody ends.

use crate::common::{Machine, Running, Sleeper};
use libsteward::api::DomainSettings;
use libsteward::{ApiError, Error, api};
use steward_core::memory::limits::Told;
use stewardd::daemon::MEMORY_RESERVATION;
use stewardd::domains::cgroups::Promisable;

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> ApiError {
    match result.expect_err("it is refused") {
        Error::Api(error) => error,
        other => panic!("the daemon did not answer: {other}"),
    }
}

const MIB: i64 = 1 << 20;

fn settings(min: Option<i64>, max: Option<i64>) -> DomainSettings {
    DomainSettings { memory_min: min, memory_max: max, ..DomainSettings::default() }
}

fn create(domain: &str, min: Option<i64>, max: Option<i64>) -> api::CreateDomain {
    api::CreateDomain { domain: domain.into(), settings: settings(min, max), ..api::CreateDomain::default() }
}

fn set(domain: &str, min: Option<i64>, max: Option<i64>) -> api::SetDomain {
    api::SetDomain { domain: domain.into(), settings: settings(min, max), ..api::SetDomain::default() }
}

fn show(daemon: &Running, domain: &str) -> Result<api::Domain, Error> {
    let shown = daemon.client().call(&api::ShowDomain { domain: Some(domain.into()), pid: None });
    Ok(shown?.domain)
}

/// Asks until a domain is as wanted. Each question is a turn of the daemon's loop.
fn until(daemon: &Running, domain: &str, wanted: impl Fn(&api::Domain) -> bool) {
    for _ in 0..100_000 {
        if show(daemon, domain).is_ok_and(|domain| wanted(&domain)) {
            return;
        }
    }
    panic!("never: {:?}", show(daemon, domain));
}

fn kernel_has(machine: &Machine, path: &str) -> (Option<i64>, Option<i64>) {
    let Told { min_bytes, max_bytes, .. } = machine.cgroups.tree().memory(path);
    (min_bytes.map(|bytes| bytes as i64), max_bytes.map(|bytes| bytes as i64))
}

#[test]
fn what_a_domain_is_promised_and_may_use_is_written_and_taken_back() {
    let machine = Machine::new();
    let daemon = machine.start();
    let made =
        daemon.client().call(&create("a", Some(64 * MIB), Some(128 * MIB))).expect("there is room").domain;
    assert_eq!((made.memory_min, made.memory_max), (Some(64 << 20), Some(128 << 20)));
    until(&daemon, "a", |domain| domain.problem.is_none());
    assert_eq!(kernel_has(&machine, "steward.a"), (Some(64 * MIB), Some(128 * MIB)));
    daemon.client().call(&set("a", Some(32 * MIB), None)).expect("less");
    until(&daemon, "a", |domain| domain.problem.is_none());
    assert_eq!(kernel_has(&machine, "steward.a"), (Some(32 * MIB), Some(128 * MIB)));
    let state = daemon.status().memory;
    assert!(state.promised == 32 << 20 && state.reservable < state.total, "{state:?}");
    daemon.stop();
    assert_eq!(kernel_has(&machine, "steward.a"), (None, None), "a daemon that is gone has left nothing");
}

#[test]
fn what_can_be_promised_is_looked_at_anew_with_each_promise_and_what_was_promised_stays() {
    let machine = Machine::new();
    let promisable = |programs_mib: i64, of_others_mib: i64| {
        let [programs_bytes, of_others_bytes] = [programs_mib, of_others_mib].map(|mib| (mib * MIB) as u64);
        machine.cgroups.tree().promisable = Some(Promisable { programs_bytes, of_others_bytes });
    };
    promisable(1000, 0);
    let daemon = machine.start();
    assert_eq!(daemon.status().memory.reservable, 800 << 20);
    daemon.client().call(&create("a", Some(400 * MIB), None)).expect("there is room");
    // The kernel keeps half of it now, as for huge pages, and a unit of systemd has a MemoryMin=.
    promisable(500, 100);
    let more = refusal(daemon.client().call(&create("b", Some(MIB), None)));
    let ApiError::Overcommitted { reason, .. } = more else { panic!("there is no room") };
    assert!(reason.contains("at most 300M may be reserved (beside 100M that others promise"), "{reason}");
    assert_eq!(show(&daemon, "a").expect("it stays").memory_min, Some(400 << 20));
    daemon.client().call(&set("a", Some(390 * MIB), None)).expect("less is always possible");
}

#[test]
fn promises_beyond_the_machine_or_the_payer_are_refused_with_the_amounts() {
    let machine = Machine::new();
    let daemon = machine.start();
    let too_much = create("a", Some(i64::MAX), None);
    let ApiError::Overcommitted { resource, reason, .. } = refusal(daemon.client().call(&too_much)) else {
        panic!("no machine has that")
    };
    assert!(resource == "memory" && reason.contains("may be reserved"), "{reason}");
    assert!(show(&daemon, "a").is_err(), "nothing is left of it");
    let upside_down = create("a", Some(2 * MIB), Some(MIB));
    let wrong = refusal(daemon.client().call(&upside_down));
    assert!(
        matches!(&wrong, ApiError::InvalidParameter { parameter, .. } if parameter == "memory_max"),
        "{wrong}"
    );
    daemon.client().call(&create("a", Some(64 * MIB), None)).expect("there is room");
    daemon.client().call(&create("a/x", Some(64 * MIB), None)).expect("all of it");
    let beyond = refusal(daemon.client().call(&create("a/y", Some(1), None)));
    assert!(beyond.to_string().contains("promise a more first"), "{beyond}");
    let below = refusal(daemon.client().call(&set("a", Some(MIB), None)));
    assert!(below.to_string().contains("its children are promised 64M"), "{below}");
}

#[test]
fn memory_of_cgroups_of_others_is_their_managers_business() {
    let machine = Machine::new();
    let daemon = machine.start();
    let refused = refusal(daemon.client().call(&set("user.slice", Some(MIB), None)));
    assert!(refused.to_string().contains("systemctl set-property"), "{refused}");
    assert_eq!(show(&daemon, "user.slice").expect("it is there").memory_min, None);
    assert_eq!(kernel_has(&machine, "user.slice"), (None, None));
}

#[test]
fn what_the_kernel_refuses_is_said_and_leaves_all_as_it_was() {
    let machine = Machine::new();
    let daemon = machine.start();
    daemon.client().call(&create("a", Some(MIB), None)).expect("there is room");
    until(&daemon, "a", |domain| domain.problem.is_none());
    machine.cgroups.tree().refuses_memory = Some("it uses 300M and no more can be taken".into());
    // The worker has mostly done it when the call is answered; where it has not, the domain says what became of it.
    match daemon.client().call(&set("a", None, Some(2 * MIB))) {
        Err(Error::Api(refused)) => {
            assert!(refused.to_string().contains("no more can be taken"), "{refused}");
            assert_eq!(show(&daemon, "a").expect("it is there").memory_max, None);
        }
        _ => until(&daemon, "a", |domain| {
            domain.problem.as_ref().is_some_and(|problem| problem.contains("no more can be taken"))
        }),
    }
}

#[test]
fn what_could_not_be_written_is_written_once_it_can_be_and_nobody_asks_for_it_again() {
    let machine = Machine::new();
    let daemon = machine.start();
    let keep = api::CreateDomain { keep: Some(true), ..create("a", Some(MIB), None) };
    daemon.client().call(&keep).expect("there is room");
    daemon.stop();
    machine.cgroups.tree().refuses_memory = Some("No space left on device".into());
    let daemon = machine.start();
    until(&daemon, "a", |domain| domain.problem.as_ref().is_some_and(|why| why.contains("No space left")));
    assert_eq!(kernel_has(&machine, "steward.a"), (None, None));
    machine.cgroups.tree().refuses_memory = None;
    until(&daemon, "a", |domain| domain.problem.is_none());
    assert_eq!(kernel_has(&machine, "steward.a"), (Some(MIB), None));
}

#[test]
fn a_maximum_comes_into_force_once_enough_was_taken_and_others_have_their_turn_meanwhile() {
    let machine = Machine::new();
    let daemon = machine.start();
    machine.cgroups.tree().memory_goes_on = 1000;
    daemon.client().call(&create("a", None, Some(64 * MIB))).expect("there is room");
    daemon.client().call(&create("b", Some(MIB), None)).expect("there is room");
    until(&daemon, "b", |domain| domain.problem.is_none());
    assert_eq!(kernel_has(&machine, "steward.b"), (Some(MIB), None));
    until(&daemon, "a", |domain| domain.problem.is_none());
    assert_eq!(kernel_has(&machine, "steward.a"), (None, Some(64 * MIB)));
}

#[test]
fn a_program_that_is_promised_memory_has_a_domain_of_its_own_that_goes_with_it() {
    let machine = Machine::new();
    let daemon = machine.start();
    let run = api::Run { memory_min: Some(MIB), memory_max: Some(64 * MIB), ..api::Run::default() };
    let ran = daemon.client().call(&run).expect("there is room");
    let domain = ran.domain.expect("one was made for it");
    assert_eq!(domain, format!("run-{}", std::process::id()));
    until(&daemon, &domain, |domain| domain.problem.is_none());
    assert_eq!(kernel_has(&machine, &format!("steward.{domain}")), (Some(MIB), Some(64 * MIB)));
    let own = daemon.client().call(&api::ShowDomain::default()).expect("it is there").domain.name;
    assert_eq!(own, domain);
    let beyond = api::Run { memory_min: Some(2 * MIB), domain: Some(domain), ..api::Run::default() };
    assert!(refusal(daemon.client().call(&beyond)).to_string().contains("more first"));
    let sleeper = Sleeper::start(&machine.program("program"));
    drop(sleeper);
}

#[test]
fn a_daemon_that_starts_again_promises_the_same_again() {
    let machine = Machine::new();
    let daemon = machine.start();
    let keep = api::CreateDomain { keep: Some(true), ..create("a", Some(MIB), None) };
    daemon.client().call(&keep).expect("there is room");
    daemon.stop();
    let daemon = machine.start();
    until(&daemon, "a", |domain| domain.memory_min == Some(MIB as u64) && domain.problem.is_none());
    assert_eq!(kernel_has(&machine, "steward.a"), (Some(MIB), None));
}

const SECOND: i64 = 1_000_000_000;

fn protected(protect: i64) -> DomainSettings {
    DomainSettings { protect: Some(protect), ..DomainSettings::default() }
}

fn create_protected(domain: &str, protect: i64) -> api::CreateDomain {
    api::CreateDomain { domain: domain.into(), settings: protected(protect), ..api::CreateDomain::default() }
}

fn set_protected(domain: &str, protect: i64) -> api::SetDomain {
    api::SetDomain { domain: domain.into(), settings: protected(protect), ..api::SetDomain::default() }
}

fn reset_protect(domain: &str) -> api::SetDomain {
    let settings = DomainSettings { reset: vec!["protect".into()], ..DomainSettings::default() };
    api::SetDomain { domain: domain.into(), settings, ..api::SetDomain::default() }
}

#[test]
fn a_protection_period_is_shown_survives_a_restart_and_is_taken_back() {
    let machine = Machine::new();
    let daemon = machine.start();
    let keep = api::CreateDomain { keep: Some(true), ..create_protected("a", 90 * SECOND) };
    let made = daemon.client().call(&keep).expect("root may").domain;
    assert_eq!((made.protect, made.memory_min), (Some(90_000_000_000), None));
    daemon.client().call(&set_protected("a", 30 * SECOND)).expect("root may");
    // What else it has stays.
    daemon.client().call(&set("a", None, Some(64 * MIB))).expect("there is room");
    until(&daemon, "a", |domain| domain.problem.is_none());
    assert_eq!(kernel_has(&machine, "steward.a"), (None, Some(64 * MIB)));
    daemon.stop();
    let daemon = machine.start();
    assert_eq!(show(&daemon, "a").expect("it is there").protect, Some(30_000_000_000));
    let back = daemon.client().call(&reset_protect("a")).expect("root may").domain;
    assert_eq!((back.protect, back.memory_max), (None, Some(64 << 20)));
}

#[test]
fn the_memory_loop_has_cpu_time_of_its_own_while_anybody_is_protected() {
    let machine = Machine { memory_reservation: Some(MEMORY_RESERVATION), ..Machine::new() };
    let daemon = machine.start();
    let has_it = |wanted: bool| {
        // Each question is a turn of the daemon's loop.
        (0..100_000).any(|_| {
            daemon.status();
            let machine = machine.fake.machine();
            machine.tasks.values().any(|(grant, _)| grant.reservation == MEMORY_RESERVATION) == wanted
        })
    };
    assert!(has_it(false));
    for _ in 0..2 {
        daemon.client().call(&create_protected("a", 60 * SECOND)).expect("root may");
        assert!(has_it(true), "{:?}", daemon.status());
        daemon.client().call(&api::RemoveDomain { domain: "a".into(), kill: None }).expect("root may");
        assert!(has_it(false), "{:?}", daemon.status());
    }
    // A scheduler that is loaded anew has to be told anew.
    daemon.client().call(&create_protected("a", 60 * SECOND)).expect("root may");
    assert!(has_it(true));
    machine.fake.machine().tasks.clear();
    machine.fake.eject("a test");
    assert!(has_it(true), "{:?}", daemon.status());
}

#[test]
fn what_is_no_protection_period_is_refused_with_those_that_are_and_changes_nothing() {
    let machine = Machine::new();
    let daemon = machine.start();
    daemon.client().call(&create_protected("a", 30 * SECOND)).expect("root may");
    for wrong in [0, -SECOND, i64::MIN, SECOND - 1, 24 * 3600 * SECOND + 1, i64::MAX] {
        let refused = refusal(daemon.client().call(&set_protected("a", wrong)));
        let ApiError::InvalidParameter { parameter, reason } = &refused else { panic!("{wrong}: {refused}") };
        assert!(parameter == "protect" && reason.contains("they go from 1s to 24h"), "{wrong}: {reason}");
        assert!(daemon.client().call(&create_protected("b", wrong)).is_err() && show(&daemon, "b").is_err());
    }
    assert_eq!(show(&daemon, "a").expect("it is there").protect, Some(30_000_000_000));
    let refused = refusal(daemon.client().call(&set_protected("user.slice", SECOND)));
    assert!(refused.to_string().contains("was not made by Steward"), "{refused}");
    assert_eq!(show(&daemon, "user.slice").expect("it is there").protect, None);
}

#[test]
fn who_may_not_reserve_memory_may_not_protect_even_below_a_domain_of_their_own() {
    let machine = Machine::new();
    let daemon = machine.start();
    let of_user = api::CreateDomain { user: Some(1001), ..create_protected("a", 60 * SECOND) };
    daemon.client().call(&of_user).expect("root may");
    machine.caller_uid.store(1001, std::sync::atomic::Ordering::SeqCst);
    let denied = |refused: ApiError| {
        let is_denied = matches!(&refused, ApiError::PermissionDenied { .. });
        assert!(is_denied && refused.to_string().contains("reserve"), "{refused}");
    };
    denied(refusal(daemon.client().call(&set_protected("a", 61 * SECOND))));
    denied(refusal(daemon.client().call(&create_protected("b", SECOND))));
    denied(refusal(daemon.client().call(&create_protected("a/x", SECOND))));
    assert!(show(&daemon, "a/x").is_err(), "nothing is left of it");
    daemon.client().call(&create("a/x", None, Some(MIB))).expect("it is below a domain of one's own");
    denied(refusal(daemon.client().call(&set_protected("a/x", SECOND))));
    let run = api::Run { protect: Some(SECOND), ..api::Run::default() };
    denied(refusal(daemon.client().call(&run)));
    denied(refusal(daemon.client().call(&api::Run { domain: Some("a".into()), ..run.clone() })));
    // Less is theirs to choose.
    let less = daemon.client().call(&set_protected("a", 59 * SECOND)).expect("it is less").domain;
    assert_eq!(less.protect, Some(59_000_000_000));
    daemon.client().call(&reset_protect("a")).expect("nothing is less");
    denied(refusal(daemon.client().call(&set_protected("a", SECOND))));
    machine.caller_uid.store(1000, std::sync::atomic::Ordering::SeqCst);
    let by_owner = daemon.client().call(&set_protected("a/x", SECOND)).expect("the owner may").domain;
    assert_eq!(by_owner.protect, Some(1_000_000_000));
}

#[test]
fn a_program_that_asks_for_protection_has_a_domain_of_its_own() {
    let machine = Machine::new();
    let daemon = machine.start();
    let run = api::Run { protect: Some(1800 * SECOND), ..api::Run::default() };
    let domain = daemon.client().call(&run).expect("root may").domain.expect("one was made for it");
    let shown = show(&daemon, &domain).expect("it is there");
    assert_eq!((shown.protect, shown.memory_min, shown.memory_max), (Some(1_800_000_000_000), None, None));
    let own = daemon.client().call(&api::ShowDomain::default()).expect("it is there").domain.name;
    assert_eq!(own, domain);
}

#[test]
fn a_program_is_protected_while_its_specification_says_so() {
    let machine = Machine::new();
    let program = machine.program("program");
    let sleeper = Sleeper::start(&program);
    machine.write_specs("a.toml", &row(&program, "protect = \"30min\"\n"));
    let daemon = machine.start();
    let own = format!("program-{}", sleeper.pid());
    until(&daemon, &own, |domain| domain.protect == Some(1_800_000_000_000));
    assert_eq!(domain_of(&daemon, sleeper.pid()), own);
    machine.replace_specs("a.toml", &row(&program, "memory_max = \"32M\"\n"));
    until(&daemon, &own, |domain| domain.protect.is_none() && domain.memory_max == Some(32 << 20));
}

#[test]
fn a_row_with_a_reservation_of_the_cpu_alone_protects_nothing() {
    let machine = Machine::new();
    let (alone, with_period) = (machine.program("alone"), machine.program("with-period"));
    let (first, second) = (Sleeper::start(&alone), Sleeper::start(&with_period));
    let reserved = "cpu = \"1ms/100ms\"\n";
    machine.write_specs("a.toml", &row(&alone, reserved));
    machine.write_specs("b.toml", &row(&with_period, &format!("{reserved}protect = \"30min\"\n")));
    let daemon = machine.start();
    let placed = |sleeper: &Sleeper| format!("program-{}", sleeper.pid());
    until(&daemon, &placed(&second), |domain| domain.protect.is_some());
    // One look at all that runs finds both.
    assert!(show(&daemon, &placed(&first)).is_err());
}

fn row(program: &std::path::Path, memory: &str) -> String {
    format!("[[spec]]\npath = \"{}\"\n{memory}", program.display())
}

/// The domain of a process.
fn domain_of(daemon: &Running, pid: i32) -> String {
    let shown = daemon.client().call(&api::ShowDomain { domain: None, pid: Some(pid) });
    shown.expect("it runs").domain.name
}

#[test]
fn what_a_specification_says_of_memory_is_a_programs_from_the_daemons_start_on() {
    let machine = Machine::new();
    let program = machine.program("program");
    let sleeper = Sleeper::start(&program);
    machine.write_specs("a.toml", &row(&program, "memory_min = \"1M\"\nmemory_max = \"64M\"\n"));
    let daemon = machine.start();
    let own = format!("program-{}", sleeper.pid());
    until(&daemon, &own, |domain| domain.problem.is_none());
    assert_eq!(domain_of(&daemon, sleeper.pid()), own);
    assert_eq!(kernel_has(&machine, &format!("steward.{own}")), (Some(MIB), Some(64 * MIB)));
    let text = daemon.client().call(&api::Explain { pid: sleeper.pid() }).expect("it runs").text;
    assert!(text.contains("is in force in a domain of its own"), "{text}");
    // A change of the specification is one of that domain, and so is a restart.
    machine.replace_specs("a.toml", &row(&program, "memory_max = \"32M\"\n"));
    until(&daemon, &own, |domain| domain.memory_max == Some(32 << 20) && domain.memory_min.is_none());
    daemon.stop();
    let daemon = machine.start();
    until(&daemon, &own, |domain| domain.memory_max == Some(32 << 20) && domain.problem.is_none());
    assert_eq!(domain_of(&daemon, sleeper.pid()), own);
    // Its domain goes with it.
    drop(sleeper);
    for _ in 0..100_000 {
        if show(&daemon, &own).is_err() {
            return;
        }
    }
    panic!("it is still there: {:?}", show(&daemon, &own));
}

#[test]
fn a_program_that_another_manager_has_placed_stays_there_and_is_told_why() {
    let machine = Machine::new();
    let program = machine.program("program");
    let sleeper = Sleeper::start(&program);
    machine.cgroups.tree().members.insert(sleeper.pid(), "system.slice".into());
    machine.write_specs("a.toml", &row(&program, "memory_min = \"1M\"\n"));
    let daemon = machine.start();
    let mut text = String::new();
    for _ in 0..100_000 {
        text = daemon.client().call(&api::Explain { pid: sleeper.pid() }).expect("it runs").text;
        if text.contains("is not in force") {
            break;
        }
    }
    assert!(text.contains("it is in system.slice") && text.contains("steward run --memory-min"), "{text}");
    assert_eq!(domain_of(&daemon, sleeper.pid()), "system.slice");
}

#[test]
fn what_a_domain_is_promised_is_told_to_nobody_by_way_of_a_mistake() {
    let machine = Machine::new();
    let daemon = machine.start();
    daemon.client().call(&create("a", Some(64 * MIB), None)).expect("there is room");
    machine.caller_uid.store(1001, std::sync::atomic::Ordering::SeqCst);
    let refused = refusal(daemon.client().call(&set("a", None, Some(MIB))));
    assert!(matches!(refused, ApiError::PermissionDenied { .. }), "{refused}");
}

#[test]
fn how_much_a_domain_may_use_follows_from_what_all_use_and_weigh() {
    use steward_kernel::cgroup::reading::MemoryUse;
    let machine = Machine::new();
    let daemon = machine.start();
    for name in ["a", "b"] {
        daemon.client().call(&create(name, None, None)).expect("it is free");
    }
    {
        let mut tree = machine.cgroups.tree();
        tree.memory_available = 100 << 20;
        let used = |used_bytes| MemoryUse { used_bytes, ..MemoryUse::default() };
        tree.used.insert("steward.a".into(), used(300 << 20));
        tree.used.insert("steward.b".into(), used(0));
    }
    let available = |name: &str| {
        let domain = daemon.client().call(&api::ShowDomain { domain: Some(name.into()), pid: None });
        domain.expect("it is there").domain.memory.expect("it is counted").available.expect("root may")
    };
    // Of 400 MiB in all, a has what it uses and what is free; b, of the same weight, half.
    assert_eq!((available("a"), available("b")), (400 << 20, 200 << 20));
    let weight = DomainSettings { weight: Some(300), ..DomainSettings::default() };
    let heavier = api::SetDomain { domain: "b".into(), settings: weight, ..api::SetDomain::default() };
    daemon.client().call(&heavier).expect("root may");
    assert_eq!(available("b"), 300 << 20);
    daemon.client().call(&set("a", Some(150 * MIB), None)).expect("there is room");
    assert_eq!(available("b"), 250 << 20, "what a is promised is not b's");
}
