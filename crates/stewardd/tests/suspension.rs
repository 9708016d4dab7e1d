//! Suspension: it belongs to a connection, ends with it, and never reaches what must go on.

mod common;

use std::io::Write;
use std::process::Command;
use std::sync::atomic::Ordering;

use common::{Machine, Running, Sleeper};
use libsteward::{ApiError, Client, Error, api};
use steward_core::mechanism::MechanismKind;
use stewardd::guard;
use stewardd::mechanisms::LoadFailure;

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
    assert!(refusal(suspend(&mut client, "batch", true)).contains("could never let it go on"));
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
    until(&daemon, || daemon.status().mechanism.restarts == 1);
    assert!(is_suspended(&machine));
    let failure = LoadFailure { reason: "a test".into(), kernel_lacks_it: false };
    for kind in [MechanismKind::SchedExt, MechanismKind::Deadline] {
        machine.fake.machine().broken.push((kind, failure.clone()));
    }
    machine.fake.eject("once more");
    until(&daemon, || daemon.status().mechanism.kind.is_none());
    let error = suspend(&mut client, "batch", true).expect_err("nobody could do it");
    assert!(matches!(error, Error::Api(ApiError::MechanismGone { .. })), "{error}");
    assert!(!suspend(&mut client, "batch", false).expect("letting go needs nobody"));
}

#[test]
fn the_guard_thaws_when_its_input_ends_whatever_signals_it_got() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("cgroup.freeze");
    std::fs::write(&file, "1").expect("written");
    let mut guard = guard::command(env!("CARGO_BIN_EXE_stewardd").as_ref()).spawn().expect("it starts");
    let mut input = guard.stdin.take().expect("a pipe");
    writeln!(input, "+{}", file.display()).expect("it reads");
    for signal in ["-TERM", "-INT", "-HUP"] {
        let sent = Command::new("kill").args([signal, &guard.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }
    // As when the daemon is killed.
    drop(input);
    assert!(guard.wait().expect("it ends").success());
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "0");
}
