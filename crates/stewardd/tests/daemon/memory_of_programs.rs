//! What specifications say of programs' memory, where systemd has placed them, and what those that are moved leave
//! behind.

use std::fs;
use std::sync::atomic::Ordering;

use crate::common::{Machine, Running, Sleeper, asked, systemd_run, until_told};
use libsteward::api;
use steward_core::memory::limits::Told;
use steward_kernel::process::private::Private;

const MIB: u64 = 1 << 20;
const SLICE: &str = "user.slice/user-1001.slice";

fn explained(daemon: &Running, pid: i32, wanted: &str) -> String {
    let mut text = String::new();
    for _ in 0..100_000 {
        text = daemon.client().call(&api::Explain { pid }).expect("it runs").text;
        if text.contains(wanted) {
            return text;
        }
    }
    panic!("never {wanted:?}: {text}")
}

fn in_a_session(machine: &Machine, memory: &str) -> Sleeper {
    let program = machine.program("program");
    let sleeper = Sleeper::start(&program);
    let session = format!("{SLICE}/session-2.scope");
    machine.cgroups.tree().add(SLICE, 0);
    machine.cgroups.tree().add(&session, 0);
    machine.cgroups.tree().members.insert(sleeper.pid(), session);
    machine.write_specs("a.toml", &format!("[[spec]]\npath = \"{}\"\n{memory}", program.display()));
    sleeper
}

#[test]
fn a_program_that_systemd_has_placed_has_its_memory_in_a_scope_of_its_own_in_the_same_slice() {
    let machine = Machine::new();
    systemd_run(&machine, "exec cat");
    let sleeper = in_a_session(&machine, "memory_min = \"8M\"\nmemory_max = \"64M\"\n");
    let pid = sleeper.pid();
    let daemon = machine.start();
    let stand_in = asked(&machine, &daemon);
    explained(&daemon, pid, "is not in force: systemd is being asked");
    let arguments = fs::read_to_string(machine.path("arguments")).expect("written");
    for argument in
        [&format!("--unit=steward-program-{pid}.scope"), "--slice=user-1001.slice", "Delegate=memory"]
    {
        assert!(arguments.contains(argument), "{arguments}");
    }
    let scope = format!("{SLICE}/steward-program-{pid}.scope");
    {
        let mut tree = machine.cgroups.tree();
        tree.add(&scope, 0);
        tree.members.insert(stand_in, scope.clone());
    }
    fs::write(machine.path("go"), "\n").expect("it waits");
    let text = explained(&daemon, pid, "is in force in a domain of its own");
    assert!(text.contains(&scope), "{text}");
    assert_eq!(machine.cgroups.tree().members.get(&pid), Some(&scope));
    let own = (Some(8 * MIB), Some(64 * MIB));
    until_told(&machine, &daemon, &scope, own);
    // A minimum counts no further than those above.
    until_told(&machine, &daemon, SLICE, (Some(8 * MIB), None));
    until_told(&machine, &daemon, "user.slice", (Some(8 * MIB), None));
    // systemd writes what it has for its units again.
    for path in [scope.as_str(), "user.slice"] {
        machine.cgroups.tree().limit(path, Told::default());
    }
    until_told(&machine, &daemon, &scope, own);
    until_told(&machine, &daemon, "user.slice", (Some(8 * MIB), None));
    // It is paid for by the machine.
    let settings = api::DomainSettings { memory_min: Some(1 << 50), ..api::DomainSettings::default() };
    let more = api::CreateDomain { domain: "b".into(), settings, ..api::CreateDomain::default() };
    let refused = daemon.client().call(&more).expect_err("there is not so much").to_string();
    assert!(refused.contains(&format!("steward-program-{pid}.scope 8M")), "{refused}");
    // So the user of the slice gives it no more, also when it belongs to that user.
    let given = |memory_max: Option<i64>, user: Option<u32>| {
        let settings = api::DomainSettings { memory_max, ..api::DomainSettings::default() };
        let given = api::SetDomain { domain: scope.clone(), settings, user, ..api::SetDomain::default() };
        daemon.client().call(&given)
    };
    given(None, Some(1001)).expect("root may");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let denied = given(Some(128 << 20), None).expect_err("it is not theirs to give").to_string();
    assert!(denied.contains("reserve"), "{denied}");
    machine.caller_uid.store(0, Ordering::SeqCst);
    let changed = "[[spec]]\npath = \"PROGRAM\"\nmemory_max = \"32M\"\n";
    let program = machine.path("program").display().to_string();
    machine.replace_specs("a.toml", &changed.replace("PROGRAM", &program));
    until_told(&machine, &daemon, &scope, (None, Some(32 * MIB)));
    until_told(&machine, &daemon, SLICE, (None, None));
    daemon.stop();
    for path in [scope.as_str(), SLICE, "user.slice"] {
        assert_eq!(machine.cgroups.tree().memory(path), Told::default(), "{path}");
    }
    let daemon = machine.start();
    until_told(&machine, &daemon, &scope, (None, Some(32 * MIB)));
    explained(&daemon, pid, "is in force in a domain of its own");
    assert!(!machine.path("asked").exists(), "it is in its scope already");
}

#[test]
fn what_systemd_refuses_is_said_in_its_words_and_the_program_stays_where_it_is() {
    let machine = Machine::new();
    systemd_run(&machine, "echo 'Failed to start transient scope unit: Access denied' >&2\nexit 1");
    let sleeper = in_a_session(&machine, "protect = \"30min\"\n");
    let daemon = machine.start();
    asked(&machine, &daemon);
    fs::write(machine.path("go"), "\n").expect("it waits");
    let text = explained(&daemon, sleeper.pid(), "Access denied");
    let why = "systemd gives it no scope of its own, so it stays where it is (systemd-run: Failed to start transient scope unit: \
               Access denied)";
    assert!(text.contains(why), "{text}");
    assert_eq!(machine.cgroups.tree().members[&sleeper.pid()], format!("{SLICE}/session-2.scope"));
}

#[test]
fn what_a_process_had_before_it_was_moved_is_said_to_be_charged_elsewhere() {
    let machine = Machine::new();
    let sleeper = Sleeper::start(&machine.program("program"));
    let pid = sleeper.pid();
    let has = |bytes: u64, started_ticks: u64| {
        machine.cgroups.tree().private.insert(pid, Private { started_ticks, bytes });
    };
    has(60 * MIB, 7);
    let daemon = machine.start();
    for name in ["a", "b"] {
        let domain =
            api::CreateDomain { domain: name.into(), keep: Some(true), ..api::CreateDomain::default() };
        daemon.client().call(&domain).expect("it is free");
    }
    for name in ["steward.a", "steward.b"] {
        machine.cgroups.tree().used.insert(name.into(), Default::default());
    }
    let enter = |daemon: &Running, domain: &str| {
        daemon.client().call(&api::MoveProcess { pid: Some(pid), domain: domain.into() }).expect("root may")
    };
    assert_eq!(enter(&daemon, "a").left_bytes, Some(60 * MIB));
    let text = explained(&daemon, pid, "60M that process");
    assert!(text.contains("stay charged to /, and are neither kept nor limited here"), "{text}");
    // What it got since is charged to a, and so it remains after a restart.
    has(90 * MIB, 7);
    daemon.stop();
    let daemon = machine.start();
    assert_eq!(enter(&daemon, "b").left_bytes, Some(90 * MIB));
    let text = explained(&daemon, pid, "30M that process");
    assert!(text.contains("30M that process") && text.contains("stay charged to a,"), "{text}");
    assert_eq!(enter(&daemon, "a").left_bytes, Some(60 * MIB), "what is charged to a is at home");
    // It has freed most of it.
    has(20 * MIB, 7);
    explained(&daemon, pid, "20M that process");
    // Another process with its id has left nothing.
    has(60 * MIB, 8);
    let text = daemon.client().call(&api::Explain { pid }).expect("it runs").text;
    assert!(!text.contains("stay charged"), "{text}");
}
