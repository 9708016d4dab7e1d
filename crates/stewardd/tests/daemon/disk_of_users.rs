//! What users may have of the disk, and give within what is theirs.

use std::sync::atomic::Ordering;

use libsteward::Error;
use libsteward::api::{self, ApiError, IoClass};

use crate::common::{Machine, Running};
use crate::disk::{create, io_max, refusal, set, settings};

/// The refusal's sentence.
fn denied<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match refusal(result) {
        ApiError::PermissionDenied { reason } => reason,
        other => panic!("not a refusal by a rule: {other}"),
    }
}

/// A domain of half of the disk that is user 1001's, and one that is somebody else's, in a machine with these rules
/// beside the shipped ones where that user asks.
fn divided(rules: &str) -> (Machine, Running) {
    let machine = Machine::new();
    std::fs::create_dir_all(machine.path("rules")).expect("created");
    std::fs::write(machine.path("rules/50-test.toml"), rules).expect("written");
    machine.caller_uid.store(0, Ordering::SeqCst);
    let daemon = machine.start();
    for (domain, user) in [("theirs", 1001), ("another", 1002)] {
        let given =
            api::CreateDomain { user: Some(user), keep: Some(true), ..create(domain, None, Some(0.4)) };
        daemon.client().call(&given).expect("root may");
    }
    machine.caller_uid.store(1001, Ordering::SeqCst);
    (machine, daemon)
}

#[test]
fn a_user_divides_the_disk_time_of_a_domain_of_their_own_and_may_take_less_of_it() {
    let (_machine, daemon) = divided("");
    let mut client = daemon.client();
    client.call(&create("theirs/half", None, Some(0.5))).expect("it is paid out of their own");
    for domain in ["top", "another/part"] {
        let reason = denied(client.call(&create(domain, None, Some(0.1))));
        // A domain has a part of the CPU, whatever it is made for.
        assert!(reason.contains("user 1001 may not reserve CPU time and disk time"), "{reason}");
    }
    client.call(&set("theirs", settings(None, Some(0.3)))).expect("taking less is free");
    denied(client.call(&set("theirs", settings(None, Some(0.35)))));
    denied(client.call(&set("another", settings(None, Some(0.1)))));
    // The same of a limit: to lower one is to take less, and below one's own anything goes.
    client.call(&set("theirs", io_max(20 << 20))).expect("it was not limited");
    client.call(&set("theirs", io_max(10 << 20))).expect("it is less");
    denied(client.call(&set("theirs", io_max(20 << 20))));
    let none = api::DomainSettings { reset: vec!["io_max_bytes".into()], ..api::DomainSettings::default() };
    denied(client.call(&set("theirs", none)));
    denied(client.call(&set("another", io_max(10 << 20))));
    for bytes in [10 << 20, 20 << 20] {
        client.call(&set("theirs/half", io_max(bytes))).expect("it is below their own");
    }
}

#[test]
fn a_user_gives_way_and_comes_back_but_before_nobody_else_not_even_below_a_domain_of_their_own() {
    let (_machine, daemon) = divided("");
    let mut client = daemon.client();
    let io = |class| settings(Some(class), None);
    client.call(&create("theirs/indexing", Some(IoClass::Background), None)).expect("it is below their own");
    client.call(&set("theirs/indexing", io(IoClass::Normal))).expect("its siblings are theirs");
    let reasons = [
        denied(client.call(&create("theirs/editing", Some(IoClass::Interactive), None))),
        denied(client.call(&set("theirs/indexing", io(IoClass::Interactive)))),
        denied(client.call(&set("theirs", io(IoClass::Interactive)))),
    ];
    for reason in &reasons[..2] {
        assert!(reason.contains("whose disk requests would be served before all others"), "{reason}");
    }
    client.call(&set("theirs", io(IoClass::Background))).expect("taking less is free");
    denied(client.call(&set("theirs", io(IoClass::Normal))));
    // A domain of its own, beside those of others, has its part of the machine whatever its class is.
    denied(client.call(&create("run-7", Some(IoClass::Background), None)));
    denied(client.call(&set("another", io(IoClass::Background))));
}

#[test]
fn a_rule_for_the_disk_counts_for_what_is_asked_of_the_disk_and_for_nothing_else() {
    let rule = |resources: &str, of: &str, verdict: &str| {
        format!(
            "[[rule]]\nwho = \"user:1001\"\naction = \"reserve\"\nresource = {resources}\nof = \"{of}\"\nverdict = \"{verdict}\"\n"
        )
    };
    let (_machine, daemon) = divided(&rule("\"disk\"", "below-own", "deny"));
    let mut client = daemon.client();
    client.call(&create("theirs/part", None, None)).expect("the rule is not about that");
    let reason = denied(client.call(&create("theirs/half", None, Some(0.5))));
    assert!(reason.contains("50-test.toml:1 denies it"), "{reason}");
    let (_machine, daemon) = divided(&rule("\"disk\"", "anyone", "allow"));
    let mut client = daemon.client();
    client.call(&set("another", settings(Some(IoClass::Interactive), Some(0.3)))).expect("of the disk alone");
    let weight = api::DomainSettings { weight: Some(200), ..settings(None, Some(0.4)) };
    let reason = denied(client.call(&set("another", weight)));
    assert!(reason.contains("user 1001 may not reserve CPU time"), "{reason}");
    // A new domain takes a place among others, which is one for the CPU, and so does who is given one.
    denied(client.call(&create("desk", None, Some(0.1))));
    let given = api::SetDomain { user: Some(1003), ..set("another", settings(None, Some(0.35))) };
    denied(client.call(&given));
    let (_machine, daemon) = divided(&rule("[\"cpu\", \"disk\"]", "anyone", "allow"));
    let mut client = daemon.client();
    client.call(&create("desk", Some(IoClass::Interactive), Some(0.1))).expect("the rule allows it");
    client.call(&create("theirs/editing", Some(IoClass::Interactive), None)).expect("and below their own");
    client.call(&set("another", settings(None, Some(0.45)))).expect("whoever it is of");
    let memory = api::DomainSettings { memory_min: Some(1 << 20), ..settings(None, Some(0.2)) };
    let reason = denied(client.call(&set("desk", memory)));
    assert!(reason.contains("user 1001 may not reserve") && reason.contains("memory"), "{reason}");
}
