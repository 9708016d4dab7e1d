//! Who was held back in the last minute, and for how long: what the memory loop counts since it began, as sums of
//! seconds.

use std::collections::{BTreeMap, VecDeque};

use steward_core::domain::name;
use steward_core::memory::explain::HeldLately;

use super::manager::HeldBack;

/// What is looked back at, in nanoseconds.
const LATELY_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// What became of one.
#[derive(Debug, Default)]
struct OfOne {
    /// What the loop had counted at the last news.
    counted: HeldBack,
    /// The seconds in which it was held, in nanoseconds of `CLOCK_MONOTONIC`, with what there was in each.
    seconds: VecDeque<(u64, HeldLately)>,
}

/// Of each cgroup that was held back, by path.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    by_path: BTreeMap<String, OfOne>,
}

impl Lately {
    /// Takes in what the loop has counted so far.
    pub(crate) fn note(&mut self, now_ns: u64, counted: &BTreeMap<String, HeldBack>) {
        for (path, counted) in counted {
            let known = self.by_path.get(path).map(|of_one| of_one.counted);
            if known == Some(*counted) {
                continue;
            }
            // Of one that was made anew under its name the loop begins anew.
            let before = known.filter(|known| known.id == counted.id && known.held_ns <= counted.held_ns);
            let before = before.unwrap_or_default();
            let more = HeldLately {
                for_taking: counted.for_taking.saturating_sub(before.for_taking),
                for_dirtying: counted.for_dirtying.saturating_sub(before.for_dirtying),
                held_ns: counted.held_ns - before.held_ns,
            };
            let of_one = self.by_path.entry(path.clone()).or_default();
            of_one.counted = *counted;
            match of_one.seconds.back_mut() {
                Some((at_ns, sum)) if now_ns.saturating_sub(*at_ns) < SECOND_NS => sum.add(more),
                _ => of_one.seconds.push_back((now_ns, more)),
            }
        }
        for of_one in self.by_path.values_mut() {
            of_one.seconds.retain(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < LATELY_NS);
        }
        self.by_path.retain(|path, of_one| !of_one.seconds.is_empty() || counted.contains_key(path));
    }

    /// What there was in the last minute of a domain and all below it.
    pub(crate) fn of(&self, path: &str, now_ns: u64) -> HeldLately {
        let mut sum = HeldLately::default();
        let at_or_below = self.by_path.iter().filter(|(other, _)| name::is_at_or_below(other, path));
        for (at_ns, held) in at_or_below.flat_map(|(_, of_one)| &of_one.seconds) {
            if now_ns.saturating_sub(*at_ns) < LATELY_NS {
                sum.add(*held);
            }
        }
        sum
    }

    /// For how long a domain and all below it were held back since the loop began, in nanoseconds, as far as they are
    /// there.
    pub(crate) fn held_ns(&self, path: &str) -> u64 {
        let at_or_below = self.by_path.iter().filter(|(other, _)| name::is_at_or_below(other, path));
        at_or_below.map(|(_, of_one)| of_one.counted.held_ns).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn counted(held: &[(&str, u64, u64)]) -> BTreeMap<String, HeldBack> {
        let one = |(path, times, held_ms): &(&str, u64, u64)| {
            let held = HeldBack { id: 7, for_taking: *times, held_ns: held_ms * MS, ..HeldBack::default() };
            ((*path).to_owned(), held)
        };
        held.iter().map(one).collect()
    }

    fn told(lately: &Lately, path: &str, at_s: u64) -> (u64, u64) {
        let held = lately.of(path, at_s * SECOND_NS);
        (held.for_taking, held.held_ns / MS)
    }

    #[test]
    fn what_was_counted_in_the_last_minute_is_told_and_all_of_it_stays_known() {
        let mut lately = Lately::default();
        lately.note(0, &counted(&[("a/x", 2, 100)]));
        lately.note(SECOND_NS / 2, &counted(&[("a/x", 3, 150), ("ab", 1, 5)]));
        assert_eq!(
            (told(&lately, "a", 1), told(&lately, "ab", 1), told(&lately, "b", 1)),
            ((3, 150), (1, 5), (0, 0))
        );
        lately.note(30 * SECOND_NS, &counted(&[("a/x", 4, 250), ("ab", 1, 5)]));
        assert_eq!((told(&lately, "a", 30), told(&lately, "a", 60)), ((4, 250), (1, 100)));
        lately.note(90 * SECOND_NS, &counted(&[("a/x", 4, 250)]));
        assert_eq!(
            (told(&lately, "a", 90), lately.held_ns("a"), lately.held_ns("ab")),
            ((0, 0), 250 * MS, 0)
        );
        assert_eq!(lately.by_path.len(), 1, "one that has gone is forgotten");
    }

    #[test]
    fn one_that_was_made_anew_under_its_name_begins_anew() {
        let mut lately = Lately::default();
        lately.note(0, &counted(&[("a", 2, 100)]));
        let mut anew = counted(&[("a", 3, 200)]);
        anew.values_mut().for_each(|held| held.id = 8);
        lately.note(10 * SECOND_NS, &anew);
        assert_eq!(told(&lately, "a", 10), (5, 300));
    }
}
