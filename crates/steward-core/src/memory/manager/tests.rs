//! The loop's decisions, case by case.

use std::num::NonZeroU32;

use super::*;

const MIB: u64 = 1 << 20;

fn machine() -> Machine {
    Machine {
        total_bytes: 1000 * MIB,
        free_bytes: 100 * MIB,
        high_watermark_bytes: 60 * MIB,
        kernel_bytes: 50 * MIB,
        file_bytes: 200 * MIB,
        anonymous_bytes: 600 * MIB,
        swap_free_bytes: 2000 * MIB,
        held_bytes: 0,
    }
}

fn seen(id: u64, claimed_mib: u64) -> Seen {
    let weight = NonZeroU32::new(100).expect("above 0");
    let principal = Principal { claimed_bytes: claimed_mib * MIB, ..Principal::of_weight(weight) };
    Seen { id, principal, protected: None, is_spared: false }
}

fn protected(id: u64, claimed_mib: u64, file_mib: u64) -> Seen {
    let protected =
        Protected { idle_bytes: 0, swapped_bytes: 0, file_bytes: file_mib * MIB, is_revocable: true };
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
fn who_does_not_fit_is_demoted_and_pays_as_others_do() {
    let domains = [protected(1, 400, 0), protected(2, 500, 0), seen(3, 10)];
    let decision = Manager::default().decide(0, &machine(), &domains, &settings());
    // 1000 - 50 - 60 - 16 - 125.
    assert_eq!(decision.room_bytes, 749 * MIB);
    assert!(decision.kept[1].is_demoted);
    assert_eq!(decision.victims, [Victim { place: 1, bytes: plan_bytes(&machine()) }]);
}

#[test]
fn what_is_promised_to_others_is_not_kept_for_those_who_are_protected() {
    let mut promised = seen(3, 10);
    promised.principal.min_bytes = 100 * MIB;
    let decision = Manager::default().decide(0, &machine(), &[promised], &settings());
    assert_eq!((decision.room_bytes, decision.held_max_bytes), (649 * MIB, 649 * MIB / 4));
    let holding = Machine { held_bytes: 100 * MIB, ..machine() };
    let decision = Manager::default().decide(0, &holding, &[promised], &settings());
    assert_eq!((decision.room_bytes, decision.held_max_bytes), (549 * MIB, 649 * MIB / 4));
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
