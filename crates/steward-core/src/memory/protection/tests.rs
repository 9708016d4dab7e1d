//! Protection, case by case and as properties over histories.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

fn wanting(id: u64, used_mib: u64) -> Wanting {
    Wanting { id, user: 0, used_bytes: used_mib * MIB, full_bytes: used_mib * MIB, is_revocable: true }
}

fn of_user(user: u32, wanting: Wanting) -> Wanting {
    Wanting { user, ..wanting }
}

#[test]
fn all_that_fits_is_kept_with_room_to_grow_and_is_told_once() {
    let mut protection = Protection::default();
    let (kept, changes) = protection.decide(0, 1000 * MIB, &[wanting(1, 100), wanting(2, 16)]);
    assert_eq!(kept.iter().map(|one| one.bytes / MIB).collect::<Vec<_>>(), [112, 24]);
    assert_eq!(changes, []);
    let (again, _) = protection.decide(1, 1000 * MIB, &[wanting(1, 104), wanting(2, 18)]);
    assert_eq!(again, kept, "within what was told");
    let (grown, _) = protection.decide(2, 1000 * MIB, &[wanting(1, 110), wanting(2, 1)]);
    assert_eq!(grown.iter().map(|one| one.bytes / MIB).collect::<Vec<_>>(), [123, 9]);
}

#[test]
fn where_they_do_not_fit_the_largest_is_demoted_whole_and_comes_back_when_it_fits() {
    let mut protection = Protection::default();
    let all = [wanting(1, 100), wanting(2, 300), wanting(3, 250)];
    let (kept, changes) = protection.decide(0, 400 * MIB, &all);
    assert_eq!(kept.iter().map(|one| one.is_demoted).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(kept[1].bytes, 0);
    // With half of an eighth to grow.
    let needed_bytes = 300 * MIB + 75 * MIB / 4;
    assert_eq!(changes, [Change { id: 2, is_demoted: true, needed_bytes, room_bytes: 400 * MIB }]);
    // What it had is in the swap by now; beside the third it does not fit, alone with the first it does not either, by
    // what must be spare.
    let swapped = Wanting { used_bytes: 10 * MIB, ..wanting(2, 300) };
    let (_, changes) = protection.decide(10 * SECOND_NS, 400 * MIB, &[all[0], swapped, all[2]]);
    assert_eq!(changes, []);
    let (_, changes) = protection.decide(11 * SECOND_NS, 400 * MIB, &[all[0], swapped]);
    assert_eq!(changes, []);
    let (kept, changes) = protection.decide(12 * SECOND_NS, 450 * MIB, &[all[0], swapped]);
    assert_eq!((changes[0].id, changes[0].is_demoted, kept[1].is_demoted), (2, false, false));
    assert_eq!(kept[1].bytes, 18 * MIB, "what it has of it now, and some to grow");
}

#[test]
fn many_small_domains_of_one_user_push_out_no_larger_one_of_another() {
    let mut protection = Protection::default();
    let large = of_user(1000, wanting(1, 100));
    let small = (2..10).map(|id| of_user(1001, wanting(id, 40)));
    let all: Vec<Wanting> = std::iter::once(large).chain(small).collect();
    let (kept, changes) = protection.decide(0, 300 * MIB, &all);
    let demoted: Vec<u64> = changes.iter().map(|change| change.id).collect();
    assert_eq!((kept[0].is_demoted, demoted), (false, vec![9, 8, 7, 6]), "those that came last");
    // With one user, the largest goes whoever came first.
    let of_one: Vec<Wanting> = all.iter().map(|one| of_user(1001, *one)).collect();
    assert_eq!(Protection::default().decide(0, 300 * MIB, &of_one).1[0].id, 1);
}

#[test]
fn who_comes_back_and_does_not_fit_again_waits_twice_as_long_each_time() {
    let mut protection = Protection::default();
    let (mut demotions, mut is_demoted) = (Vec::new(), false);
    for tick in 0..4 * 1000_u64 {
        // Of its file nothing is left a moment after it was demoted, and all is there a moment after it came back.
        let (_, changes) = protection.decide(
            tick * SECOND_NS / 4,
            200 * MIB,
            &[wanting(1, 100), wanting(2, if is_demoted { 10 } else { 120 })],
        );
        if let Some(change) = changes.first() {
            is_demoted = change.is_demoted;
            demotions.extend(is_demoted.then_some(tick / 4));
        }
    }
    assert_eq!(demotions, [0, 5, 15, 35, 76, 156, 316, 616, 917]);
}

#[test]
fn to_fit_is_to_have_room_to_grow_for_whoever_came_last_too() {
    let mut protection = Protection::default();
    let (kept, changes) = protection.decide(0, 200 * MIB, &[wanting(1, 100), wanting(2, 80)]);
    assert_eq!(changes, []);
    // 6.25 and 5 at least; the first has what is left of its 12.5 as well.
    assert_eq!(kept.iter().map(|one| one.bytes / (MIB / 4)).collect::<Vec<_>>(), [450, 350]);
    let (kept, changes) = protection.decide(1, 200 * MIB, &[wanting(1, 100), wanting(2, 95)]);
    assert_eq!((changes[0].id, kept[0].bytes), (1, 0), "195 fit, but none of it could grow");
    // Who has hardly begun takes no room from others.
    let crowd: Vec<Wanting> = (0..50).map(|id| wanting(id, id / 49)).collect();
    assert_eq!(Protection::default().decide(0, 10 * MIB, &crowd).1, []);
}

#[test]
fn what_may_not_be_revoked_keeps_what_is_left_in_the_order_it_came() {
    let fixed = |id, used_mib| Wanting { is_revocable: false, ..wanting(id, used_mib) };
    let (kept, changes) =
        Protection::default().decide(0, 100 * MIB, &[fixed(1, 80), fixed(2, 50), wanting(3, 5)]);
    assert_eq!(kept.iter().map(|one| one.bytes / MIB).collect::<Vec<_>>(), [80, 20, 0]);
    assert_eq!(changes.iter().map(|change| change.id).collect::<Vec<_>>(), [3]);
}

proptest! {
    #[test]
    fn nobody_within_its_fair_part_is_demoted_for_what_other_users_protect(
        own_mib in 1..100_u64, others in prop::collection::vec((1..4_u32, 1..200_u64), 0..20), room_mib in 100..1000_u64,
    ) {
        let users: std::collections::BTreeSet<u32> = others.iter().map(|(user, _)| *user).collect();
        let fair_bytes = room_mib * MIB / (users.len() as u64 + 1);
        prop_assume!(least_bytes(own_mib * MIB) <= fair_bytes);
        let others = others.iter().zip(1..).map(|((user, mib), id)| of_user(*user, wanting(id, *mib)));
        let all: Vec<Wanting> = others.chain([wanting(0, own_mib)]).collect();
        let (kept, _) = Protection::default().decide(0, room_mib * MIB, &all);
        prop_assert!(kept.iter().all(|one| one.id != 0 || !one.is_demoted && one.bytes >= own_mib * MIB), "{kept:?}");
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for_and_nobody_is_demoted_in_vain(
        rounds in prop::collection::vec((50..1000_u64, prop::collection::vec((0..400_u64, any::<bool>()), 0..8)), 1..20),
    ) {
        let mut protection = Protection::default();
        for (round, (room_mib, seen)) in rounds.iter().enumerate() {
            let room_bytes = room_mib * MIB;
            let all: Vec<Wanting> = (0..)
                .zip(seen)
                .map(|(id, (used_mib, is_revocable))| Wanting { is_revocable: *is_revocable, ..wanting(id, *used_mib) })
                .collect();
            let (kept, changes) = protection.decide(round as u64 * SECOND_NS, room_bytes, &all);
            prop_assert!(kept.iter().map(|one| one.bytes).sum::<u64>() <= room_bytes);
            let demoted: Vec<&Change> = changes.iter().filter(|change| change.is_demoted).collect();
            if let Some(last) = demoted.last() {
                // Without the last one it would not have fitted.
                let others: u64 = all.iter().filter(|one| !protection.demoted.contains_key(&one.id)).map(|one| least_bytes(one.used_bytes)).sum();
                prop_assert!(others + last.needed_bytes > room_bytes);
            }
            // Who is protected, and may be revoked, keeps all of it and has room to grow.
            for (one, kept) in all.iter().zip(&kept) {
                if !kept.is_demoted && one.is_revocable {
                    prop_assert!(kept.bytes >= least_bytes(one.used_bytes));
                }
            }
        }
    }
}
