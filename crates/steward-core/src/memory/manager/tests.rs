//! The loop's decisions, case by case.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::super::seen::Protected;
use super::*;

const MIB: u64 = 1 << 20;

fn machine() -> Machine {
    Machine {
        total_bytes: 1000 * MIB,
        free_bytes: 100 * MIB,
        high_watermark_bytes: 60 * MIB,
        kernel_bytes: 40 * MIB,
        file_bytes: 200 * MIB,
        anonymous_bytes: 600 * MIB,
        swap_free_bytes: 2000 * MIB,
        held_bytes: 0,
    }
}

fn seen(id: u64, claimed_mib: u64) -> Seen {
    let weight = NonZeroU32::new(100).expect("above 0");
    let principal = Principal { claimed_bytes: claimed_mib * MIB, ..Principal::of_weight(weight) };
    Seen { id, principal, protected: None, is_spared: false, limited: None }
}

fn protected(id: u64, claimed_mib: u64, file_mib: u64) -> Seen {
    let protected = Protected {
        user: 0,
        idle_bytes: 0,
        swapped_bytes: 0,
        file_bytes: file_mib * MIB,
        offered_bytes: 0,
        is_revocable: true,
    };
    Seen { protected: Some(protected), ..seen(id, claimed_mib) }
}

fn settings() -> Settings {
    Settings { reserve_bytes: 16 * MIB, reservable: 0.8 }
}

#[test]
fn a_hog_pays_and_a_protected_domain_does_not() {
    let domains = [protected(1, 400, 20), seen(2, 300), Seen { is_spared: true, ..seen(3, 900) }];
    let decision = Manager::default().decide(0, &machine(), &domains, &settings());
    assert_eq!(decision.target_bytes, 76 * MIB);
    assert_eq!(decision.victims, [Victim { place: 1, bytes: plan_bytes(&machine()) }]);
    assert_eq!((decision.kept[0].id, decision.kept[0].bytes), (1, 450 * MIB));
}

#[test]
fn what_is_offered_of_a_protected_domain_may_be_taken_from_it_and_the_kernel_is_told_to_leave_it() {
    let mut offers = protected(1, 400, 20);
    let whole = Manager::default().decide(0, &machine(), &[offers, seen(2, 3)], &settings());
    offers.protected = offers.protected.map(|one| Protected { offered_bytes: 2 * MIB, ..one });
    let decision = Manager::default().decide(0, &machine(), &[offers, seen(2, 3)], &settings());
    assert_eq!(decision.kept[0].bytes, 398 * MIB, "no more than it has, less that");
    assert_eq!(decision.kept[0].minimum_bytes, whole.kept[0].minimum_bytes);
    assert_eq!(decision.victims.iter().find(|victim| victim.place == 0).map(|one| one.bytes), Some(2 * MIB));
    assert!(whole.victims.iter().all(|victim| victim.place != 0));
    // A demoted one keeps nothing anyway.
    let narrow = Settings { reservable: 0.01, ..settings() };
    let decision = Manager::default().decide(0, &machine(), &[offers, seen(2, 3)], &narrow);
    assert_eq!((decision.kept[0].bytes, decision.kept[0].is_demoted), (0, true));
}

#[test]
fn whose_turn_it_is_goes_on_from_look_to_look_until_there_was_enough_for_a_while() {
    let taking_turns = |id, mib| {
        let seen = seen(id, mib);
        Seen { principal: Principal { takes_turns: true, ..seen.principal }, ..seen }
    };
    let little = Machine { free_bytes: 70 * MIB, ..machine() };
    let mut manager = Manager::default();
    let mut pays = |now_ns, machine: &Machine, mib: [u64; 3]| {
        let domains = [taking_turns(1, mib[0]), taking_turns(2, mib[1]), taking_turns(3, mib[2])];
        manager.decide(now_ns, machine, &domains, &settings()).victims[0].place
    };
    assert_eq!(pays(0, &little, [200, 210, 190]), 1, "who has most");
    assert_eq!(pays(1, &little, [230, 150, 220]), 1, "it goes on");
    assert_eq!(pays(2, &machine(), [230, 150, 220]), 1, "for a moment there is enough");
    assert_eq!(pays(3, &little, [270, 20, 260]), 0, "hardly anything is left of it");
    assert_eq!(pays(4, &little, [150, 210, 260]), 0, "and that one goes on");
    assert_eq!(pays(3 + TURN_MAX_NS, &little, [150, 210, 260]), 2, "but not for ever");
    let later_ns = 5 + TURN_MAX_NS + TURN_KEPT_NS;
    assert_eq!(pays(later_ns, &machine(), [220, 210, 200]), 2);
    assert_eq!(pays(later_ns + 1, &little, [220, 210, 200]), 1, "it begins anew with who paid longest ago");
    assert_eq!(
        pays(later_ns + 2 + 2 * TURN_MAX_NS, &little, [250, 210, 200]),
        0,
        "who has an eighth more is no equal"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn of_equals_nobody_pays_twice_before_all_have_paid(
        count in 2..9_usize, is_given in any::<bool>(), apart in prop::collection::vec(0..60_u64, 9),
        calm in prop::collection::vec(any::<bool>(), 1..80),
    ) {
        // They have as much again at the next look, but for some KiB; between two looks there may be enough.
        let little = Machine { free_bytes: 70 * MIB, ..machine() };
        let mut manager = Manager::default();
        let mut paid = Vec::new();
        for (look, is_calm) in (1..).zip(calm) {
            let domains: Vec<Seen> = (0..count)
                .map(|place| {
                    let mut one = seen(place as u64, 100);
                    one.principal.claimed_bytes += apart[(place + look) % 9] << 10;
                    one.principal.takes_turns = !is_given;
                    one
                })
                .collect();
            // Each turn is over by then.
            let now_ns = look as u64 * (TURN_MAX_NS + 1);
            let machine = if is_calm { machine() } else { little };
            let victims = manager.decide(now_ns, &machine, &domains, &settings()).victims;
            paid.extend((!is_calm).then_some(victims[0].place));
        }
        for turns in paid.chunks(count) {
            let who: BTreeSet<usize> = turns.iter().copied().collect();
            prop_assert_eq!(who.len(), turns.len(), "{:?}", paid);
        }
    }
}

#[test]
fn who_does_not_fit_is_demoted_and_pays_as_others_do() {
    let domains = [protected(1, 400, 0), protected(2, 500, 0), seen(3, 10)];
    let decision = Manager::default().decide(0, &machine(), &domains, &settings());
    // 1000 - 40 - 60 - 16 - 120.
    assert_eq!(decision.room_bytes, 764 * MIB);
    assert!(decision.kept[1].is_demoted);
    assert_eq!(decision.victims, [Victim { place: 1, bytes: plan_bytes(&machine()) }]);
}

/// Huge pages, or a disk in memory.
#[test]
fn what_the_kernel_keeps_for_itself_makes_a_smaller_machine() {
    let domains = [protected(1, 300, 50), protected(2, 350, 50), seen(3, 150)];
    let decide = |machine: &Machine| Manager::default().decide(0, machine, &domains, &settings());
    let machine = Machine { free_bytes: 10 * MIB, ..machine() };
    let kept_by_kernel = 2000 * MIB;
    let larger = Machine {
        total_bytes: machine.total_bytes + kept_by_kernel,
        kernel_bytes: machine.kernel_bytes + kept_by_kernel,
        ..machine
    };
    let decision = decide(&machine);
    assert!(
        !decision.victims.is_empty() && decision.kept.iter().all(|kept| !kept.is_demoted),
        "{decision:?}"
    );
    let of_larger = decide(&larger);
    assert_eq!((&of_larger.kept, of_larger.room_bytes), (&decision.kept, decision.room_bytes));
    assert_eq!(of_larger.is_short, decision.is_short);
}

#[test]
fn what_is_promised_to_others_is_not_kept_for_those_who_are_protected() {
    let mut promised = seen(3, 10);
    promised.principal.min_bytes = 100 * MIB;
    let decision = Manager::default().decide(0, &machine(), &[promised], &settings());
    assert_eq!((decision.room_bytes, decision.held_max_bytes), (664 * MIB, 664 * MIB / 4));
    let holding = Machine { held_bytes: 100 * MIB, ..machine() };
    let decision = Manager::default().decide(0, &holding, &[promised], &settings());
    assert_eq!((decision.room_bytes, decision.held_max_bytes), (564 * MIB, 664 * MIB / 4));
}

#[test]
fn what_does_not_fit_is_demoted_and_the_others_stay_protected_where_the_swap_has_room() {
    // Ten that want nearly all there is, a hundred each, and nobody else.
    let domains: Vec<Seen> = (1..=10).map(|id| protected(id, 90, 0)).collect();
    let machine =
        Machine { free_bytes: 70 * MIB, file_bytes: 20 * MIB, anonymous_bytes: 900 * MIB, ..machine() };
    let decision = Manager::default().decide(0, &machine, &domains, &settings());
    let demoted = decision.kept.iter().filter(|kept| kept.is_demoted).count();
    assert_eq!((decision.is_short, demoted), (false, 3), "{decision:?}");
    // Without swap, what is demoted cannot be taken either.
    let machine = Machine { swap_free_bytes: 0, ..machine };
    assert!(Manager::default().decide(0, &machine, &domains, &settings()).is_short);
}

#[test]
fn protection_is_dropped_before_nothing_else_is_left_to_take_and_comes_back_later() {
    let mut manager = Manager::default();
    let without_swap = |free_mib, file_mib| Machine {
        free_bytes: free_mib * MIB,
        file_bytes: file_mib * MIB,
        swap_free_bytes: 0,
        ..machine()
    };
    let domains = [protected(1, 300, 100), seen(2, 300)];
    let mut decide = |second: u64, machine: &Machine| {
        let decision = manager.decide(second * 1_000_000_000, machine, &domains, &settings());
        (decision.is_short, decision.kept[0].bytes > 0)
    };
    assert_eq!(decide(0, &without_swap(76, 200)), (false, true));
    // 40 of files that are not protected, and 16 free above what the kernel begins at: less than a sixteenth.
    assert_eq!(decide(1, &without_swap(76, 140)), (true, false));
    assert_eq!(decide(2, &without_swap(90, 180)), (true, false), "not yet twice as far");
    assert_eq!(decide(10, &without_swap(100, 200)), (false, true));
    // Where there is swap, others' pages can go there.
    assert_eq!(decide(11, &Machine { file_bytes: 0, ..machine() }), (false, true));
}

#[test]
fn room_that_grows_at_once_is_no_memory_that_goes_away() {
    let mut manager = Manager::default();
    let domains = [protected(1, 400, 150), seen(2, 100)];
    let mut decide = |at_ns: u64, reservable: f64, file_mib: u64| {
        let machine = Machine { file_bytes: file_mib * MIB, swap_free_bytes: 0, ..machine() };
        let settings = Settings { reservable, ..settings() };
        let decision = manager.decide(at_ns, &machine, &domains, &settings);
        (decision.is_short, decision.room_bytes / MIB)
    };
    assert_eq!(decide(0, 0.1, 200), (false, 100));
    assert_eq!(decide(250_000_000, 0.8, 200), (false, 764), "50 more are kept at once, and 90 are left");
    assert_eq!(decide(500_000_000, 0.8, 200), (false, 764));
    assert_eq!(decide(750_000_000, 0.8, 175), (true, 0), "25 went away");
}

#[test]
fn protection_that_was_dropped_a_moment_ago_is_dropped_for_twice_as_long() {
    let mut manager = Manager::default();
    let domains = [protected(1, 300, 100), seen(2, 300)];
    // With protection nothing is left that could be taken, and without it something is: at each look it is the other.
    let mut is_short = false;
    let mut began = Vec::new();
    for look in 0..4 * 300_u64 {
        let file_bytes = if is_short { 400 * MIB } else { 100 * MIB };
        let machine = Machine { file_bytes, swap_free_bytes: 0, ..machine() };
        let decision = manager.decide(look * 250_000_000, &machine, &domains, &settings());
        if decision.is_short && !is_short {
            began.push(look / 4);
        }
        is_short = decision.is_short;
    }
    assert_eq!(began, [0, 1, 3, 7, 16, 32, 64, 124, 185, 245]);
    let mut calm = Shortage::default();
    assert!(calm.becomes(0, 10, 9) && !calm.becomes(1_000_000_000, 10, 20));
    // Two seconds and more after that it is another one.
    assert!(calm.becomes(3_000_000_000, 10, 9) && !calm.becomes(4_000_000_000, 10, 20));
}

#[test]
fn what_is_promised_to_others_does_not_count_as_left_to_take() {
    let machine = Machine { swap_free_bytes: 100 * MIB, anonymous_bytes: 200 * MIB, ..machine() };
    // 40 are free, 200 of files, and 100 of programs' own fit into the swap.
    let distance = |domains: &[Seen]| machine.distance(domains, machine.total_bytes).bytes() / MIB;
    assert_eq!(distance(&[seen(1, 300)]), 340);
    let mut promised = seen(1, 300);
    (promised.principal.min_bytes, promised.principal.clean_bytes) = (150 * MIB, 50 * MIB);
    // 100 others of programs' own are left, and 150 of files.
    assert_eq!(distance(&[promised]), 290);
    promised.principal.min_bytes = 200 * MIB;
    assert_eq!(distance(&[promised]), 240);
    promised.principal.claimed_bytes = 50 * MIB;
    assert_eq!(distance(&[promised]), 290, "of a promise that is not used nothing is kept");
    promised.principal.claimed_bytes = 300 * MIB;
    let mut below = protected(2, 80, 40);
    below.principal.parent = Some(0);
    assert_eq!(distance(&[promised, below]), 240, "what is protected below it is not counted twice");
}

#[test]
fn what_a_protected_domain_is_promised_and_does_not_use_cannot_be_taken_either() {
    let machine = Machine { swap_free_bytes: 2000 * MIB, anonymous_bytes: 900 * MIB, ..machine() };
    // 40 are free and 200 of files: of 900 of programs' own, what is neither used nor promised is left.
    let distance = |domains: &[Seen]| machine.distance(domains, machine.total_bytes).bytes() / MIB;
    let idle = |seen: Seen, idle_mib: u64| {
        let protected = seen.protected.map(|protected| Protected { idle_bytes: idle_mib * MIB, ..protected });
        Seen { protected, ..seen }
    };
    let mut editor = idle(protected(1, 500, 0), 450);
    assert_eq!(distance(&[editor]), 1140 - 50);
    editor.principal.min_bytes = 500 * MIB;
    assert_eq!(distance(&[editor]), 1140 - 500, "all of it is promised, used or not");
    assert_eq!(distance(&[editor, protected(2, 300, 0)]), 1140 - 800);
    // The one above is told what all below it are told together, which is more than it is promised.
    let mut above = seen(9, 600);
    above.principal.min_bytes = 500 * MIB;
    editor.principal.parent = Some(0);
    let mut other = protected(2, 80, 0);
    other.principal.parent = Some(0);
    assert_eq!(distance(&[above, editor, other]), 1140 - 580);
    // The room for all is smaller by as much as is promised beyond what is used.
    editor.principal.parent = None;
    let room_mib = |domains: &[Seen]| room_bytes(&machine, domains, &settings()) / MIB;
    assert_eq!((room_mib(&[]), room_mib(&[editor])), (764, 764 - 450));
}

#[test]
fn protection_is_dropped_in_time_where_what_is_left_goes_fast() {
    let mut manager = Manager::default();
    let mut decide = |at_ms: u64, free_mib: u64| {
        let machine =
            Machine { free_bytes: free_mib * MIB, swap_free_bytes: 0, file_bytes: 100 * MIB, ..machine() };
        let decision = manager.decide(at_ms * 1_000_000, &machine, &[protected(1, 300, 100)], &settings());
        (decision.is_short, decision.look_below_bytes / MIB)
    };
    // 400 can be allocated beside it; the next look is due with a thirty-second of the machine less.
    assert_eq!(decide(0, 460), (false, 528));
    // 40 in 20 ms: 400 in the time in which that could be stopped.
    assert_eq!(decide(20, 420), (true, 488));
    assert!(decide(270, 420).0, "what was dropped stays so for a second");
    assert!(!decide(1020, 420).0);
    // As much within a look is what programs do; and with most of the memory left nobody has to check.
    assert!(!decide(1270, 380).0);
    assert_eq!(decide(2000, 900), (false, 0));
}

#[test]
fn what_has_to_be_written_first_goes_no_faster_because_free_memory_does() {
    // 2 GiB a second, as a program fills it in huge pages, with 300 MiB free above what the kernel begins at.
    let mut manager = Manager::default();
    let mut decide = |at_ms: u64, free_mib: u64, swap_mib: u64| {
        let (free_bytes, swap_free_bytes) = (free_mib * MIB, swap_mib * MIB);
        let machine =
            Machine { free_bytes, swap_free_bytes, file_bytes: 0, anonymous_bytes: 700 * MIB, ..machine() };
        manager.decide(at_ms * 1_000_000, &machine, &[protected(1, 300, 0)], &settings()).is_short
    };
    assert!(!decide(0, 360, 100));
    assert!(!decide(20, 320, 100), "what is free will be gone, and the swap is there");
    assert!(!decide(100, 160, 100));
    assert!(!decide(150, 60, 100), "nothing is free any more");
    assert!(
        !decide(400, 60, 90),
        "40 MiB a second go to the swap: 8 in the time in which that can be stopped"
    );
    assert!(decide(650, 60, 70), "70, and 16 less in that time: less than a sixteenth of the machine");
    // Of what can be written 20 went in 20 ms: so it does not wait for a disk.
    let mut manager = Manager::default();
    let quick = |swap_mib| Machine { swap_free_bytes: swap_mib * MIB, file_bytes: 0, ..machine() };
    assert!(!manager.decide(0, &quick(200), &[protected(1, 300, 0)], &settings()).is_short);
    assert!(manager.decide(20_000_000, &quick(180), &[protected(1, 300, 0)], &settings()).is_short);
    // What went out and made room did not go away.
    let earlier = Distance { quick_bytes: 10, slow_bytes: 100 };
    assert_eq!(Distance { quick_bytes: 20, slow_bytes: 90 }.falls(&earlier, 1, 2), 0);
    assert_eq!(Distance { quick_bytes: 5, slow_bytes: 90 }.falls(&earlier, 1, 2), 25);
    assert_eq!(Distance { quick_bytes: 0, slow_bytes: 100 }.falls(&earlier, 0, 1000), 0);
}
