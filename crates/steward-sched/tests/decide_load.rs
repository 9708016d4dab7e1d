//! Properties of load tracking, admission, revocation and reactivation (`src/bpf/decide/load.h`; Yang 2009, section
//! 8.1).

use proptest::collection::vec;
use proptest::prelude::*;
use steward_sched::decide::{
    LOAD_NO_VICTIM, LOAD_ONE, LOAD_SAMPLE_NS, LOAD_VICTIM_RANKS, LOAD_WINDOW, Load, load_decay,
    load_scaled_weight, load_victim_rank,
};

const ADMIT_BELOW: u32 = 800_000;

/// Whether it may be revoked, whether it used up its budget, and what it used.
type Task = (bool, bool, u32);

fn ratio() -> impl Strategy<Value = u32> {
    prop_oneof![0..=LOAD_ONE, Just(0), Just(LOAD_ONE)]
}

/// Takes a sample in which this part of the CPU, per million, was used.
fn sample(load: &mut Load, used: u32) {
    load.sample(used as u64 * 1000, LOAD_SAMPLE_NS);
}

/// The paper's equations in floating point: the next R_load.
fn reference(measured: f64, load: f64) -> f64 {
    let (d_min, d_max) = (0.05, 0.95);
    let d = (1.0 + load - measured) / 2.0 * (d_max - d_min) + d_min;
    (1.0 - d) * measured + d * load
}

fn after(samples: &[u32]) -> Load {
    let mut load = Load::default();
    samples.iter().for_each(|used| sample(&mut load, *used));
    load
}

proptest! {
    #[test]
    fn the_measured_load_follows_the_papers_formula(samples in vec(ratio(), 1..200)) {
        let mut load = Load::default();
        let mut expected = 0.0;
        for used in samples {
            sample(&mut load, used);
            expected = reference(expected, used as f64 / 1e6);
            // An error of 2 millionths a step, of which at most 95 % outlive the next one.
            prop_assert!((load.measured as f64 - expected * 1e6).abs() <= 40.0, "{} {expected}", load.measured);
            prop_assert!(load.measured <= LOAD_ONE);
        }
    }

    // Below three thousandths the two differ by less than the rounding of each.
    #[test]
    fn the_load_rises_faster_than_it_falls_by_the_same_difference(measured in ratio(), difference in 3000..=LOAD_ONE) {
        let up = measured.checked_add(difference).filter(|load| *load <= LOAD_ONE);
        if let (Some(up), Some(down)) = (up, measured.checked_sub(difference)) {
            prop_assert!(load_decay(up, measured) > load_decay(down, measured));
            let (mut risen, mut fallen) =
                (Load { measured, ..Load::default() }, Load { measured, ..Load::default() });
            sample(&mut risen, up);
            sample(&mut fallen, down);
            prop_assert!(risen.measured - measured > measured - fallen.measured);
        }
    }

    #[test]
    fn the_weight_of_a_sample_stays_between_the_papers_bounds(load in ratio(), measured in ratio()) {
        let d = load_decay(load, measured);
        prop_assert!((50_000..=950_000).contains(&d));
    }

    #[test]
    fn the_projected_load_converges_to_the_measured_one(used in ratio(), announced in 0..=4 * LOAD_ONE) {
        let mut load = Load::default();
        load.announce(announced);
        for _ in 0..400 {
            sample(&mut load, used);
        }
        prop_assert!(load.projected.abs_diff(load.measured) <= 1);
    }

    #[test]
    fn a_task_that_ends_within_the_window_leaves_no_trace_in_the_projection(
        before in vec(ratio(), 0..8),
        during in vec(ratio(), 0..LOAD_WINDOW - 1),
        bandwidth in ratio(),
    ) {
        let mut with = after(&before);
        let mut without = with;
        with.announce(bandwidth);
        for used in &during {
            sample(&mut with, *used);
            sample(&mut without, *used);
        }
        with.withdraw(bandwidth, during.len() as u32);
        prop_assert_eq!(with.measured, without.measured);
        prop_assert!(with.projected.abs_diff(without.projected) <= LOAD_WINDOW as u32);
    }

    #[test]
    fn after_the_window_the_measurement_speaks_and_nothing_is_taken_back(
        before in vec(ratio(), 0..8),
        bandwidth in ratio(),
        ago in LOAD_WINDOW as u32..,
    ) {
        let mut load = after(&before);
        let projected = load.projected;
        load.withdraw(bandwidth, ago);
        prop_assert_eq!(load.projected, projected);
    }

    #[test]
    fn a_cpu_is_overloaded_only_when_four_samples_in_a_row_lie_above(
        samples in vec(ratio(), 0..12),
        threshold in ratio(),
    ) {
        let mut load = Load::default();
        let mut history = vec![];
        for used in samples {
            sample(&mut load, used);
            history.push(load.measured);
            let window = history.len().checked_sub(LOAD_WINDOW).map(|first| &history[first..]);
            let expected = window.is_some_and(|window| window.iter().all(|measured| *measured > threshold));
            prop_assert_eq!(load.overloaded(threshold), expected);
        }
    }

    #[test]
    fn one_task_is_reactivated_per_window_and_only_when_four_samples_lie_below(
        samples in vec(ratio(), 0..40),
        threshold in ratio(),
    ) {
        let mut load = Load::default();
        let mut history = vec![];
        let mut last = 0;
        for used in samples {
            sample(&mut load, used);
            history.push(load.measured);
            let window = history.len().checked_sub(LOAD_WINDOW).map(|first| &history[first..]);
            let low = window.is_some_and(|window| window.iter().all(|measured| *measured < threshold));
            prop_assert_eq!(load.underloaded(threshold), low && history.len() - last >= LOAD_WINDOW);
            if load.underloaded(threshold) {
                load.last_activation = load.samples;
                last = history.len();
            }
        }
    }

    #[test]
    fn victims_are_first_those_who_used_up_their_budget_and_then_the_hungriest(
        a in (any::<bool>(), ratio()),
        b in (any::<bool>(), ratio()),
    ) {
        // (used up its budget, what it used, to a sixteenth): tuples compare in the order that the rule states.
        let key = |(exhausted, used): (bool, u32)| (exhausted, used as u64 * 16 / (LOAD_ONE as u64 + 1));
        let rank = |(exhausted, used)| load_victim_rank(true, exhausted, used);
        if a.1 > 0 && b.1 > 0 {
            prop_assert_eq!(rank(a).cmp(&rank(b)), key(a).cmp(&key(b)));
        }
        prop_assert_eq!(load_victim_rank(false, a.0, a.1), LOAD_NO_VICTIM, "the irrevocable are never victims");
        prop_assert_eq!(load_victim_rank(true, a.0, 0), LOAD_NO_VICTIM, "nothing is won by those who used nothing");
    }

    #[test]
    fn an_overloaded_cpu_is_relieved_in_one_turn_and_by_no_more_than_it_takes(
        tasks in vec((any::<bool>(), any::<bool>(), 0..LOAD_ONE / 4), 0..40),
    ) {
        let used: u32 = tasks.iter().map(|task| task.2).sum::<u32>().min(LOAD_ONE);
        let mut load = Load { measured: used, ..Load::default() };
        let rank = |(revocable, exhausted, used): Task| load_victim_rank(revocable, exhausted, used);
        let mut by_rank = [0; LOAD_VICTIM_RANKS];
        for task in &tasks {
            if rank(*task) != LOAD_NO_VICTIM {
                by_rank[rank(*task) as usize] += task.2;
            }
        }
        let mut cut = load.find_cut(&by_rank, ADMIT_BELOW);
        let (out, stay): (Vec<Task>, Vec<Task>) =
            tasks.iter().copied().partition(|task| cut.cuts(rank(*task), task.2));
        out.iter().for_each(|task| load.relieve(task.2));
        let victims_left = stay.iter().any(|task| rank(*task) != LOAD_NO_VICTIM);
        prop_assert!(load.measured < ADMIT_BELOW || !victims_left, "{} left", load.measured);
        prop_assert!(out.iter().all(|task| task.0), "an irrevocable one was put out");
        let lowest = out.iter().map(|task| rank(*task)).min();
        prop_assert!(stay.iter().all(|task| rank(*task) == LOAD_NO_VICTIM || lowest.is_none_or(|lowest| rank(*task) <= lowest)));
        // Without the last of the lowest rank it would not have done.
        if let Some(last) = out.iter().rev().find(|task| Some(rank(**task)) == lowest) {
            let sum: u32 = out.iter().map(|task| task.2).sum();
            prop_assert!(used - (sum - last.2).min(used) >= ADMIT_BELOW, "{out:?} of {tasks:?}");
        }
    }

    #[test]
    fn what_moves_away_takes_its_use_and_its_announcement_along(
        measured in ratio(),
        projected in ratio(),
        bandwidth in ratio(),
        ago in 0u32..8,
        used in ratio(),
    ) {
        let mut load = Load { measured, projected, ..Load::default() };
        load.without(bandwidth, ago, used);
        prop_assert!(load.measured == measured.saturating_sub(used));
        prop_assert!(load.projected <= projected.saturating_sub(used));
        prop_assert!(load.projected >= projected.saturating_sub(used.max(bandwidth)));
    }

    #[test]
    fn what_is_admitted_would_be_admitted_with_less_load_and_with_less_bandwidth(
        projected in 0..=4 * LOAD_ONE,
        measured in ratio(),
        bandwidth in ratio(),
        less in ratio(),
    ) {
        let load = Load { measured, projected, ..Load::default() };
        if load.admits(bandwidth, ADMIT_BELOW) {
            prop_assert!(load.expected() + bandwidth < ADMIT_BELOW);
            prop_assert!(load.admits(bandwidth.min(less), ADMIT_BELOW));
            let lighter = Load { measured: measured.min(less), projected: projected.min(less), ..load };
            prop_assert!(lighter.admits(bandwidth, ADMIT_BELOW));
        }
    }

    #[test]
    fn a_bomb_of_interactive_tasks_is_refused_from_the_threshold_on(
        before in vec(ratio(), 0..8),
        bomb in vec(1..=LOAD_ONE, 1..500),
    ) {
        let mut load = after(&before);
        let start = load.projected;
        let mut admitted = 0;
        for bandwidth in bomb {
            if load.admits(bandwidth, ADMIT_BELOW) {
                load.announce(bandwidth);
                admitted += bandwidth;
            }
        }
        prop_assert!(admitted == 0 || start + admitted < ADMIT_BELOW);
    }

    #[test]
    fn a_cpu_counts_as_fuller_the_more_of_it_is_reserved(weight in 1u64..1_000_000, a in ratio(), b in ratio()) {
        let (low, high) = (a.min(b), a.max(b));
        prop_assert!(load_scaled_weight(weight, low) <= load_scaled_weight(weight, high));
        let rest = 1.0 - (low as f64 / 1e6).min(0.99);
        prop_assert!((load_scaled_weight(weight, low) as f64 - weight as f64 / rest).abs() <= 1.0);
    }
}

#[test]
fn a_sample_of_no_length_or_of_more_than_its_length_counts_as_full() {
    let full = Load { measured: LOAD_ONE, ..Load::default() };
    for (used_ns, interval_ns) in [(0, 0), (5, 0), (7, 5)] {
        let mut load = full;
        load.sample(used_ns, interval_ns);
        assert_eq!(load.measured, LOAD_ONE);
    }
}

#[test]
fn a_new_cpu_has_neither_overload_nor_room_before_four_samples() {
    let mut load = Load::default();
    for _ in 0..LOAD_WINDOW - 1 {
        sample(&mut load, 0);
        assert!(!load.underloaded(LOAD_ONE) && !load.overloaded(0));
    }
    sample(&mut load, 0);
    assert!(load.underloaded(LOAD_ONE));
}

#[test]
fn an_announcement_has_faded_to_a_sixteenth_when_the_window_has_seen_it_whole() {
    let mut load = Load::default();
    load.announce(160_000);
    (0..LOAD_WINDOW).for_each(|_| sample(&mut load, 0));
    assert_eq!(load.projected, 10_000);
}

#[test]
fn a_revocation_ends_the_overload_until_four_more_samples_lie_above() {
    let mut load = Load::default();
    for _ in 0..8 {
        sample(&mut load, LOAD_ONE);
    }
    assert!(load.overloaded(900_000));
    load.relieve(300_000);
    assert!(load.measured <= 700_000);
    let mut above = 0;
    while !load.overloaded(900_000) {
        sample(&mut load, LOAD_ONE);
        above += u32::from(load.measured > 900_000);
    }
    assert_eq!(above, 4);
}
