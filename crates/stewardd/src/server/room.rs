//! Who may be connected: how many at once, and who goes when there is no room.
//!
//! Some room is kept for root and the owner. Of the others each has a limit of his own, and when there is no room for
//! one more, whoever has the most connections loses one; if that would be the newcomer, he is not let in. So nobody can
//! crowd out anybody but himself, and many users together do not crowd out the one whom the machine belongs to.

use std::collections::HashMap;

use super::turns::Payer;

/// How many connections there can be at once.
pub const CLIENTS_MAX: usize = 512;
/// How many of them one user can have who is neither root nor the owner.
pub const CLIENTS_PER_USER_MAX: usize = 64;
/// How many are kept for root and the owner.
pub const KEPT_MAX: usize = 64;

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// There is room.
    Room,
    /// There is, once one of this payer's connections is closed.
    InPlaceOf(Payer),
    /// There is none.
    Full,
}

/// Whether there is room for one more connection of `newcomer` beside those of `present`, each by who pays for it.
pub(crate) fn entry(
    present: impl Iterator<Item = Payer>,
    newcomer: Payer,
    is_kept_for: &dyn Fn(Payer) -> bool,
) -> Entry {
    let mut counts: HashMap<Payer, usize> = HashMap::new();
    present.for_each(|payer| *counts.entry(payer).or_default() += 1);
    let total: usize = counts.values().sum();
    let own = counts.get(&newcomer).copied().unwrap_or(0);
    let others = counts.iter().filter(|(payer, _)| !is_kept_for(**payer));
    let of_others: usize = others.clone().map(|(_, count)| *count).sum();
    let most = others.max_by_key(|(payer, count)| (**count, **payer)).map(|(payer, count)| (*payer, *count));
    if is_kept_for(newcomer) {
        return match most {
            _ if total < CLIENTS_MAX => Entry::Room,
            Some((payer, _)) => Entry::InPlaceOf(payer),
            None => Entry::InPlaceOf(newcomer),
        };
    }
    if own >= CLIENTS_PER_USER_MAX {
        return Entry::InPlaceOf(newcomer);
    }
    if of_others < CLIENTS_MAX - KEPT_MAX && total < CLIENTS_MAX {
        return Entry::Room;
    }
    match most {
        Some((payer, count)) if own + 1 < count => Entry::InPlaceOf(payer),
        _ => Entry::Full,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_kept_for(payer: Payer) -> bool {
        payer == 0 || payer == 1000
    }

    /// Lets all of them in, one after the other; who has how many in the end.
    fn after(newcomers: impl IntoIterator<Item = Payer>) -> HashMap<Payer, usize> {
        let mut present: Vec<Payer> = Vec::new();
        for newcomer in newcomers {
            match entry(present.iter().copied(), newcomer, &is_kept_for) {
                Entry::Room => {}
                Entry::InPlaceOf(payer) => {
                    let place = present.iter().position(|other| *other == payer).expect("it has one");
                    present.swap_remove(place);
                }
                Entry::Full => continue,
            }
            present.push(newcomer);
        }
        let mut counts = HashMap::new();
        present.into_iter().for_each(|payer| *counts.entry(payer).or_default() += 1);
        counts
    }

    #[test]
    fn one_user_has_a_part_and_root_may_have_all() {
        assert_eq!(after([1001; 600])[&1001], CLIENTS_PER_USER_MAX);
        assert_eq!(after([0; 600])[&0], CLIENTS_MAX);
    }

    #[test]
    fn users_without_number_leave_root_and_the_owner_their_room_and_each_other_theirs() {
        let sybils = 100_000..101_000;
        let counts = after([0, 1000].into_iter().chain(sybils.clone()));
        assert_eq!((counts[&0], counts[&1000]), (1, 1));
        let all: usize = counts.values().sum();
        assert_eq!(all, CLIENTS_MAX - KEPT_MAX + 2);
        // Whoever is in stays in, and root finds room.
        assert_eq!(counts[&100_000], 1);
        assert_eq!(after(sybils.chain([0; KEPT_MAX]))[&0], KEPT_MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn nobody_loses_a_connection_to_one_who_has_as_many(
            newcomers in proptest::collection::vec(prop_oneof![Just(0u32), 1000u32..1012], 0..700),
            last in 1001u32..1012,
        ) {
            let counts = after(newcomers.iter().copied());
            let total: usize = counts.values().sum();
            prop_assert!(total <= CLIENTS_MAX);
            for (payer, count) in &counts {
                prop_assert!(is_kept_for(*payer) || *count <= CLIENTS_PER_USER_MAX);
            }
            let present = counts.iter().flat_map(|(payer, count)| std::iter::repeat_n(*payer, *count));
            if let Entry::InPlaceOf(payer) = entry(present, last, &is_kept_for) {
                let own = counts.get(&last).copied().unwrap_or(0);
                prop_assert!(payer == last || (own + 1 < counts[&payer] && !is_kept_for(payer)));
            }
        }
    }
}
