//! How much slower others are for want of something else than a CPU, from the time for which they stood still.

use std::collections::{BTreeMap, VecDeque};

use super::terms::SLOWDOWN_MAX;

/// What is told is about so long, in nanoseconds: as long as forecasts are.
const WINDOW_NS: u64 = 1_000_000_000;

/// What was counted lately, by whatever tells the counters apart.
///
/// ```
/// use steward_core::cpu::forecast::Stalls;
///
/// let mut stalls = Stalls::default();
/// stalls.observe(0, [("server", 0)]);
/// stalls.observe(1_000_000_000, [("server", 500_000_000)]);
/// assert_eq!(stalls.slowdowns().collect::<Vec<_>>(), [(&"server", 2.0)]);
/// ```
#[derive(Clone, Debug)]
pub struct Stalls<K> {
    counters: BTreeMap<K, VecDeque<(u64, u64)>>,
    at_ns: u64,
}

impl<K> Default for Stalls<K> {
    fn default() -> Self {
        Stalls { counters: BTreeMap::new(), at_ns: 0 }
    }
}

impl<K: Ord> Stalls<K> {
    /// Takes in for how long some have stood still so far, at `at_ns`, all in nanoseconds. Who is missing for a second
    /// has gone; a clock or a counter that goes back begins anew.
    pub fn observe(&mut self, at_ns: u64, totals: impl IntoIterator<Item = (K, u64)>) {
        if at_ns < self.at_ns {
            self.counters.clear();
        }
        self.at_ns = at_ns;
        let is_recent = |(at, _): &(u64, u64)| at_ns - at <= WINDOW_NS;
        self.counters.retain(|_, seen| seen.back().is_some_and(is_recent));
        for (key, total) in totals {
            let seen = self.counters.entry(key).or_default();
            if seen.back().is_some_and(|(_, last)| *last > total) {
                seen.clear();
            }
            seen.push_back((at_ns, total));
            // The youngest that is a whole window old stays.
            while seen.get(1).is_some_and(|(at, _)| at_ns - at >= WINDOW_NS) {
                seen.pop_front();
            }
        }
    }

    /// How many times slower each is than if nobody of it had stood still: 1 to [`SLOWDOWN_MAX`].
    pub fn slowdowns(&self) -> impl Iterator<Item = (&K, f64)> {
        self.counters.iter().map(|(key, seen)| (key, slowdown(seen)))
    }
}

/// One that could go on for a fourth of the time took four times as long for what it did.
fn slowdown(seen: &VecDeque<(u64, u64)>) -> f64 {
    let (Some((began_ns, before)), Some((at_ns, total))) = (seen.front(), seen.back()) else { return 1.0 };
    // A moment says little.
    let past_ns = (at_ns - began_ns).max(WINDOW_NS / 10);
    let went_on = 1.0 - (total - before) as f64 / past_ns as f64;
    if went_on * SLOWDOWN_MAX > 1.0 { 1.0 / went_on } else { SLOWDOWN_MAX }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TENTH_NS: u64 = 100_000_000;

    #[test]
    fn what_is_told_is_of_the_last_second() {
        let mut stalls = Stalls::default();
        for turn in 0..=40 {
            // Half of the first two seconds, nothing afterwards.
            let total = turn.min(20) * TENTH_NS / 2;
            stalls.observe(turn * TENTH_NS, [("a", total)]);
            let (_, slowdown) = stalls.slowdowns().next().expect("one");
            match turn {
                1..=20 => assert!((slowdown - 2.0).abs() < 1e-9, "turn {turn}: {slowdown}"),
                25 => assert!((slowdown - 4.0 / 3.0).abs() < 1e-9, "half of it is over: {slowdown}"),
                30.. => assert_eq!(slowdown, 1.0),
                _ => {}
            }
        }
    }

    #[test]
    fn a_gap_a_counter_that_goes_back_and_one_that_comes_begin_anew() {
        let mut stalls = Stalls::default();
        stalls.observe(0, [(1, 0)]);
        stalls.observe(TENTH_NS, [(1, TENTH_NS), (2, 7_000 * TENTH_NS)]);
        assert_eq!(stalls.slowdowns().collect::<Vec<_>>(), [(&1, SLOWDOWN_MAX), (&2, 1.0)]);
        stalls.observe(2 * TENTH_NS, [(1, 5)]);
        assert_eq!(stalls.slowdowns().collect::<Vec<_>>(), [(&1, 1.0), (&2, 1.0)]);
        stalls.observe(2 * TENTH_NS + WINDOW_NS, [(1, 5 + 7 * TENTH_NS)]);
        let (only, slowdown) = stalls.slowdowns().next().expect("one");
        assert_eq!((*only, stalls.slowdowns().count()), (1, 1), "2 has gone");
        assert!((slowdown - 1.0 / 0.3).abs() < 1e-9, "{slowdown}");
        stalls.observe(3 * TENTH_NS + 3 * WINDOW_NS, [(1, 99 * TENTH_NS)]);
        assert_eq!(stalls.slowdowns().collect::<Vec<_>>(), [(&1, 1.0)]);
    }

    proptest! {
        #[test]
        fn it_is_always_between_one_and_the_most_that_is_told(
            steps in proptest::collection::vec((0_u64..3_000_000_000, 0_u64..4_000_000_000), 1..50),
        ) {
            let mut stalls = Stalls::default();
            let (mut at_ns, mut total) = (0, 0);
            for (later_ns, more) in steps {
                at_ns += later_ns;
                total += more;
                stalls.observe(at_ns, [((), total)]);
                let (_, slowdown) = stalls.slowdowns().next().expect("one");
                prop_assert!((1.0..=SLOWDOWN_MAX).contains(&slowdown), "{slowdown}");
            }
        }
    }
}
