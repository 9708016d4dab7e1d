//! How much memory a domain may use, as those are told who watch it.

mod common;

use std::sync::atomic::Ordering;

use common::{Machine, Running};
use libsteward::api::{Availability, CreateDomain, DomainSettings, SetDomain, WatchAvailability};
use libsteward::{ApiError, Error, Events};
use steward_kernel::cgroup::reading::MemoryUse;

const MIB: u64 = 1 << 20;
/// `memory.reserve` where nobody has set it, in MiB: told to nobody while programs watch their own domain's figures.
const RESERVE: u64 = 16;

/// Rules under which nobody sees what is others'.
const PRIVATE: &str = "[[rule]]\nwho = [\"root\"]\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n";

fn create(daemon: &Running, domain: &str) {
    let create = CreateDomain { domain: domain.into(), keep: Some(true), ..CreateDomain::default() };
    daemon.client().call(&create).expect("it is free");
}

fn uses(machine: &Machine, path: &str, mib: u64) {
    let used = MemoryUse { used_bytes: mib * MIB, ..MemoryUse::default() };
    machine.cgroups.tree().used.insert(path.into(), used);
}

fn free(machine: &Machine, mib: u64) {
    machine.cgroups.tree().memory_available = mib * MIB;
}

fn enter(machine: &Machine, path: &str) {
    machine.cgroups.tree().members.insert(std::process::id() as i32, path.into());
}

fn watch(daemon: &Running, domain: Option<&str>) -> Events<Availability> {
    let watch = WatchAvailability { domain: domain.map(str::to_owned) };
    daemon.client().watch_availability(&watch).expect("sent")
}

/// The next reply: whom it is about, what that uses and may use, in MiB.
fn next(replies: &mut Events<Availability>) -> (String, u64, u64) {
    let told = replies.next().expect("it goes on").expect("it may be asked");
    (told.domain, told.used / MIB, told.available / MIB)
}

fn end(replies: &mut Events<Availability>) -> ApiError {
    match replies.find(Result::is_err).expect("it ends with an error").expect_err("it is one") {
        Error::Api(error) => error,
        other => panic!("the daemon did not answer: {other}"),
    }
}

fn about(domain: &str, used: u64, available: u64) -> (String, u64, u64) {
    (domain.to_owned(), used, available)
}

#[test]
fn whoever_watches_is_told_at_once_and_then_what_has_changed_by_a_twentieth() {
    let machine = Machine::new();
    let daemon = machine.start();
    create(&daemon, "a");
    free(&machine, 100);
    uses(&machine, "steward.a", 100);
    let mut replies = watch(&daemon, Some("a"));
    assert_eq!(next(&mut replies), about("a", 100, 200));
    // Were this told, the next would not be worth telling.
    free(&machine, 104);
    free(&machine, 110);
    assert_eq!(next(&mut replies), about("a", 100, 210));
    free(&machine, 50);
    assert_eq!(next(&mut replies), about("a", 100, 150));
}

#[test]
fn what_another_takes_and_what_is_promised_to_it_is_told() {
    let machine = Machine::new();
    let daemon = machine.start();
    create(&daemon, "a");
    create(&daemon, "b");
    enter(&machine, "steward.a");
    free(&machine, 400);
    uses(&machine, "steward.a", 0);
    uses(&machine, "steward.b", 0);
    let mut replies = watch(&daemon, None);
    assert_eq!(next(&mut replies), about("a", 0, 400));
    {
        let mut tree = machine.cgroups.tree();
        tree.memory_available = 100 * MIB;
        tree.used.insert("steward.b".into(), MemoryUse { used_bytes: 300 * MIB, ..MemoryUse::default() });
    }
    assert_eq!(next(&mut replies), about("a", 0, (400 - RESERVE) / 2), "half of what there is");
    let settings = DomainSettings { memory_min: Some(250 << 20), ..DomainSettings::default() };
    let promise = SetDomain { domain: "b".into(), settings, ..SetDomain::default() };
    daemon.client().call(&promise).expect("root may");
    assert_eq!(next(&mut replies), about("a", 0, 150 - RESERVE), "but for what is promised to the other");
}

#[test]
fn what_a_domain_leaves_that_goes_by_what_it_is_told_is_told_to_nobody_else() {
    let machine = Machine::new();
    let daemon = machine.start();
    create(&daemon, "a");
    create(&daemon, "b");
    uses(&machine, "steward.a", 100);
    uses(&machine, "steward.b", 40);
    free(&machine, 60);
    enter(&machine, "steward.b");
    let mut others = watch(&daemon, Some("a"));
    assert_eq!(next(&mut others), about("a", 100, 160));
    // A program of b watches what that may use. Somebody else's watch of it changes nothing.
    let mut by_name = watch(&daemon, Some("b"));
    assert_eq!(next(&mut by_name), about("b", 40, 100));
    let mut own = watch(&daemon, None);
    assert_eq!(next(&mut own), about("b", 40, 100));
    assert_eq!(next(&mut others), about("a", 100, 150 - RESERVE));
}

#[test]
fn the_callers_own_is_that_which_it_is_in_at_the_moment() {
    let machine = Machine::new();
    let daemon = machine.start();
    create(&daemon, "a");
    create(&daemon, "b");
    enter(&machine, "steward.a");
    free(&machine, 100);
    uses(&machine, "steward.a", 0);
    uses(&machine, "steward.b", 0);
    let mut replies = watch(&daemon, None);
    assert_eq!(next(&mut replies), about("a", 0, 100));
    enter(&machine, "steward.b");
    assert_eq!(next(&mut replies), about("b", 0, 100 - RESERVE));
}

#[test]
fn where_nobody_counts_it_one_lives_on_what_the_domain_above_has_and_at_the_top_on_the_machine() {
    let machine = Machine::new();
    let daemon = machine.start();
    create(&daemon, "a");
    create(&daemon, "a/x");
    free(&machine, 100);
    uses(&machine, "steward.a", 7);
    assert_eq!(next(&mut watch(&daemon, Some("a/x"))), about("a", 7, 107));
    let total = daemon.status().memory.total / MIB;
    let (domain, used, available) = next(&mut watch(&daemon, Some("/")));
    assert_eq!((domain.as_str(), available), ("/", total));
    assert!(total - used <= 101, "100 MiB are free: {used} of {total}");
}

#[test]
fn of_others_only_those_are_told_who_may_read_and_of_ones_own_everybody() {
    let machine = Machine::new();
    std::fs::create_dir(machine.path("rules")).expect("created");
    std::fs::write(machine.path("rules/default.toml"), PRIVATE).expect("written");
    std::fs::write(machine.path("steward.toml"), "").expect("written");
    let daemon = machine.start();
    for domain in ["a", "a/x", "b"] {
        create(&daemon, domain);
    }
    free(&machine, 100);
    for path in ["steward.a", "steward.a/x", "steward.b"] {
        uses(&machine, path, 0);
    }
    machine.caller_uid.store(1001, Ordering::SeqCst);
    for domain in ["a", "a/x", "b"] {
        let ApiError::PermissionDenied { reason } = end(&mut watch(&daemon, Some(domain))) else {
            panic!("it is refused for lack of permission")
        };
        assert!(reason.contains("how much memory there is for the domain"), "{reason}");
    }
    enter(&machine, "steward.a");
    assert_eq!(next(&mut watch(&daemon, None)).0, "a");
    assert_eq!(next(&mut watch(&daemon, Some("a"))).0, "a");
    let mut below = watch(&daemon, Some("a/x"));
    assert_eq!(next(&mut below).0, "a/x");
    assert!(matches!(end(&mut watch(&daemon, Some("b"))), ApiError::PermissionDenied { .. }));
    // What was one's own is told for as long as it is that.
    enter(&machine, "steward.b");
    let ApiError::PermissionDenied { reason } = end(&mut below) else { panic!("it is not its own") };
    assert!(reason.contains("no longer the domain of process"), "{reason}");
}

#[test]
fn a_watch_ends_with_its_domain_and_is_no_single_call() {
    let machine = Machine::new();
    let daemon = machine.start();
    create(&daemon, "a");
    let mut replies = watch(&daemon, Some("a"));
    assert!(replies.next().is_some_and(|reply| reply.is_ok()));
    {
        // Another cgroup of that name is another domain.
        let mut tree = machine.cgroups.tree();
        tree.delete("steward.a");
        tree.add("steward.a", 0);
    }
    assert_eq!(end(&mut replies), ApiError::NoSuchDomain { domain: "a".into() });
    assert!(matches!(end(&mut watch(&daemon, Some("gone"))), ApiError::NoSuchDomain { .. }));
    let once = daemon.client().call(&WatchAvailability::default());
    assert!(matches!(once, Err(Error::Api(ApiError::ExpectedMore))), "{once:?}");
}
