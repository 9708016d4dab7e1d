//! From whom memory is taken when there is too little (Walfield, algorithm 1), and how much (section 4.5.1).
//!
//! From the top down: of the siblings of the lowest priority the one that claims most for its weight, until one is
//! found that has nobody below it. Nobody is taken from below its floor: its minimum, and what it used within its
//! protection period; one who can give nothing is passed over, as are all below one whose floor is reached.
//!
//! The paper's working-set factor is left out: what was used within the last moments would not count as claimed at
//! first. Then whoever has anything that is not used gives first, also below its part, so that busy siblings do not
//! have what their weights say and what is told to be available cannot be had (docs/memory.md).
//!
//! Who is chosen depends on what they claim, pages of files among it that are charged to others; what is taken is of
//! what is charged to them. So one who uses much of others' pays for it with memory of its own, as long as it has any:
//! the kernel takes from whoever is charged, and cannot be told which of their pages.
//!
//! Among siblings to which nobody gave anything, those who pay take turns ([`victims_in_turn`]): programs that together
//! need more than there is, and are taken from in equal parts, all wait for the disk, and none of them ends. Who pays
//! goes on paying instead, nearly as a whole, as a protected domain that does not fit is demoted as a whole; meanwhile
//! the others get on. Then it is the turn of the one that has most, so that over time all have their parts.
//!
//! Of equals, those that differ by less than the smallest piece or where turns are taken by less than an eighth, the
//! one comes next that has paid longest ago: nobody pays twice before the others have.
//!
//! Fractions are compared by cross-multiplication: nothing is rounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::principal::{Family, Principal, parent_of};

/// The most that is taken from one before it is asked anew who comes next. Smaller pieces of several in turn would lie
/// between each other in the swap, and come back one page at a time where a disk could read many at once.
pub const PIECE_MAX_BYTES: u64 = 8 << 20;
/// The least: between siblings that are nearly even, ever smaller pieces would be taken in turn.
pub const PIECE_MIN_BYTES: u64 = 256 << 10;
/// How many pieces are decided about at most from one observation, which grows old meanwhile.
const PIECES_MAX: usize = 1024;
/// A turn ends when no more is left than 1 of so many parts of what the one that pays should have by its weight.
const TURN_PART: u64 = 8;
/// Those that take turns are equals when they differ by less than 1 of so many parts of what the larger has.
const EQUAL_PART: u64 = 8;

/// Take this much from the principal at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// The place among the principals; nobody is below it.
    pub place: usize,
    /// How much, in bytes.
    pub bytes: u64,
}

/// From whom so much is to be taken, in this order; less where no more can be had. Pieces of one in a row are one.
/// O(n) for each piece.
pub fn victims(principals: &[Principal], bytes: u64) -> Vec<Victim> {
    victims_in_turn(principals, |_| false, |_| 0, bytes)
}

/// The same, where those at these places have their turn: of their siblings they have paid last. That matters only
/// where whoever would come next takes turns, too. `paid_at` says in which order they paid last, with all below them; 0
/// is never.
pub fn victims_in_turn(
    principals: &[Principal],
    has_turn: impl Fn(usize) -> bool,
    paid_at: impl Fn(usize) -> u64,
    bytes: u64,
) -> Vec<Victim> {
    let has_turn = (0..principals.len()).map(has_turn).collect();
    let paid_at = (0..principals.len()).map(paid_at).collect();
    let mut taking = Taking { has_turn, paid_at, ..Taking::new(principals) };
    let mut victims: Vec<Victim> = Vec::new();
    let mut left_bytes = bytes;
    for _ in 0..PIECES_MAX {
        if left_bytes == 0 {
            break;
        }
        let Some((place, excess_bytes)) = taking.choose() else { break };
        let wanted_bytes = excess_bytes.clamp(PIECE_MIN_BYTES, PIECE_MAX_BYTES).min(left_bytes);
        let piece_bytes = wanted_bytes.min(taking.least_takeable_bytes(place));
        taking.take(place, piece_bytes);
        left_bytes -= piece_bytes;
        match victims.last_mut().filter(|last| last.place == place) {
            Some(last) => last.bytes += piece_bytes,
            None => victims.push(Victim { place, bytes: piece_bytes }),
        }
    }
    victims
}

/// How much can be taken from each principal with all below it, in bytes, by place.
pub fn takeable(principals: &[Principal]) -> Vec<u64> {
    Taking::new(principals).takeable_bytes
}

/// What is claimed by one from whom it can never be taken, since it is charged to others, counts for those others
/// again: else whoever has their file mapped by a second domain of theirs, with nothing of its own, would not pay for
/// it, and somebody else would. Not what is kept for who claims it: that is protected wherever it is charged. Who has
/// lent to whom is not known, so all lenders of a level have their part of it.
fn return_debts(
    principals: &[Principal],
    level: &[usize],
    floor_bytes: &[u64],
    takeable_bytes: &[u64],
    claimed_bytes: &mut [u64],
) {
    let debt = |place: &usize| {
        let covered_bytes = takeable_bytes[*place].saturating_add(floor_bytes[*place]);
        u128::from(principals[*place].borrowed_bytes.saturating_sub(covered_bytes))
    };
    let lent = |place: &usize| u128::from(principals[*place].lent_bytes);
    let debts: u128 = level.iter().map(debt).sum();
    let all_lent: u128 = level.iter().map(lent).sum();
    if debts == 0 || all_lent == 0 {
        return;
    }
    for place in level {
        let returned = lent(place) * debts.min(all_lent) / all_lent;
        claimed_bytes[*place] =
            claimed_bytes[*place].saturating_add(u64::try_from(returned).unwrap_or(u64::MAX));
    }
}

/// Principals while memory is being taken from them.
struct Taking<'principals> {
    principals: &'principals [Principal],
    family: Family,
    /// What each still claims.
    claimed_bytes: Vec<u64>,
    /// What can still be taken of it.
    takeable_bytes: Vec<u64>,
    /// Who has its turn to pay.
    has_turn: Vec<bool>,
    /// In which order they paid last; 0: never.
    paid_at: Vec<u64>,
}

impl<'principals> Taking<'principals> {
    fn new(principals: &'principals [Principal]) -> Self {
        let family = Family::of(principals);
        let mut claimed_bytes: Vec<u64> =
            principals.iter().map(|principal| principal.claimed_bytes).collect();
        let mut takeable_bytes = vec![0_u64; principals.len()];
        for place in (0..principals.len()).rev() {
            let above_floor = principals[place].charged_bytes().saturating_sub(family.floor_bytes[place]);
            let children = &family.children[place];
            // What is charged to one with children, and to none of them, the kernel takes only with theirs.
            let below = children.iter().map(|child| takeable_bytes[*child]).fold(0, u64::saturating_add);
            takeable_bytes[place] = if children.is_empty() { above_floor } else { above_floor.min(below) };
        }
        for level in std::iter::once(&family.top).chain(&family.children) {
            return_debts(principals, level, &family.floor_bytes, &takeable_bytes, &mut claimed_bytes);
        }
        let (has_turn, paid_at) = (vec![false; principals.len()], vec![0; principals.len()]);
        Taking { principals, family, claimed_bytes, takeable_bytes, has_turn, paid_at }
    }

    /// The next victim, and by how much it has more than its part.
    fn choose(&self) -> Option<(usize, u64)> {
        let mut level = &self.family.top;
        loop {
            let (place, excess_bytes) = self.of_level(level)?;
            level = &self.family.children[place];
            if level.is_empty() {
                return Some((place, excess_bytes));
            }
        }
    }

    fn of_level(&self, level: &[usize]) -> Option<(usize, u64)> {
        let mut groups: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for place in level {
            groups.entry(self.principals[*place].priority).or_default().push(*place);
        }
        groups.values().find_map(|group| {
            let place = self.of_group(group)?;
            Some((place, self.excess_of(place, group)))
        })
    }

    /// Of one priority, who claims most for its weight; only those from whom something can be taken are asked.
    fn of_group(&self, group: &[usize]) -> Option<usize> {
        let gives = |place: &usize| self.takeable_bytes[*place] > 0 && self.claimed_bytes[*place] > 0;
        let scaled = |place: usize, other: usize| {
            u128::from(self.claimed_bytes[place]) * u128::from(self.principals[other].weight.get())
        };
        let mut candidates = group.iter().copied().filter(gives);
        // The first of equals, so that the same observation has the same victims.
        let most = candidates
            .clone()
            .reduce(|one, other| if scaled(other, one) > scaled(one, other) { other } else { one })?;
        let equals = candidates.clone().filter(|place| self.is_equal(*place, most));
        let in_turn = candidates.find(|place| self.takes_turns(most) && self.goes_on(*place, group));
        // Where nobody has paid, the first of those that have most.
        in_turn.or_else(|| equals.min_by_key(|place| (self.paid_at[*place], *place != most)))
    }

    /// Whether one has as much for its weight as the one that has most, as far as it matters.
    fn is_equal(&self, place: usize, most: usize) -> bool {
        let most_bytes = self.claimed_bytes[most];
        let takes_turns = self.takes_turns(most) && self.takes_turns(place);
        let apart_bytes = if takes_turns { most_bytes / EQUAL_PART } else { PIECE_MIN_BYTES };
        let weight = |place: usize| u128::from(self.principals[place].weight.get());
        let nearly_bytes = self.claimed_bytes[place].saturating_add(apart_bytes);
        place == most || u128::from(nearly_bytes) * weight(most) > u128::from(most_bytes) * weight(place)
    }

    fn takes_turns(&self, place: usize) -> bool {
        self.principals[place].takes_turns && self.family.children[place].is_empty()
    }

    /// Whether it is the turn of this one, and goes on.
    fn goes_on(&self, place: usize, group: &[usize]) -> bool {
        self.has_turn[place]
            && self.takes_turns(place)
            && self.claimed_bytes[place] > self.part_bytes(place, group) / TURN_PART
    }

    /// What it has more than its part of what its group has, or than a turn leaves it.
    fn excess_of(&self, place: usize, group: &[usize]) -> u64 {
        let part_bytes = self.part_bytes(place, group);
        let left_bytes = if self.goes_on(place, group) { part_bytes / TURN_PART } else { part_bytes };
        self.claimed_bytes[place].saturating_sub(left_bytes)
    }

    /// Its part of what its group has, in bytes.
    fn part_bytes(&self, place: usize, group: &[usize]) -> u64 {
        let of_group =
            |value: &dyn Fn(usize) -> u64| group.iter().map(|place| u128::from(value(*place))).sum::<u128>();
        let claimed = of_group(&|place| self.claimed_bytes[place]);
        let weights = of_group(&|place| u64::from(self.principals[place].weight.get()));
        let part = claimed * u128::from(self.principals[place].weight.get()) / weights.max(1);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// What can be taken from one, and so from all above it.
    fn least_takeable_bytes(&self, place: usize) -> u64 {
        let above = std::iter::successors(Some(place), |place| parent_of(*place, &self.principals[*place]));
        above.map(|place| self.takeable_bytes[place]).min().unwrap_or(0)
    }

    /// Has so much be gone from one, and from all above it.
    fn take(&mut self, place: usize, bytes: u64) {
        let mut at = Some(place);
        while let Some(place) = at {
            self.claimed_bytes[place] = self.claimed_bytes[place].saturating_sub(bytes);
            self.takeable_bytes[place] = self.takeable_bytes[place].saturating_sub(bytes);
            at = parent_of(place, &self.principals[place]);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
