//! A recording of the lab's machine, decided about again. In it one domain is protected, and another one takes more
//! memory than there is.

use steward_core::memory::manager::{Manager, Settings};
use steward_sim::memory::replay::Recording;

const MIB: u64 = 1 << 20;

fn recorded() -> Recording {
    Recording::read(include_str!("recorded.jsonl").as_bytes()).expect("the daemon wrote it")
}

/// The places of the protected domain and of the one that takes memory, at a look.
fn places(paths: &[String]) -> (usize, Option<usize>) {
    let at = |path: &str| paths.iter().position(|one| one == path);
    (at("steward.kept").expect("it is protected"), at("steward.hog"))
}

#[test]
fn what_a_real_machine_decided_is_decided_again() {
    let recording = recorded();
    assert!(recording.looks.len() > 20, "{}", recording.looks.len());
    let decided = recording.replay(&mut Manager::default(), None);
    for (look, decision) in recording.looks.iter().zip(&decided) {
        assert_eq!(&look.decision, decision, "at {}", look.now_ns);
    }
    let of_hog = recording.looks.iter().filter(|look| {
        let (kept, hog) = places(&look.paths);
        assert!(look.decision.victims.iter().all(|victim| victim.place != kept), "at {}", look.now_ns);
        look.decision.victims.first().is_some_and(|victim| Some(victim.place) == hog)
    });
    assert!(of_hog.count() > 5, "the one that takes all memory pays");
}

#[test]
fn with_other_settings_it_is_decided_otherwise() {
    let recording = recorded();
    let of_then = recording.looks[0].settings;
    let reserve = Settings { reserve_bytes: of_then.reserve_bytes + 100 * MIB, ..of_then };
    let more = recording.replay(&mut Manager::default(), Some(&reserve));
    let raised = |(look, decision): (&steward_core::memory::recorded::Look, _)| {
        let decision: &steward_core::memory::manager::Decision = decision;
        decision.target_bytes == look.decision.target_bytes + 100 * MIB
    };
    assert!(recording.looks.iter().zip(&more).all(raised));
    // With room for hardly anything, the one that is protected is demoted, and pays as others do.
    let narrow = Settings { reservable: 0.01, ..of_then };
    let narrow = recording.replay(&mut Manager::default(), Some(&narrow));
    let is_demoted = |(look, decision): (&steward_core::memory::recorded::Look, _)| {
        let decision: &steward_core::memory::manager::Decision = decision;
        let (kept, _) = places(&look.paths);
        decision.kept.iter().any(|one| one.id == look.domains[kept].id && one.is_demoted)
    };
    assert!(recording.looks.iter().zip(&narrow).filter(|both| is_demoted(*both)).count() > 20);
    assert!(!recording.looks.iter().zip(recording.looks.iter().map(|look| &look.decision)).any(is_demoted));
}

#[test]
fn who_would_have_been_taken_from_and_could_have_used_how_much_is_told_for_any_settings() {
    let recording = recorded();
    let of_then: Vec<_> = recording.looks.iter().map(|look| look.decision.clone()).collect();
    let then = recording.shares(&of_then);
    assert!(then["steward.hog"].taken_bytes > MIB && then["steward.kept"].taken_bytes == 0, "{then:?}");
    let narrow = Settings { reservable: 0.01, ..recording.looks[0].settings };
    let other = recording.replay(&mut Manager::default(), Some(&narrow));
    let other = recording.shares(&other);
    let (before, after) = (then["steward.kept"], other["steward.kept"]);
    assert!(before.demoted_looks == 0 && after.demoted_looks > 20, "{before:?} {after:?}");
    // With more kept free, more is taken and less can be used.
    let reserve_bytes = recording.looks[0].settings.reserve_bytes + 100 * MIB;
    let more = Settings { reserve_bytes, ..recording.looks[0].settings };
    let more = recording.replay(&mut Manager::default(), Some(&more));
    let (before, after) = (then["steward.hog"], recording.shares(&more)["steward.hog"]);
    assert!(after.taken_bytes > 2 * before.taken_bytes, "{before:?} {after:?}");
    assert!(after.least_available_bytes < before.least_available_bytes, "{before:?} {after:?}");
}

#[test]
fn what_is_no_recording_says_why() {
    let refused = |text: &str| Recording::read(text.as_bytes()).expect_err("it is none");
    assert!(refused("").contains("--record-memory"));
    assert!(refused("{\"steward_recording\":1}\n").contains("line 1"));
    assert!(refused("{\"steward_memory_recording\":2}\n").contains("version 2"));
    let begun = "{\"steward_memory_recording\":1}\n";
    assert!(refused(&format!("{begun}{{}}\n")).contains("line 2"));
    let cut = Recording::read(format!("{begun}{{\"now_ns\":").as_bytes()).expect("the machine stopped");
    assert_eq!(cut.looks, []);
}
