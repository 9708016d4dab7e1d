//! Whose turn it is: time is divided among those who pay for it, so that who asks for much waits for himself.
//!
//! Of those who have something to do, the one who has used the least goes first, one piece of work at a time
//! (start-time fair queueing: Goyal, Vin and Cheng 1996). When a turn's time is used up the rest waits for the next
//! one, and who comes meanwhile begins with as much as the least that anybody has who waits: before all others, but
//! without credit for the past.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// How long one turn goes on, in nanoseconds; the piece of work that is in hand then is finished.
pub const TURN_NS: u64 = 5_000_000;
/// What a piece of work costs at least, in nanoseconds, so that the order is one even for a coarse clock.
const WORK_NS_MIN: u64 = 1_000;

/// Who pays: a user.
pub type Payer = u32;

/// What everybody has used while somebody had to wait.
#[derive(Debug, Default)]
pub struct Turns {
    /// In nanoseconds, of those who were served and have used `least_ns` or more.
    used_ns: HashMap<Payer, u64>,
    /// The least that anybody had used who waited last.
    least_ns: u64,
}

impl Turns {
    /// Has `act` do pieces of work until all are done or the turn is over; those of one payer in their order. `now_ns`
    /// is the clock, in nanoseconds: where it stands still while the daemon stands behind other programs, nobody pays
    /// for them, and a turn takes longer by them. Returns what is left, in the order of each payer.
    pub fn share<T>(
        &mut self,
        work: impl IntoIterator<Item = (Payer, T)>,
        now_ns: &dyn Fn() -> u64,
        act: &mut dyn FnMut(T),
    ) -> Vec<T> {
        let mut queues: BTreeMap<Payer, VecDeque<T>> = BTreeMap::new();
        for (payer, piece) in work {
            queues.entry(payer).or_default().push_back(piece);
        }
        let begun_ns = now_ns();
        let mut order: BTreeSet<(u64, bool, Payer)> = queues.keys().map(|payer| self.place(*payer)).collect();
        let mut at_ns = begun_ns;
        while let Some((used_ns, _, payer)) = order.first().copied()
            && at_ns.saturating_sub(begun_ns) < TURN_NS
        {
            order.pop_first();
            let Some(piece) = queues.get_mut(&payer).and_then(VecDeque::pop_front) else { continue };
            act(piece);
            let done_ns = now_ns();
            let used_ns = used_ns + done_ns.saturating_sub(at_ns).max(WORK_NS_MIN);
            at_ns = done_ns;
            self.used_ns.insert(payer, used_ns);
            if queues.get(&payer).is_some_and(|queue| !queue.is_empty()) {
                order.insert((used_ns, true, payer));
            }
        }
        match order.first() {
            Some((least_ns, _, _)) => {
                self.least_ns = *least_ns;
                self.used_ns.retain(|_, used_ns| *used_ns >= *least_ns);
            }
            // Nobody waits: what was used was nobody else's.
            None => *self = Turns::default(),
        }
        queues.into_values().flatten().collect()
    }

    /// The place in the order: by what was used, and of those who used the same whoever was not served before comes
    /// first.
    fn place(&self, payer: Payer) -> (u64, bool, Payer) {
        match self.used_ns.get(&payer) {
            Some(used_ns) => (*used_ns, true, payer),
            None => (self.least_ns, false, payer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_turn_ends_when_its_time_is_used_up_and_the_rest_is_left() {
        let clock = Cell::new(0);
        let mut done = 0;
        let left = Turns::default().share((0..100).map(|piece| (7, piece)), &|| clock.get(), &mut |piece| {
            assert_eq!(piece, done, "in their order");
            done += 1;
            clock.set(clock.get() + 2 * MS);
        });
        assert_eq!((done, left), (3, (3..100).collect()));
    }

    #[test]
    fn one_who_comes_back_has_to_pay_for_what_he_used_while_others_waited() {
        let clock = Cell::new(0);
        let mut turns = Turns::default();
        let mut order = Vec::new();
        let mut round = |turns: &mut Turns, work: Vec<(Payer, u64)>| {
            turns
                .share(work, &|| clock.get(), &mut |cost_ns| {
                    order.push(cost_ns);
                    clock.set(clock.get() + cost_ns);
                })
                .len()
        };
        // One long piece of user 1, while 2 waits: 1 asks again, and is behind 2 and a newcomer.
        assert_eq!(round(&mut turns, vec![(1, 50 * MS), (2, 6 * MS)]), 1);
        assert_eq!(round(&mut turns, vec![(1, 50 * MS + 1), (2, 6 * MS), (3, 6 * MS + 1)]), 2);
        assert_eq!(round(&mut turns, vec![(1, 50 * MS + 1), (3, 6 * MS + 1)]), 1);
        assert_eq!(round(&mut turns, vec![(1, 50 * MS + 1)]), 0);
        assert_eq!(order, [50 * MS, 6 * MS, 6 * MS + 1, 50 * MS + 1]);
        assert!(turns.used_ns.is_empty());
    }

    proptest! {
        /// However many pieces of whatever cost one user has waiting: another's one piece waits for the turn that runs
        /// and one piece more, in the mean of all who crowd it the same.
        #[test]
        fn a_newcomer_waits_for_a_turn_and_one_piece_of_each_other_at_most(
            costs in proptest::collection::vec((1u32..5, 1u64..20), 1..200),
            comes_at in 0usize..10,
        ) {
            let clock = Cell::new(0u64);
            let mut turns = Turns::default();
            let crowd: Vec<(Payer, u64)> = costs.iter().map(|(payer, ms)| (*payer, ms * MS)).collect();
            let longest_ns = crowd.iter().map(|(_, cost_ns)| *cost_ns).max().unwrap_or(0);
            for _ in 0..comes_at {
                turns.share(crowd.clone(), &|| clock.get(), &mut |cost_ns| clock.set(clock.get() + cost_ns));
            }
            let came_ns = clock.get();
            let answered_ns = Cell::new(None);
            while answered_ns.get().is_none() {
                let work = crowd.iter().copied().chain([(99, 0)]);
                turns.share(work, &|| clock.get(), &mut |cost_ns| {
                    if cost_ns == 0 {
                        answered_ns.set(Some(clock.get()));
                    }
                    clock.set(clock.get() + cost_ns);
                });
            }
            let waited_ns = answered_ns.get().expect("answered") - came_ns;
            prop_assert!(waited_ns <= 4 * longest_ns, "{waited_ns} with {longest_ns}");
        }

        /// Two who always want more get equal time, whatever their pieces cost, to within a piece of each.
        #[test]
        fn those_who_always_want_more_get_the_same_time(one_ms in 1u64..30, other_ms in 1u64..30) {
            let clock = Cell::new(0u64);
            let mut turns = Turns::default();
            let mut got_ns = [0u64; 2];
            for _ in 0..500 {
                let work = (0..50).flat_map(|_| [(0, 0), (1, 1)]);
                turns.share(work, &|| clock.get(), &mut |who: usize| {
                    let cost_ns = [one_ms, other_ms][who] * MS;
                    clock.set(clock.get() + cost_ns);
                    got_ns[who] += cost_ns;
                });
                prop_assert!(got_ns[0].abs_diff(got_ns[1]) <= (one_ms + other_ms) * MS, "{got_ns:?}");
            }
        }
    }
}
