//! How much memory a domain may use, as those are told who watch it.

use std::sync::atomic::Ordering;

use crate::common::{Machine, Running};
use libsteward::api::{
    Availability, CreateDomain, Domain, DomainSettings, ListDomains, Method, Reload, SetDomain, ShowDomain,
    WatchAvailability,
};
use libsteward::{ApiError, Error, Events};
use serde_json::{Map, Value};
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
    // Where looking takes long, the look of before serves once more: then nobody was known to go by what it is told.
    let first = Some(next(&mut replies)).filter(|told| *told != about("b", 0, 100));
    assert_eq!(first.unwrap_or_else(|| next(&mut replies)), about("b", 0, 100 - RESERVE));
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
fn of_others_only_those_are_told_whom_the_rules_let_and_of_ones_own_everybody() {
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
        assert!(reason.contains("may not read how much memory the domain"), "{reason}");
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

/// A machine with domains of root (`inside`, `inside/below`), of user 1001 (`mine`) with one of user 1002's below it
/// (`mine/below`), and of user 1002 (`theirs`), all of which use something.
fn with_domains_of_several() -> (Machine, Running) {
    let machine = Machine::new();
    let daemon = machine.start();
    for (domain, user) in DOMAINS {
        let user = Some(user);
        let create =
            CreateDomain { domain: domain.into(), user, keep: Some(true), ..CreateDomain::default() };
        daemon.client().call(&create).expect("it is free");
        uses(&machine, &format!("steward.{domain}"), 1);
    }
    free(&machine, 100);
    (machine, daemon)
}

const DOMAINS: [(&str, u32); 5] =
    [("inside", 0), ("inside/below", 0), ("mine", 1001), ("mine/below", 1002), ("theirs", 1002)];

/// The words of a reply about what a domain may use.
const WORDS: [&str; 3] = ["available", "available_at_once", "time_to_free_ns"];

/// Whether what is told of the memory of a domain has all of these words; else it has none of them.
fn tells(domain: &Value) -> bool {
    let memory = domain["memory"].as_object().unwrap_or_else(|| panic!("it is counted: {domain}"));
    let told = WORDS.iter().filter(|word| memory.contains_key(**word)).count();
    assert!(memory.contains_key("used") && (told == 0 || told == WORDS.len()), "{memory:?}");
    told > 0
}

/// The reply as it travels.
fn raw<M: Method>(daemon: &Running, request: &M) -> Map<String, Value> {
    let Ok(Value::Object(parameters)) = serde_json::to_value(request) else { unreachable!("it is a struct") };
    daemon.client().call_by_name(M::NAME, parameters).expect("everyone may read")
}

/// Whether the caller is told how much memory a domain may use: the same wherever it would be told.
fn is_told(daemon: &Running, domain: &str) -> bool {
    let shown = raw(daemon, &ShowDomain { domain: Some(domain.into()), pid: None });
    let list = raw(daemon, &ListDomains {});
    let listed = list["domains"].as_array().expect("it is a list");
    let listed = listed.iter().find(|listed| listed["name"] == domain).expect("it is listed");
    let is_told = tells(&shown["domain"]);
    assert_eq!(tells(listed), is_told, "{domain}");
    if is_told {
        assert_eq!(next(&mut watch(daemon, Some(domain))).0, domain);
    } else {
        let ApiError::PermissionDenied { reason } = end(&mut watch(daemon, Some(domain))) else {
            panic!("it is refused for lack of permission")
        };
        assert!(reason.contains(&format!("may not read how much memory the domain {domain}")), "{reason}");
        assert!(reason.contains("default rule 6 is for own and below-own targets"), "{reason}");
    }
    is_told
}

#[test]
fn by_the_shipped_rules_a_user_is_told_of_its_own_domains_and_of_what_it_is_in_wherever_that_is_told() {
    let (machine, daemon) = with_domains_of_several();
    let told = |uid: u32| {
        machine.caller_uid.store(uid, Ordering::SeqCst);
        DOMAINS.map(|(domain, _)| is_told(&daemon, domain))
    };
    for root_or_owner in [0, 1000] {
        assert_eq!(told(root_or_owner), [true; 5], "user {root_or_owner}");
    }
    assert_eq!(told(1001), [false, false, true, true, false]);
    assert_eq!(told(1002), [false, false, false, true, true]);
    assert_eq!(told(1003), [false; 5]);
    enter(&machine, "steward.inside");
    assert_eq!(told(1003), [true, true, false, false, false], "below what it is in, too");
    enter(&machine, "steward.inside/below");
    assert_eq!(told(1003), [false, true, false, false, false], "and nothing above it");
}

#[test]
fn what_a_change_answers_and_what_those_are_told_who_watch_domains_has_none_of_it() {
    let (machine, daemon) = with_domains_of_several();
    let rules = "[[rule]]\nwho = \"everyone\"\naction = [\"reserve\", \"limit\"]\nof = \"anyone\"\nverdict = \"allow\"\n";
    write_rule(&machine, &daemon, rules);
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let change = |domain: &str, weight: i64| {
        let settings = DomainSettings { weight: Some(weight), ..DomainSettings::default() };
        let set = SetDomain { domain: domain.into(), settings, ..SetDomain::default() };
        daemon.client().call(&set).expect("the rules let it").domain
    };
    let is_told = |domain: Domain| domain.memory.expect("it is counted").available.is_some();
    assert!(is_told(change("mine", 200)) && !is_told(change("theirs", 200)));
    machine.caller_uid.store(0, Ordering::SeqCst);
    assert!(is_told(change("theirs", 300)));
    // Here root is not told either: it would be of that moment.
    let mut watched = daemon.client().watch_domains(true).expect("sent");
    let mut seen = 0;
    while seen < DOMAINS.len() {
        let domain = watched.next().expect("it goes on").expect("root may").domain.expect("it is there");
        seen += usize::from(domain.memory.is_some());
        assert!(domain.memory.is_none_or(|memory| memory.available.is_none()), "{domain:?}");
    }
    change("mine", 300);
    let changed = watched.find_map(|told| told.expect("root may").domain.filter(|it| it.name == "mine"));
    assert!(!is_told(changed.expect("it goes on")));
}

/// Writes a file of rules beside the shipped ones, and has the daemon read it.
fn write_rule(machine: &Machine, daemon: &Running, rules: &str) {
    std::fs::create_dir_all(machine.path("rules")).expect("created");
    std::fs::write(machine.path("rules/50-test.toml"), rules).expect("written");
    machine.caller_uid.store(0, Ordering::SeqCst);
    daemon.client().call(&Reload {}).expect("root may");
}

#[test]
fn a_watch_that_the_rules_allow_ends_when_they_do_no_more_and_when_the_domain_is_given_away() {
    let (machine, daemon) = with_domains_of_several();
    let rules = "[[rule]]\nwho = \"user:1001\"\naction = \"read-availability\"\nof = \"others\"\nverdict = \"allow\"\n";
    write_rule(&machine, &daemon, rules);
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let (mut others, mut own) = (watch(&daemon, Some("theirs")), watch(&daemon, Some("mine")));
    assert_eq!((next(&mut others).0, next(&mut own).0), ("theirs".to_owned(), "mine".to_owned()));
    write_rule(&machine, &daemon, "");
    let ApiError::PermissionDenied { reason } = end(&mut others) else {
        panic!("it is not allowed any more")
    };
    assert!(reason.contains("user 1001 may not read how much memory the domain theirs"), "{reason}");
    free(&machine, 200);
    assert_eq!(next(&mut own).0, "mine", "this one goes on");
    let give = SetDomain { domain: "mine".into(), user: Some(1002), ..SetDomain::default() };
    daemon.client().call(&give).expect("root may");
    let ApiError::PermissionDenied { reason } = end(&mut own) else { panic!("it is not its own any more") };
    assert!(reason.contains("the domain mine of user 1002"), "{reason}");
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
