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
    assert_eq!(kept.iter().map(|one| one.bytes / MIB).collect::<Vec<_>>(), [112, 28]);
    assert_eq!(changes, []);
    let (again, _) = protection.decide(1, 1000 * MIB, &[wanting(1, 102), wanting(2, 18)]);
    assert_eq!(again, kept, "within what was told");
    let (grown, _) = protection.decide(2, 1000 * MIB, &[wanting(1, 110), wanting(2, 1)]);
    assert_eq!(grown.iter().map(|one| one.bytes / MIB).collect::<Vec<_>>(), [123, 13]);
}

#[test]
fn who_came_first_has_room_for_bursts_only_when_all_have_room_to_grow() {
    let all = [wanting(1, 40), wanting(2, 40), wanting(3, 40)];
    let kept = |room_mib: u64| {
        let (kept, _) = Protection::default().decide(0, room_mib * MIB, &all);
        kept.iter().map(|one| one.bytes / MIB).collect::<Vec<_>>()
    };
    assert_eq!(kept(140), [48, 48, 44]);
    assert_eq!(kept(144), [48, 48, 48]);
    assert_eq!(kept(150), [52, 50, 48]);
    assert_eq!(kept(156), [52, 52, 52]);
}

#[test]
fn who_takes_8_mb_between_two_looks_keeps_them_whatever_it_was_told_before() {
    // The kernel counts 64 pages in advance on each CPU.
    let burst_bytes = 8 * MIB + 4 * (256 << 10);
    let mut protection = Protection::default();
    for used_kib in (0..20_000).step_by(64) {
        let one = Wanting { used_bytes: used_kib << 10, ..wanting(1, 0) };
        let (kept, _) = protection.decide(0, 1000 * MIB, &[one]);
        assert!(kept[0].bytes >= one.used_bytes + burst_bytes, "{used_kib} KiB: {}", kept[0].bytes);
    }
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
    assert_eq!(kept[1].bytes, 22 * MIB, "what it has of it now, and some to grow");
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

/// Four that are about as large, of which three fit: 110 each with room to grow, and 340.
#[test]
fn of_equals_each_pays_before_anybody_pays_twice() {
    let all: Vec<Wanting> = (0..4).map(|id| wanting(id, 100 + id)).collect();
    let mut protection = Protection::default();
    let mut paid = Vec::new();
    for round in 0..40_u64 {
        let begun_ns = round * 20 * SECOND_NS;
        let (_, changes) = protection.decide(begun_ns, 340 * MIB, &all);
        paid.extend(changes.iter().filter(|change| change.is_demoted).map(|change| change.id));
        // Then all fit, and who paid comes back.
        let (_, changes) = protection.decide(begun_ns + 10 * SECOND_NS, 800 * MIB, &all);
        assert!(matches!(changes[..], [Change { is_demoted: false, .. }]), "{changes:?}");
    }
    assert_eq!(paid.len(), 40);
    for turns in paid.chunks(4) {
        let who: BTreeSet<&u64> = turns.iter().collect();
        assert_eq!(who.len(), 4, "{paid:?}");
    }
}

#[test]
fn one_that_fits_its_users_fair_part_comes_back_though_another_has_taken_the_room() {
    let mut protection = Protection::default();
    let (one, other) = (of_user(1000, wanting(1, 80)), of_user(1001, wanting(2, 60)));
    // Both are demoted: for a moment nobody is protected.
    assert_eq!(protection.decide(0, 0, &[one, other]).1.len(), 2);
    // Meanwhile the other has grown, and is back first.
    let grown = of_user(1001, wanting(2, 150));
    let (kept, _) = protection.decide(6 * SECOND_NS, 200 * MIB, &[one, grown]);
    assert_eq!(kept.iter().map(|kept| kept.is_demoted).collect::<Vec<_>>(), [false, true]);
    let mut protection = Protection::default();
    protection.decide(0, 0, &[one]);
    let (kept, _) = protection.decide(SECOND_NS, 200 * MIB, &[one, grown]);
    assert_eq!(
        kept.iter().map(|kept| kept.is_demoted).collect::<Vec<_>>(),
        [true, false],
        "it was there first"
    );
    // 80 and some are within a half of 200, 150 are not.
    let (kept, changes) = protection.decide(5 * SECOND_NS, 200 * MIB, &[one, grown]);
    let changed: Vec<(u64, bool)> = changes.iter().map(|change| (change.id, change.is_demoted)).collect();
    assert_eq!(changed, [(1, false), (2, true)]);
    assert!(kept[0].bytes >= 80 * MIB, "{kept:?}");
    // Who cannot be revoked makes no room.
    let fixed = Wanting { is_revocable: false, ..grown };
    let mut protection = Protection::default();
    protection.decide(0, 0, &[one]);
    for second in 1..600 {
        assert_eq!(protection.decide(second * SECOND_NS, 200 * MIB, &[one, fixed]).1, []);
    }
}

/// What is seen at one look: of whom, how much each uses, how much of it is left in memory while it is demoted, in
/// percent, and whether it may be demoted.
type Look = (u64, Vec<(u32, u64, u64)>);

fn looks() -> impl Strategy<Value = Vec<Look>> {
    let domains = prop::collection::vec((0..3_u32, 1..300_u64, 20..101_u64), 1..8);
    prop::collection::vec((prop_oneof![Just(0), 50..1000_u64], domains), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn who_fits_its_users_fair_part_is_protected_again_whatever_went_before(history in looks(), own_mib in 1..100_u64) {
        let mut protection = Protection::default();
        let mut now_ns = 0;
        let own = of_user(9, wanting(100, own_mib));
        for (room_mib, seen) in &history {
            // Some looks are close together, some are not.
            now_ns += SECOND_NS / 4 * (1 + room_mib % 40);
            let others = (0..).zip(seen).map(|(id, (user, mib, _))| of_user(*user, wanting(id, *mib)));
            let all: Vec<Wanting> = others.chain([own]).collect();
            protection.decide(now_ns, room_mib * MIB, &all);
        }
        let (_, seen) = history.last().expect("there is one");
        let users: BTreeSet<u32> = seen.iter().map(|(user, ..)| *user).collect();
        // Of its part a sixteenth is spare.
        let room_bytes = (least_bytes(own.full_bytes) + 1) * (users.len() as u64 + 1) * 16 / 15 + 64;
        let others = (0..).zip(seen).map(|(id, (user, mib, left_percent))| {
            let used_mib = mib * left_percent / 100;
            Wanting { used_bytes: used_mib * MIB, ..of_user(*user, wanting(id, *mib)) }
        });
        let all: Vec<Wanting> = others.chain([own]).collect();
        // One comes back at a look, the smaller first.
        for _ in 0..4 * 5 + all.len() + 1 {
            now_ns += SECOND_NS / 4;
            protection.decide(now_ns, room_bytes, &all);
        }
        for _ in 0..2000 {
            prop_assert!(!protection.demoted.contains_key(&100), "{protection:?}");
            now_ns += SECOND_NS / 4;
            protection.decide(now_ns, room_bytes, &all);
        }
    }

    #[test]
    fn who_has_given_up_what_it_needed_is_protected_again_after_five_minutes_at_the_latest(
        history in looks(), own_mib in 100..300_u64, left_mib in 1..50_u64,
    ) {
        let mut protection = Protection::default();
        let mut now_ns = 0;
        for (room_mib, seen) in &history {
            now_ns += SECOND_NS / 4 * (1 + room_mib % 40);
            let others = (0..).zip(seen).map(|(id, (user, mib, _))| of_user(*user, wanting(id, *mib)));
            let all: Vec<Wanting> = others.chain([of_user(9, wanting(100, own_mib))]).collect();
            protection.decide(now_ns, room_mib * MIB, &all);
        }
        let (_, seen) = history.last().expect("there is one");
        let own = of_user(9, wanting(100, left_mib));
        let room_bytes = (least_bytes(own.full_bytes) + 1) * 4 * 16 / 15 + 64;
        let others = (0..).zip(seen).map(|(id, (user, mib, _))| of_user(*user, wanting(id, *mib)));
        let all: Vec<Wanting> = others.chain([own]).collect();
        for _ in 0..=DEMOTED_MAX_NS / SECOND_NS + 8 {
            now_ns += SECOND_NS;
            protection.decide(now_ns, room_bytes, &all);
        }
        prop_assert!(!protection.demoted.contains_key(&100), "{protection:?}");
    }

    #[test]
    fn nobody_pays_twice_before_others_that_are_as_large_have_had_their_turn(
        users in prop::collection::vec(0..3_u32, 2..9),
        rooms in prop::collection::vec((0..1200_u64, 1..30_u64), 1..60),
    ) {
        let all: Vec<Wanting> = (0..).zip(&users).map(|(id, user)| of_user(*user, wanting(id, 100))).collect();
        let mut protection = Protection::default();
        let mut paid_at: BTreeMap<u64, usize> = BTreeMap::new();
        let (mut now_ns, mut count) = (0, 0);
        for (room_mib, seconds) in rooms {
            now_ns += seconds * SECOND_NS;
            let mut protected: BTreeSet<u64> =
                all.iter().map(|one| one.id).filter(|id| !protection.demoted.contains_key(id)).collect();
            let (_, changes) = protection.decide(now_ns, room_mib * MIB, &all);
            for change in changes {
                if !change.is_demoted {
                    protected.insert(change.id);
                    continue;
                }
                count += 1;
                let user = users[change.id as usize];
                let of_user = |id: &&u64| users[**id as usize] == user;
                // Those of the same user compete with it whatever the sums of users are.
                let last = paid_at.get(&change.id).copied();
                let others = protected.iter().filter(|id| **id != change.id).filter(of_user);
                for other in others {
                    prop_assert!(
                        last.is_none() || paid_at.get(other) > last.as_ref(),
                        "{} pays before {other}: {paid_at:?}", change.id
                    );
                }
                protected.remove(&change.id);
                paid_at.insert(change.id, count);
            }
        }
    }
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
