//! What requests cost lately: Cavg and Cmax.

use std::collections::VecDeque;

/// A new estimate is made of at least so many requests; where fewer were served since the last one, the latest of those
/// before count too.
const LEAST: usize = 20;

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The mean CPU time of a request, in nanoseconds (Cavg), at least 1.
    pub average_ns: u64,
    /// The CPU time that is enough for 95 % of requests, in nanoseconds (Cmax).
    pub largest_ns: u64,
}

/// The CPU times of the requests since the last adjustment (Yang 2009, 12.2.3).
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    costs_ns: VecDeque<u64>,
    /// How many of them came since the last adjustment.
    fresh: usize,
}

impl History {
    pub(super) fn add(&mut self, cost_ns: u64) {
        self.costs_ns.push_back(cost_ns);
        self.fresh += 1;
        while self.costs_ns.len() > self.fresh.max(LEAST) {
            self.costs_ns.pop_front();
        }
    }

    /// How many requests it knows of.
    pub(super) fn count(&self) -> usize {
        self.costs_ns.len()
    }

    /// How many requests were added since the last adjustment.
    pub(super) fn fresh(&self) -> usize {
        self.fresh
    }

    /// The costs of these requests; what comes from now on is for the next adjustment. `None` if there was none yet.
    pub(super) fn take(&mut self) -> Option<Costs> {
        self.fresh = 0;
        let mut sorted: Vec<u64> = self.costs_ns.iter().copied().collect();
        while self.costs_ns.len() > LEAST {
            self.costs_ns.pop_front();
        }
        sorted.sort_unstable();
        let count = sorted.len();
        let sum: u128 = sorted.iter().map(|cost_ns| u128::from(*cost_ns)).sum();
        // The nearest rank.
        let largest_ns = *sorted.get((count * 95).div_ceil(100).checked_sub(1)?)?;
        let average_ns =
            u64::try_from(sum / count as u128).expect("a mean is no more than the largest").max(1);
        Some(Costs { average_ns, largest_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_cost_is_enough_for_95_in_100() {
        let mut history = History::default();
        (1..=100).for_each(|cost_ns| history.add(cost_ns));
        assert_eq!(history.take(), Some(Costs { average_ns: 50, largest_ns: 95 }));
    }

    #[test]
    fn few_new_requests_count_beside_the_latest_of_those_before() {
        let mut history = History::default();
        assert_eq!(history.take(), None);
        (0..100).for_each(|_| history.add(10));
        assert_eq!(history.take(), Some(Costs { average_ns: 10, largest_ns: 10 }));
        history.add(1_010);
        assert_eq!(history.take(), Some(Costs { average_ns: 60, largest_ns: 10 }));
        (0..50).for_each(|_| history.add(30));
        assert_eq!(history.take(), Some(Costs { average_ns: 30, largest_ns: 30 }));
    }

    #[test]
    fn requests_that_cost_nothing_measurable_cost_something() {
        let mut history = History::default();
        history.add(0);
        assert_eq!(history.take(), Some(Costs { average_ns: 1, largest_ns: 0 }));
    }
}
