//! Properties of the judgement, the store and its file.

use proptest::collection::vec;
use proptest::prelude::*;

use super::text::{Promised, explain};
use super::*;
use crate::cpu::mechanism::DomainRecord;
use crate::cpu::policy::DomainPolicy;
use crate::record::Span;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const CYCLE_NS: u64 = 500 * MS;
const ROOT: u64 = 1;

/// A domain below the root, or another, that has `reserved` of it.
fn record(cgroup_id: u64, parent_id: u64, reserved: f64) -> DomainRecord {
    DomainRecord {
        cgroup_id,
        parent_id,
        policy: DomainPolicy { reserved, ..DomainPolicy::default() },
        share: reserved,
        tasks: 1,
        runnable: 1,
        ..DomainRecord::default()
    }
}

fn reserved_of_machine(watched: &Watched, cgroup_id: u64) -> f64 {
    Family::of(&watched.records).reserved_of_machine(cgroup_id)
}

fn promise(cgroup_id: u64) -> Promise {
    Promise { path: format!("steward.{cgroup_id}"), cgroup_id, user: 0 }
}

/// One domain and its auditor, fed with what happens in it.
struct Watched {
    auditor: Auditor,
    records: Vec<DomainRecord>,
    cpus: u32,
    now_ns: u64,
    generation: u64,
}

impl Watched {
    fn new(reserved: f64, cpus: u32) -> Self {
        let records = vec![record(ROOT, 0, 0.0), record(2, ROOT, reserved)];
        let mut watched = Watched { auditor: Auditor::new(), records, cpus, now_ns: SECOND, generation: 1 };
        assert!(watched.look().is_none(), "nothing can be said of a first reading");
        watched
    }

    fn look(&mut self) -> Option<Tally> {
        let reading = Reading {
            at_ns: self.now_ns,
            generation: self.generation,
            cpus: self.cpus,
            took_ns: 0,
            service_cycle_ns: CYCLE_NS,
            records: &self.records,
        };
        let audited = self.auditor.observe(&reading, &[promise(2)]);
        assert!(audited.len() <= 1);
        audited.first().map(|audited| audited.tally)
    }

    /// For some time `tasks` tasks are runnable, and get so much.
    fn pass(&mut self, place: usize, time_ns: u64, tasks: u64, received_ns: u64) {
        let record = &mut self.records[place];
        record.best_effort_time_ns += received_ns;
        record.waiting_time_ns += (time_ns * tasks).saturating_sub(received_ns);
        record.runnable_time_ns += time_ns * tasks;
        record.runnable_squared_ns = record.runnable_squared_ns.wrapping_add(time_ns * tasks * tasks);
        record.runnable = tasks as u32;
    }

    /// A second with an even load.
    fn second(&mut self, tasks: u64, received_ns: u64) -> Option<Tally> {
        self.now_ns += SECOND;
        self.pass(1, SECOND, tasks, received_ns);
        self.look()
    }
}

/// A schedule that keeps the bound as late as it may: a server that has the constant rate of the promise, less what
/// the bound lets a crowd cost, and lets up to the whole tolerance pile up before it serves.
struct LateServer {
    backlog_ns: f64,
}

impl LateServer {
    /// What is served within a stretch of time in which `wanted_ns` are wanted; `lateness` (0 to 1) is how much of the
    /// tolerance is used.
    fn serve(&mut self, wanted_ns: f64, lateness: f64, tolerance_ns: f64, crowding: f64) -> f64 {
        self.backlog_ns += wanted_ns / (1.0 + crowding);
        let served_ns = (self.backlog_ns - lateness * tolerance_ns).max(0.0);
        self.backlog_ns -= served_ns;
        served_ns
    }
}

proptest! {
    #[test]
    fn a_domain_that_is_served_within_the_bound_is_never_called_broken(
        reserved in 0.01..0.95f64,
        cpus in 1u32..=16,
        stretches in vec((1u64..400, 0u64..40, 0.0..1.0f64), 1..200),
    ) {
        let mut watched = Watched::new(reserved, cpus);
        let promised_cpus = reserved * f64::from(cpus);
        let tolerance = tolerance_ns(reserved, f64::from(cpus), CYCLE_NS as f64, 0.0, 0.0);
        // No crowd is seen where nothing is runnable at the time of the reading, so none is counted on.
        let crowding = QUANTUM_NS as f64 / CYCLE_NS as f64;
        let mut server = LateServer { backlog_ns: 0.0 };
        let mut next_look_ns = watched.now_ns + SECOND;
        for (time_ms, tasks, lateness) in stretches {
            let time_ns = time_ms * MS;
            let wanted_ns = promised_cpus.min(tasks as f64) * time_ns as f64;
            let served_ns = server.serve(wanted_ns, lateness, tolerance, crowding).ceil() as u64;
            watched.now_ns += time_ns;
            watched.pass(1, time_ns, tasks, served_ns);
            if watched.now_ns >= next_look_ns {
                next_look_ns = watched.now_ns + SECOND;
                let tally = watched.look().expect("it is audited");
                prop_assert_eq!(tally.broken, 0, "{:?}", tally);
            }
        }
    }

    #[test]
    fn a_domain_that_is_always_starved_is_called_broken_in_every_second_before_long(
        reserved in 0.05..0.95f64, cpus in 1u32..=16, tasks in 1u64..100, part in 0.0..0.8f64,
    ) {
        let mut watched = Watched::new(reserved, cpus);
        let wanted_cpus = (reserved * f64::from(cpus)).min(tasks as f64);
        let received_ns = (part * wanted_cpus * SECOND as f64) as u64;
        let tolerance = tolerance_ns(reserved, f64::from(cpus), CYCLE_NS as f64, 2.0, 0.0);
        // What is missing each second: at least an eighth of what is wanted, whatever the crowd may cost.
        let patience = (tolerance / (wanted_cpus * SECOND as f64 / 8.0)).ceil() as usize + 1;
        let tallies: Vec<Tally> = (0..patience + 10).map(|_| watched.second(tasks, received_ns).unwrap()).collect();
        let late = &tallies[patience..];
        prop_assert!(late.iter().all(|tally| tally.broken == 1 && tally.worst_missing_ns > 0), "{tallies:?}");
        prop_assert!(tallies.iter().all(|tally| tally.seconds == 1 && tally.received_ns < tally.promised_ns));
    }

    #[test]
    fn never_more_is_said_to_be_wanted_than_was_and_all_of_an_even_load(
        promised_cpus in 0.01..16.0f64, load in vec((1u64..1000, 0u64..200), 1..20),
    ) {
        let (mut runnable, mut squared, mut truth, mut elapsed) = (0.0, 0.0, 0.0, 0.0);
        for (time_ms, tasks) in &load {
            let (time_ns, tasks) = ((time_ms * MS) as f64, *tasks as f64);
            runnable += time_ns * tasks;
            squared += time_ns * tasks * tasks;
            truth += time_ns * tasks.min(promised_cpus);
            elapsed += time_ns;
        }
        let wanted = wanted_at_least_ns(promised_cpus, runnable, squared, elapsed);
        prop_assert!((0.0..=truth + 1.0).contains(&wanted), "{wanted} of {truth}");
        let tasks = load[0].1 as f64;
        let even = wanted_at_least_ns(promised_cpus, tasks * 1e9, tasks * tasks * 1e9, 1e9);
        prop_assert!((even - tasks.min(promised_cpus) * 1e9).abs() < 1e3, "{even}");
    }

    #[test]
    fn whatever_the_counters_and_clocks_do_nothing_is_said_that_cannot_be(
        readings in vec((any::<u64>(), 0u64..3, any::<[u64; 5]>(), any::<bool>(), 1u64..6, any::<u32>()), 1..20),
    ) {
        let mut auditor = Auditor::new();
        let mut last_ns = 0;
        for (at_ns, generation, counts, throttled, parent_id, cpus) in readings {
            let mut domain = record(2, parent_id, 0.5);
            (domain.best_effort_time_ns, domain.reserved_time_ns, domain.waiting_time_ns) =
                (counts[0], counts[1], counts[2]);
            (domain.runnable_time_ns, domain.runnable_squared_ns, domain.throttled) = (counts[3], counts[4], throttled);
            // Parents may lead in a circle or nowhere.
            let records = [record(ROOT, 0, 0.0), domain, record(3, 4, 0.5), record(4, 3, 0.5)];
            let reading =
                Reading { at_ns, generation, cpus, took_ns: 0, service_cycle_ns: CYCLE_NS, records: &records };
            for Audited { tally, .. } in auditor.observe(&reading, &[promise(2), promise(3), promise(99)]) {
                prop_assert!(at_ns > last_ns && tally.seen_ns == at_ns - last_ns);
                prop_assert!(tally.wanted_ns <= tally.promised_ns, "{tally:?}");
                prop_assert!(tally.broken <= tally.seconds, "{tally:?}");
            }
            last_ns = at_ns;
        }
    }
}

#[test]
fn a_hundred_tasks_that_come_at_once_want_no_more_than_the_promise_for_as_long_as_they_are_there() {
    let mut watched = Watched::new(0.5, 1);
    for _ in 0..60 {
        watched.now_ns += SECOND;
        // Each waits for the ninety-nine others: 10 s of waiting within 0.2 s.
        watched.pass(1, 200 * MS, 100, 100 * MS);
        let tally = watched.look().expect("it is audited");
        assert_eq!((tally.broken, tally.wanted_ns / MS), (0, 100));
    }
}

#[test]
fn a_domain_that_wants_little_or_nothing_gets_all_it_wants() {
    let mut watched = Watched::new(0.5, 2);
    let idle = watched.second(0, 0).expect("it is audited");
    assert_eq!((idle.promised_ns, idle.wanted_ns, idle.seconds, idle.broken), (SECOND, 0, 0, 0));
    // Suspended: its tasks are not runnable, however long.
    assert!((0..100).all(|_| watched.second(0, 0).expect("it is audited").broken == 0));
    let more = watched.second(3, 2 * SECOND).expect("it is audited");
    assert_eq!((more.promised_ns, more.wanted_ns, more.received_ns), (SECOND, SECOND, 2 * SECOND));
}

#[test]
fn what_is_below_a_domain_counts_for_it_and_a_part_of_nothing_is_no_promise() {
    let mut watched = Watched::new(0.5, 1);
    watched.records.push(record(3, 2, 0.0));
    watched.records.push(record(4, 3, 0.9));
    watched.now_ns += SECOND;
    watched.look();
    watched.now_ns += SECOND;
    watched.pass(1, SECOND, 1, 100 * MS);
    watched.pass(2, SECOND, 1, 100 * MS);
    watched.pass(3, SECOND, 1, 200 * MS);
    let tally = watched.look().expect("it is audited");
    assert_eq!((tally.received_ns, tally.wanted_ns), (400 * MS, 500 * MS));
    assert_eq!(reserved_of_machine(&watched, 2), 0.5);
    assert_eq!(reserved_of_machine(&watched, 4), 0.0, "its parent has nothing reserved");
    assert_eq!(reserved_of_machine(&watched, ROOT), 0.0);
    watched.records[2].policy.reserved = 0.5;
    assert_eq!(reserved_of_machine(&watched, 4), 0.5 * 0.5 * 0.9);
}

/// A second with less missing than the tolerance: broken only if something was missing before.
fn a_little_late(watched: &mut Watched) -> Option<u64> {
    watched.second(1, 400 * MS).map(|tally| tally.broken)
}

#[test]
fn after_a_reload_a_reset_or_a_clock_that_jumps_back_what_was_missing_is_forgotten() {
    let starve =
        |watched: &mut Watched| (0..10).map(|_| watched.second(1, 0).map_or(0, |tally| tally.broken)).sum();
    let mut watched = Watched::new(0.5, 1);
    let broken: u64 = starve(&mut watched);
    assert!(broken >= 8, "{broken}");
    assert_eq!(a_little_late(&mut watched), Some(1), "that adds to what was missing");
    watched.generation += 1;
    watched.records[1] = record(2, ROOT, 0.5);
    assert_eq!(watched.second(1, 0), None);
    assert_eq!(a_little_late(&mut watched), Some(0), "it may be late again");
    starve(&mut watched);
    // The counters begin anew without a word.
    watched.records[1] = record(2, ROOT, 0.5);
    assert_eq!(watched.second(1, 0), None);
    assert_eq!(a_little_late(&mut watched), Some(0));
    starve(&mut watched);
    watched.now_ns -= 5 * SECOND;
    assert_eq!(watched.look(), None);
    assert_eq!(a_little_late(&mut watched), Some(0));
}

#[test]
fn a_changed_promise_and_a_quota_begin_anew() {
    let mut watched = Watched::new(0.5, 1);
    while watched.second(1, 0).expect("it is audited").broken == 0 {}
    watched.records[1].policy.reserved = 0.6;
    let raised = watched.second(1, 400 * MS).expect("it is audited");
    assert_eq!((raised.promised_ns, raised.broken), (SECOND / 2, 1), "half was promised all the time");
    assert_eq!(watched.second(1, 500 * MS).map(|tally| tally.broken), Some(0), "the rest from now on");
    while watched.second(1, 0).expect("it is audited").broken == 0 {}
    watched.records[1].throttled = true;
    let held = watched.second(1, 0).expect("it is audited");
    assert_eq!((held.broken, held.wanted_ns), (0, 0), "cpu.max holds it back, not the scheduler");
    watched.records[1].throttled = false;
    assert_eq!(a_little_late(&mut watched), Some(0));
    for (limit_cpus, broken) in [(0.55, 0), (0.7, 1)] {
        watched.records[1].limit_cpus = limit_cpus;
        assert_eq!(
            watched.second(1, 0).map(|tally| tally.broken),
            Some(broken),
            "a limit of {limit_cpus} CPUs"
        );
    }
    watched.records[1].suspended = true;
    watched.second(1, 0);
    watched.records[1].suspended = false;
    assert_eq!(watched.second(1, 0).map(|tally| tally.broken), Some(0), "it was, for a part of that second");
    watched.records.remove(1);
    watched.now_ns += SECOND;
    assert_eq!(watched.look(), None, "the domain has gone");
}

#[test]
fn a_pause_of_the_daemon_breaks_no_more_seconds_than_it_takes_to_lose_so_much() {
    let mut watched = Watched::new(0.5, 1);
    watched.now_ns += 8 * SECOND;
    watched.pass(1, 8 * SECOND, 1, 3 * SECOND);
    let tally = watched.look().expect("it is audited");
    assert_eq!((tally.seconds, tally.broken), (8, 2), "{tally:?}");
    assert!(tally.worst_missing_ns <= SECOND / 2);
}

#[test]
fn the_record_is_told_in_sentences() {
    let fraction =
        Promised::Fraction { fraction: 0.2, cpus: 2, service_cycle_ns: CYCLE_NS, waiting_domains: 3 };
    let minute = Tally {
        seen_ns: 60 * SECOND,
        promised_ns: 24 * SECOND,
        wanted_ns: 11 * SECOND,
        received_ns: 13 * SECOND,
        waited_ns: SECOND,
        seconds: 28,
        ..Tally::default()
    };
    let hour = Tally { seen_ns: 900 * SECOND, broken: 3, worst_missing_ns: 120 * MS, ..minute };
    let idle = Tally { seconds: 0, seen_ns: 86_400 * SECOND, ..Tally::default() };
    let kept = [(Span::Minute, minute), (Span::Hour, hour), (Span::Day, idle)];
    insta::assert_snapshot!(explain("web", &fraction, &kept));
    insta::assert_snapshot!(
        [Promised::Above, Promised::Nothing, Promised::NotInForce]
            .map(|promised| explain("web", &promised, &[]))
            .join("")
    );
}
