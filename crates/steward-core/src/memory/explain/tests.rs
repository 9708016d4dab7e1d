//! What is said of a domain's memory, word by word.

use super::*;

const MIB: u64 = 1 << 20;

fn standing(priority: u8, weight: u32, used_mib: u64, floor_mib: u64) -> Standing {
    let weight = NonZeroU32::new(weight).expect("above 0");
    let used_bytes = used_mib * MIB;
    Standing { priority, weight, used_bytes, claimed_bytes: used_bytes, floor_bytes: floor_mib * MIB }
}

#[test]
fn who_uses_what_is_charged_to_another_is_told_that_it_gives_first_for_that() {
    let borrows = Standing { claimed_bytes: 170 * MIB, ..standing(4, 100, 100, 0) };
    let lends = Standing { claimed_bytes: 130 * MIB, ..standing(4, 100, 200, 0) };
    let facts = |own, other| {
        let level = Level { name: "reader".into(), own, others: vec![other], in_turns: false };
        explain(&Facts {
            name: "reader".into(),
            used_bytes: own.used_bytes,
            levels: vec![level],
            ..Facts::default()
        })
    };
    let said = facts(borrows, lends);
    assert!(
        said.contains("Of the 300M that 2 domains of priority 4 claim beside each other, reader claims 170M"),
        "{said}"
    );
    assert!(
        said.contains("it claims 20M more, which is taken before others give. A domain claims what is"),
        "{said}"
    );
    let turns = Level { name: "reader".into(), own: lends, others: vec![lends], in_turns: true };
    let said_of_turns = explain(&Facts { used_bytes: 1, levels: vec![turns], ..Facts::default() });
    assert!(said_of_turns.contains("it pays in turns, and then until little is left"), "{said_of_turns}");
    let said = facts(lends, borrows);
    assert!(said.contains("it claims no more than that, so others give first"), "{said}");
}

fn hog() -> Facts {
    let levels = vec![
        Level {
            name: "user.slice".into(),
            own: standing(4, 100, 300, 0),
            others: vec![standing(4, 100, 40, 48), standing(5, 100, 80, 0)],
            in_turns: false,
        },
        Level {
            name: "hog".into(),
            own: standing(4, 100, 300, 0),
            others: vec![standing(4, 200, 60, 0)],
            in_turns: false,
        },
    ];
    Facts {
        name: "hog".into(),
        is_made: true,
        used_bytes: 300 * MIB,
        swapped_bytes: 200 * MIB,
        taken_bytes: 1200 * MIB,
        protected: "editor".into(),
        levels,
        ..Facts::default()
    }
}

#[test]
fn that_who_takes_more_is_slowed_before_a_maximum_is_said_with_whose_it_is() {
    let slowed_above = Some(SlowedAbove { name: "limited".into(), bytes: 187 * MIB });
    let said = explain(&Facts { slowed_above, ..hog() });
    assert!(
        said.contains("When all in limited together use more than 187M, memory is taken from them"),
        "{said}"
    );
    assert!(!explain(&hog()).contains("is slowed"));
}

#[test]
fn why_memory_is_taken_from_a_domain_is_said_with_its_figures() {
    insta::assert_snapshot!(explain(&hog()));
    let session = Facts { name: "session-2.scope".into(), is_made: false, levels: Vec::new(), ..hog() };
    let text = explain(&session);
    assert!(
        text.contains("steward run --protect=30min") && !text.contains("session-2.scope --memory-min"),
        "{text}"
    );
}

#[test]
fn who_has_a_lower_priority_or_more_for_its_weight_gives_first() {
    let level =
        |own, others: &[Standing]| Level { name: "a".into(), own, others: others.to_vec(), in_turns: false };
    let cases = [
        level(standing(4, 100, 10, 0), &[standing(3, 100, 10, 0)]),
        level(standing(4, 100, 10, 0), &[standing(3, 100, 10, 0), standing(2, 100, 10, 0)]),
        level(standing(4, 100, 10, 0), &[standing(3, 100, 10, 10), standing(4, 100, 90, 0)]),
        level(standing(3, 100, 10, 0), &[standing(4, 100, 10, 0)]),
        level(standing(3, 100, 10, 0), &[]),
    ];
    let said: Vec<String> =
        cases.iter().map(|level| place(level).unwrap_or_else(|| "nothing".into())).collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn what_a_domain_keeps_is_said_and_who_gives_nothing_is_given_no_advice() {
    let promised = Promised {
        min_bytes: 64 * MIB,
        protect_ns: Some(1_800_000_000_000),
        problem: None,
        is_pressure_counted: true,
    };
    let editor = Facts {
        name: "editor".into(),
        is_made: true,
        used_bytes: 40 * MIB,
        max_bytes: Some(128 * MIB),
        kept_bytes: 48 * MIB,
        promised: promised.clone(),
        levels: hog().levels,
        ..Facts::default()
    };
    let demoted = Facts {
        promised: Promised { min_bytes: 0, problem: Some("too much is protected".into()), ..promised },
        kept_bytes: 0,
        taken_bytes: MIB,
        levels: Vec::new(),
        ..editor.clone()
    };
    insta::assert_snapshot!(format!("{}\n{}", explain(&editor), explain(&demoted)));
}

#[test]
fn what_is_charged_elsewhere_is_said_with_the_largest_first() {
    let left = |pid: i32, mib: u64| LeftBehind { pid, charged_to: "user.slice".into(), bytes: mib * MIB };
    let all = [left(5, 1), left(6, 60), left(7, 3), left(8, 2), left(9, 1)];
    assert!(super::left(&[]).is_empty());
    let said = super::left(&all);
    let first = "60M that process 6 had before it came here stay charged to user.slice, and are neither kept nor limited here \
                 until it is started anew.";
    assert_eq!(said[0], first);
    assert!(
        said[1].starts_with("3M that process 7 ") && said[2].starts_with("2M that process 8 "),
        "{said:?}"
    );
    assert_eq!(said[3..], ["The same is so of 2M of 2 more."]);
}

#[test]
fn who_was_held_back_in_the_last_minute_is_told_for_how_long_and_why() {
    let held = |for_taking, for_dirtying| {
        let held_lately = HeldLately { for_taking, for_dirtying, held_ns: 1_340_000_000 };
        let text = explain(&Facts { name: "a".to_owned(), held_lately, ..Facts::default() });
        text.lines().find(|line| line.starts_with("In the last minute")).map(str::to_owned)
    };
    assert_eq!(held(0, 0), None);
    assert_eq!(
        held(31, 0).as_deref(),
        Some(
            "In the last minute its programs were held back for moments, 1.34s in all at most: 31 times because they took \
             memory faster than more of it can be freed."
        )
    );
    assert_eq!(
        held(1, 2).as_deref(),
        Some(
            "In the last minute its programs were held back for moments, 1.34s in all at most: once because they took \
             memory faster than more of it can be freed, and 2 times because they changed files faster than they can be written."
        )
    );
}
