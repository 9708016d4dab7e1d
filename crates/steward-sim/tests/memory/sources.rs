//! What protected domains keep and lose where nobody knows the ages of pages.

use proptest::prelude::*;
use steward_core::memory::source::Source;
use steward_sim::Amount;
use steward_sim::memory::GROUP_BYTES;
use steward_sim::memory::scenario::{
    Behaviour, Interactive, MachineSettings, ProgramSpec, ProtectedSpec, Scenario, StewardSettings,
};

use super::histories::*;
use super::rules::{Looks, Onlooker};
use super::{
    SECONDS, fits_without_steward, hog, interactive_of, never_demoted, part, protected, run, run_with,
    steward, told, with_cases,
};

/// The same, where it is known by this what is used.
fn by(source: Source, scenario: Scenario) -> Scenario {
    let settings = scenario.steward.clone().unwrap_or_default();
    Scenario { steward: Some(StewardSettings { source, ..settings }), ..scenario }
}

fn tried(scenario: Scenario) -> Scenario {
    by(Source::RefaultsAndPressure, scenario)
}

/// The most that a protected domain may have, in bytes: its own, and the file that it has mapped.
fn most_bytes(scenario: &Scenario, place: usize) -> u64 {
    match &scenario.programs[place].behaviour {
        Behaviour::Interactive(one) => {
            one.most_bytes.max(one.bytes) + one.file.map_or(0, |file| scenario.files[file])
        }
        other => panic!("{other:?} is none"),
    }
}

/// What may be offered of a protected domain within so many seconds, in groups: a sixteenth of what it has, once in a
/// period after the first.
fn offered_max(scenario: &Scenario, place: usize, seconds: u64) -> u64 {
    let period_ns = scenario.domains[place].protected.expect("it is protected").period_ns;
    seconds * SECOND / period_ns * (most_bytes(scenario, place) / 16 / GROUP_BYTES)
}

proptest! {
    #![proptest_config(with_cases(300))]

    #[test]
    fn who_is_protected_loses_only_what_is_offered_of_it_and_little_is(scenario in any_history(swaps())) {
        let scenario = tried(scenario);
        let looks = Looks::default();
        let onlooker = Onlooker { decides: steward(), looks: looks.clone() };
        let outcome = run_with(&scenario, SECONDS, Box::new(onlooker));
        for place in never_demoted(&scenario, &outcome) {
            let counts = &outcome.domains[place];
            prop_assert!(counts.faults_within_period_count <= counts.taken, "{place}: {}", told(&scenario, &outcome));
            let offered = offered_max(&scenario, place, SECONDS);
            prop_assert!(counts.taken <= offered, "{place}, at most {offered}: {}", told(&scenario, &outcome));
        }
        for (now_ns, seen, decision) in looks.borrow().iter() {
            for kept in &decision.kept {
                let one = &seen[kept.id as usize];
                let charged_bytes = one.principal.claimed_bytes;
                let offered_bytes = one.protected.map_or(0, |one| one.offered_bytes);
                let most_bytes = match offered_bytes {
                    // With room to grow, twice what is kept for that.
                    0 => charged_bytes + (charged_bytes / 4).max(24 * MIB),
                    offered_bytes => charged_bytes.saturating_sub(offered_bytes),
                };
                prop_assert!(kept.bytes <= most_bytes, "{now_ns}: {kept:?} of {one:?}");
            }
        }
    }

    #[test]
    fn nobody_is_killed_who_would_not_be_without_steward_whatever_is_known_of_use(
        scenario in fixed_demand(swaps()),
        is_tried in any::<bool>(),
    ) {
        let source = if is_tried { Source::RefaultsAndPressure } else { Source::None };
        let scenario = by(source, scenario);
        let outcome = run(&scenario, SECONDS);
        prop_assert!(outcome.kills.is_empty() || !fits_without_steward(&scenario), "{}", told(&scenario, &outcome));
    }
}

/// A protected domain that has most, of which this much is used each half a second and the rest was once, and one that
/// wants more than is left.
fn large(own_mib: u64, used_mib: u64, swap_ns: u64) -> Scenario {
    let mut one = protected(own_mib);
    let interactive = interactive_of(&mut one);
    (interactive.rare_bytes, interactive.rare_every) = ((own_mib - used_mib) * MIB, u32::MAX);
    let machine = MachineSettings { swap_ns, ..MachineSettings::default() };
    scenario(1, machine, Vec::new(), &[one, part(100, SECOND, hog(230))])
}

fn interactive_in(scenario: &mut Scenario) -> &mut Interactive {
    match &mut scenario.programs[0].behaviour {
        Behaviour::Interactive(interactive) => interactive,
        other => panic!("{other:?} is none"),
    }
}

#[test]
fn what_is_not_used_is_given_up_slowly_where_it_is_tried_and_never_where_nothing_is_known() {
    let scenario = large(240, 60, 100_000);
    let outcome = run(&tried(scenario.clone()), 200);
    let counts = &outcome.domains[0];
    let taken_mib = counts.taken * GROUP_BYTES / MIB;
    // Once in five seconds, at most what it would cost 50 ms to have back on a disk of which nothing is known yet.
    assert!((15..=40).contains(&taken_mib), "{taken_mib} MiB: {outcome:#?}");
    assert!(counts.faults * GROUP_BYTES / MIB <= taken_mib / 4, "{outcome:#?}");
    let nothing = run(&by(Source::None, scenario), 200);
    assert_eq!((nothing.domains[0].taken, nothing.domains[0].faults), (0, 0), "{nothing:#?}");
}

#[test]
fn who_uses_all_of_it_has_it_back_and_is_tried_ever_more_rarely() {
    let lost = |seconds| {
        let outcome = run(&tried(large(240, 240, 100_000)), seconds);
        assert!(outcome.changes.is_empty() && outcome.kills.is_empty(), "{outcome:#?}");
        let counts = outcome.domains[0];
        assert!(counts.faults <= counts.taken, "what came back stays: {counts:?}");
        counts.faults
    };
    // After 5, 10, 20, 40, 80 and 160 seconds, and from then on once in as many.
    let (in_5_minutes, in_10_minutes) = (lost(320), lost(640));
    let once = 240 * MIB / 16 / GROUP_BYTES;
    assert!((1..=6 * once).contains(&in_5_minutes), "{in_5_minutes}");
    assert!(in_10_minutes - in_5_minutes <= 3 * once, "{in_5_minutes} {in_10_minutes}");
}

#[test]
fn on_a_slow_disk_one_piece_is_lost_and_no_other() {
    // A group of 64 pages takes as long as so many on a disk that rotates. It is not used before it is written.
    let mut scenario = large(240, 240, 320 * MS);
    interactive_in(&mut scenario).pause = Amount::Fixed(4 * SECOND);
    let outcome = run(&tried(scenario), 300);
    let counts = &outcome.domains[0];
    assert!((1..=4).contains(&counts.faults) && counts.taken <= 4, "{outcome:#?}");
}

#[test]
fn a_program_that_is_used_after_a_long_pause_has_lost_one_piece_at_most() {
    let mut scenario = large(240, 240, 100_000);
    interactive_in(&mut scenario).pause = Amount::Fixed(28 * SECOND);
    scenario.domains[0].protected = Some(ProtectedSpec { period_ns: 30 * SECOND, is_revocable: true });
    let outcome = run(&tried(scenario), 300);
    let counts = &outcome.domains[0];
    // Of 50 ms for a page of 200 us each; and as much again for what was on its way into the swap.
    assert!(counts.rounds >= 8 && counts.latency_max_ns < 120 * MS, "{outcome:#?}");
}

#[test]
fn who_reads_files_larger_than_the_memory_is_not_demoted_for_it_whatever_is_known_of_use() {
    for source in [Source::Mglru, Source::RefaultsAndPressure, Source::None] {
        let parts = [protected(60), part(100, SECOND, hog(300))];
        let mut scenario = by(source, scenario(1, MachineSettings::default(), vec![2000 * MIB], &parts));
        let behaviour = Behaviour::Reader { file: 0, bytes_per_second: 40 * MIB };
        scenario.programs.push(ProgramSpec { domain: 0, start_ns: 2 * SECOND, end_ns: None, behaviour });
        let outcome = run(&scenario, 60);
        let counts = &outcome.domains[0];
        assert!(outcome.changes.is_empty() && outcome.kills.is_empty(), "{source:?}: {outcome:#?}");
        // What is read anew from the beginning of the file are faults, too.
        assert_eq!(counts.faults_within_period_count, 0, "{source:?}: {outcome:#?}");
        assert!(counts.latency_max_ns < 20 * MS, "{source:?}: {outcome:#?}");
    }
}
