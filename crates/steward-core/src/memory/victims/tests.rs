//! Victims, by the paper's example and as properties.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).expect("above 0")
}

fn claims(claimed_bytes: u64, of_weight: u32) -> Principal {
    Principal { claimed_bytes, ..Principal::of_weight(weight(of_weight)) }
}

fn below(parent: usize, principal: Principal) -> Principal {
    Principal { parent: Some(parent), ..principal }
}

fn taken(principals: &[Principal], bytes: u64) -> Vec<u64> {
    let mut taken = vec![0; principals.len()];
    victims(principals, bytes).iter().for_each(|victim| taken[victim.place] += victim.bytes);
    taken
}

#[test]
fn who_most_exceeds_its_part_pays_and_of_its_children_the_one_that_does() {
    // Figure 3: Alice has 80 of what is there and Bob 20, of equal weight; of Alice's programs the second has more than
    // its tenth.
    let alice = claims(80 * MIB, 1);
    let bob = claims(20 * MIB, 1);
    let principals = [
        alice,
        bob,
        below(0, claims(40 * MIB, 9)),
        below(0, claims(40 * MIB, 1)),
        below(1, claims(20 * MIB, 1)),
    ];
    assert_eq!(victims(&principals, MIB), [Victim { place: 3, bytes: MIB }]);
    // 8 MiB of the 80 are the second's part of what Alice has; below that the first gives as well.
    let far = taken(&principals, 50 * MIB);
    assert_eq!((far[4], far[2] + far[3]), (0, 50 * MIB));
    assert!(far[3] > 35 * MIB && far[2] > 0, "{far:?}");
}

#[test]
fn a_lower_priority_pays_all_that_it_can_before_a_higher_one_pays_anything() {
    let low = Principal { priority: 2, min_bytes: 3 * MIB, ..claims(10 * MIB, 10_000) };
    let high = Principal { priority: 6, ..claims(500 * MIB, 1) };
    assert_eq!(taken(&[high, low], 7 * MIB), [0, 7 * MIB]);
    assert_eq!(taken(&[high, low], 9 * MIB), [2 * MIB, 7 * MIB]);
}

#[test]
fn among_those_to_whom_nobody_gave_anything_one_pays_nearly_as_a_whole_before_the_next() {
    let free = |mib| Principal { takes_turns: true, ..claims(mib * MIB, 1) };
    let paid = |principals: &[Principal], turn: usize, mib: u64| {
        let victims = victims_in_turn(principals, |place| place == turn, |_| 0, mib * MIB);
        victims.iter().map(|victim| (victim.place, victim.bytes / MIB)).collect::<Vec<_>>()
    };
    let all = [free(210), free(200), free(190)];
    assert_eq!(paid(&all, 9, 1), [(0, 1)], "who has most begins");
    assert_eq!(paid(&all, 2, 150), [(2, 150)], "and goes on");
    // Below an eighth of its part it is somebody else's turn.
    assert_eq!(paid(&[free(300), free(270), free(30)], 2, 1), [(2, 1)]);
    assert_eq!(paid(&[free(300), free(270), free(24)], 2, 1), [(0, 1)]);
    // Who was given something has its part and no less, and pays what it has more than that before others do.
    let given = [claims(200 * MIB, 1), free(190)];
    assert_eq!(paid(&given, 1, 8)[0].0, 0);
    assert_eq!(paid(&[claims(210 * MIB, 1), claims(200 * MIB, 1)], 1, 1), [(0, 1)]);
    // Nor does a whole part of the tree take turns with another.
    let parts = [free(210), free(200), below(0, free(210)), below(1, free(200))];
    assert_eq!(paid(&parts, 1, 1), [(2, 1)]);
}

#[test]
fn who_pay_in_turns_get_on_as_much_over_time() {
    // Each takes back what was taken from it, a mebibyte a round, and pays when it is its turn.
    let mut all = [200_u64; 4].map(|mib| Principal { takes_turns: true, ..claims(mib * MIB, 1) });
    let (mut turn, mut had) = (usize::MAX, [0_u64; 4]);
    for _ in 0..20_000 {
        let victims = victims_in_turn(&all, |place| place == turn, |_| 0, 3 * MIB);
        turn = victims[0].place;
        victims.iter().for_each(|victim| all[victim.place].claimed_bytes -= victim.bytes);
        let others = (0..4).filter(|place| *place != turn).collect::<Vec<_>>();
        others.iter().for_each(|place| all[*place].claimed_bytes += MIB);
        (0..4).for_each(|place| had[place] += all[place].claimed_bytes / MIB);
    }
    let sum: u64 = had.iter().sum();
    assert!(had.iter().all(|had| (4 * had).abs_diff(sum) < sum / 10), "{had:?}");
}

#[test]
fn what_is_charged_to_nobody_below_is_taken_from_nobody() {
    let above = Principal { min_bytes: 2 * MIB, ..claims(20 * MIB, 1) };
    let principals = [above, below(0, claims(10 * MIB, 1))];
    assert_eq!(takeable(&principals), [10 * MIB, 10 * MIB]);
    let promised = [Principal { min_bytes: 15 * MIB, ..above }, below(0, claims(10 * MIB, 1))];
    assert_eq!(taken(&promised, 100 * MIB), [0, 5 * MIB]);
}

/// A tree of up to 12, with anything set. Who is above has what is below and some of its own.
pub(in super::super) fn tree() -> impl Strategy<Value = Vec<Principal>> {
    let one = (0..8_u8, 1..=10_000_u32, 0..400_u64, (0..100_u64, 0..100_u64), any::<prop::sample::Index>());
    prop::collection::vec(one, 1..12).prop_map(|all| {
        let mut principals: Vec<Principal> = Vec::new();
        for (priority, of_weight, claimed, (min, kept), above) in all {
            let place = above.index(principals.len() + 1);
            let parent = (place < principals.len()).then_some(place);
            let claimed_bytes = claimed * (MIB / 4);
            principals.push(Principal {
                parent,
                priority,
                min_bytes: min * (MIB / 4),
                kept_bytes: kept * (MIB / 4),
                ..claims(claimed_bytes, of_weight)
            });
        }
        // Who is above has what those below have.
        for place in (0..principals.len()).rev() {
            if let Some(parent) = principals[place].parent {
                principals[parent].claimed_bytes += principals[place].claimed_bytes;
            }
        }
        principals
    })
}

proptest! {
    #[test]
    fn nobody_falls_below_a_floor_and_no_more_is_taken_than_is_asked(principals in tree(), bytes in 0..200 * MIB) {
        let family = Family::of(&principals);
        let taken = taken(&principals, bytes);
        prop_assert!(taken.iter().sum::<u64>() <= bytes);
        let mut with_below = taken.clone();
        for place in (0..principals.len()).rev() {
            if let Some(parent) = principals[place].parent {
                with_below[parent] += with_below[place];
            }
        }
        for (place, principal) in principals.iter().enumerate() {
            prop_assert!(taken[place] == 0 || family.children[place].is_empty());
            let left = principal.claimed_bytes - with_below[place];
            prop_assert!(left >= principal.claimed_bytes.min(family.floor_bytes[place]), "{place}: {left}");
            // Whatever those above it were promised.
            prop_assert!(left >= principal.claimed_bytes.min(principal.min_bytes), "{place}: {left}");
        }
    }

    #[test]
    fn all_that_can_be_taken_is_found_if_enough_is_asked(principals in tree()) {
        let can: u64 = Family::of(&principals).top.iter().map(|place| takeable(&principals)[*place]).sum();
        prop_assert_eq!(taken(&principals, 200 * MIB).iter().sum::<u64>(), can.min(200 * MIB));
    }

    #[test]
    fn busy_siblings_come_to_have_what_their_weights_say(
        of_weight in prop::collection::vec(1..=100_u32, 2..6), claimed in prop::collection::vec(100..400_u64, 6),
    ) {
        // Each round all grow by what was taken, as much each: after some rounds they differ by what a round moves.
        let mut principals: Vec<Principal> =
            of_weight.iter().zip(&claimed).map(|(weight, claimed)| self::claims(claimed * MIB, *weight)).collect();
        let count = principals.len() as u64;
        for _ in 0..2000 {
            let round = 4 * MIB;
            for victim in victims(&principals, round) {
                principals[victim.place].claimed_bytes -= victim.bytes;
            }
            principals.iter_mut().for_each(|principal| principal.claimed_bytes += round / count);
        }
        let all: u64 = principals.iter().map(|principal| principal.claimed_bytes).sum();
        let weights: u64 = of_weight.iter().map(|weight| u64::from(*weight)).sum();
        for (principal, weight) in principals.iter().zip(&of_weight) {
            let share = all * u64::from(*weight) / weights;
            let apart = principal.claimed_bytes.abs_diff(share);
            prop_assert!(apart <= 6 * MIB, "{} of {share}: {principals:?}", principal.claimed_bytes);
        }
    }
}

/// Of a user's two domains one has written a file, and the other one, which has nothing, has it mapped.
#[test]
fn nobody_pays_less_because_a_second_domain_claims_what_is_charged_to_the_first() {
    let one = claims(220 * MIB, 1).claiming(0, 220 * MIB);
    let two = claims(MIB, 1).claiming(220 * MIB, 0);
    let other = claims(180 * MIB, 1);
    let honest = taken(&[claims(220 * MIB, 1), claims(MIB, 1), other], 100 * MIB);
    let with_two = taken(&[one, two, other], 100 * MIB);
    // Without the rule the other one pays all of it.
    assert!(with_two[2].abs_diff(honest[2]) <= 4 * MIB && with_two[0] > 60 * MIB, "{with_two:?}, {honest:?}");
    // What is kept for whoever claims it is nobody's debt: it stays in memory wherever it is charged.
    let protected = Principal { kept_bytes: 220 * MIB, ..two };
    assert_eq!(taken(&[one, protected, other], 100 * MIB), [0, 0, 100 * MIB]);
    // Nor is what can be taken from who claims it.
    let rich = claims(250 * MIB, 1).claiming(220 * MIB, 0);
    assert_eq!(taken(&[one, rich, other], 100 * MIB)[0], 0);
}
