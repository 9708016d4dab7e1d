//! A daemon whose kernel counts what a test says: what is kept of it, who is blamed, and what is told.

use std::sync::Arc;

use steward_core::memory::audit::{Counters, Taker, Waits};
use steward_core::record::Span;
use steward_kernel::Roots;
use steward_kernel::cgroup::reading::MemoryUse;

use super::*;
use crate::daemon::Daemon;
use crate::domains::cgroups::Cgroups;
use crate::domains::{Asker, Given};
use crate::fake::cgroups::FakeCgroups;
use crate::fake::disk::FakeDisk;
use crate::fake::{Fake, options};
use crate::files::record::since_boot_s;

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;
const MIB: u64 = 1 << 20;

/// A machine with a daemon on it, whose seconds pass as the test says.
struct Machine {
    directory: tempfile::TempDir,
    cgroups: FakeCgroups,
    now_ns: u64,
    since_boot_s: u64,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Machine {
            directory,
            cgroups: FakeCgroups::default(),
            now_ns: 5 * SECOND_NS,
            since_boot_s: since_boot_s(),
        }
    }

    fn start(&self) -> Daemon {
        let options = options(self.directory.path(), Roots::default());
        Daemon::start(
            options,
            Fake::default().loader(),
            Ok(Box::new(self.cgroups.clone())),
            Arc::new(FakeDisk::default()),
        )
        .expect("it starts")
    }

    /// A second in which the domain stood still for so long, and somebody else grew by that much.
    fn second(&mut self, daemon: &mut Daemon, path: &str, stalled_ms: u64, taker: &str, grown_bytes: u64) {
        {
            let mut tree = self.cgroups.tree();
            let counters = tree.memory_counters.entry(path.to_owned()).or_insert(Counters {
                stalled: Some(Waits::default()),
                stopped: Some(Waits::default()),
                ..Counters::default()
            });
            if let Some(waits) = &mut counters.stalled {
                waits.memory_ns += stalled_ms * MS;
            }
            tree.used.entry(taker.to_owned()).or_default().used_bytes += grown_bytes;
        }
        self.now_ns += SECOND_NS;
        self.since_boot_s += 1;
        daemon.audit_memory_now(self.now_ns, self.since_boot_s);
    }

    fn sum(&self, daemon: &Daemon, path: &str, span: Span) -> Tally {
        let kept = &daemon.memory.audit.kept;
        let record = kept.get(path, 0);
        record.map(|record| record.sum(span, kept.now_s(self.since_boot_s))).unwrap_or_default()
    }
}

fn create(daemon: &mut Daemon, name: &str, min_bytes: Option<i64>) -> String {
    let mut change = steward_core::domain::Change::default();
    change.memory.min_bytes = min_bytes;
    let path = daemon.domains.path_to_make(name).expect("the name is free");
    let given = Given { keep: Some(true), user: None };
    daemon
        .domains
        .create(&path, &change, given, Asker::default(), &mut daemon.cpu.mechanism)
        .expect("there is room");
    path
}

fn events(daemon: &mut Daemon) -> Vec<libsteward::api::Event> {
    let told = daemon.settle_domains();
    let memory = told.into_iter().filter(|told| !crate::server::report::changes_domain(told.event.kind));
    memory.map(|told| told.event).collect()
}

#[test]
fn a_domain_that_stood_still_is_told_with_the_name_of_who_took_the_memory_and_that_survives_a_restart() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    let editor = create(&mut daemon, "editor", Some(64 << 20));
    let hog = create(&mut daemon, "hog", None);
    (0..3).for_each(|_| machine.second(&mut daemon, &editor, 0, &hog, 0));
    machine.second(&mut daemon, &editor, 400, &hog, 100 * MIB);
    machine.second(&mut daemon, &editor, 10, &hog, 100 * MIB);
    let minute = machine.sum(&daemon, &editor, Span::Minute);
    assert_eq!((minute.seconds, minute.broken, minute.worst_stalled_ns), (4, 1, 400 * MS));
    let told = events(&mut daemon);
    let [event] = &told[..] else { panic!("{told:?}") };
    let about = event.domain.clone().expect("it is about a domain");
    assert_eq!((about.name.as_str(), about.by.as_deref()), ("editor", Some("hog")));
    let figures = event.memory.expect("it has figures");
    assert_eq!((figures.asked, figures.stalled_ns), (100 * MIB, Some(400 * MS)));
    assert!(event.text.contains("hog took the most memory then, 100M"), "{}", event.text);
    assert_eq!(daemon.memory.audit.blamed_totals[&editor], BTreeMap::from([(hog.clone(), 1)]));
    daemon.stop();
    drop(daemon);
    let daemon = machine.start();
    let day = machine.sum(&daemon, &editor, Span::Day);
    assert_eq!((day.seconds, day.broken), (4, 1));
    let key = blame_key(&editor, &hog);
    let blamed = daemon.memory.audit.blamed.get(&key, 0).expect("it is kept");
    let now_s = daemon.memory.audit.blamed.now_s(machine.since_boot_s);
    assert_eq!(blamed.sum(Span::Day, now_s), Blame { seconds: 1, taken_bytes: 100 * MIB });
}

#[test]
fn what_is_broken_second_after_second_is_told_once_in_ten_with_the_sum() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    let editor = create(&mut daemon, "editor", Some(64 << 20));
    let hog = create(&mut daemon, "hog", None);
    (0..31).for_each(|_| machine.second(&mut daemon, &editor, 100, &hog, 2 * MIB));
    let told = events(&mut daemon);
    let stalled: Vec<u64> =
        told.iter().filter_map(|event| event.memory?.stalled_ns.map(|ns| ns / MS)).collect();
    assert_eq!(stalled, [100, 1000, 1000], "the first second has nothing before it");
    let wanted = "stood still for 1s within 10 seconds; hog took the most memory then, 20M";
    assert!(told[1].text.contains(wanted), "{}", told[1].text);
}

#[test]
fn who_broke_a_promise_is_told_as_soon_as_there_is_a_name() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    let editor = create(&mut daemon, "editor", Some(64 << 20));
    let hog = create(&mut daemon, "hog", None);
    // It gives back what it takes, and has nothing when it is looked at; then it has.
    for grown_bytes in [0, 0, 0, 2 * MIB, 2 * MIB, 0] {
        machine.second(&mut daemon, &editor, 100, &hog, grown_bytes);
    }
    let told = events(&mut daemon);
    let texts: Vec<&str> =
        told.iter().filter(|event| event.memory.is_some()).map(|event| event.text.as_str()).collect();
    let wanted = [
        "stood still for 100ms within a second; nobody was seen to take memory then.",
        "stood still for 200ms within 2 seconds; hog took the most memory then, 2M.",
    ];
    assert_eq!(texts.len(), wanted.len(), "{texts:?}");
    assert!(texts.iter().zip(wanted).all(|(text, wanted)| text.ends_with(wanted)), "{texts:?}");
}

#[test]
fn while_nobody_is_promised_memory_nothing_is_read_and_nothing_wakes_the_loop() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    let hog = create(&mut daemon, "hog", None);
    machine.second(&mut daemon, &hog, 900, &hog, 100 * MIB);
    machine.second(&mut daemon, &hog, 900, &hog, 100 * MIB);
    assert_eq!(daemon.memory.audit.wake_at_ns(), None);
    assert_eq!(machine.sum(&daemon, &hog, Span::Day), Tally::default());
    create(&mut daemon, "editor", Some(64 << 20));
    machine.second(&mut daemon, &hog, 0, &hog, 0);
    assert!(daemon.memory.audit.wake_at_ns().is_some());
    assert!(!machine.directory.path().join("state/audit").exists());
}

/// A broken second of a domain of user 1001 in which a domain of user 1002 took the most, under these rules.
fn broken_under(rules: &str) -> (Machine, Daemon) {
    let mut machine = Machine::new();
    std::fs::create_dir_all(machine.directory.path().join("rules")).expect("created");
    std::fs::write(machine.directory.path().join("rules/default.toml"), rules).expect("written");
    let mut daemon = machine.start();
    let editor = create(&mut daemon, "editor", Some(64 << 20));
    let hog = create(&mut daemon, "hog", None);
    for (path, user) in [(&editor, 1001), (&hog, 1002)] {
        let cgroup = machine.cgroups.find(path).expect("it was made");
        let given = Given { keep: Some(true), user: Some(user) };
        let change = steward_core::domain::Change::default();
        daemon
            .domains
            .set(&cgroup, &change, given, Asker::default(), &mut daemon.cpu.mechanism)
            .expect("it can be given away");
    }
    machine
        .cgroups
        .tree()
        .used
        .insert(editor.clone(), MemoryUse { used_bytes: 40 * MIB, ..MemoryUse::default() });
    (0..3).for_each(|_| machine.second(&mut daemon, &editor, 0, &hog, 0));
    machine.second(&mut daemon, &editor, 400, &hog, 100 * MIB);
    daemon.settle_domains();
    (machine, daemon)
}

/// What a user is told who is in this cgroup.
fn ask<M: libsteward::api::Method>(
    machine: &Machine,
    daemon: &mut Daemon,
    uid: u32,
    inside: &str,
    request: &M,
) -> Result<M::Reply, String> {
    let pid = std::process::id() as i32;
    machine.cgroups.tree().members.insert(pid, inside.to_owned());
    let Ok(serde_json::Value::Object(parameters)) = serde_json::to_value(request) else {
        unreachable!("requests are structs")
    };
    let call = libsteward::wire::Call {
        method: M::NAME.to_owned(),
        parameters,
        ..libsteward::wire::Call::default()
    };
    match daemon.answer(&crate::server::peer::Caller::of_process(uid, uid, pid), call) {
        crate::server::Answer::Reply(reply) => {
            Ok(serde_json::from_value(serde_json::Value::Object(reply)).expect("it is the reply"))
        }
        crate::server::Answer::Error(error) => Err(error.to_string()),
        crate::server::Answer::Text(text) => Ok(serde_json::from_str(&text).expect("it is the reply")),
        crate::server::Answer::Texts(parts) => {
            Ok(serde_json::from_str(&parts.concat()).expect("it is the reply"))
        }
        _ => panic!("it is answered once"),
    }
}

const ONLY_ROOT_READS: &str =
    "[[rule]]\nwho = [\"root\"]\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n";
const ALL_READ: &str =
    "[[rule]]\nwho = \"everyone\"\naction = \"read\"\nof = \"anyone\"\nverdict = \"allow\"\n";

#[test]
fn whoever_may_not_see_a_culprit_is_told_that_there_was_one_and_not_who() {
    use libsteward::api::{AuditDomain, ExplainDomain};
    let own = AuditDomain { domain: None };
    for (rules, uid, named) in
        [(ALL_READ, 1001, true), (ONLY_ROOT_READS, 1001, false), (ONLY_ROOT_READS, 0, true)]
    {
        let (machine, mut daemon) = broken_under(rules);
        let audit = ask(&machine, &mut daemon, uid, "steward.editor", &own).expect("it is their own");
        let minute = &audit.memory.expect("memory is promised to it")[0];
        assert_eq!((minute.seconds, minute.broken), (3, 1));
        let culprit = &minute.culprits[0];
        assert_eq!((culprit.domain.as_deref(), culprit.taken), (named.then_some("hog"), 100 * MIB));
        assert_eq!(audit.text.contains("hog"), named, "{}", audit.text);
        let explained = ask(&machine, &mut daemon, uid, "steward.editor", &ExplainDomain { domain: None })
            .expect("their own");
        assert!(explained.text.contains("editor uses 40M of memory"), "{}", explained.text);
        let told: Vec<_> = explained.events.iter().map(|event| event.kind).collect();
        assert!(told.contains(&libsteward::api::EventKind::DomainCreated), "{told:?}");
        assert!(told.contains(&libsteward::api::EventKind::MemoryStalled), "{told:?}");
        let all = serde_json::to_string(&explained).expect("JSON");
        assert_eq!(all.contains("hog"), named, "{all}");
    }
}

#[test]
fn others_records_explanations_and_events_are_for_those_who_may_read() {
    use libsteward::api::{AuditDomain, ExplainDomain, ListEvents};
    let (machine, mut daemon) = broken_under(ONLY_ROOT_READS);
    let others = Some("editor".to_owned());
    let audit = AuditDomain { domain: others.clone() };
    let denied = ask(&machine, &mut daemon, 1002, "steward.hog", &audit).expect_err("it is not theirs");
    assert!(denied.contains("1002 may not read"), "{denied}");
    let explain = ExplainDomain { domain: others };
    let denied = ask(&machine, &mut daemon, 1002, "steward.hog", &explain).expect_err("it is not theirs");
    assert!(denied.contains("1002 may not read"), "{denied}");
    ask(&machine, &mut daemon, 1002, "steward.hog", &ListEvents {}).expect_err("not even what is their own");
}

#[test]
fn of_memory_each_user_is_told_what_concerns_them_and_of_others_no_name() {
    use libsteward::api::{EventKind, ListEvents};
    let own_too = format!("{ONLY_ROOT_READS}{}", ALL_READ.replace("\"anyone\"", "[\"own\", \"below-own\"]"));
    let (machine, mut daemon) = broken_under(&own_too);
    let mut listed = |uid| {
        let list = ask(&machine, &mut daemon, uid, "user.slice", &ListEvents {}).expect("their own");
        let stalled = list.events.iter().filter(|event| event.kind == EventKind::MemoryStalled).count();
        (stalled, serde_json::to_string(&list).expect("JSON"))
    };
    let (of_owner, text) = listed(1001);
    assert!(
        of_owner == 1 && !text.contains("hog") && text.contains("a domain that you may not see"),
        "{text}"
    );
    let (of_culprit, text) = listed(1002);
    assert!(of_culprit == 0 && !text.contains("editor") && text.contains("hog"), "{text}");
    let (of_root, text) = listed(0);
    assert!(of_root == 1 && text.contains("hog took the most memory then"), "{text}");
    assert_eq!(listed(1003), (0, r#"{"events":[],"lost":0}"#.to_owned()));
}

#[test]
fn what_was_taken_is_told_once_in_ten_seconds_as_a_sum_and_changes_of_protection_at_once() {
    use crate::memory::cared::Cared;
    use crate::memory::manager::News;
    use libsteward::api::EventKind;
    use steward_core::memory::protection::Change;
    let machine = Machine::new();
    let mut daemon = machine.start();
    let (editor, hog) = (create(&mut daemon, "editor", None), create(&mut daemon, "hog", None));
    machine
        .cgroups
        .tree()
        .used
        .insert(hog.clone(), MemoryUse { used_bytes: 300 * MIB, ..MemoryUse::default() });
    let cared = Cared { kept_bytes: BTreeMap::from([(editor.clone(), 48 * MIB)]), ..Cared::default() };
    let taken =
        |bytes| News { taken_bytes: BTreeMap::from([(format!("{hog}/.own"), bytes)]), ..News::default() };
    for mib in [0, 5, 9] {
        daemon.tell_news(&taken(mib * MIB), &cared);
    }
    let change = Change { id: 1, is_demoted: true, needed_bytes: 90 * MIB, room_bytes: 64 * MIB };
    let demoted = News { changes: vec![(editor, change)], is_short: true, ..taken(10 * MIB) };
    daemon.tell_news(&demoted, &cared);
    daemon.tell_news(&taken(10 * MIB), &cared);
    let told = daemon.settle_domains().into_iter().map(|told| told.event);
    let told: Vec<_> = told.filter(|event| event.kind != EventKind::DomainCreated).collect();
    let kinds: Vec<EventKind> = told.iter().map(|event| event.kind).collect();
    let wanted =
        [EventKind::MemoryTaken, EventKind::MemoryDemoted, EventKind::MemoryShort, EventKind::MemoryEnough];
    assert_eq!(kinds, wanted);
    assert!(
        told[0].text.contains("5M of memory were taken from hog, which has 300M left"),
        "{}",
        told[0].text
    );
    assert!(told[0].text.contains("free for editor at any moment"), "{}", told[0].text);
    let figures = told[1].memory.expect("it has figures");
    assert_eq!((figures.asked, figures.limit), (90 * MIB, 64 * MIB));
    assert_eq!(daemon.decisions["demoted"], 1);
}

#[test]
fn who_takes_memory_is_looked_at_no_more_often_than_that_is_paid_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut audit, _) = super::Audit::load(directory.path(), "boot");
    let (mut at_ns, cpu_ns) = (0, std::cell::Cell::new(0));
    for cost_ns in [1_000, 30_000_000, 400_000_000, 0, 50_000_000, 50_000_000] {
        for _ in 0..12 {
            at_ns += 1_000_000_000;
            let look = |_: &str| {
                cpu_ns.set(cpu_ns.get() + cost_ns);
                Found::Leaf(None)
            };
            let _ = audit.takers(at_ns, true, look, || cpu_ns.get());
            assert!(cpu_ns.get() <= cost_ns + at_ns / 20, "{} of {at_ns}", cpu_ns.get());
        }
    }
    let nobody_asked = audit.takers(at_ns + 60_000_000_000, false, |_| Found::Leaf(None), || 0);
    assert!(nobody_asked.is_none());
}

/// Anybody may make cgroups without number, and nobody else is answered while they are looked at.
#[test]
fn thousands_who_may_take_memory_are_looked_at_in_pieces() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut audit, _) = super::Audit::load(directory.path(), "boot");
    let cpu_ns = std::cell::Cell::new(0);
    let look = |path: &str| {
        cpu_ns.set(cpu_ns.get() + 30_000);
        let taker = |used_bytes| Taker { path: path.into(), cgroup_id: 1, used_bytes, reclaimed_bytes: 0 };
        match path.split_once('/') {
            None if path.is_empty() => Found::Parent(["one/", "two"].map(String::from).into()),
            Some(("one", "")) => Found::Parent((0..4_000).map(|number| format!("one/{number}")).collect()),
            Some((_, number)) => Found::Leaf(number.parse().ok().map(taker)),
            None => Found::Leaf(Some(taker(4_000))),
        }
    };
    let (mut at_ns, mut found) = (1, audit.takers(1, true, look, || cpu_ns.get()));
    while found.is_none() {
        at_ns = audit.takers_at_ns.max(at_ns + 1);
        let before_ns = cpu_ns.get();
        audit.look_on(at_ns, look, || cpu_ns.get());
        assert!(cpu_ns.get() - before_ns < 2_000_000 + 30_000 && cpu_ns.get() - before_ns <= at_ns / 20);
        found = audit.takers(at_ns, false, look, || cpu_ns.get());
    }
    let mut used: Vec<u64> =
        found.expect("all were looked at").iter().map(|taker| taker.used_bytes).collect();
    used.sort_unstable();
    assert_eq!(used, (0..=4_000).collect::<Vec<u64>>(), "each once");
}

#[test]
fn metrics_have_so_many_names_of_those_who_broke_a_promise_and_no_more() {
    let mut blamed = BTreeMap::new();
    for by in 0..100 {
        (0..=by).for_each(|_| count_blame(&mut blamed, &format!("hog-{by}")));
    }
    count_blame(&mut blamed, "hog-3");
    assert_eq!((blamed.len(), blamed["hog-3"], blamed["hog-15"]), (BLAMED_MAX + 1, 5, 16));
    let all: u64 = (0..100).map(|by| by + 1).sum();
    assert_eq!(blamed.values().sum::<u64>(), all + 1, "nobody is left out");
}
