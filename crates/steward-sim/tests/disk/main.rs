//! Properties of whole machines with a disk: what Steward's decisions promise, whatever the programs do. With each,
//! what it looks like when a rule is wrong. Faults that were found in the decisions have a test of their own each
//! (`found`), and what is charged for requests of mixed sizes (`charged`).

mod charged;
mod found;
mod histories;
mod rules;

use histories::*;
use proptest::prelude::*;
use rules::{ignores_fractions, never_sets_back};
use steward_core::disk::Class;
use steward_core::disk::plan::Plan;
use steward_sim::Amount;
use steward_sim::disk::decide::Decide;
use steward_sim::disk::scenario::{Behaviour, DeviceSettings, ProgramSpec, Scenario};

/// How far the part of the disk's time that a domain has may be from what it is due.
const PART_OFF_MAX: f64 = 0.03;
/// For how long a request may be waited for while interactive programs want all of a disk, up to five of them: two
/// looks until the first one loses its place, and one more for each that takes up what is left.
const WAIT_MAX_NS: u64 = 8 * SECOND;
/// How many of the largest requests a save takes longer than on the idle disk, beside those who read and write past the
/// cache: on average, and the slowest one. One that the disk has begun with is not taken back.
const SAVE_WAITS_FOR: (f64, f64) = (1.0, 2.0);

/// Domains with fractions and classes, each with some that read all the time.
fn domains() -> impl Strategy<Value = Scenario> {
    let fractions = prop::collection::vec(prop::option::of(0.05..0.5_f64), 2..5);
    (fractions, 1..4_usize, any::<bool>(), prop::collection::vec(any::<bool>(), 5), any::<u16>()).prop_map(
        |(fractions, each, has_saver, background, seed)| {
            let sum: f64 = fractions.iter().flatten().sum();
            let mut scenario = Scenario { seed: u64::from(seed), ..scenario(Vec::new()) };
            scenario.device.variation = 0.3;
            for (place, fraction) in fractions.iter().enumerate() {
                let class = background[place].then_some(Class::Background);
                let reserved = fraction.map(|fraction| fraction * 0.9 / sum.max(1.0));
                // One is given something for certain, so that there are parts at all.
                let class = if place == 0 && reserved.is_none() { Some(Class::Background) } else { class };
                scenario.cgroups.push(domain(&format!("d{place}"), class, reserved));
                let reader = ProgramSpec { cgroup: Some(place), ..program(reader(4 * KIB)) };
                scenario.programs.extend(std::iter::repeat_n(reader, each));
            }
            scenario.programs.extend(has_saver.then(|| interactive(save())));
            scenario
        },
    )
}

/// By how much the parts that domains have are off at most, from the twentieth second on.
fn off(scenario: &Scenario, decides: Box<dyn Decide>) -> f64 {
    let given: Vec<_> = scenario.cgroups.iter().map(|cgroup| cgroup.given).collect();
    let had = parts(scenario, decides, 20, 80);
    due(&given).iter().zip(&had).map(|(due, had)| (due - had).abs()).fold(0.0, f64::max)
}

/// Up to five interactive programs that want all of a disk, and others beside them.
fn full_of_interactive() -> impl Strategy<Value = (Scenario, usize)> {
    let first = prop::collection::vec(load_past_the_cache(), 1..6);
    (first, prop::collection::vec(load_past_the_cache(), 1..4), any::<u16>()).prop_map(
        |(first, others, seed)| {
            let programs =
                first.iter().map(|load| interactive(*load)).chain(others.iter().map(|load| program(*load)));
            (Scenario { seed: u64::from(seed), ..scenario(programs.collect()) }, first.len())
        },
    )
}

fn waited_ns(scenario: &Scenario, from: usize, decides: Box<dyn Decide>) -> u64 {
    let outcome = run_with(scenario, 60, decides);
    outcome.programs[from..].iter().map(|counts| counts.wait_max_ns).max().unwrap_or(0)
}

/// How much longer a save takes than on the idle disk, in times of the largest request: on average, and the longest
/// one.
fn later(scenario: &Scenario) -> (f64, f64) {
    let saver = |scenario: &Scenario| run(scenario, 40).programs[0];
    let alone = saver(&stock(&Scenario { programs: scenario.programs[..1].to_vec(), ..scenario.clone() }));
    let beside = saver(scenario);
    let device = &scenario.device;
    let carried_ns = device.request_bytes_max as f64 / device.bytes_per_second as f64 * 1e9;
    let largest_ns = (device.request_ns as f64 + carried_ns) * (1.0 + device.variation);
    let later = |one: u64, other: u64| (one as f64 - other as f64) / largest_ns;
    (later(beside.round_mean_ns(), alone.round_mean_ns()), later(beside.round_max_ns, alone.round_max_ns))
}

fn saver_beside(loads: &[Behaviour], device: DeviceSettings) -> Scenario {
    let others = loads.iter().map(|load| program(*load));
    let programs = std::iter::once(interactive(save())).chain(others).collect();
    Scenario { device, ..scenario(programs) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_fraction_is_had_when_it_is_wanted_and_the_rest_is_shared_by_class(scenario in domains()) {
        let off = off(&scenario, Box::<Plan>::default());
        prop_assert!(off <= PART_OFF_MAX, "{off}");
    }

    #[test]
    fn nobody_starves_however_many_interactive_programs_want_all_of_a_disk(
        (scenario, first) in full_of_interactive(),
    ) {
        let waited_ns = waited_ns(&scenario, first, Box::<Plan>::default());
        prop_assert!(waited_ns <= WAIT_MAX_NS, "{} ms", waited_ns / MS);
    }

    #[test]
    fn nobody_starves_beside_a_domain_of_short_lived_processes_however_long_each_lives(
        pieces in prop::collection::vec(1..300_u32, 2..6),
        others in 1..4_usize,
        bytes in prop::sample::select(vec![4 * KIB, 512 * KIB]),
    ) {
        let scenario = short_lived(pieces.len(), &pieces, others, bytes);
        let waited_ns = waited_ns(&scenario, pieces.len(), Box::<Plan>::default());
        prop_assert!(waited_ns <= WAIT_MAX_NS, "{} ms", waited_ns / MS);
    }

    #[test]
    fn a_save_is_bounded_beside_whatever_goes_past_the_cache(
        loads in prop::collection::vec(load_past_the_cache(), 1..8),
        device in any_rotating(),
    ) {
        let later = later(&saver_beside(&loads, device));
        prop_assert!(later.0 <= SAVE_WAITS_FOR.0 && later.1 <= SAVE_WAITS_FOR.1, "{later:?}");
    }

    #[test]
    fn a_run_depends_on_its_scenario_and_seed_alone((scenario, _) in full_of_interactive()) {
        let mut scenario = scenario;
        scenario.device.variation = 0.2;
        prop_assert_eq!(run(&scenario, 10), run(&scenario, 10));
        let other = Scenario { seed: scenario.seed + 1, ..scenario.clone() };
        prop_assert_ne!(run(&scenario, 10), run(&other, 10));
    }

    #[test]
    fn alone_a_program_with_one_request_at_a_time_is_as_fast_as_without_steward(
        load in load(),
        is_interactive in any::<bool>(),
        rotates in any::<bool>(),
    ) {
        let device = if rotates { DeviceSettings::rotating() } else { DeviceSettings::solid_state() };
        let one = if is_interactive { interactive(load) } else { program(load) };
        let scenario = Scenario { device, ..scenario(vec![one]) };
        let work = |scenario: &Scenario| {
            let counts = run(scenario, 40).programs[0];
            counts.rounds as f64 + counts.buffered_bytes as f64
        };
        let ratio = work(&scenario) / work(&stock(&scenario));
        prop_assert!(ratio >= 0.99, "{ratio}");
    }
}

#[test]
fn without_fractions_the_property_of_fractions_fails() {
    let mut scenario = scenario(Vec::new());
    for (place, fraction) in [0.1, 0.3, 0.6].into_iter().enumerate() {
        scenario.cgroups.push(domain(&format!("d{place}"), None, Some(fraction)));
        let reader = ProgramSpec { cgroup: Some(place), ..program(reader(4 * KIB)) };
        scenario.programs.extend(std::iter::repeat_n(reader, 4));
    }
    assert!(off(&scenario, Box::<Plan>::default()) <= PART_OFF_MAX);
    assert!(off(&scenario, ignores_fractions()) > 0.2);
}

#[test]
fn without_the_guard_interactive_programs_starve_all_others() {
    let [first, other] = [interactive, program].map(|spec| spec(reader(4 * KIB)));
    let scenario = scenario(vec![first.clone(), first, other]);
    assert!(waited_ns(&scenario, 2, never_sets_back()) > 50 * SECOND);
    assert!(waited_ns(&scenario, 2, Box::<Plan>::default()) <= 4 * SECOND);
}

#[test]
fn without_steward_a_save_stands_behind_all_others() {
    let beside = saver_beside(&[reader(4 * KIB); 8], DeviceSettings::rotating());
    assert!(later(&stock(&beside)).0 > 15.0);
    assert!(later(&beside).0 < SAVE_WAITS_FOR.0);
}

#[test]
fn a_player_beside_ten_readers_has_its_fraction_and_an_eleventh_of_the_rest() {
    // Eclipse 1998, figure 10.
    let mut scenario = scenario(Vec::new());
    for place in 0..11 {
        let reserved = (place == 0).then_some(0.26);
        scenario.cgroups.push(domain(&format!("d{place}"), None, reserved));
        scenario.programs.push(ProgramSpec { cgroup: Some(place), ..program(reader(4 * KIB)) });
    }
    let had = parts(&scenario, Box::<Plan>::default(), 20, 80)[0];
    assert!((had - (0.26 + 0.74 / 11.0)).abs() < PART_OFF_MAX, "{had}");
}

#[test]
fn what_one_does_not_want_goes_to_the_others() {
    let mut scenario = scenario(Vec::new());
    scenario.cgroups = vec![domain("idle", None, Some(0.5)), domain("busy", None, Some(0.1))];
    let seldom = Behaviour::Direct { bytes: 4 * KIB, think: Amount::Fixed(SECOND), pieces: None };
    scenario.programs.push(ProgramSpec { cgroup: Some(0), ..program(seldom) });
    scenario.programs.push(ProgramSpec { cgroup: Some(1), ..program(reader(4 * KIB)) });
    assert!(parts(&scenario, Box::<Plan>::default(), 20, 80)[1] > 0.95);
    let busy_ns = run(&scenario, 80).busy_ns;
    assert!(busy_ns > 78 * SECOND, "{busy_ns}");
}
