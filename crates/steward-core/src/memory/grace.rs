//! Who goes by what it is told that it may use gives up by itself what is more than its part, within some tenths of a
//! second: it discards what it does not need, where the kernel would swap out what it uses next. So nothing is taken
//! from it for a while when its turn comes to pay, and for longer as long as it does give up; then it pays like all.
//! Meanwhile the others pay whose turn it is as well, and if there are none, the reserve has to do.

use std::collections::BTreeMap;

use super::principal::{Principal, parent_of};
use super::victims::Victim;

/// For so long, in nanoseconds, since its turn came or since it gave up a part of what it uses.
const GRACE_NS: u64 = 3_000_000_000;
/// It gives up when it uses less than before by 1 of so many parts.
const GIVES_UP_PART: u64 = 32;
/// Whose turn it was not for so long, in nanoseconds, has not been asked yet when it is again.
const FORGOTTEN_NS: u64 = 2_000_000_000;

/// One whose turn it is.
#[derive(Clone, Copy, Debug)]
struct Asked {
    since_ns: u64,
    /// What it claimed then, in bytes.
    claimed_bytes: u64,
    last_ns: u64,
}

/// All that is remembered: by the cgroup's id.
#[derive(Clone, Debug, Default)]
pub(super) struct Grace {
    asked: BTreeMap<u64, Asked>,
}

impl Grace {
    /// Leaves those of the victims out who are given time, which runs while there is little. `id_of` says the id of the
    /// cgroup at a place.
    pub(super) fn give(
        &mut self,
        now_ns: u64,
        is_little: bool,
        principals: &[Principal],
        id_of: impl Fn(usize) -> u64,
        victims: &mut Vec<Victim>,
    ) {
        self.asked.retain(|_, asked| now_ns.saturating_sub(asked.last_ns) <= FORGOTTEN_NS);
        victims.retain(|victim| {
            let up =
                std::iter::successors(Some(victim.place), |place| parent_of(*place, &principals[*place]));
            let adapting = up.into_iter().find(|place| principals[*place].adapts);
            adapting.is_none_or(|place| {
                !self.has_time(now_ns, is_little, id_of(place), principals[place].claimed_bytes)
            })
        });
    }

    fn has_time(&mut self, now_ns: u64, is_little: bool, id: u64, claimed_bytes: u64) -> bool {
        let begun = Asked { since_ns: now_ns, claimed_bytes, last_ns: now_ns };
        if !is_little && !self.asked.contains_key(&id) {
            return true;
        }
        let asked = self.asked.entry(id).or_insert(begun);
        if claimed_bytes < asked.claimed_bytes - asked.claimed_bytes / GIVES_UP_PART {
            *asked = begun;
        }
        if is_little {
            asked.last_ns = now_ns;
        }
        now_ns.saturating_sub(asked.since_ns) < GRACE_NS
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn claims(mib: u64, adapts: bool) -> Principal {
        Principal { claimed_bytes: mib * MIB, adapts, ..Principal::of_weight(NonZeroU32::MIN) }
    }

    /// Who pays of those whose turn it is, which are all, while there is little.
    fn pays(grace: &mut Grace, now_ns: u64, principals: &[Principal]) -> Vec<usize> {
        paying(grace, now_ns, true, principals)
    }

    fn paying(grace: &mut Grace, now_ns: u64, is_little: bool, principals: &[Principal]) -> Vec<usize> {
        let mut victims: Vec<Victim> =
            (0..principals.len()).map(|place| Victim { place, bytes: MIB }).collect();
        grace.give(now_ns, is_little, principals, |place| place as u64 + 7, &mut victims);
        victims.iter().map(|victim| victim.place).collect()
    }

    #[test]
    fn who_adapts_pays_when_it_has_given_up_nothing_for_a_while() {
        let mut grace = Grace::default();
        let both = [claims(100, true), claims(100, false)];
        for tenth in 0..10 {
            assert_eq!(pays(&mut grace, tenth * GRACE_NS / 10, &both), [1], "after {tenth} tenths");
        }
        assert_eq!(pays(&mut grace, GRACE_NS, &both), [0, 1]);
        assert_eq!(pays(&mut grace, GRACE_NS + FORGOTTEN_NS, &both), [0, 1]);
        assert_eq!(pays(&mut grace, GRACE_NS + 2 * FORGOTTEN_NS + 1, &both), [1], "it is a new turn");
    }

    #[test]
    fn who_gives_up_is_given_time_for_more() {
        let mut grace = Grace::default();
        for step in 0..40 {
            let both = [claims(1000 - 20 * (step / 10) * 4, true), claims(100, false)];
            assert_eq!(pays(&mut grace, step * GRACE_NS / 12, &both), [1], "at step {step}");
        }
    }

    #[test]
    fn time_that_is_given_runs_while_there_is_little() {
        let mut grace = Grace::default();
        let one = [claims(100, true)];
        let is_empty = |paying: Vec<usize>| paying.is_empty();
        for second in 0..10 {
            assert!(
                is_empty(paying(&mut grace, second * GRACE_NS, false, &one)),
                "it is planned for nothing"
            );
        }
        assert!(is_empty(pays(&mut grace, 10 * GRACE_NS, &one)));
    }

    #[test]
    fn what_is_below_one_that_adapts_is_given_time_with_it() {
        let below = Principal { parent: Some(0), ..claims(50, false) };
        assert_eq!(pays(&mut Grace::default(), 0, &[claims(100, true), below, claims(1, false)]), [2]);
    }
}
