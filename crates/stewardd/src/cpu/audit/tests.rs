//! A daemon whose scheduler counts what a test says: what is kept of it, and what a restart leaves.

use std::sync::Arc;

use steward_core::cpu::mechanism::DomainRecord;
use steward_core::record::Span;
use steward_kernel::Roots;

use super::*;
use crate::daemon::Daemon;
use crate::fake::cgroups::FakeCgroups;
use crate::fake::disk::FakeDisk;
use crate::fake::{Fake, options};
use crate::files::record::{SAVE_EVERY_NS, since_boot_s};

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;

/// A machine of two CPUs with a daemon on it, whose seconds pass as the test says.
struct Machine {
    directory: tempfile::TempDir,
    fake: Fake,
    cgroups: FakeCgroups,
    now_ns: u64,
    since_boot_s: u64,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cpus = directory.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpus).expect("created");
        std::fs::write(cpus.join("online"), "0-1\n").expect("written");
        let (fake, cgroups) = (Fake::default(), FakeCgroups::default());
        // Seconds are counted from this moment of the machine that the test runs on: at the end the daemon writes as of
        // its time, and leaves out what is older than a day.
        Machine { directory, fake, cgroups, now_ns: 5 * SECOND_NS, since_boot_s: since_boot_s() }
    }

    fn start(&self) -> Daemon {
        let directory = self.directory.path();
        let options = options(directory, Roots { sys: directory.join("sys"), ..Roots::default() });
        Daemon::start(
            options,
            self.fake.loader(),
            Ok(Box::new(self.cgroups.clone())),
            Arc::new(FakeDisk::default()),
        )
        .expect("it starts")
    }

    /// A second in which one task of each of these domains is always runnable, and gets so much.
    fn second(&mut self, daemon: &mut Daemon, received: &[(&str, u64)]) {
        for (path, received_ns) in received {
            let id = self.cgroups.tree().id(path);
            let mut machine = self.fake.machine();
            let record = machine.counted.entry(id).or_insert_with(|| record(id));
            record.best_effort_time_ns += received_ns;
            record.waiting_time_ns += SECOND_NS - received_ns;
            record.runnable_time_ns += SECOND_NS;
            record.runnable_squared_ns += SECOND_NS;
        }
        self.now_ns += SECOND_NS;
        self.since_boot_s += 1;
        daemon.audit_now(&|| self.now_ns, self.since_boot_s);
    }

    fn sum(&self, daemon: &Daemon, path: &str, span: Span) -> Tally {
        let now_s = daemon.cpu.audit.now_s(self.since_boot_s);
        daemon.cpu.audit.record(path, 0).map(|record| record.sum(span, now_s)).unwrap_or_default()
    }
}

fn create(daemon: &mut Daemon, name: &str, cpu: f64) {
    let mut change = steward_core::domain::Change::default();
    change.cpu.reserved = Some(cpu);
    let path = daemon.domains.path_to_make(name).expect("the name is free");
    let given = crate::domains::Given { keep: Some(true), user: None };
    let asker = crate::domains::Asker::default();
    daemon.domains.create(&path, &change, given, asker, &mut daemon.cpu.mechanism).expect("there is room");
}

/// A domain with one busy task and nothing counted yet.
fn record(cgroup_id: u64) -> DomainRecord {
    DomainRecord { cgroup_id, parent_id: 1, tasks: 1, runnable: 1, ..DomainRecord::default() }
}

#[test]
fn a_promise_that_is_kept_and_one_that_is_broken_are_told_apart() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    create(&mut daemon, "kept", 0.3);
    create(&mut daemon, "broken", 0.3);
    (0..20).for_each(|_| {
        machine.second(&mut daemon, &[("steward.kept", 600 * MS), ("steward.broken", 200 * MS)])
    });
    let (kept, broken) = (
        machine.sum(&daemon, "steward.kept", Span::Minute),
        machine.sum(&daemon, "steward.broken", Span::Day),
    );
    assert_eq!((kept.seconds, kept.broken, kept.wanted_ns), (19, 0, 19 * 600 * MS));
    assert_eq!((broken.seconds, broken.received_ns), (19, 19 * 200 * MS));
    assert!(broken.broken >= 18 && broken.worst_missing_ns > 300 * MS, "{broken:?}");
}

#[test]
fn while_nothing_is_reserved_nothing_is_read_and_the_disk_is_for_once_a_minute() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    machine.second(&mut daemon, &[("user.slice", 0)]);
    assert_eq!((daemon.cpu.audit.busy, daemon.cpu.audit.wake_at_ns()), (false, None));
    create(&mut daemon, "a", 0.3);
    (0..3).for_each(|_| machine.second(&mut daemon, &[("steward.a", 0)]));
    assert!(daemon.cpu.audit.busy && daemon.cpu.audit.wake_at_ns().is_some());
    assert!(!machine.directory.path().join("state/audit").exists());
    let saved_at_ns = daemon.cpu.audit.kept.save_at_ns.expect("something is to be written");
    assert!(saved_at_ns >= 5 * SECOND_NS + SAVE_EVERY_NS);
    daemon.audit_if_due(saved_at_ns);
    daemon.worker.finish();
    assert!(machine.directory.path().join("state/audit/promises").exists());
}

#[test]
fn the_record_outlives_the_daemon_but_for_the_last_minute_of_one_that_was_killed() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    create(&mut daemon, "a", 0.3);
    (0..20).for_each(|_| machine.second(&mut daemon, &[("steward.a", 0)]));
    let before = machine.sum(&daemon, "steward.a", Span::Hour);
    assert!(before.broken > 10, "{before:?}");
    daemon.stop();
    drop(daemon);
    let mut daemon = machine.start();
    assert_eq!(machine.sum(&daemon, "steward.a", Span::Hour), before);
    create(&mut daemon, "b", 0.3);
    (0..20).for_each(|_| machine.second(&mut daemon, &[("steward.b", 0)]));
    drop(daemon);
    let daemon = machine.start();
    assert_eq!(machine.sum(&daemon, "steward.a", Span::Hour), before);
    assert_eq!(machine.sum(&daemon, "steward.b", Span::Hour), Tally::default());
}

#[test]
fn a_damaged_file_is_set_aside_with_a_message_and_its_good_part_is_read() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    create(&mut daemon, "a", 0.3);
    create(&mut daemon, "b", 0.3);
    (0..5).for_each(|_| machine.second(&mut daemon, &[("steward.a", 0), ("steward.b", 0)]));
    daemon.stop();
    drop(daemon);
    let file = machine.directory.path().join("state/audit/promises");
    let whole = std::fs::read(&file).expect("it was written");
    for (damage, left) in [(whole[..whole.len() - 9].to_vec(), 1), (vec![0xff; 100], 0), (Vec::new(), 0)] {
        std::fs::write(&file, damage).expect("written");
        let daemon = machine.start();
        assert_eq!(daemon.cpu.audit.kept.records.iter().count(), left);
        let message = daemon.health.all().find(|sentence| sentence.contains("record of promises"));
        let message = message.expect("it is said");
        assert!(message.contains("damaged: line ") && message.contains("it is now "), "{message}");
        assert!(file.with_extension("damaged").exists() && !file.exists());
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_said_and_costs_nothing_else() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    create(&mut daemon, "a", 0.3);
    (0..3).for_each(|_| machine.second(&mut daemon, &[("steward.a", 0)]));
    let state = machine.directory.path().join("state");
    std::fs::create_dir_all(&state).expect("created");
    std::fs::write(state.join("audit"), "in the way").expect("written");
    daemon.cpu.audit.kept.save(0, &mut daemon.worker);
    daemon.worker.finish();
    daemon.tick(machine.now_ns, true);
    let sentence = daemon.health.all().find(|sentence| sentence.contains("record of promises"));
    let sentence = sentence.expect("it is said");
    assert!(sentence.contains("state/audit") && sentence.contains("after a restart"), "{sentence}");
}

#[test]
fn what_was_missing_is_forgotten_when_the_scheduler_is_loaded_again_and_a_domain_that_ends_is_kept() {
    let mut machine = Machine::new();
    let mut daemon = machine.start();
    create(&mut daemon, "a", 0.3);
    (0..5).for_each(|_| machine.second(&mut daemon, &[("steward.a", 0)]));
    let before = machine.sum(&daemon, "steward.a", Span::Day);
    machine.fake.eject("a test");
    machine.fake.machine().counted.clear();
    daemon.tick(machine.now_ns, true);
    assert_eq!(daemon.cpu.loading.restarts, 1);
    machine.second(&mut daemon, &[("steward.a", 500 * MS)]);
    assert_eq!(machine.sum(&daemon, "steward.a", Span::Day), before, "nothing is known of that second");
    machine.second(&mut daemon, &[("steward.a", 500 * MS)]);
    let after = machine.sum(&daemon, "steward.a", Span::Day);
    assert_eq!((after.seconds, after.broken), (before.seconds + 1, before.broken));
    let asker = crate::domains::Asker::default();
    daemon.domains.remove("steward.a", false, asker, &mut daemon.cpu.mechanism).expect("it is there");
    machine.second(&mut daemon, &[]);
    assert_eq!(machine.sum(&daemon, "steward.a", Span::Day), after);
    assert!(!daemon.cpu.audit.busy);
}
