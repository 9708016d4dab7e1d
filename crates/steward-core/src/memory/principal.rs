//! The tree of principals among whom memory is divided (Walfield, section 3): each domain with what it claims, what it
//! is promised, and what it stands for beside its siblings.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// A domain as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The place of the one above it, before its own; `None` at the top.
    pub parent: Option<usize>,
    /// Order among its siblings: a higher one comes first.
    pub priority: u8,
    /// Its part among siblings of one priority.
    pub weight: NonZeroU32,
    /// What it claims with all below it, in bytes: what is charged to it, without what others use of that, and with
    /// what it uses of what is charged to others. What is charged to it, as long as nobody has looked who uses what.
    pub claimed_bytes: u64,
    /// Of that, what is charged to others, in bytes: it counts against it, and cannot be taken from it.
    pub borrowed_bytes: u64,
    /// What is charged to it and others claim, in bytes.
    pub lent_bytes: u64,
    /// Of what is charged to it, pages of files that can be taken without waiting for a disk, in bytes; 0 where nobody
    /// has looked.
    pub clean_bytes: u64,
    /// What it is promised, in bytes.
    pub min_bytes: u64,
    /// What cannot be taken from it now beside its minimum, in bytes: what it used within its protection period, or
    /// what the kernel did not find.
    pub kept_bytes: u64,
    /// The most that it may use, in bytes.
    pub max_bytes: u64,
    /// Whether nobody gave it anything: such siblings pay in turns.
    #[serde(default)]
    pub takes_turns: bool,
    /// Whether it goes by what it is told that it may use: it uses nearly all of that, and wants all of it.
    #[serde(default)]
    pub adapts: bool,
}

impl Principal {
    /// One at the top with this weight, which is promised nothing and keeps nothing.
    pub fn of_weight(weight: NonZeroU32) -> Self {
        Principal {
            parent: None,
            priority: crate::cpu::policy::PRIORITY_DEFAULT,
            weight,
            claimed_bytes: 0,
            borrowed_bytes: 0,
            lent_bytes: 0,
            clean_bytes: 0,
            min_bytes: 0,
            kept_bytes: 0,
            max_bytes: u64::MAX,
            takes_turns: false,
            adapts: false,
        }
    }

    /// What is charged to it with all below it, in bytes: of this the kernel can take.
    pub fn charged_bytes(&self) -> u64 {
        self.claimed_bytes.saturating_add(self.lent_bytes).saturating_sub(self.borrowed_bytes)
    }

    /// The same with what it uses of pages of files: `used_bytes` over all processes in it and below it, each page
    /// divided among all who have it mapped, where `mapped_bytes` of what is charged to it are mapped by anybody.
    pub fn claiming(self, used_bytes: u64, mapped_bytes: u64) -> Self {
        let charged_bytes = self.charged_bytes();
        let lent_bytes = mapped_bytes.saturating_sub(used_bytes).min(charged_bytes);
        let borrowed_bytes = used_bytes.saturating_sub(mapped_bytes);
        let claimed_bytes = charged_bytes.saturating_add(borrowed_bytes) - lent_bytes;
        Principal { claimed_bytes, borrowed_bytes, lent_bytes, ..self }
    }
}

/// Principals with what follows from their order.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Those at the top.
    pub(super) top: Vec<usize>,
    /// By place: those directly below.
    pub(super) children: Vec<Vec<usize>>,
    /// By place: what is not taken from it and all below it together, whatever is charged to it.
    pub(super) floor_bytes: Vec<u64>,
    /// By place: what it is promised, as far as those above it are ([`minima_in_force`]).
    pub(super) min_bytes: Vec<u64>,
}

impl Family {
    pub(super) fn of(principals: &[Principal]) -> Self {
        let mut children = vec![Vec::new(); principals.len()];
        let mut top = Vec::new();
        for (place, principal) in principals.iter().enumerate() {
            match parent_of(place, principal) {
                Some(parent) => children[parent].push(place),
                None => top.push(place),
            }
        }
        let min_bytes = minima_in_force(principals, &children);
        let own = principals.iter().zip(&min_bytes).map(|(one, min_bytes)| one.kept_bytes.max(*min_bytes));
        let mut floor_bytes: Vec<u64> = own.collect();
        // Children come after their parents: what they keep, those above keep with them.
        for place in (0..principals.len()).rev() {
            // Of a promise that is not used, nothing has to be kept yet.
            let used = |child: &usize| floor_bytes[*child].min(principals[*child].charged_bytes());
            let below = children[place].iter().map(used).fold(0, u64::saturating_add);
            floor_bytes[place] = floor_bytes[place].max(below);
        }
        Family { top, children, floor_bytes, min_bytes }
    }
}

/// What each is promised, as the kernel holds it: no more than its maximum, and together with its siblings no more than
/// the one above it. That is told as much as all below it are promised ([`super::limits`]), also where nobody promised
/// anything to it, as to a slice of systemd's; but no more than its maximum, which is divided in proportion where it is
/// not enough for all. It depends on nothing that is used or free: more free memory lowers nobody's.
fn minima_in_force(principals: &[Principal], children: &[Vec<usize>]) -> Vec<u64> {
    let mut minima: Vec<u64> = principals.iter().map(|one| one.min_bytes.min(one.max_bytes)).collect();
    // Children come after their parents.
    for place in (0..principals.len()).rev() {
        let below = children[place].iter().map(|child| minima[*child]).fold(0, u64::saturating_add);
        minima[place] = minima[place].max(below).min(principals[place].max_bytes);
    }
    for place in 0..principals.len() {
        let asked: u128 = children[place].iter().map(|child| u128::from(minima[*child])).sum();
        let has = minima[place];
        if asked > u128::from(has) {
            for child in &children[place] {
                let part = u128::from(minima[*child]) * u128::from(has) / asked;
                minima[*child] = u64::try_from(part).unwrap_or(u64::MAX);
            }
        }
    }
    minima
}

/// The place above; one that is not before its child is none.
pub(super) fn parent_of(place: usize, principal: &Principal) -> Option<usize> {
    principal.parent.filter(|parent| *parent < place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charged(bytes: u64) -> Principal {
        Principal { claimed_bytes: bytes, ..Principal::of_weight(NonZeroU32::MIN) }
    }

    #[test]
    fn who_uses_what_is_charged_to_another_claims_it_in_its_stead() {
        // 40 of a file are charged to the first and mapped by the second alone, 10 by both.
        let (lends, borrows) = (charged(100).claiming(5, 50), charged(20).claiming(45, 0));
        assert_eq!((lends.claimed_bytes, lends.lent_bytes, lends.charged_bytes()), (55, 45, 100));
        assert_eq!((borrows.claimed_bytes, borrows.borrowed_bytes, borrows.charged_bytes()), (65, 45, 20));
        assert_eq!(lends.claimed_bytes + borrows.claimed_bytes, 120);
        let again = lends.claiming(50, 50);
        assert_eq!((again.claimed_bytes, again.lent_bytes), (100, 0), "the newest look counts");
        assert_eq!(charged(10).claiming(0, 50).claimed_bytes, 0, "read a moment later, it may be more");
    }

    #[test]
    fn no_more_is_promised_to_children_than_the_one_above_them_may_have_and_it_is_told_as_much_as_they_are() {
        let promised = |min_bytes, parent| Principal { min_bytes, parent, ..charged(0) };
        let limited = |max_bytes, one| Principal { max_bytes, ..one };
        let all = [
            limited(100, promised(80, None)),
            promised(150, Some(0)),
            promised(50, Some(0)),
            promised(10, Some(1)),
            limited(50, promised(80, None)),
        ];
        assert_eq!(Family::of(&all).min_bytes, [100, 75, 25, 10, 50]);
        // A slice of systemd's, above a scope that is promised something.
        let nothing_above = [promised(0, None), promised(10, Some(0)), promised(5, Some(1))];
        assert_eq!(Family::of(&nothing_above).min_bytes, [10, 10, 5]);
    }
}
