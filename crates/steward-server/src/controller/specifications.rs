//! The specifications of a route: each lets one request in, once in every response time (Yang 2009, 12.2.1).

use std::collections::BTreeSet;

/// When a specification was used last, in nanoseconds; `None` when never, or when its request did not begin.
pub(super) type Used = Option<u64>;

/// So many specifications, in the order in which they become eligible.
#[derive(Clone, Debug, Default)]
pub(super) struct Specifications {
    /// How many there are to be (N).
    count: usize,
    /// Those that no request has, by their last use, with a number that tells equal ones apart.
    free: BTreeSet<(Used, u64)>,
    /// How many requests have one.
    out: usize,
    /// When those were used that there are too many of. They come back with that when there are to be more: otherwise
    /// a number that falls and rises would let in more requests than either.
    retired: BTreeSet<(u64, u64)>,
    next: u64,
}

impl Specifications {
    /// How many there are to be.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How many requests have one.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// Takes the one that has been eligible for longest, if one is: it was used no less than a response time ago.
    pub(super) fn take(&mut self, now_ns: u64, response_time_ns: u64) -> bool {
        let eligible =
            self.free.first().copied().filter(|(used, _)| wait_ns(*used, now_ns, response_time_ns) == 0);
        let Some(first) = eligible else { return false };
        self.free.remove(&first);
        self.out += 1;
        true
    }

    /// One comes back whose request began at `used`.
    pub(super) fn give_back(&mut self, used: Used) {
        debug_assert!(self.out > 0, "no more come back than were taken");
        self.out = self.out.saturating_sub(1);
        self.free.insert((used, self.next));
        self.next += 1;
        self.retire();
    }

    /// From now on there are to be `count`. Those that requests have are left to them.
    pub(super) fn resize(&mut self, count: usize, now_ns: u64, response_time_ns: u64) {
        self.count = count;
        self.retire();
        self.retired.retain(|(used_ns, _)| wait_ns(Some(*used_ns), now_ns, response_time_ns) > 0);
        while self.free.len() + self.out < count {
            let latest = self.retired.pop_last().map(|(used_ns, _)| used_ns);
            self.free.insert((latest, self.next));
            self.next += 1;
        }
    }

    /// In how many nanoseconds the next one is eligible; `None` while requests have them all.
    pub(super) fn next_ns(&self, now_ns: u64, response_time_ns: u64) -> Option<u64> {
        self.free.first().map(|(used, _)| wait_ns(*used, now_ns, response_time_ns))
    }

    /// Takes those away that there are too many of and that no request has: the ones used last.
    fn retire(&mut self) {
        while self.free.len() + self.out > self.count {
            let Some((used, number)) = self.free.pop_last() else { return };
            self.retired.extend(used.map(|used_ns| (used_ns, number)));
        }
    }
}

/// How long, in nanoseconds, until a specification of that use is eligible.
fn wait_ns(used: Used, now_ns: u64, response_time_ns: u64) -> u64 {
    used.map_or(0, |used_ns| used_ns.saturating_add(response_time_ns).saturating_sub(now_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_used_once_in_a_response_time() {
        let mut two = Specifications::default();
        two.resize(2, 0, 100);
        assert!(two.take(0, 100) && two.take(10, 100) && !two.take(20, 100));
        assert_eq!(two.next_ns(20, 100), None);
        two.give_back(Some(10));
        two.give_back(Some(0));
        assert_eq!(two.next_ns(30, 100), Some(70));
        assert!(!two.take(99, 100) && two.take(100, 100) && !two.take(109, 100) && two.take(110, 100));
    }

    #[test]
    fn a_number_that_falls_and_rises_lets_nobody_in_twice() {
        let mut few = Specifications::default();
        few.resize(3, 0, 100);
        (0..3).for_each(|_| assert!(few.take(0, 100)));
        (0..3).for_each(|_| few.give_back(Some(0)));
        few.resize(1, 10, 100);
        few.resize(3, 20, 100);
        assert!(!few.take(99, 100));
        assert!(few.take(100, 100));
    }
}
