//! What is called broken, whom it is blamed on, and how that is said.

use proptest::collection::vec;
use proptest::prelude::*;

use super::text::{Kept, Named, Promised, explain};
use super::*;
use crate::record::{Counted, Span};

const SECOND_NS: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

fn protected(path: &str) -> Promise {
    let cgroup_id = path.len() as u64;
    Promise { path: path.into(), cgroup_id, is_protected: true, is_in_force: true, ..Promise::default() }
}

fn with_minimum(min_bytes: u64) -> Promise {
    Promise { min_bytes, is_protected: false, ..protected("a") }
}

fn stalled(stalled_ms: u64) -> Counters {
    let waits = |memory_ms| Some(Waits { memory_ns: memory_ms * MS, disk_ns: 0 });
    Counters { stalled: waits(stalled_ms), stopped: waits(0), ..Counters::default() }
}

fn taker(path: &str, used_bytes: u64, reclaimed_bytes: u64) -> Taker {
    let cgroup_id = 1000 + path.len() as u64;
    Taker { path: path.into(), cgroup_id, used_bytes, reclaimed_bytes }
}

/// What is found about one domain that counts this at the end of each second.
fn seconds(promise: &Promise, counted: &[Counters]) -> Vec<Tally> {
    let mut auditor = Auditor::default();
    let promises = std::slice::from_ref(promise);
    let mut found = Vec::new();
    for (second, counters) in (1..).zip(counted) {
        let counters = [Some(*counters)];
        let reading = Reading { at_ns: second * SECOND_NS, counters: &counters, takers: None };
        found.extend(auditor.observe(&reading, promises).into_iter().map(|audited| audited.tally));
    }
    found
}

fn broken(promise: &Promise, counted: &[Counters]) -> Vec<u64> {
    seconds(promise, counted).iter().map(|tally| tally.broken).collect()
}

#[test]
fn a_second_is_broken_when_a_protected_domain_stood_still_for_longer_than_people_notice() {
    let counted = [stalled(0), stalled(50), stalled(101), stalled(101), stalled(900)];
    let found = seconds(&protected("a"), &counted);
    assert_eq!(found.iter().map(|tally| tally.broken).collect::<Vec<_>>(), [0, 1, 0, 1]);
    let mut sum = Tally::default();
    found.iter().for_each(|tally| sum.add(tally));
    assert_eq!((sum.seconds, sum.broken, sum.stalled_ns), (4, 2, 900 * MS));
    assert_eq!(
        (sum.seen_ns, sum.in_force_ns, sum.worst_stalled_ns),
        (4 * SECOND_NS, 4 * SECOND_NS, 799 * MS)
    );
}

#[test]
fn what_goes_beyond_a_minimum_breaks_no_promise_and_nothing_is_said_of_it() {
    let promise = with_minimum(64 * MIB);
    let using = |used_bytes: u64, ms: u64| Counters { used_bytes, ..stalled(ms) };
    let within = [using(60 * MIB, 0), using(60 * MIB, 400)];
    assert_eq!(broken(&promise, &within), [1]);
    for beyond in [61 * MIB, 64 * MIB, 300 * MIB] {
        let found = seconds(&promise, &[using(20 * MIB, 0), using(beyond, 400), using(20 * MIB, 800)]);
        assert_eq!(found.iter().map(|tally| (tally.seconds, tally.broken)).collect::<Vec<_>>(), [(0, 0); 2]);
        assert_eq!(found[0].stalled_ns, 400 * MS, "it is counted all the same");
    }
    let also_protected = Promise { is_protected: true, ..promise };
    assert_eq!(broken(&also_protected, &[using(20 * MIB, 0), using(300 * MIB, 400)]), [1]);
}

#[test]
fn who_is_at_its_own_limit_waits_for_itself() {
    let limited = Counters { limited_times: 1, ..stalled(400) };
    assert_eq!(broken(&protected("a"), &[stalled(0), limited]), [0]);
}

#[test]
fn seconds_without_what_was_promised_in_force_are_broken_too_and_told_apart() {
    let promise = Promise { is_in_force: false, ..protected("a") };
    let found = seconds(&promise, &[stalled(0), stalled(400)]);
    assert_eq!((found[0].broken, found[0].in_force_ns, found[0].seen_ns), (1, 0, SECOND_NS));
}

#[test]
fn without_pressure_faults_that_waited_for_a_disk_stand_for_it() {
    let faults = |major_faults| Counters { major_faults, ..Counters::default() };
    let found = seconds(&protected("a"), &[faults(0), faults(50), faults(101)]);
    let found: Vec<(u64, u64)> = found.iter().map(|tally| (tally.broken, tally.stalled_ns / MS)).collect();
    assert_eq!(found, [(0, 50), (1, 51)]);
}

#[test]
fn of_waits_for_the_disk_those_count_that_are_for_what_was_taken() {
    let reading = |disk_ms: u64, refaulted_mib: u64, file_mib: u64, reclaimed_mib: u64| Counters {
        stalled: Some(Waits { memory_ns: 0, disk_ns: disk_ms * MS }),
        refaulted_bytes: refaulted_mib * MIB,
        refaulted_file_bytes: refaulted_mib * MIB,
        file_bytes: file_mib * MIB,
        reclaimed_bytes: reclaimed_mib * MIB,
        ..Counters::default()
    };
    let stalled_ms =
        |before: Counters, now: Counters| seconds(&protected("a"), &[before, now])[0].stalled_ns / MS;
    // 8 MiB of a file were taken and read again: all of it is for want of memory.
    assert_eq!(stalled_ms(reading(0, 0, 0, 8), reading(55, 8, 8, 8)), 55);
    // Read for the first time, or read while others of its pages are taken: none is.
    assert_eq!(stalled_ms(reading(0, 0, 0, 8), reading(55, 0, 8, 8)), 0);
    assert_eq!(stalled_ms(reading(0, 0, 8, 8), reading(55, 0, 8, 16)), 0);
    // A part, by what was read.
    assert_eq!(stalled_ms(reading(0, 0, 0, 8), reading(100, 2, 8, 8)), 25);
    // From the swap: what of it is in memory is no page of a file.
    let swapped = Counters { refaulted_file_bytes: 0, ..reading(100, 8, 0, 0) };
    assert_eq!(stalled_ms(reading(0, 0, 0, 0), swapped), 100);
}

#[test]
fn readings_that_are_far_apart_may_have_as_much_for_each_second_and_counters_that_begin_anew_say_nothing() {
    let promise = [protected("a")];
    let mut auditor = Auditor::default();
    let mut observe = |at_ns: u64, stalled_ms: u64| {
        let counters = [Some(stalled(stalled_ms))];
        let found = auditor.observe(&Reading { at_ns, counters: &counters, takers: None }, &promise);
        found.first().map(|audited| audited.tally)
    };
    assert_eq!(observe(SECOND_NS, 0), None);
    let late = observe(5 * SECOND_NS + 20 * MS, 200).expect("it is judged");
    assert_eq!((late.seconds, late.broken), (1, 0));
    let slow = observe(6 * SECOND_NS + 40 * MS, 251).expect("it is judged");
    assert_eq!(slow.broken, 1, "a little more than a second is one");
    assert_eq!(observe(7 * SECOND_NS, 0), None, "it is another cgroup, or was reset");
    let ages = observe(60 * SECOND_NS, 40_000).expect("it is counted");
    assert_eq!((ages.seconds, ages.broken, ages.stalled_ns), (0, 0, 40_000 * MS));
}

#[test]
fn a_broken_second_is_blamed_on_who_took_the_most_memory_though_it_was_taken_from_it_again() {
    let promises = [protected("editor")];
    let mut auditor = Auditor::default();
    let mut observe = |second: u64, stalled_ms: u64, takers: &[Taker]| {
        let counters = [Some(stalled(stalled_ms))];
        let reading = Reading { at_ns: second * SECOND_NS, counters: &counters, takers: Some(takers) };
        auditor.observe(&reading, &promises).pop().and_then(|audited| audited.culprit)
    };
    let before =
        [taker("hog", 300 * MIB, 900 * MIB), taker("build", 50 * MIB, 0), taker("editor", 40 * MIB, 0)];
    assert_eq!(observe(1, 0, &before), None);
    let grown =
        [taker("hog", 300 * MIB, 960 * MIB), taker("build", 60 * MIB, 0), taker("editor", 900 * MIB, 0)];
    let hog = Some(Culprit { path: "hog".into(), taken_bytes: 60 * MIB });
    assert_eq!(observe(2, 400, &grown), hog, "its own growth is not its culprit");
    assert_eq!(observe(3, 410, &before), None, "nothing was broken");
    let calm = [taker("hog", 300 * MIB, 960 * MIB), taker("new-one", 8 * MIB, MIB), grown[2].clone()];
    observe(4, 420, &grown);
    let new_one = Some(Culprit { path: "new-one".into(), taken_bytes: 9 * MIB });
    assert_eq!(observe(5, 900, &calm), new_one);
    assert_eq!(observe(6, 1400, &calm), None, "nobody took any");
}

#[test]
fn one_whose_last_child_has_gone_is_not_blamed_for_all_that_it_has() {
    let promises = [protected("editor")];
    let mut auditor = Auditor::default();
    let mut observe = |second: u64, takers: &[(u64, &str, u64)]| {
        let counters = [Some(stalled(400 * second))];
        let taker =
            |&(cgroup_id, path, mib): &(u64, &str, u64)| Taker { cgroup_id, ..taker(path, mib * MIB, 0) };
        let takers: Vec<Taker> = takers.iter().map(taker).collect();
        let reading = Reading { at_ns: second * SECOND_NS, counters: &counters, takers: Some(&takers) };
        let culprit = auditor.observe(&reading, &promises).pop().and_then(|audited| audited.culprit);
        culprit.map(|culprit| (culprit.path, culprit.taken_bytes / MIB))
    };
    observe(1, &[(7, "slice/service", 5), (8, "hog", 100)]);
    // What the service has left in files is charged to its slice, which is none that takes as long as it has any below.
    assert_eq!(observe(2, &[(6, "slice", 2_000), (8, "hog", 130)]), Some(("hog".into(), 30)));
    assert_eq!(observe(3, &[(6, "slice", 2_050), (8, "hog", 130)]), Some(("slice".into(), 50)));
    assert_eq!(
        observe(4, &[(6, "slice", 2_050), (8, "hog", 130), (9, "bomb", 70)]),
        Some(("bomb".into(), 70))
    );
}

#[test]
fn all_are_looked_at_while_somebody_stalls_and_otherwise_now_and_then() {
    let promises = [protected("a")];
    let mut auditor = Auditor::default();
    let mut looked = Vec::new();
    for second in 0..30 {
        let at_ns = second * SECOND_NS;
        // It stalls from the 20th second to the 24th.
        let counters = [Some(stalled(10 * second.clamp(20, 24)))];
        let wants = auditor.wants_takers(at_ns, &promises, &counters);
        looked.extend(wants.then_some(second));
        let takers: &[Taker] = &[];
        auditor.observe(&Reading { at_ns, counters: &counters, takers: wants.then_some(takers) }, &promises);
    }
    assert_eq!(looked, [0, 10, 20, 21, 22, 23, 24]);
}

#[test]
fn a_name_under_which_blame_is_kept_leads_back_to_the_culprit_and_to_no_other_domain() {
    let key = blame_key("steward.a/b", "system.slice/x.service");
    assert_eq!(culprit_of(&key, "steward.a/b"), Some("system.slice/x.service"));
    for other in ["steward.a", "steward.a/", "steward.a/b/c", "steward.ab", ""] {
        assert_eq!(culprit_of(&key, other), None, "{other}");
    }
}

fn counters() -> impl Strategy<Value = Counters> {
    let waits = proptest::option::of(any::<[u64; 2]>());
    let waits = waits.prop_map(|waits| waits.map(|[memory_ns, disk_ns]| Waits { memory_ns, disk_ns }));
    (waits.clone(), waits, any::<[u64; 8]>()).prop_map(|(stalled, stopped, more)| {
        let [used_bytes, file_bytes, reclaimed_bytes, refaults, more @ ..] = more;
        let [refaulted_bytes, refaulted_file_bytes, major_faults, limited_times] = more;
        Counters {
            used_bytes,
            file_bytes,
            reclaimed_bytes,
            stalled,
            stopped,
            refaults,
            refaulted_bytes,
            refaulted_file_bytes,
            major_faults,
            limited_times,
        }
    })
}

proptest! {
    #[test]
    fn whatever_is_counted_no_more_is_broken_than_judged_and_nothing_overflows(
        min_bytes: u64, is_protected: bool, is_in_force: bool,
        readings in vec((counters(), 0u64..100 * SECOND_NS, any::<[u64; 2]>()), 1..20),
    ) {
        let promise = Promise { min_bytes, is_protected, is_in_force, ..protected("a") };
        let mut auditor = Auditor::default();
        let (mut at_ns, mut sum) = (0, Tally::default());
        for (counters, step_ns, [used_bytes, reclaimed_bytes]) in readings {
            at_ns += step_ns;
            let (counters, takers) = ([Some(counters)], [taker("b", used_bytes, reclaimed_bytes)]);
            let reading = Reading { at_ns, counters: &counters, takers: Some(&takers) };
            for audited in auditor.observe(&reading, std::slice::from_ref(&promise)) {
                prop_assert!(audited.tally.broken > 0 || audited.culprit.is_none());
                sum.add(&audited.tally);
            }
        }
        prop_assert!(sum.broken <= sum.seconds && sum.in_force_ns <= sum.seen_ns && sum.seen_ns <= at_ns);
        prop_assert_eq!(sum.worst_stalled_ns > 0, sum.broken > 0);
        prop_assert_eq!(Tally::of_numbers(sum.numbers()), sum);
    }
}

fn named(name: Option<&str>, seconds: u64, taken_bytes: u64) -> Named {
    Named { name: name.map(str::to_owned), blame: Blame { seconds, taken_bytes } }
}

fn kept(span: Span, tally: Tally, culprits: Vec<Named>) -> Kept {
    Kept { span, tally, culprits }
}

#[test]
fn a_record_is_told_in_sentences() {
    let promised = Promised {
        min_bytes: 0,
        protect_ns: Some(1_800 * SECOND_NS),
        problem: None,
        is_pressure_counted: true,
    };
    let calm =
        Tally { seen_ns: 60 * SECOND_NS, in_force_ns: 60 * SECOND_NS, seconds: 60, ..Tally::default() };
    let hour = Tally {
        seen_ns: 3_600 * SECOND_NS,
        in_force_ns: 3_560 * SECOND_NS,
        stalled_ns: 4_200 * MS,
        stopped_ns: 3_000 * MS,
        refaults: 900,
        major_faults: 1,
        seconds: 3_590,
        broken: 3,
        worst_stalled_ns: 840 * MS,
    };
    let culprits = vec![named(Some("hog"), 2, 1_200 * MIB), named(None, 1, 20 * MIB)];
    let spans = [
        kept(Span::Minute, calm, Vec::new()),
        kept(Span::Hour, hour, culprits),
        kept(Span::Day, hour, Vec::new()),
    ];
    insta::assert_snapshot!(explain("editor", &promised, &spans));
}

#[test]
fn what_is_not_in_force_not_counted_or_not_promised_is_said() {
    let nothing = [kept(Span::Minute, Tally::default(), Vec::new())];
    assert_eq!(explain("a", &Promised::default(), &nothing), "");
    let beyond = Tally { seen_ns: 60 * SECOND_NS, stalled_ns: 7 * MS, ..Tally::default() };
    let promised = Promised {
        min_bytes: 64 * MIB,
        protect_ns: Some(60 * SECOND_NS),
        problem: Some("it is demoted".into()),
        is_pressure_counted: false,
    };
    let both = explain("a", &promised, &[kept(Span::Minute, beyond, Vec::new()), nothing[0].clone()]);
    let minimum = Promised { protect_ns: None, problem: None, is_pressure_counted: true, ..promised };
    let minimum = explain("db", &minimum, &nothing);
    let before = explain("b", &Promised::default(), &[kept(Span::Minute, beyond, Vec::new())]);
    insta::assert_snapshot!(format!("{both}\n{minimum}\n{before}"));
}
