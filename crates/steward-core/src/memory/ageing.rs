//! Which domains' pages are aged when, and what their ages say.
//!
//! The kernel sorts pages into generations, and moves those that were used since the last ageing into the youngest
//! (Documentation/admin-guide/mm/multigen_lru.rst). So a page of an older generation has not been used since the one
//! after it began. There are four at most, of which the oldest take in what is older still: to know what has been idle
//! for a period, a new one begins every half of it.
//!
//! An ageing walks all page tables of a domain. It costs CPU time, which is bounded to a part of one CPU over all
//! domains together: who is due waits until the last ones have been paid for.

use std::collections::BTreeMap;

/// The part of one CPU that ageing may cost is 1 of so many.
const BUDGET_PART: u64 = 250;
/// Generations begin no more often than this, in nanoseconds.
const STEP_MIN_NS: u64 = 1_000_000_000;
/// What was read is believed for no longer than this, in nanoseconds, and while no more than this changes, in bytes.
const BELIEVED_NS: u64 = 1_000_000_000;
const BELIEVED_BYTES: u64 = 1 << 20;

/// A generation of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// For how long it has been there, in nanoseconds.
    pub age_ns: u64,
    /// What is in it of programs' own, in bytes: without room in the swap nobody can take it.
    pub anonymous_bytes: u64,
    /// What is in it of files, in bytes.
    pub file_bytes: u64,
}

/// The ages of one domain's pages, as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// By node: its generations, oldest first.
    pub nodes: Vec<Vec<Generation>>,
    /// When it was read, in nanoseconds.
    pub read_at_ns: u64,
    /// What was charged to the domain then, in bytes.
    pub charged_bytes: u64,
}

impl Reading {
    /// What had not been used for this period when the last ageing looked, as far as somebody could take it, in bytes:
    /// of programs' own no more than there is room for in the swap. What nobody can take need not be given up.
    pub fn idle_bytes(&self, period_ns: u64, swap_free_bytes: u64) -> u64 {
        let idle = self.nodes.iter().flat_map(|generations| idle(generations, period_ns));
        let of = |bytes: fn(&Generation) -> u64| idle.clone().map(bytes).fold(0, u64::saturating_add);
        let anonymous_bytes = of(|generation| generation.anonymous_bytes);
        of(|generation| generation.file_bytes).saturating_add(anonymous_bytes.min(swap_free_bytes))
    }

    /// Whether it must be read anew before it is believed that so much is idle: of what is idle some may have been
    /// taken or given back since, and what is used would seem to be less by that, and be kept no longer.
    pub fn is_old(&self, now_ns: u64, period_ns: u64, charged_bytes: u64) -> bool {
        let has_changed = self.charged_bytes.abs_diff(charged_bytes) > BELIEVED_BYTES
            || now_ns.saturating_sub(self.read_at_ns) >= BELIEVED_NS;
        has_changed && self.idle_bytes(period_ns, u64::MAX) > 0
    }
}

/// Those of these of which nothing had been used for this period when the last ageing looked. Oldest first, of one
/// node.
///
/// What was used since then is still where it was: only the time between two ageings says that nobody used it.
fn idle(generations: &[Generation], period_ns: u64) -> impl Iterator<Item = &Generation> + Clone {
    generations.iter().take(idle_generations(generations, period_ns))
}

/// How many of the oldest generations are idle: of these alone something may be taken from who is protected. Oldest
/// first, of one node.
///
/// What was used since the last ageing is among them, and the kernel finds that out of each page when its turn has
/// come: it takes others of the generations that it was told of, and moves this one to the youngest.
pub fn idle_generations(generations: &[Generation], period_ns: u64) -> usize {
    let looked_ns = generations.last().map_or(0, |youngest| youngest.age_ns);
    let is_idle = |next: &&Generation| next.age_ns.saturating_sub(looked_ns) >= period_ns;
    generations.iter().skip(1).take_while(is_idle).count()
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

    fn of_files(age_seconds: u64, file_bytes: u64) -> Generation {
        Generation { age_ns: age_seconds * SECOND_NS, anonymous_bytes: 0, file_bytes }
    }

    #[test]
    fn what_is_idle_and_has_no_room_in_the_swap_is_not_given_up() {
        let idle = Generation { anonymous_bytes: 30, ..of_files(90, 12) };
        let reading =
            Reading { nodes: vec![vec![idle, of_files(0, 5)]; 2], read_at_ns: 0, charged_bytes: 94 };
        let idle_bytes = |swap_free_bytes| reading.idle_bytes(0, swap_free_bytes);
        assert_eq!([0, 10, 60, u64::MAX].map(idle_bytes), [24, 34, 84, 84]);
    }

    #[test]
    fn only_what_lay_in_a_generation_that_ended_before_the_period_is_idle() {
        let generations =
            [(90, 8), (60, 4), (30, 2), (0, 1)].map(|(seconds, bytes)| of_files(seconds, bytes));
        let idle_bytes = |generations: &[Generation], period_ns| {
            idle(generations, period_ns).map(|generation| generation.file_bytes).sum::<u64>()
        };
        let idle = |seconds| idle_bytes(&generations, seconds * SECOND_NS);
        assert_eq!([61, 60, 31, 30, 1].map(idle), [0, 8, 8, 12, 12]);
        assert_eq!(idle_bytes(&generations[3..], 0), 0, "it may have been used just now");
        // The next ageing is late: what was used meanwhile cannot be told from what was not.
        let late = generations.iter().map(|one| Generation { age_ns: one.age_ns + 25 * SECOND_NS, ..*one });
        let late: Vec<Generation> = late.collect();
        assert_eq!([85, 61, 60].map(|seconds| idle_bytes(&late, seconds * SECOND_NS)), [0, 0, 8]);
    }

    #[test]
    fn what_is_idle_is_read_anew_when_some_of_it_may_have_gone() {
        let nodes = vec![vec![of_files(90, 40 << 20), of_files(60, 0), of_files(0, 60 << 20)]];
        let reading = Reading { nodes, read_at_ns: 5 * SECOND_NS, charged_bytes: 100 << 20 };
        assert_eq!(reading.idle_bytes(60 * SECOND_NS, 0), 40 << 20);
        let is_old = |at_ns, mib: u64| reading.is_old(at_ns, 60 * SECOND_NS, mib << 20);
        assert!(!is_old(5 * SECOND_NS, 101) && is_old(5 * SECOND_NS, 98) && is_old(6 * SECOND_NS, 100));
        assert!(
            !reading.is_old(99 * SECOND_NS, 61 * SECOND_NS, 0),
            "nothing is idle: there is nothing to believe"
        );
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
