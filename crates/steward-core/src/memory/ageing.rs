//! Which domains' pages are aged when, and what their ages say.
//!
//! The kernel sorts pages into generations, and moves those that were used since the last ageing into the youngest
//! (Documentation/admin-guide/mm/multigen_lru.rst). So a page of an older generation has not been used since the one
//! after it began. There are four at most, of which the oldest take in what is older still: to know what has been idle
//! for a period, a new one begins every half of it.
//!
//! An ageing walks all page tables of a domain. It costs CPU time, which is bounded to a part of one CPU over all domains
//! together: who is due waits until the last ones have been paid for.

use std::collections::BTreeMap;

/// The part of one CPU that ageing may cost is 1 of so many.
const BUDGET_PART: u64 = 250;
/// Generations begin no more often than this, in nanoseconds.
const STEP_MIN_NS: u64 = 1_000_000_000;

/// A generation of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// For how long it has been there, in nanoseconds.
    pub age_ns: u64,
    /// What is in it, in bytes.
    pub bytes: u64,
}

/// What of these has not been used for this period, in bytes. Oldest first, of one node.
pub fn idle_bytes(generations: &[Generation], period_ns: u64) -> u64 {
    let pairs = generations.iter().zip(generations.iter().skip(1));
    let idle = pairs.filter(|(_, next)| next.age_ns >= period_ns).map(|(generation, _)| generation.bytes);
    idle.fold(0, u64::saturating_add)
}

/// Who was aged when, and when the next may be.
#[derive(Clone, Debug, Default)]
pub struct Ageing {
    /// By cgroup id.
    aged_at_ns: BTreeMap<u64, u64>,
    /// Before this moment the last ageing is not paid for.
    paid_at_ns: u64,
}

impl Ageing {
    /// Whom to age now: of those with a period, by cgroup id, the one that is due for longest for its period.
    /// One that is seen for the first time begins with its first look.
    pub fn due(&mut self, now_ns: u64, protected: &[(u64, u64)]) -> Option<u64> {
        self.aged_at_ns.retain(|id, _| protected.iter().any(|(known, _)| known == id));
        for (id, _) in protected {
            self.aged_at_ns.entry(*id).or_insert(now_ns);
        }
        if now_ns < self.paid_at_ns {
            return None;
        }
        let waited = |id: &u64| now_ns.saturating_sub(self.aged_at_ns.get(id).copied().unwrap_or(now_ns));
        let due = protected.iter().filter(|(id, period_ns)| waited(id) >= step_ns(*period_ns));
        // By what they waited as a multiple of their step.
        let longest =
            due.max_by_key(|(id, period_ns)| u128::from(waited(id)) * 1024 / u128::from(step_ns(*period_ns)));
        longest.map(|(id, _)| *id)
    }

    /// One was aged, which cost this much CPU time; or could not be, and is tried again when it is due again.
    pub fn done(&mut self, now_ns: u64, id: u64, cpu_ns: u64) {
        self.aged_at_ns.insert(id, now_ns);
        self.paid_at_ns = now_ns.saturating_add(cpu_ns.saturating_mul(BUDGET_PART));
    }
}

fn step_ns(period_ns: u64) -> u64 {
    (period_ns / 2).max(STEP_MIN_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn only_what_lay_in_a_generation_that_ended_before_the_period_is_idle() {
        let generations: Vec<Generation> = [(90, 8), (60, 4), (30, 2), (0, 1)]
            .map(|(seconds, bytes)| Generation { age_ns: seconds * SECOND_NS, bytes })
            .to_vec();
        let idle = |seconds| idle_bytes(&generations, seconds * SECOND_NS);
        assert_eq!([61, 60, 31, 30, 1].map(idle), [0, 8, 8, 12, 12]);
        assert_eq!(idle_bytes(&generations[3..], 0), 0, "it may have been used just now");
    }

    #[test]
    fn a_domain_is_aged_twice_in_its_period_and_the_one_that_waited_longest_for_its_period_first() {
        let mut ageing = Ageing::default();
        let protected = [(1, 60 * SECOND_NS), (2, 20 * SECOND_NS)];
        assert_eq!(ageing.due(0, &protected), None);
        assert_eq!(ageing.due(29 * SECOND_NS, &protected), Some(2));
        ageing.done(29 * SECOND_NS, 2, 0);
        assert_eq!(ageing.due(29 * SECOND_NS, &protected), None);
        assert_eq!(ageing.due(38 * SECOND_NS, &protected), Some(1));
        assert_eq!(ageing.due(60 * SECOND_NS, &protected), Some(2), "thrice its step against twice");
    }

    #[test]
    fn ageing_costs_no_more_than_its_part_of_a_cpu_however_many_are_due() {
        let mut ageing = Ageing::default();
        let protected: Vec<(u64, u64)> = (0..100).map(|id| (id, 2 * SECOND_NS)).collect();
        let (cost_ns, mut spent_ns) = (40_000_000, 0);
        ageing.due(0, &protected);
        let mut aged = BTreeMap::<u64, u32>::new();
        for tick in 0..40_000_u64 {
            let now_ns = tick * SECOND_NS / 4;
            if let Some(id) = ageing.due(now_ns, &protected) {
                ageing.done(now_ns, id, cost_ns);
                spent_ns += cost_ns;
                *aged.entry(id).or_default() += 1;
            }
        }
        assert!(spent_ns <= 10_000 * SECOND_NS / BUDGET_PART + cost_ns, "{spent_ns}");
        assert!(aged.len() == 100 && aged.values().all(|times| *times >= 9), "all have their turn: {aged:?}");
    }
}
