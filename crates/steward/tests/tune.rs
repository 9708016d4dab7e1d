//! `steward tune` against a daemon in this process, on a fake mechanism.

#[path = "../../stewardd/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Machine, Running, Sleeper};
use libsteward::api;
use steward_core::spec::parse_toml;

fn tune(daemon: &Running, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    command.arg("--socket").arg(&daemon.socket).arg("tune").args(arguments);
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_process_that_complains_of_nothing_gets_the_least_and_its_specification_is_written() {
    let machine = Machine::new();
    let daemon = machine.start();
    machine.fake.machine().periods_each_look = 1;
    let program = machine.program("idler");
    let sleeper = Sleeper::start(&program);
    let file = machine.path("found.toml");
    let pid = sleeper.pid().to_string();
    let output = tune(&daemon, &["--window", "40ms", "--pid", &pid, "--write", file.to_str().expect("text")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("idler needs 100us/30ms"), "{}", text(&output.stdout));
    let parsed = parse_toml(Path::new("found.toml"), &std::fs::read_to_string(&file).expect("written"));
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let (grant, _) = machine.fake.machine().tasks[&sleeper.pid()];
    assert_eq!(parsed.specs[0].reservation, Some(grant.reservation));
    let again = tune(&daemon, &["--window", "40ms", "--pid", &pid, "--write", file.to_str().expect("text")]);
    assert!(!again.status.success() && text(&again.stderr).contains("remove it first"), "{:?}", again);
}

#[test]
fn a_program_is_named_and_the_newest_of_several_is_tuned_when_asked_for() {
    let machine = Machine::new();
    let daemon = machine.start();
    machine.fake.machine().periods_each_look = 1;
    let program = machine.program("idler-by-name");
    let first = Sleeper::start(&program);
    let named = ["--window", "40ms", "--pid", "idler-by-name"];
    let output = tune(&daemon, &named);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("idler-by-name needs 100us/30ms"), "{}", text(&output.stdout));
    let tasks = || machine.fake.machine().tasks.clone();
    assert!(tasks().contains_key(&first.pid()), "{:?}", tasks());

    let second = Sleeper::start(&program);
    let output = tune(&daemon, &named);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for pid in [first.pid(), second.pid()] {
        assert!(text(&output.stderr).contains(&pid.to_string()), "{}", text(&output.stderr));
    }
    assert!(!tasks().contains_key(&second.pid()), "{:?}", tasks());
    let output = tune(&daemon, &[&named[..], &["--newest"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(tasks().contains_key(&second.pid()), "{:?}", tasks());
    let output = tune(&daemon, &["--pid", "nobody-has-it"]);
    assert!(text(&output.stderr).contains("no process called \"nobody-has-it\""), "{output:?}");
}

#[test]
fn of_a_process_that_wants_nothing_nothing_is_found_and_nothing_written() {
    let machine = Machine::new();
    let daemon = machine.start();
    let program = machine.program("idler");
    let sleeper = Sleeper::start(&program);
    let file = machine.path("found.toml");
    let (pid, path) = (sleeper.pid().to_string(), file.to_str().expect("text"));
    let output = tune(&daemon, &["--window", "40ms", "--within", "1s", "--pid", &pid, "--write", path]);
    assert!(!output.status.success() && text(&output.stderr).contains("nothing was written"), "{output:?}");
    assert!(!file.exists());
}

#[test]
fn a_domain_that_complains_is_raised_and_what_is_printed_is_in_force() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = daemon.client();
    let create = api::CreateDomain { domain: "batch".into(), keep: Some(true), ..Default::default() };
    client.call(&create).expect("there is room");
    client.call(&api::Run { domain: Some("batch".into()), ..Default::default() }).expect("root may");
    let show = api::ShowDomain { domain: Some("batch".into()), pid: None };
    let reserved = |client: &mut libsteward::Client| client.call(&show).expect("it is there").domain.cpu;
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = daemon.client();
            while !over.load(Ordering::Relaxed) {
                if reserved(&mut client).is_some_and(|cpu| cpu < 0.15) {
                    client.complain(1).expect("anyone may");
                }
                std::thread::yield_now();
            }
        });
        let output = tune(&daemon, &["--window", "200ms", "--domain", "batch", "--start", "5%", "--json"]);
        over.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((found["schema"].as_u64(), found["settled"].as_bool()), (Some(1), Some(true)));
    assert_eq!(found["level"].as_f64(), reserved(&mut client));
}

#[test]
fn a_domain_gets_no_more_than_its_siblings_leave() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = daemon.client();
    for (name, cpu) in [("other", 0.9), ("batch", 0.04)] {
        let settings = api::DomainSettings { cpu: Some(cpu), ..Default::default() };
        let create = api::CreateDomain { domain: name.into(), settings, keep: Some(true), user: None };
        client.call(&create).expect("there is room");
    }
    client.call(&api::Run { domain: Some("batch".into()), ..Default::default() }).expect("root may");
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = daemon.client();
            while !over.load(Ordering::Relaxed) {
                client.complain(1).expect("anyone may");
                std::thread::yield_now();
            }
        });
        let output = tune(&daemon, &["--window", "200ms", "--within", "2s", "--domain", "batch"]);
        over.store(true, Ordering::Relaxed);
        output
    });
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("no more can be reserved"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Nothing was found"), "{}", text(&output.stdout));
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let machine = Machine::new();
    let daemon = machine.start();
    let gone = {
        let sleeper = Sleeper::start(&machine.program("short"));
        sleeper.pid().to_string()
    };
    let output = tune(&daemon, &["--pid", &gone]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&gone), "{}", text(&output.stderr));
}
