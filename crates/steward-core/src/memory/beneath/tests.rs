//! What is kept below a maximum, and when nothing is.

use std::num::NonZeroU32;

use super::super::manager::{Decision, Manager, Settings};
use super::super::principal::Principal;
use super::super::seen::{Limited, Protected};
use super::*;

const MIB: u64 = 1 << 20;

/// With so much room in the swap.
fn machine(swap_mib: u64) -> Machine {
    Machine {
        total_bytes: 4000 * MIB,
        free_bytes: 3000 * MIB,
        high_watermark_bytes: 60 * MIB,
        kernel_bytes: 100 * MIB,
        file_bytes: 300 * MIB,
        anonymous_bytes: 600 * MIB,
        swap_free_bytes: swap_mib * MIB,
        held_bytes: 0,
    }
}

fn cgroup(id: u64, parent: Option<usize>, charged_mib: u64) -> Seen {
    let one = Principal { parent, claimed_bytes: charged_mib * MIB, ..Principal::of_weight(NonZeroU32::MIN) };
    Seen { id, principal: one, protected: None, is_spared: false, limited: None }
}

/// One that uses all that it has, so much of it of files.
fn protected(id: u64, parent: Option<usize>, charged_mib: u64, file_mib: u64) -> Seen {
    let protected = Protected {
        user: 0,
        idle_bytes: 0,
        offered_bytes: 0,
        swapped_bytes: 0,
        file_bytes: file_mib * MIB,
        is_revocable: true,
    };
    Seen { protected: Some(protected), ..cgroup(id, parent, charged_mib) }
}

/// One with a maximum, in which there is so much of files and of programs' own.
fn limited(id: u64, max_mib: u64, file_mib: u64, own_mib: u64) -> Seen {
    let limited =
        Limited { file_bytes: file_mib * MIB, anonymous_bytes: own_mib * MIB, swap_left_bytes: u64::MAX };
    let seen = cgroup(id, None, file_mib + own_mib);
    let principal = Principal { max_bytes: max_mib * MIB, ..seen.principal };
    Seen { principal, limited: Some(limited), ..seen }
}

fn decide(manager: &mut Manager, at_ms: u64, swap_mib: u64, domains: &[Seen]) -> Decision {
    let settings = Settings { reserve_bytes: 16 * MIB, reservable: 0.8 };
    manager.decide(at_ms * 1_000_000, &machine(swap_mib), domains, &settings)
}

fn minimum_mib(decision: &Decision, id: u64) -> u64 {
    let kept = decision.kept.iter().find(|kept| kept.id == id);
    kept.map_or(0, |kept| kept.minimum_bytes.max(kept.bytes) / MIB)
}

#[test]
fn nothing_is_kept_below_one_with_a_maximum_when_nothing_else_is_left_to_take_there() {
    let mut manager = Manager::default();
    // 150 of 200 that are used, and one beside that takes the rest: the machine has plenty.
    let domains = |other_mib| {
        [limited(1, 200, 0, 150 + other_mib), protected(2, Some(0), 150, 0), cgroup(3, Some(0), other_mib)]
    };
    let decision = decide(&mut manager, 0, 0, &domains(10));
    assert_eq!((minimum_mib(&decision, 2), decision.is_short), (168, false));
    assert_eq!(decision.nearing, [Nearing { id: 1, charged_bytes: 160 * MIB + 200 * MIB / 32 }]);
    let decision = decide(&mut manager, 1000, 0, &domains(39));
    assert_eq!((minimum_mib(&decision, 2), decision.is_short), (0, false), "11 are left, and no swap");
    assert_eq!((decision.short_below, decision.kept[0].is_demoted), (vec![1], false));
    assert_eq!(minimum_mib(&decide(&mut manager, 1500, 0, &domains(10)), 2), 0, "for a second at least");
    assert_eq!(
        minimum_mib(&decide(&mut manager, 2000, 0, &domains(26)), 2),
        0,
        "24 left are not twice as far"
    );
    assert_eq!(minimum_mib(&decide(&mut manager, 2500, 0, &domains(20)), 2), 168);
    // What the other has can be swapped out.
    let mut manager = Manager::default();
    assert_eq!(minimum_mib(&decide(&mut manager, 0, 1000, &domains(49)), 2), 168);
    // But not where a limit says that nothing may be.
    let mut manager = Manager::default();
    let mut all = domains(49);
    all[0].limited = all[0].limited.map(|limited| Limited { swap_left_bytes: 5 * MIB, ..limited });
    assert_eq!(decide(&mut manager, 0, 1000, &all).short_below, [1]);
    // Pages of files of others can be taken at once, those of the protected one cannot.
    let files = |of_others_mib: u64| {
        let of_protected = protected(2, Some(0), 150, 60);
        let above = limited(1, 200, 60 + of_others_mib, 90);
        [above, of_protected, cgroup(3, Some(0), of_others_mib)]
    };
    assert_eq!(decide(&mut Manager::default(), 0, 0, &files(50)).short_below, []);
    let mut promised = files(50);
    promised[2].principal.min_bytes = 45 * MIB;
    assert_eq!(decide(&mut Manager::default(), 0, 0, &promised).short_below, [1]);
}

#[test]
fn who_allocates_is_slowed_before_a_maximum_as_long_as_anything_can_be_taken_below_it_kept_or_not() {
    let mut manager = Manager::default();
    // 150 of files that are used, beside programs' own that cannot be swapped out.
    let domains = |own_mib| {
        let of_protected = protected(2, Some(0), 150, 150);
        [limited(1, 320, 150, own_mib), of_protected, cgroup(3, Some(0), own_mib)]
    };
    let ceiling = [Ceiling { id: 1, bytes: 300 * MIB }];
    let decision = decide(&mut manager, 0, 0, &domains(100));
    assert_eq!((minimum_mib(&decision, 2), &*decision.ceilings), (168, &ceiling[..]));
    let decision = decide(&mut manager, 1000, 0, &domains(160));
    assert_eq!((minimum_mib(&decision, 2), &*decision.ceilings), (0, &ceiling[..]), "its files can be taken");
    // They have been: there is nothing but what would have to be swapped out.
    let taken = [limited(1, 320, 5, 304), protected(2, Some(0), 5, 5), cgroup(3, Some(0), 304)];
    assert_eq!(decide(&mut manager, 1500, 0, &taken).ceilings, []);
    assert_eq!(decide(&mut manager, 1600, 0, &domains(100)).ceilings, [], "for a second at least");
    assert_eq!(decide(&mut manager, 2600, 0, &domains(100)).ceilings, ceiling);
    // Where nobody is protected below it, it is nobody's business.
    let mut nobody = domains(160);
    nobody[1].protected = None;
    assert_eq!(decide(&mut Manager::default(), 0, 0, &nobody).ceilings, []);
}

#[test]
fn it_is_dropped_in_time_where_what_is_left_below_a_maximum_goes_fast() {
    let mut manager = Manager::default();
    let domains = |other_mib| {
        [limited(1, 800, 0, 300 + other_mib), protected(2, Some(0), 300, 0), cgroup(3, Some(0), other_mib)]
    };
    assert_eq!(decide(&mut manager, 0, 0, &domains(100)).short_below, []);
    assert_eq!(decide(&mut manager, 20, 0, &domains(140)).short_below, [1], "360 left, and 2 GiB a second");
    // With swap, what has to be written first goes no faster for that.
    let mut manager = Manager::default();
    assert_eq!(decide(&mut manager, 0, 500, &domains(100)).short_below, []);
    assert_eq!(decide(&mut manager, 20, 500, &domains(140)).short_below, []);
}

#[test]
fn what_is_kept_to_grow_and_what_is_idle_leaves_others_a_part_of_the_maximum() {
    // 1,000 of swap: what the other has can be taken.
    let domains = |used_mib, max_mib| {
        [limited(1, max_mib, 0, used_mib + 40), protected(2, Some(0), used_mib, 0), cgroup(3, Some(0), 40)]
    };
    let kept = |all: &[Seen]| minimum_mib(&decide(&mut Manager::default(), 0, 1000, all), 2);
    assert_eq!(kept(&domains(160, 400)), 180, "160 and an eighth");
    assert_eq!(kept(&domains(160, 200)), 180);
    assert_eq!(kept(&domains(140, 160)), 150, "fifteen sixteenths");
    // Half of it is idle: that is covered, too, where there is enough without.
    let idle = |max_mib| {
        let mut all = domains(160, max_mib);
        all[1].protected = all[1].protected.map(|one| Protected { idle_bytes: 80 * MIB, ..one });
        all
    };
    assert_eq!(kept(&idle(400)), 92 + 80);
    assert_eq!(kept(&idle(200)), 92 + 80, "40 of the other's are left");
    let mut without_other = idle(200);
    without_other[0].principal.claimed_bytes = 160 * MIB;
    without_other[0].limited =
        without_other[0].limited.map(|limited| Limited { anonymous_bytes: 165 * MIB, ..limited });
    without_other[0].principal.max_bytes = 165 * MIB;
    assert_eq!(kept(&without_other), 92);
}

#[test]
fn only_what_is_below_the_one_that_is_short_loses_it() {
    let domains = [
        limited(1, 200, 0, 195),
        protected(2, Some(0), 150, 0),
        cgroup(3, None, 0),
        cgroup(4, Some(0), 0),
        protected(5, Some(3), 30, 0),
        protected(6, Some(2), 100, 0),
    ];
    let decision = decide(&mut Manager::default(), 0, 0, &domains);
    assert_eq!(decision.short_below, [1]);
    assert_eq!([2, 5, 6].map(|id| minimum_mib(&decision, id)), [0, 0, 112]);
    // Its own maximum takes nothing from one that has none below it: the kernel minds no minimum of the one that it
    // takes from.
    let mut alone = protected(7, None, 195, 0);
    (alone.principal.max_bytes, alone.limited) = (200 * MIB, None);
    let decision = decide(&mut Manager::default(), 0, 0, &[alone]);
    assert_eq!((decision.short_below.len(), minimum_mib(&decision, 7)), (0, 219));
}

#[test]
fn what_may_not_be_swapped_out_does_not_count_as_left_to_take() {
    let swap_left = |seen: Seen, mib: u64| Seen {
        limited: seen.limited.map(|limited| Limited { swap_left_bytes: mib * MIB, ..limited }),
        ..seen
    };
    let hog = |left_mib| swap_left(limited(1, u64::MAX / MIB, 50, 400), left_mib);
    let distance = |all: &[Seen]| machine(2000).distance(all, 4000 * MIB).slow_bytes / MIB;
    assert_eq!(distance(&[cgroup(1, None, 450)]), 600);
    assert_eq!(distance(&[hog(0)]), 200);
    assert_eq!(distance(&[hog(100)]), 300);
    // Of one above another it is what more of the two says; what a protected one uses is not counted twice.
    let inner = Seen { principal: Principal { parent: Some(0), ..hog(0).principal }, id: 2, ..hog(0) };
    assert_eq!(distance(&[hog(300), inner]), 200);
    assert_eq!(distance(&[hog(0), protected(3, Some(0), 150, 0)]), 600 - 150 - 250);
}
