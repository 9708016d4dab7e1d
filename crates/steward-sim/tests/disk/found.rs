//! Faults in Steward's decisions that the machine has shown, each with the case that it was seen in.

use steward_core::disk::plan::Plan;
use steward_core::disk::{Class, Settings};
use steward_sim::Amount;
use steward_sim::disk::machine::Machine;
use steward_sim::disk::scenario::{Behaviour, Change, ProgramSpec, Scenario};

use crate::histories::*;
use crate::rules::{background_is_a_hundredth, counts_bytes_alone, forgets_who_has_ended, never_sets_back};

/// Two domains, the second with a class or a fraction, each with one that reads all the time.
fn two(second: Settings) -> Scenario {
    let mut scenario = scenario(Vec::new());
    scenario.cgroups = vec![domain("one", None, None), domain("other", second.class, second.reserved)];
    for place in 0..2 {
        scenario.programs.push(ProgramSpec { cgroup: Some(place), ..program(reader(4 * KIB)) });
    }
    scenario
}

/// With who is served first and waits now and then, the disk was idle for the next request only of them: two with one
/// request at a time took turns, and of three quarters 45 % were had.
#[test]
fn a_fraction_is_had_also_beside_somebody_who_is_served_first_now_and_then() {
    let mut scenario = two(Settings { reserved: Some(0.5), ..Settings::default() });
    scenario.programs.push(interactive(Behaviour::Frames { bytes: 4 * KIB, every_ns: 200 * MS }));
    let had = parts(&scenario, Box::<Plan>::default(), 20, 80)[1];
    assert!((had - 0.75).abs() < 0.03, "{had}");
}

/// With a hundredth of what a usual one has, a turn in the background is an eighth of a second after 12.5 s.
#[test]
fn who_is_in_the_background_is_not_passed_over_for_long() {
    let scenario = two(Settings { class: Some(Class::Background), ..Settings::default() });
    let waited_ns = |decides| run_with(&scenario, 60, decides).programs[1].wait_max_ns;
    assert!(waited_ns(Box::<Plan>::default()) < 2 * SECOND);
    assert!(waited_ns(background_is_a_hundredth()) > 10 * SECOND);
}

/// What it was served in the background counts with its weight there (kernel/disk-domains.sh saw 13 pages of 990 with a
/// hundredth).
#[test]
fn who_leaves_the_background_has_its_part_within_seconds() {
    let mut scenario = two(Settings { class: Some(Class::Background), ..Settings::default() });
    let given = Settings { reserved: Some(0.5), ..Settings::default() };
    scenario.changes.push(Change { at_ns: 20 * SECOND, cgroup: 1, given });
    let had = |decides| parts(&scenario, decides, 24, 30)[1];
    let now = had(Box::<Plan>::default());
    assert!((now - 0.75).abs() < 0.05, "{now}");
    let before = had(background_is_a_hundredth());
    assert!(before < 0.2, "{before}");
}

/// By bytes alone who reads pages in no order takes nothing beside one request of half a megabyte, whatever it does to
/// the others.
#[test]
fn who_takes_the_disk_with_small_requests_is_seen_to() {
    let page = Behaviour::Direct { bytes: 4 * KIB, think: Amount::Exponential(3 * MS), pieces: None };
    let scenario = scenario(vec![interactive(page), interactive(page), program(reader(512 * KIB))]);
    let other = |decides| run_with(&scenario, 60, decides).programs[2].device_ns;
    assert!(other(Box::<Plan>::default()) > 60 * SECOND * 15 / 100);
    let by_bytes = run_with(&scenario, 60, counts_bytes_alone());
    assert!(by_bytes.set_back < run_with(&scenario, 60, Box::<Plan>::default()).set_back);
}

/// A film of 5 MB a second beside eight that read pages: most of the bytes, and an eighth of the time.
#[test]
fn a_player_that_carries_most_of_the_bytes_keeps_its_place() {
    let film = interactive(Behaviour::Frames { bytes: 512 * KIB, every_ns: 100 * MS });
    let mut programs = vec![film];
    programs.extend(std::iter::repeat_n(program(reader(4 * KIB)), 8));
    let scenario = scenario(programs);
    let outcome = run_with(&scenario, 60, Box::<Plan>::default());
    assert_eq!((outcome.set_back, outcome.programs[0].late), (0, 0));
    assert!(run_with(&scenario, 60, counts_bytes_alone()).set_back > 0);
}

/// As one of several lost its place, the next took up what it left, and had two more looks.
#[test]
fn many_who_take_all_of_a_disk_lose_their_place_one_soon_after_the_other() {
    let mut programs = vec![interactive(reader(512 * KIB)); 4];
    programs.push(program(reader(4 * KIB)));
    let mut machine = Machine::new(&scenario(programs));
    machine.run_until(20 * SECOND);
    let outcome = machine.outcome();
    assert!(outcome.programs[4].wait_max_ns < 7 * SECOND, "{}", outcome.programs[4].wait_max_ns / MS);
}

/// With the disk kept idle for each of several threads of a program that is served first, also while another of them
/// waits, one that is alone lost up to an eighth.
#[test]
fn alone_an_interactive_program_of_several_threads_is_as_fast_as_without_steward() {
    for (threads, think_ms) in [(2, 3), (4, 3), (4, 10)] {
        let thread =
            Behaviour::Direct { bytes: 4 * KIB, think: Amount::Exponential(think_ms * MS), pieces: None };
        let thread = ProgramSpec { process: Some(0), ..interactive(thread) };
        let scenario = scenario(vec![thread; threads]);
        let work =
            |scenario: &Scenario| run(scenario, 40).programs.iter().map(|counts| counts.rounds).sum::<u64>();
        let ratio = work(&scenario) as f64 / work(&stock(&scenario)) as f64;
        assert!(ratio >= 0.99, "{threads} threads, {think_ms} ms: {ratio}");
    }
}

/// With the disk kept idle for the journal's next request after each commit, while its own next one waits, it lost up
/// to an eighth.
#[test]
fn alone_an_interactive_program_that_fsyncs_all_the_time_is_as_fast_as_without_steward() {
    let scenario = scenario(vec![interactive(Behaviour::Sync { bytes: 4 * KIB, think: Amount::Fixed(0) })]);
    let rounds = |scenario: &Scenario| run(scenario, 40).programs[0].rounds as f64;
    let ratio = rounds(&scenario) / rounds(&stock(&scenario));
    assert!(ratio >= 0.99, "{ratio}");
}

/// Before others that stood still for two seconds counted as nobody, one that read all the time kept the disk to itself
/// for as long as it was not seen to: it is idle for it now only while they are served, too.
#[test]
fn who_is_served_first_with_one_request_at_a_time_leaves_the_rest_of_the_disk_also_without_the_guard() {
    let scenario = scenario(vec![interactive(reader(4 * KIB)), program(reader(4 * KIB))]);
    let outcome = run_with(&scenario, 60, never_sets_back());
    assert!(outcome.programs[1].wait_max_ns < 3 * SECOND, "{}", outcome.programs[1].wait_max_ns / MS);
}

/// By thread, those that end before the next look were never seen to take anything.
#[test]
fn who_takes_the_disk_with_one_short_lived_thread_after_the_other_is_seen_to() {
    let threads = Behaviour::Direct { bytes: 4 * KIB, think: Amount::Fixed(0), pieces: Some(20) };
    let outcome =
        run(&scenario(vec![interactive(threads), interactive(threads), program(reader(4 * KIB))]), 60);
    assert!(outcome.set_back > 0);
    assert!(outcome.programs[2].wait_max_ns < 4 * SECOND, "{}", outcome.programs[2].wait_max_ns / MS);
}

/// By process, those that end before the next look were never seen to take anything.
#[test]
fn who_takes_the_disk_with_one_short_lived_process_after_the_other_is_seen_to() {
    let scenario = short_lived(2, &[20, 20], 1, 4 * KIB);
    let waited_ns = |decides| run_with(&scenario, 60, decides).programs[2].wait_max_ns;
    let now_ns = waited_ns(Box::<Plan>::default());
    assert!(now_ns < 5 * SECOND, "{}", now_ns / MS);
    assert!(waited_ns(forgets_who_has_ended()) > 50 * SECOND);
}
