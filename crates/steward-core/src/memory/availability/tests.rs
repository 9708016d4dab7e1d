//! Availability, by the paper's examples and as properties.

use proptest::prelude::*;

use super::*;

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).expect("above 0")
}

fn own() -> Own {
    Own { priority: 4, weight: weight(100) }
}

fn domain(used_bytes: u64, of_weight: u32) -> Domain {
    Domain {
        parent: None,
        priority: 4,
        weight: weight(of_weight),
        used_bytes,
        min_bytes: 0,
        max_bytes: u64::MAX,
    }
}

#[test]
fn what_one_does_not_use_is_divided_among_those_who_want_it_and_not_given_to_who_came_first() {
    // Three of one weight, of which one has all (Walfield, section 3.5): either of the others would have half.
    assert_eq!(available(&[domain(900, 1), domain(0, 1), domain(0, 1)], 0, own()), [900, 450, 450]);
    // One has taken its third: the third one's availability is a third still, and theirs what they have.
    assert_eq!(available(&[domain(600, 1), domain(300, 1), domain(0, 1)], 0, own()), [600, 450, 300]);
}

#[test]
fn weights_that_differ_widely_are_exact() {
    let told = available(&[domain(10_001, 1), domain(0, 10_000)], 0, own());
    assert_eq!(told, [10_001, 10_000]);
    let busy = available(&[domain(2000, 20), domain(4000, 40), domain(500, 5)], 0, own());
    assert_eq!(busy, [2000, 4000, 500], "who has its part can have no more");
}

#[test]
fn a_higher_priority_has_first_refusal_and_a_lower_one_is_taken_down_to_its_minimum() {
    let high = Domain { priority: 6, ..domain(300, 1) };
    let low = Domain { priority: 2, min_bytes: 100, ..domain(500, 1) };
    assert_eq!(available(&[high, domain(200, 1), low], 0, own()), [900, 600, 500]);
}

#[test]
fn nobody_has_more_than_its_maximum_or_that_of_one_above_it() {
    let limited = Domain { max_bytes: 400, ..domain(300, 1) };
    let child = Domain { parent: Some(0), ..domain(100, 1) };
    // 200 of the 300 are the domain's own, which weighs more: of 400 the child can have the rest.
    assert_eq!(available(&[limited, child], 1000, own()), [400, 200]);
}

#[test]
fn a_minimum_can_be_had_whoever_uses_it_now() {
    let promised = Domain { min_bytes: 500, ..domain(0, 1) };
    assert_eq!(available(&[domain(1000, 10_000), promised], 0, own()), [1000, 500]);
}

fn level() -> impl Strategy<Value = Vec<Domain>> {
    let one = (0..8_u8, 1..=10_000_u32, 0..1_000_000_u64, 0..1000_u64, prop::option::of(0..2_000_000_u64));
    let one = one.prop_map(|(priority, of_weight, used_bytes, min_bytes, max_bytes)| Domain {
        priority,
        min_bytes,
        max_bytes: max_bytes.map_or(u64::MAX, |max_bytes| max_bytes.max(used_bytes).max(min_bytes)),
        ..domain(used_bytes, of_weight)
    });
    prop::collection::vec(one, 1..12)
}

fn total(domains: &[Domain]) -> u64 {
    domains.iter().map(|domain| domain.used_bytes).sum()
}

proptest! {
    #[test]
    fn everybody_can_have_what_they_use_and_are_promised_and_no_more_than_there_is(
        domains in level(), free_bytes in 0..1_000_000_u64,
    ) {
        let pool_bytes = total(&domains) + free_bytes;
        for (domain, bytes) in domains.iter().zip(available(&domains, free_bytes, own())) {
            // By a unit of weight less, since levels are rounded down.
            let least = domain.used_bytes.min(pool_bytes).saturating_sub(u64::from(domain.weight.get()));
            prop_assert!(bytes >= least, "{bytes} of {domain:?}");
            prop_assert!(bytes >= domain.min_bytes.min(pool_bytes).min(domain.max_bytes));
            prop_assert!(bytes <= pool_bytes && bytes <= domain.max_bytes);
        }
    }

    #[test]
    fn more_free_memory_lowers_nobodys_and_a_larger_weight_not_ones_own(
        domains in level(), free_bytes in 0..1_000_000_u64, more in 0..1_000_000_u64, heavier in 1..1000_u32,
    ) {
        let before = available(&domains, free_bytes, own());
        let after = available(&domains, free_bytes + more, own());
        prop_assert!(before.iter().zip(&after).all(|(before, after)| after + 1 >= *before), "{before:?} {after:?}");
        let mut changed = domains.clone();
        changed[0].weight = weight(domains[0].weight.get() + heavier);
        let after = available(&changed, free_bytes, own());
        prop_assert!(after[0] + u64::from(changed[0].weight.get()) >= before[0], "{before:?} {after:?}");
    }

    #[test]
    fn who_wants_all_of_it_beside_the_others_has_its_part_by_weight(
        weights in prop::collection::vec(1..=10_000_u32, 2..8), pool_bytes in 1_000_000..2_000_000_u64,
    ) {
        // All want everything: each uses what there is, as far as the question to one of them goes.
        let domains: Vec<Domain> = weights.iter().map(|one| domain(pool_bytes, *one)).collect();
        let sum: u64 = weights.iter().map(|one| u64::from(*one)).sum();
        let level = Level { domains: &domains, places: &(0..domains.len()).collect::<Vec<_>>(), pool_bytes, own: (own(), 0) };
        for (place, bytes) in level.available() {
            let part = u128::from(pool_bytes) * u128::from(weights[place]) / u128::from(sum);
            prop_assert!(bytes.abs_diff(part as u64) <= 1, "{bytes} of {part}");
        }
    }

    #[test]
    fn a_level_below_is_divided_as_the_top_is(domains in level(), free_bytes in 0..1_000_000_u64) {
        let top = available(&domains, free_bytes, own());
        let above = domain(total(&domains), 1);
        let mut nested = vec![above];
        nested.extend(domains.iter().map(|domain| Domain { parent: Some(0), ..*domain }));
        prop_assert_eq!(&available(&nested, free_bytes, own())[1..], &top[..]);
    }

    #[test]
    fn no_amount_is_too_large_to_be_divided(
        used in prop::collection::vec(any::<u64>(), 1..6), free_bytes: u64, of_weight in 1..=u32::MAX, min_bytes: u64,
    ) {
        let domains: Vec<Domain> =
            used.iter().map(|used| Domain { min_bytes, ..domain(*used, of_weight) }).collect();
        prop_assert_eq!(available(&domains, free_bytes, own()).len(), used.len());
    }
}

#[test]
fn a_change_is_news_from_a_twentieth_of_what_was_told_on() {
    assert!(!is_news(100, 100) && !is_news(100, 104) && !is_news(100, 96));
    assert!(is_news(100, 105) && is_news(100, 95));
    assert!(!is_news(0, 0) && is_news(0, 1) && is_news(1, 0));
    assert!(is_news(u64::MAX, 0) && !is_news(u64::MAX, u64::MAX - 1));
}
