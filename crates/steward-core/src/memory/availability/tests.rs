//! Availability, by the paper's examples and as properties.

use proptest::prelude::*;

use super::super::victims::{tests::tree, victims};
use super::*;

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).expect("above 0")
}

fn domain(claimed_bytes: u64, of_weight: u32) -> Principal {
    Principal { claimed_bytes, ..Principal::of_weight(weight(of_weight)) }
}

fn room(free_bytes: u64) -> Room {
    Room { free_bytes, target_bytes: 0, total_bytes: u64::MAX }
}

/// How much each may use.
fn bytes(domains: &[Principal], free_bytes: u64) -> Vec<u64> {
    available(domains, &room(free_bytes)).iter().map(|told| told.bytes).collect()
}

#[test]
fn what_one_does_not_use_is_divided_among_those_who_want_it_and_not_given_to_who_came_first() {
    // Three of one weight, of which one has all (Walfield, section 3.5): either of the others would have half.
    assert_eq!(bytes(&[domain(900, 1), domain(0, 1), domain(0, 1)], 0), [900, 450, 450]);
    // One has taken its third: the third one's availability is a third still, and theirs what they have.
    assert_eq!(bytes(&[domain(600, 1), domain(300, 1), domain(0, 1)], 0), [600, 450, 300]);
}

#[test]
fn weights_that_differ_widely_are_exact() {
    assert_eq!(bytes(&[domain(10_001, 1), domain(0, 10_000)], 0), [10_001, 10_000]);
    let busy = bytes(&[domain(2000, 20), domain(4000, 40), domain(500, 5)], 0);
    assert_eq!(busy, [2000, 4000, 500], "who has its part can have no more");
}

#[test]
fn what_those_leave_who_stay_below_what_they_are_told_makes_no_small_part_larger() {
    // Each uses nine tenths of its part.
    let used = [domain(1800, 20), domain(3600, 40), domain(450, 5)];
    assert_eq!(bytes(&used, 650), [2450, 4250, 1100], "as if what is left were each one's alone");
    let adapts = |one: Principal| Principal { adapts: true, ..one };
    assert_eq!(bytes(&used.map(adapts), 650), [2000, 4000, 500]);
    // Who uses little leaves what it does not use, but for a quarter of that.
    assert_eq!(bytes(&[adapts(domain(100, 1)), domain(900, 1)], 0), [500, 875]);
    let below = Principal { parent: Some(0), ..adapts(domain(100, 1)) };
    let [one, other, _] = bytes(&[domain(300, 1), domain(700, 1), below], 0)[..] else { panic!("three") };
    assert_eq!((one, other), (500, 675), "what is left below a domain, that leaves");
    let limited = Principal { max_bytes: 110, ..adapts(domain(100, 1)) };
    assert_eq!(bytes(&[adapts(limited), domain(900, 1)], 0), [110, 890]);
}

#[test]
fn a_higher_priority_has_first_refusal_and_a_lower_one_is_taken_down_to_its_minimum() {
    let high = Principal { priority: 6, ..domain(300, 1) };
    let low = Principal { priority: 2, min_bytes: 100, ..domain(500, 1) };
    assert_eq!(bytes(&[high, domain(200, 1), low], 0), [900, 600, 500]);
}

#[test]
fn nobody_has_more_than_its_maximum_or_that_of_one_above_it() {
    let limited = Principal { max_bytes: 400, ..domain(300, 1) };
    let child = Principal { parent: Some(0), ..domain(100, 1) };
    // 200 of the 300 are the domain's own: of 400 the child can have the rest.
    assert_eq!(bytes(&[limited, child], 1000), [400, 200]);
}

#[test]
fn a_minimum_can_be_had_whoever_uses_it_now() {
    let promised = Principal { min_bytes: 500, ..domain(0, 1) };
    assert_eq!(bytes(&[domain(1000, 10_000), promised], 0), [1000, 500]);
    let higher = Principal { priority: 6, ..domain(1000, 1) };
    assert_eq!(bytes(&[higher, promised], 0), [1000, 500], "of a higher priority, too");
    let keeps = Principal { kept_bytes: 700, ..higher };
    assert_eq!(bytes(&[keeps, promised], 0), [1000, 300], "but not what cannot be taken");
}

#[test]
fn what_is_kept_of_others_or_has_nowhere_to_go_is_promised_to_nobody() {
    let protected = Principal { kept_bytes: 600, ..domain(800, 1) };
    assert_eq!(bytes(&[protected, domain(100, 1)], 100), [900, 400]);
    assert_eq!(bytes(&[protected, domain(100, 10_000)], 100), [900, 400], "whatever it weighs");
    // Two that are taken from by weight: one of them only as far as that goes.
    let stays = Principal { kept_bytes: 250, ..domain(300, 1) };
    assert_eq!(bytes(&[stays, domain(300, 1), domain(0, 1)], 0), [300, 300, 175]);
}

#[test]
fn the_reserve_is_nobodys_and_the_machine_is_not_exceeded() {
    let of_room = |free_bytes, target_bytes, total_bytes| {
        let room = Room { free_bytes, target_bytes, total_bytes };
        available(&[domain(500, 1)], &room)[0].bytes
    };
    assert_eq!(of_room(100, 30, 1000), 570);
    assert_eq!(of_room(10, 30, 1000), 480, "who has all has to give some of it up");
    assert_eq!(of_room(900, 30, 1000), 970, "read at two times");
    assert_eq!([of_room(0, 900, 1000), of_room(0, 10, 5)], [0, 0]);
}

#[test]
fn what_is_free_or_clean_is_there_at_once_and_the_rest_when_it_is_written() {
    let pays = Principal { clean_bytes: 100, kept_bytes: 200, ..domain(900, 1) };
    let told = available(&[pays, domain(0, 1)], &Room { target_bytes: 20, ..room(120) });
    // Half of the thousand: 100 are free and as much clean; 500 of what pays are not, and may be taken first.
    assert_eq!(told[1], Available { bytes: 500, at_once_bytes: 200, to_write_bytes: 400 });
    // What it uses it has; what it may have more is free.
    assert_eq!(told[0], Available { bytes: 1000, at_once_bytes: 1000, to_write_bytes: 0 });
    let below = Principal { parent: Some(1), ..domain(0, 1) };
    let nested = available(&[pays, domain(0, 1), below], &Room { target_bytes: 20, ..room(120) });
    assert_eq!(nested[2], told[1], "what the one above has to wait for, the one below waits for");
    let less = available(&[domain(900, 1), domain(100, 1)], &Room { target_bytes: 100, ..room(0) });
    assert_eq!(less[0], Available { bytes: 800, at_once_bytes: 800, to_write_bytes: 0 }, "it has too much");
}

#[test]
fn who_uses_what_is_charged_to_another_has_so_much_less_left() {
    // The first is charged for a file of 300 that only the second uses, and has 300 beside it, as the second has.
    let lends = domain(600, 1).claiming(0, 300);
    let borrows = domain(300, 1).claiming(300, 0);
    // 900 are claimed: at 450 the first is charged for 750, and the second has had more than that since long.
    assert_eq!(bytes(&[lends, borrows, domain(0, 1)], 0), [750, 300, 300]);
}

proptest! {
    #[test]
    fn no_more_is_told_than_can_be_taken_and_no_less_than_is_used(
        principals in tree(), free_bytes in 0..1_u64 << 30, target_bytes in 0..1_u64 << 24,
    ) {
        let room = Room { free_bytes, target_bytes, total_bytes: u64::MAX };
        let told = available(&principals, &room);
        let free_bytes = free_bytes.saturating_sub(target_bytes);
        let is_lacking = room.free_bytes < target_bytes;
        let takeable_bytes = takeable(&principals);
        for (place, (one, told)) in principals.iter().zip(&told).enumerate() {
            // What its siblings can give and those of all above it: nobody loses by a floor of one above both.
            let with_above: Vec<usize> =
                std::iter::successors(Some(place), |place| principals[*place].parent).collect();
            let is_beside = |at: &usize| {
                !with_above.contains(at) && with_above.iter().any(|one| principals[*one].parent == principals[*at].parent)
            };
            let can = sum((0..principals.len()).filter(is_beside).map(|at| takeable_bytes[at]));
            let more_bytes = told.bytes.saturating_sub(one.claimed_bytes);
            prop_assert!(more_bytes <= free_bytes + can, "{more_bytes} of {free_bytes} and {can} by {place}");
            prop_assert!(told.at_once_bytes <= told.bytes && told.to_write_bytes <= more_bytes);
            // By a unit of weight a level less, since levels are rounded down.
            let least = one.claimed_bytes.saturating_sub(120_000);
            prop_assert!(is_lacking || told.bytes >= least, "{place}: {told:?} of {one:?}");
            // What is not there at once is written.
            let once_bytes = told.at_once_bytes.saturating_sub(one.claimed_bytes);
            prop_assert!(more_bytes <= once_bytes + told.to_write_bytes + 1, "{place}: {told:?}");
        }
    }

    #[test]
    fn nobody_is_told_what_others_are_promised_and_use(principals in tree(), free_bytes in 0..1_u64 << 30) {
        // With all below it, of what those use.
        let mut promised_bytes = vec![0_u64; principals.len()];
        for (place, one) in principals.iter().enumerate().rev() {
            promised_bytes[place] = promised_bytes[place].max(one.min_bytes.min(one.claimed_bytes));
            if let Some(parent) = one.parent {
                promised_bytes[parent] += promised_bytes[place];
            }
        }
        for (place, told) in available(&principals, &room(free_bytes)).iter().enumerate() {
            let with_above: Vec<usize> =
                std::iter::successors(Some(place), |place| principals[*place].parent).collect();
            let beside = (0..principals.len()).filter(|at| {
                let is_sibling = |one: &usize| principals[*one].parent == principals[*at].parent;
                !with_above.contains(at) && with_above.iter().any(is_sibling)
            });
            let can = sum(beside.map(|at| principals[at].claimed_bytes - promised_bytes[at]));
            let more_bytes = told.bytes.saturating_sub(principals[place].claimed_bytes);
            prop_assert!(more_bytes <= free_bytes + can, "{place}: {told:?} of {free_bytes} and {can}");
        }
    }

    #[test]
    fn what_is_told_to_be_there_at_once_is_free_or_clean_with_those_who_pay(
        principals in tree(), clean in prop::collection::vec(0..1_u64 << 26, 12), free_bytes in 0..1_u64 << 26,
    ) {
        let mut principals = principals;
        for (one, clean) in principals.iter_mut().zip(clean) {
            one.clean_bytes = clean.min(one.claimed_bytes);
        }
        let can = takeable(&principals);
        let clean_bytes = sum(principals.iter().zip(can).map(|(one, can)| one.clean_bytes.min(can)));
        for (one, told) in principals.iter().zip(available(&principals, &room(free_bytes))) {
            let once_bytes = told.at_once_bytes.saturating_sub(one.claimed_bytes);
            prop_assert!(once_bytes <= free_bytes + clean_bytes, "{once_bytes}");
        }
    }

    #[test]
    fn who_takes_what_is_told_finds_it_with_the_victims(
        used in prop::collection::vec((0..400_u64, 1..100_u32, 0..100_u64), 2..8), which: prop::sample::Index,
    ) {
        let mib = 1 << 20;
        let mut principals: Vec<Principal> = used
            .iter()
            .map(|(used, weight, kept)| Principal { kept_bytes: kept * mib, ..domain(used * mib, *weight) })
            .collect();
        let grows = which.index(principals.len());
        let granted = available(&principals, &room(0))[grows].bytes;
        // It grows by a piece as soon as one was taken from somebody.
        while principals[grows].claimed_bytes < granted {
            let left = granted - principals[grows].claimed_bytes;
            let Some(victim) = victims(&principals, left.min(mib)).first().copied() else { break };
            principals[victim.place].claimed_bytes -= victim.bytes;
            if victim.place == grows {
                break;
            }
            principals[grows].claimed_bytes += victim.bytes;
        }
        let has = principals[grows].claimed_bytes;
        // Up to a piece before it is the one that has most.
        prop_assert!(has + 9 * mib >= granted, "{has} of {granted}: {principals:?}");
    }

    #[test]
    fn more_free_memory_lowers_nobodys_and_a_larger_weight_not_ones_own(
        domains in tree(), free_bytes in 0..1_000_000_u64, more in 0..1_000_000_u64, heavier in 1..1000_u32,
    ) {
        let before = bytes(&domains, free_bytes);
        let after = bytes(&domains, free_bytes + more);
        prop_assert!(before.iter().zip(&after).all(|(before, after)| after + 120_000 >= *before), "{before:?} {after:?}");
        let mut changed = domains.clone();
        changed[0].weight = weight(domains[0].weight.get() + heavier);
        let after = bytes(&changed, free_bytes);
        prop_assert!(after[0] + u64::from(changed[0].weight.get()) >= before[0], "{before:?} {after:?}");
    }

    #[test]
    fn who_wants_all_of_it_beside_the_others_has_its_part_by_weight(
        weights in prop::collection::vec(1..=10_000_u32, 2..8), pool_bytes in 1_000_000..2_000_000_u64,
    ) {
        // All want everything, and what there is is what one of them uses.
        let domains: Vec<Principal> = weights.iter().map(|one| domain(pool_bytes, *one)).collect();
        let shares: Vec<Share> = domains.iter().map(|one| Share::of(one, pool_bytes, 0)).collect();
        let places: Vec<usize> = (0..domains.len()).collect();
        let above = Grant { bytes: pool_bytes, ..Grant::default() };
        let mut grants = vec![Grant::default(); domains.len()];
        Level { shares: &shares, places: &places, above }.grant(&mut grants);
        let sum: u64 = weights.iter().map(|one| u64::from(*one)).sum();
        for (grant, weight) in grants.iter().zip(&weights) {
            let part = u128::from(pool_bytes) * u128::from(*weight) / u128::from(sum);
            prop_assert!(grant.bytes.abs_diff(part as u64) <= 1, "{} of {part}", grant.bytes);
        }
    }

    #[test]
    fn a_level_below_is_divided_as_the_top_is(
        used in prop::collection::vec((0..8_u8, 0..1_000_000_u64, 1..10_000_u32), 1..12), free_bytes in 0..1_000_000_u64,
    ) {
        let domains: Vec<Principal> =
            used.iter().map(|(priority, used, weight)| Principal { priority: *priority, ..domain(*used, *weight) }).collect();
        let mut nested = vec![domain(sum(domains.iter().map(|one| one.claimed_bytes)), 1)];
        nested.extend(domains.iter().map(|domain| Principal { parent: Some(0), ..*domain }));
        prop_assert_eq!(&bytes(&nested, free_bytes)[1..], &bytes(&domains, free_bytes)[..]);
    }

    #[test]
    fn no_amount_is_too_large_to_be_divided(
        used in prop::collection::vec(any::<[u64; 4]>(), 1..6), free_bytes: u64, target_bytes: u64, total_bytes: u64,
        of_weight in 1..=u32::MAX,
    ) {
        let one = |[claimed, min_bytes, kept_bytes, mapped]: &[u64; 4]| {
            Principal { min_bytes: *min_bytes, kept_bytes: *kept_bytes, ..domain(*claimed, of_weight) }
                .claiming(*kept_bytes, *mapped)
        };
        let domains: Vec<Principal> = used.iter().map(one).collect();
        let told = available(&domains, &Room { free_bytes, target_bytes, total_bytes });
        prop_assert_eq!(told.len(), used.len());
    }
}

#[test]
fn a_change_is_news_from_a_twentieth_of_what_was_told_on() {
    assert!(!is_news(100, 100) && !is_news(100, 104) && !is_news(100, 96));
    assert!(is_news(100, 105) && is_news(100, 95));
    assert!(!is_news(0, 0) && is_news(0, 1) && is_news(1, 0));
    assert!(is_news(u64::MAX, 0) && !is_news(u64::MAX, u64::MAX - 1));
}
