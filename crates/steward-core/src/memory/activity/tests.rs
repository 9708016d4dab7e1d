//! Who is in use, case by case and as properties over histories.

use proptest::prelude::*;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const IDLE_S: u64 = 1_800;

fn sign(at_s: u64) -> Sign {
    Sign { evidence: Evidence::Terminal, at_ns: at_s * SECOND_NS }
}

fn seen(sign: Option<Sign>) -> Seen<'static> {
    Seen { path: "steward.editor", id: 7, user: 1000, sign }
}

/// What is decided at this second.
fn decide(activity: &mut Activity, at_s: u64, sign: Option<Sign>) -> Vec<bool> {
    let changes = activity.decide(at_s * SECOND_NS, Some(IDLE_S * SECOND_NS), &[seen(sign)]);
    changes.iter().map(|change| change.is_lapsed).collect()
}

fn standing(activity: &Activity) -> Standing {
    activity.standings()["steward.editor"]
}

#[test]
fn protection_lapses_after_the_idle_period_and_is_back_with_the_first_sign() {
    let mut activity = Activity::default();
    assert_eq!(decide(&mut activity, 100, None), []);
    assert_eq!(standing(&activity).last.evidence, Evidence::Protected);
    assert_eq!(decide(&mut activity, 1_000, Some(sign(999))), []);
    assert_eq!(decide(&mut activity, 999 + IDLE_S - 1, None), []);
    assert_eq!(decide(&mut activity, 999 + IDLE_S, None), [true]);
    assert_eq!(decide(&mut activity, 90_000, None), [], "it is said once");
    assert_eq!(decide(&mut activity, 90_001, Some(sign(90_001))), [false]);
    let now = standing(&activity);
    assert_eq!((now.last, now.returned_at_ns), (sign(90_001), Some(90_001 * SECOND_NS)));
}

#[test]
fn what_a_program_does_for_a_key_is_no_sign_of_its_own() {
    let mut activity = Activity::default();
    let work = |at_s| Some(Sign { evidence: Evidence::Work, ..sign(at_s) });
    decide(&mut activity, 0, Some(sign(0)));
    decide(&mut activity, 4, work(4));
    assert_eq!(standing(&activity).last, sign(0));
    decide(&mut activity, 5, work(5));
    assert_eq!(Some(standing(&activity).last), work(5), "it goes on without one");
    decide(&mut activity, 6, Some(sign(6)));
    assert_eq!(standing(&activity).last, sign(6));
}

#[test]
fn an_idle_period_that_is_changed_counts_at_once_and_without_one_nothing_lapses() {
    let mut activity = Activity::default();
    let mut at = |at_s: u64, idle_s: Option<u64>| {
        let changes =
            activity.decide(at_s * SECOND_NS, idle_s.map(|idle_s| idle_s * SECOND_NS), &[seen(None)]);
        changes.iter().map(|change| change.is_lapsed).collect::<Vec<_>>()
    };
    assert_eq!(at(0, None), []);
    assert_eq!(at(86_400, None), []);
    assert_eq!(at(86_401, Some(60)), [true]);
    assert_eq!(at(86_402, Some(100_000)), [false]);
    assert_eq!(at(86_403, None), []);
}

#[test]
fn another_domain_under_the_same_name_begins_anew() {
    let mut activity = Activity::default();
    assert_eq!(decide(&mut activity, 0, Some(sign(0))), []);
    assert_eq!(decide(&mut activity, IDLE_S, None), [true]);
    let other = Seen { id: 8, ..seen(None) };
    assert_eq!(activity.decide((IDLE_S + 1) * SECOND_NS, Some(IDLE_S * SECOND_NS), &[other]), []);
    assert!(!standing(&activity).is_lapsed);
    activity.decide((IDLE_S + 2) * SECOND_NS, None, &[]);
    assert!(activity.standings().is_empty(), "and one that is protected no more is forgotten");
}

#[test]
fn time_in_use_is_what_lies_close_behind_signs() {
    let mut activity = Activity::default();
    decide(&mut activity, 0, None);
    for at_s in 1..=100 {
        // Typing from 11 to 20.
        decide(&mut activity, at_s, (11..=20).contains(&at_s).then(|| sign(at_s)));
    }
    let times = |used_s, watched_s| Times { used_ns: used_s * SECOND_NS, watched_ns: watched_s * SECOND_NS };
    assert_eq!(standing(&activity).times, times(19, 100));
    let now_ns = 100 * SECOND_NS;
    assert_eq!(
        activity.times("steward.editor", 1000, now_ns),
        [times(0, 60), times(19, 100), times(19, 100)]
    );
    assert_eq!(activity.times("steward.editor", 1001, now_ns), [Times::default(); 3], "another user's");
}

/// Signs at these seconds, and decisions at all of these and at each sign.
fn history(signs_s: &[u64], decisions_s: &[u64]) -> (Activity, Vec<(u64, bool)>) {
    let mut activity = Activity::default();
    decide(&mut activity, 0, None);
    let mut at_s: Vec<u64> = signs_s.iter().chain(decisions_s).copied().collect();
    at_s.sort_unstable();
    at_s.dedup();
    let mut changes = Vec::new();
    for at_s in at_s {
        let sign = signs_s.contains(&at_s).then(|| sign(at_s));
        changes.extend(decide(&mut activity, at_s, sign).into_iter().map(|is_lapsed| (at_s, is_lapsed)));
    }
    (activity, changes)
}

fn moments(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(1..20 * IDLE_S, 0..most)
}

proptest! {
    #[test]
    fn with_signs_more_often_than_the_idle_period_it_never_lapses(
        pauses_s in prop::collection::vec(1..IDLE_S, 1..60),
        decisions_s in moments(60),
    ) {
        let mut at_s = 0;
        let signs_s: Vec<u64> = pauses_s.iter().map(|pause_s| { at_s += pause_s; at_s }).collect();
        let decisions_s: Vec<u64> = decisions_s.into_iter().filter(|decided_s| *decided_s <= at_s).collect();
        prop_assert_eq!(history(&signs_s, &decisions_s).1, []);
    }

    #[test]
    fn without_any_sign_it_lapses_exactly_once(decisions_s in moments(60)) {
        let is_over = decisions_s.iter().any(|at_s| *at_s >= IDLE_S);
        let first_s = decisions_s.iter().filter(|at_s| **at_s >= IDLE_S).min().copied().unwrap_or(0);
        let expected: Vec<(u64, bool)> = is_over.then_some((first_s, true)).into_iter().collect();
        prop_assert_eq!(history(&[], &decisions_s).1, expected);
    }

    #[test]
    fn in_whatever_steps_time_goes_on_who_is_lapsed_and_how_long_it_was_used_is_the_same(
        signs_s in moments(20),
        one_s in moments(60),
        other_s in moments(60),
    ) {
        let end_s = [20 * IDLE_S];
        let one = history(&signs_s, &[&one_s[..], &end_s].concat()).0;
        let other = history(&signs_s, &[&other_s[..], &end_s].concat()).0;
        let shown = |activity: &Activity| {
            let standing = standing(activity);
            (standing.is_lapsed, standing.last, standing.times)
        };
        prop_assert_eq!(shown(&one), shown(&other));
    }

    #[test]
    fn at_each_sign_it_is_protected_in_the_same_decision_and_lapses_come_before_returns(
        signs_s in moments(20),
        decisions_s in moments(60),
    ) {
        let (_, changes) = history(&signs_s, &decisions_s);
        for (place, (at_s, is_lapsed)) in changes.iter().enumerate() {
            prop_assert_eq!(*is_lapsed, place % 2 == 0, "by turns");
            prop_assert_eq!(*is_lapsed, !signs_s.contains(at_s), "a sign brings it back, and only that");
        }
        let mut activity = Activity::default();
        decide(&mut activity, 0, None);
        for at_s in signs_s.iter().copied().collect::<std::collections::BTreeSet<_>>() {
            decide(&mut activity, at_s, Some(sign(at_s)));
            prop_assert!(!standing(&activity).is_lapsed);
        }
    }
}
