//! Dividing by weight, by example and against a search step by step.

use proptest::prelude::*;

use super::*;

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).expect("tests have weights above 0")
}

fn wants(wanted_bytes: u64, weight_count: u32) -> Contender {
    Contender::new(0, wanted_bytes, weight(weight_count))
}

/// What the contender at `place` gets of the pool if it wants everything.
fn gets(pool_bytes: u64, contenders: &[Contender], place: usize) -> u64 {
    let one = &contenders[place];
    Fill::new(contenders).level_for(pool_bytes, one).bytes_of(one.weight)
}

#[test]
fn who_wants_less_than_its_part_leaves_the_rest_to_the_others() {
    let contenders = [wants(90, 1), wants(0, 1), wants(0, 1)];
    assert_eq!(gets(90, &contenders, 1), 45, "the one that is idle as well leaves its part");
    assert_eq!(gets(90, &contenders, 0), 90);
    assert_eq!(gets(90, &[wants(10, 1), wants(1, 3)], 1), 80);
}

#[test]
fn very_different_weights_are_divided_exactly() {
    let contenders = [wants(u64::MAX, 10_000), wants(u64::MAX, 1)];
    assert_eq!(gets(10_001, &contenders, 0), 10_000);
    assert_eq!(gets(10_001, &contenders, 1), 1);
    assert_eq!(gets(u64::MAX, &[wants(u64::MAX, 1), wants(u64::MAX, 1)], 0), u64::MAX / 2);
}

#[test]
fn what_is_held_of_others_is_not_divided() {
    let contenders = [Contender::new(60, 80, weight(1)), wants(0, 1)];
    assert_eq!(gets(100, &contenders, 1), 40);
    assert_eq!(gets(50, &contenders, 1), 0, "more is held than there is");
}

fn contenders() -> impl Strategy<Value = Vec<Contender>> {
    let one = (0..200u64, 0..200u64, 1..20u32)
        .prop_map(|(held, wanted, count)| Contender::new(held, wanted, weight(count)));
    prop::collection::vec(one, 1..8)
}

proptest! {
    #[test]
    fn the_level_is_the_highest_at_which_all_fit(pool in 0..1000u64, contenders in contenders(), pick in 0..8usize) {
        let one = contenders[pick % contenders.len()];
        let level = Fill::new(&contenders).level_for(pool, &one);
        let others = |level: Level| -> f64 {
            let place = pick % contenders.len();
            let rest = contenders.iter().enumerate().filter(|(other, _)| *other != place);
            rest.map(|(_, other)| other.scaled_at(level) as f64 / level.weight as f64).sum()
        };
        let own = level.bytes as f64 * one.weight() as f64 / level.weight as f64;
        let all = others(level) + own;
        let held = others(Level { bytes: 0, weight: 1 });
        prop_assert!((all - (pool as f64).max(held)).abs() < 1e-6, "{} of {}", all, pool);
    }

    #[test]
    fn the_sum_is_the_sum_of_all(contenders in contenders(), bytes in 0..300u128, parts in 1..9u128) {
        let level = Level { bytes, weight: parts };
        let sum: f64 = contenders.iter().map(|one| one.scaled_at(level) as f64 / parts as f64).sum();
        prop_assert!((Fill::new(&contenders).bytes_at(level) as f64 - sum).abs() < 1.0 + 1e-6);
    }
}
