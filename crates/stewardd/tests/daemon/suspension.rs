//! Suspension, and a place behind all others: both belong to a connection, end with it, and never reach what must go
//! on.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::Ordering;

use crate::common::{Machine, Running, Sleeper};
use libsteward::{ApiError, Client, Error, api};
use steward_core::cpu::mechanism::MechanismKind;
use stewardd::cpu::mechanisms::LoadFailure;
use stewardd::watchdog;

fn with_domain() -> (Machine, Running) {
    let machine = Machine::new();
    let daemon = machine.start();
    let request =
        api::CreateDomain { domain: "batch".into(), keep: Some(true), ..api::CreateDomain::default() };
    daemon.client().call(&request).expect("made");
    (machine, daemon)
}

fn suspend(client: &mut Client, domain: &str, suspended: bool) -> Result<bool, Error> {
    let request = api::SuspendDomain { domain: domain.into(), suspended };
    client.call(&request).map(|reply| reply.suspended)
}

fn refusal(result: Result<bool, Error>) -> String {
    match result {
        Err(Error::Api(
            ApiError::InvalidParameter { reason, .. } | ApiError::PermissionDenied { reason },
        )) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn is_suspended(machine: &Machine) -> bool {
    let id = machine.cgroups.tree().id("steward.batch");
    machine.fake.machine().suspended.contains(&id)
}

/// Each question is a turn of the daemon's loop.
fn until(daemon: &Running, wanted: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if wanted() {
            return;
        }
        daemon.status();
    }
    panic!("never");
}

#[test]
fn a_suspension_ends_with_the_connection_that_asked_for_it() {
    let (machine, daemon) = with_domain();
    let mut client = daemon.client();
    assert!(suspend(&mut client, "batch", true).expect("root may"));
    assert!(is_suspended(&machine));
    drop(client);
    until(&daemon, || !is_suspended(&machine));
}

#[test]
fn of_two_connections_both_have_to_let_go() {
    let (machine, daemon) = with_domain();
    let (mut one, mut other) = (daemon.client(), daemon.client());
    suspend(&mut one, "batch", true).expect("root may");
    suspend(&mut other, "batch", true).expect("root may");
    suspend(&mut other, "batch", true).expect("twice is once");
    assert!(suspend(&mut one, "batch", false).expect("answered"), "the other holds it still");
    assert!(is_suspended(&machine));
    assert!(!suspend(&mut other, "batch", false).expect("answered"));
    assert!(!is_suspended(&machine));
    assert!(!suspend(&mut other, "batch", false).expect("to let go of nothing is no error"));
}

#[test]
fn what_must_go_on_is_not_suspended() {
    let (machine, daemon) = with_domain();
    let mut client = daemon.client();
    assert!(refusal(suspend(&mut client, "/", true)).contains("everything would stand still"));
    let own = std::process::id() as i32;
    machine.cgroups.tree().members.insert(own, "steward.batch".into());
    // In this test the daemon and its client are one process.
    assert!(refusal(suspend(&mut client, "batch", true)).contains("could never resume it"));
    machine.cgroups.tree().members.remove(&own);
    machine.cgroups.tree().freeze("steward.batch", true);
    let reason = refusal(suspend(&mut client, "batch", true));
    assert!(reason.contains("/sys/fs/cgroup/steward.batch/cgroup.freeze is 1"), "{reason}");
    assert!(!is_suspended(&machine));
    let error = suspend(&mut client, "nothing", true).expect_err("there is none");
    assert!(matches!(error, Error::Api(ApiError::NoSuchDomain { .. })), "{error}");
}

#[test]
fn only_who_may_limit_a_domain_may_suspend_it() {
    let (machine, daemon) = with_domain();
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let reason = refusal(suspend(&mut daemon.client(), "batch", true));
    assert!(reason.contains("may not limit") && reason.contains("batch"), "{reason}");
    assert!(!is_suspended(&machine));
}

#[test]
fn a_domain_that_is_removed_goes_on_first() {
    let (machine, daemon) = with_domain();
    let sleeper = Sleeper::start(&machine.program("sleeper"));
    let request = api::MoveProcess { pid: Some(sleeper.pid()), domain: "batch".into() };
    daemon.client().call(&request).expect("moved");
    let mut client = daemon.client();
    suspend(&mut client, "batch", true).expect("root may");
    let id = machine.cgroups.tree().id("steward.batch");
    daemon.client().call(&api::RemoveDomain { domain: "batch".into(), kill: None }).expect("removed");
    assert!(!machine.fake.machine().suspended.contains(&id));
    assert!(!matches!(suspend(&mut client, "batch", false), Ok(true)));
}

#[test]
fn a_scheduler_that_is_loaded_again_is_told_and_none_at_all_is_an_error() {
    let (machine, daemon) = with_domain();
    let mut client = daemon.client();
    suspend(&mut client, "batch", true).expect("root may");
    machine.fake.eject("a test");
    until(&daemon, || daemon.status().cpu.mechanism.restarts == 1);
    assert!(is_suspended(&machine));
    let failure = LoadFailure { reason: "a test".into(), kernel_lacks_it: false };
    for kind in [MechanismKind::SchedExt, MechanismKind::Deadline] {
        machine.fake.machine().broken.push((kind, failure.clone()));
    }
    machine.fake.eject("once more");
    until(&daemon, || daemon.status().cpu.mechanism.kind.is_none());
    let error = suspend(&mut client, "batch", true).expect_err("nobody could do it");
    assert!(matches!(error, Error::Api(ApiError::MechanismGone { .. })), "{error}");
    assert!(!suspend(&mut client, "batch", false).expect("letting go needs nobody"));
}

fn lower(client: &mut Client, domain: &str, lowered: bool) -> Result<bool, Error> {
    client.call(&api::LowerDomain { domain: domain.into(), lowered }).map(|reply| reply.lowered)
}

/// The priority that the scheduler was told, if it was told any.
fn priority_in_force(machine: &Machine, path: &str) -> Option<u8> {
    let id = machine.cgroups.tree().id(path);
    machine.fake.machine().domains.get(&id).map(|policy| policy.priority)
}

fn shown(daemon: &Running, domain: &str) -> api::Domain {
    let request = api::ShowDomain { domain: Some(domain.into()), pid: None };
    daemon.client().call(&request).expect("it is there").domain
}

#[test]
fn a_domain_is_behind_all_others_until_every_connection_that_asked_for_it_has_ended() {
    let (machine, daemon) = with_domain();
    let settings = api::DomainSettings { priority: Some(6), weight: Some(300), ..Default::default() };
    let request = api::SetDomain { domain: "batch".into(), settings, ..Default::default() };
    daemon.client().call(&request).expect("root may");
    let (mut one, mut other) = (daemon.client(), daemon.client());
    assert!(lower(&mut one, "batch", true).expect("root may"));
    assert!(lower(&mut other, "batch", true).expect("root may"));
    let given = shown(&daemon, "batch");
    assert_eq!((given.lowered, given.priority, given.weight), (true, 6, 300), "what it was given stays");
    assert_eq!(priority_in_force(&machine, "steward.batch"), Some(0));
    assert!(lower(&mut other, "batch", false).expect("answered"), "the first holds it still");
    drop(one);
    until(&daemon, || priority_in_force(&machine, "steward.batch") == Some(6));
    assert!(!shown(&daemon, "batch").lowered);
    assert!(!lower(&mut other, "batch", false).expect("to let go of nothing is no error"));
}

#[test]
fn one_that_was_given_nothing_is_told_nothing_any_more_once_it_is_raised() {
    let (machine, daemon) = with_domain();
    let mut client = daemon.client();
    for domain in ["batch", "system.slice"] {
        lower(&mut client, domain, true).expect("root may");
    }
    assert_eq!(priority_in_force(&machine, "steward.batch"), Some(0));
    assert_eq!(priority_in_force(&machine, "system.slice"), Some(0));
    drop(client);
    until(&daemon, || priority_in_force(&machine, "steward.batch").is_none());
    assert_eq!(priority_in_force(&machine, "system.slice"), None);
}

#[test]
fn who_may_not_limit_a_domain_may_not_lower_it_and_the_root_is_behind_nobody() {
    let (machine, daemon) = with_domain();
    let reason = refusal(lower(&mut daemon.client(), "/", true));
    assert!(reason.contains("nothing beside it"), "{reason}");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let reason = refusal(lower(&mut daemon.client(), "batch", true));
    assert!(reason.contains("may not limit") && reason.contains("batch"), "{reason}");
    assert_eq!(priority_in_force(&machine, "steward.batch"), None);
}

#[test]
fn a_scheduler_that_is_loaded_again_is_told_who_is_behind_and_a_daemon_that_starts_again_is_not() {
    let (machine, daemon) = with_domain();
    let mut client = daemon.client();
    lower(&mut client, "batch", true).expect("root may");
    machine.fake.eject("a test");
    until(&daemon, || daemon.status().cpu.mechanism.restarts == 1);
    until(&daemon, || priority_in_force(&machine, "steward.batch") == Some(0));
    drop(daemon);
    let daemon = machine.start();
    assert!(!shown(&daemon, "batch").lowered, "nobody has asked this one");
    assert_ne!(priority_in_force(&machine, "steward.batch"), Some(0));
}

#[test]
fn where_it_cannot_be_lowered_nothing_is_noted_and_where_nothing_decides_that_is_said() {
    let (machine, daemon) = with_domain();
    let mut client = daemon.client();
    let id = machine.cgroups.tree().id("system.slice");
    machine.fake.machine().unseen.push(id);
    let error = lower(&mut client, "system.slice", true).expect_err("the scheduler does not see it");
    assert!(matches!(error, Error::Api(ApiError::MechanismFailed { .. })), "{error}");
    assert!(!shown(&daemon, "system.slice").lowered);
    let failure = LoadFailure { reason: "a test".into(), kernel_lacks_it: false };
    for kind in [MechanismKind::SchedExt, MechanismKind::Deadline] {
        machine.fake.machine().broken.push((kind, failure.clone()));
    }
    machine.fake.eject("a test");
    until(&daemon, || daemon.status().cpu.mechanism.kind.is_none());
    let error = lower(&mut client, "batch", true).expect_err("nobody could do it");
    assert!(matches!(error, Error::Api(ApiError::MechanismGone { .. })), "{error}");
}

#[test]
fn a_domain_that_has_gone_is_lowered_no_more_and_its_name_is_free() {
    let (machine, daemon) = with_domain();
    let mut client = daemon.client();
    lower(&mut client, "batch", true).expect("root may");
    daemon.client().call(&api::RemoveDomain { domain: "batch".into(), kill: None }).expect("removed");
    let request = api::CreateDomain { domain: "batch".into(), keep: Some(true), ..Default::default() };
    daemon.client().call(&request).expect("made");
    assert!(!shown(&daemon, "batch").lowered);
    assert_ne!(priority_in_force(&machine, "steward.batch"), Some(0));
}

#[test]
fn the_guard_thaws_when_its_input_ends_whatever_signals_it_got() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("cgroup.freeze");
    std::fs::write(&file, "1").expect("written");
    let mut guard = watchdog::command(env!("CARGO_BIN_EXE_stewardd").as_ref()).spawn().expect("it starts");
    let mut input = guard.stdin.take().expect("a pipe");
    writeln!(input, "+0 {}", file.display()).expect("it reads");
    for signal in ["-TERM", "-INT", "-HUP"] {
        let sent = Command::new("kill").args([signal, &guard.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }
    // As when the daemon is killed.
    drop(input);
    assert!(guard.wait().expect("it ends").success());
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "0");
}
