//! Protection, case by case and as properties over histories.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

fn wanting(id: u64, used_mib: u64) -> Wanting {
    Wanting { id, used_bytes: used_mib * MIB, full_bytes: used_mib * MIB, is_revocable: true }
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
    assert_eq!(changes, [Change { id: 2, is_demoted: true, needed_bytes: 300 * MIB, room_bytes: 400 * MIB }]);
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
fn what_may_not_be_revoked_keeps_what_is_left_in_the_order_it_came() {
    let fixed = |id, used_mib| Wanting { is_revocable: false, ..wanting(id, used_mib) };
    let (kept, changes) =
        Protection::default().decide(0, 100 * MIB, &[fixed(1, 80), fixed(2, 50), wanting(3, 5)]);
    assert_eq!(kept.iter().map(|one| one.bytes / MIB).collect::<Vec<_>>(), [80, 20, 0]);
    assert_eq!(changes.iter().map(|change| change.id).collect::<Vec<_>>(), [3]);
}

proptest! {
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
                let others: u64 = all.iter().filter(|one| !protection.demoted.contains_key(&one.id)).map(|one| one.used_bytes).sum();
                prop_assert!(others + last.needed_bytes > room_bytes);
            }
            // Who is protected, and may be revoked, keeps all of it.
            for (one, kept) in all.iter().zip(&kept) {
                if !kept.is_demoted && one.is_revocable {
                    prop_assert!(kept.bytes >= one.used_bytes);
                }
            }
        }
    }
}
