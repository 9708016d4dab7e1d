//! How much of what programs have of their own can go into the swap: as much as there is room for, and as the cgroup
//! and all above it may have there (`memory.swap.max`).
//!
//! Nobody knows whose pages go first. So of what there is room for everybody's own memory has its part, in proportion,
//! and of what one with a limit may still have there all in it have theirs: what is said to go of each can go of all
//! together.

/// What counts of one. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The place of the one above it, before its own; `None` at the top.
    pub parent: Option<usize>,
    /// What it and all below it have of their own in memory: anonymous and shared memory.
    pub anonymous_bytes: u64,
    /// How much more of that may be swapped out by its own limit; `None` where it has none.
    pub swap_left_bytes: Option<u64>,
}

/// So much of so much.
#[derive(Clone, Copy, Debug)]
struct Part {
    of: u64,
    bytes: u64,
}

impl Part {
    fn is_less_than(self, other: Part) -> bool {
        u128::from(self.bytes) * u128::from(other.of) < u128::from(other.bytes) * u128::from(self.of)
    }

    /// That part of this, rounded down.
    fn of(self, bytes: u64) -> u64 {
        let part = u128::from(bytes) * u128::from(self.bytes) / u128::from(self.of.max(1));
        u64::try_from(part).map_or(bytes, |part| part.min(bytes))
    }
}

/// How much of what each has of its own can go into the swap, in bytes, in their order, where the machine has
/// `swap_free_bytes` of room there for `anonymous_bytes` that programs have.
pub fn swappable(each: &[Own], anonymous_bytes: u64, swap_free_bytes: u64) -> Vec<u64> {
    let of_machine = Part { of: anonymous_bytes.max(1), bytes: swap_free_bytes };
    let mut parts: Vec<Part> = Vec::with_capacity(each.len());
    for own in each {
        let above = own.parent.and_then(|parent| parts.get(parent)).copied().unwrap_or(of_machine);
        let limit = own.swap_left_bytes.map(|bytes| Part { of: own.anonymous_bytes.max(1), bytes });
        parts.push(limit.filter(|limit| limit.is_less_than(above)).unwrap_or(above));
    }
    each.iter().zip(parts).map(|(own, part)| part.of(own.anonymous_bytes)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn own(parent: Option<usize>, anonymous_bytes: u64, swap_left_bytes: Option<u64>) -> Own {
        Own { parent, anonymous_bytes, swap_left_bytes }
    }

    #[test]
    fn everybody_has_a_part_of_the_room_and_those_within_a_limit_have_theirs_of_that() {
        let each = [
            own(None, 400, None),
            own(None, 600, Some(150)),
            own(Some(1), 200, None),
            own(Some(1), 400, Some(0)),
            own(Some(2), 100, Some(1000)),
        ];
        assert_eq!(swappable(&each, 1000, 2000), [400, 150, 50, 0, 25]);
        assert_eq!(swappable(&each, 1000, 500), [200, 150, 50, 0, 25]);
        assert_eq!(swappable(&each, 1000, 100), [40, 60, 20, 0, 10], "the machine's is less");
        assert_eq!(swappable(&each, 1000, 0), [0; 5]);
        assert_eq!(swappable(&[own(None, 0, Some(0)), own(Some(0), 0, None)], 0, 0), [0, 0]);
    }

    /// A tree, parents before children, in which each has at least what those below it have.
    fn tree() -> impl Strategy<Value = Vec<Own>> {
        let one = (any::<prop::sample::Index>(), 0..1_u64 << 40, prop::option::of(0..1_u64 << 40));
        prop::collection::vec(one, 1..12).prop_map(|each| {
            let mut all: Vec<Own> = Vec::new();
            for (above, bytes, left) in each {
                let above = above.index(all.len() + 1);
                all.push(own(above.checked_sub(1), bytes, left));
            }
            for place in (0..all.len()).rev() {
                if let Some(parent) = all[place].parent {
                    all[parent].anonymous_bytes += all[place].anonymous_bytes;
                }
            }
            all
        })
    }

    proptest! {
        #[test]
        fn what_goes_of_each_goes_of_all_together_within_every_limit_and_the_room_there_is(
            each in tree(), free_bytes in 0..1_u64 << 42,
        ) {
            let tops = each.iter().filter(|own| own.parent.is_none());
            let all_bytes: u64 = tops.map(|own| own.anonymous_bytes).sum();
            let goes = swappable(&each, all_bytes, free_bytes);
            for (place, own) in each.iter().enumerate() {
                prop_assert!(goes[place] <= own.anonymous_bytes.min(own.swap_left_bytes.unwrap_or(u64::MAX)));
            }
            // Of the programs of each, without those of its children.
            let with_above = |place: usize| std::iter::successors(Some(place), |place| each[*place].parent);
            let below = |above: Option<usize>| -> u64 {
                let at = (0..each.len()).filter(|place| above.is_none_or(|above| with_above(*place).any(|at| at == above)));
                at.map(|place| {
                    let children = (0..each.len()).filter(|child| each[*child].parent == Some(place));
                    goes[place].saturating_sub(children.map(|child| goes[child]).sum())
                }).sum()
            };
            prop_assert!(below(None) <= free_bytes);
            for (place, own) in each.iter().enumerate() {
                let left_bytes = own.swap_left_bytes.unwrap_or(u64::MAX);
                prop_assert!(below(Some(place)) <= left_bytes, "{place}: {each:?} {goes:?}");
            }
        }

        #[test]
        fn where_nobody_has_a_limit_there_is_only_the_room(each in tree(), free_bytes in 0..1_u64 << 42) {
            let each: Vec<Own> = each.iter().map(|own| Own { swap_left_bytes: None, ..*own }).collect();
            let goes = swappable(&each, 1 << 40, free_bytes);
            for (own, goes) in each.iter().zip(goes) {
                let part = (u128::from(own.anonymous_bytes) * u128::from(free_bytes)) >> 40;
                prop_assert_eq!(u128::from(goes), part.min(u128::from(own.anonymous_bytes)));
            }
        }
    }
}
