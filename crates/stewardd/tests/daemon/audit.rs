//! The record of promises as clients see it: whose they may read, and what it says where nothing is promised.

use std::sync::atomic::Ordering;

use crate::common::{Machine, Running};
use libsteward::api::{self, ApiError, DomainAudit};

fn audit(daemon: &Running, domain: Option<&str>) -> Result<DomainAudit, libsteward::Error> {
    daemon.client().call(&api::AuditDomain { domain: domain.map(str::to_owned) })
}

fn create(daemon: &Running, domain: &str, cpu: Option<f64>) {
    let settings = api::DomainSettings { cpu, ..api::DomainSettings::default() };
    let domain = domain.to_owned();
    let request = api::CreateDomain { domain, settings, keep: Some(true), ..api::CreateDomain::default() };
    daemon.client().call(&request).expect("there is room");
}

#[test]
fn a_record_has_three_spans_and_says_what_is_promised() {
    let machine = Machine::new();
    let daemon = machine.start();
    create(&daemon, "web", Some(0.25));
    create(&daemon, "idle", None);
    let web = audit(&daemon, Some("web")).expect("root may");
    assert_eq!(web.domain, "web");
    let names: Vec<&str> = web.spans.iter().map(|span| span.span.as_str()).collect();
    assert_eq!(names, ["minute", "hour", "day"]);
    assert!(web.text.contains("web is promised 25 % of the machine"), "{}", web.text);
    let idle = audit(&daemon, Some("idle")).expect("root may");
    assert!(idle.text.contains("idle is promised nothing") && idle.spans[0].seen_ns == 0, "{}", idle.text);
    let own = audit(&daemon, None).expect("everybody may");
    assert_eq!(own.domain, "/", "this test is in the root of its tree");
}

#[test]
fn what_is_no_domain_is_said() {
    let machine = Machine::new();
    let daemon = machine.start();
    for (domain, wanted) in [("nowhere", "nowhere"), ("../etc", "domain"), ("", "domain")] {
        let error = audit(&daemon, Some(domain)).expect_err("there is none").to_string();
        assert!(error.contains(wanted), "{domain}: {error}");
    }
}

#[test]
fn records_of_others_are_for_those_who_may_read_and_ones_own_is_for_everybody() {
    let machine = Machine::new();
    std::fs::create_dir_all(machine.path("rules")).expect("created");
    let nobody_reads =
        "[[rule]]\nwho = [\"root\", \"owner\"]\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n";
    std::fs::write(machine.path("rules").join("default.toml"), nobody_reads).expect("written");
    let daemon = machine.start();
    create(&daemon, "web", Some(0.25));
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let error = audit(&daemon, Some("web")).expect_err("not theirs");
    assert!(
        matches!(&error, libsteward::Error::Api(ApiError::PermissionDenied { reason }) if reason.contains("web")),
        "{error}"
    );
    assert_eq!(audit(&daemon, None).expect("their own").domain, "/");
    assert_eq!(audit(&daemon, Some("/")).expect("their own, by name").domain, "/");
}
