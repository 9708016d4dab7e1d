//! Whether one of the cgroups that are near their maximum has more charged to it than was said, so that all is to be
//! looked at again at once.
//!
//! Anybody may have any number of them. They are read in turns, for a part of a CPU at most, and from one look to the
//! next the turn goes on where it was.

use steward_core::memory::beneath::Nearing;

/// What reading them takes is followed by a pause of so many times that.
const COST_PART: u64 = 200;
/// So long some of them are read after each other, in nanoseconds.
const PIECE_NS: u64 = 100_000;

/// Those that are near, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct NearMaximum {
    /// In the order of their ids.
    all: Vec<Nearing>,
    /// The place of the next one.
    next: usize,
    /// The one that was read last, by id.
    last_id: u64,
    /// None is read before.
    at_ns: u64,
}

impl NearMaximum {
    /// From now on it is these.
    pub(super) fn set(&mut self, mut all: Vec<Nearing>) {
        all.sort_by_key(|near| near.id);
        self.next = all.partition_point(|near| near.id <= self.last_id);
        self.all = all;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether one of those whose turn it is has more charged to it than was said. `charged_bytes` reads that of one,
    /// by id; `cpu_time_ns` is what the thread has used so far.
    pub(super) fn has_more(
        &mut self,
        now_ns: u64,
        charged_bytes: impl Fn(u64) -> u64,
        cpu_time_ns: impl Fn() -> u64,
    ) -> bool {
        if self.all.is_empty() || now_ns < self.at_ns {
            return false;
        }
        let begun_ns = cpu_time_ns();
        let (mut took_ns, mut has_more) = (0, false);
        for _ in 0..self.all.len() {
            let near = self.all[self.next % self.all.len()];
            (self.next, self.last_id) = (self.next % self.all.len() + 1, near.id);
            has_more = charged_bytes(near.id) > near.charged_bytes;
            took_ns = cpu_time_ns().saturating_sub(begun_ns);
            if has_more || took_ns >= PIECE_NS {
                break;
            }
        }
        self.at_ns = now_ns.saturating_add(took_ns.saturating_mul(COST_PART));
        has_more
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const MS: u64 = 1_000_000;

    fn near(id: u64) -> Nearing {
        Nearing { id, charged_bytes: 100 }
    }

    /// A thread that reads these over and over: each reading takes so long.
    struct Machine {
        near: NearMaximum,
        now_ns: u64,
        used_ns: Cell<u64>,
        read_ns: u64,
        read: RefCell<Vec<u64>>,
    }

    impl Machine {
        fn new(count: u64, read_ns: u64) -> Self {
            let mut near_maximum = NearMaximum::default();
            near_maximum.set((1..=count).rev().map(near).collect());
            let (used_ns, read) = (Cell::new(0), RefCell::default());
            Machine { near: near_maximum, now_ns: 0, used_ns, read_ns, read }
        }

        /// Goes on for so long, with a turn every millisecond. Returns who has more once one is seen to.
        fn run(&mut self, for_ns: u64, grows: Option<u64>) -> Option<u64> {
            let until_ns = self.now_ns + for_ns;
            while self.now_ns < until_ns {
                let charged = |id| {
                    self.used_ns.set(self.used_ns.get() + self.read_ns);
                    self.read.borrow_mut().push(id);
                    if grows == Some(id) { 101 } else { 100 }
                };
                if self.near.has_more(self.now_ns, charged, || self.used_ns.get()) {
                    return self.read.borrow().last().copied();
                }
                self.now_ns += MS;
            }
            None
        }
    }

    #[test]
    fn hundreds_of_them_take_a_two_hundredth_of_a_cpu_and_each_has_its_turn() {
        for (count, read_ns) in [(1, 2_000), (10, 2_000), (700, 2_000), (700, 15_000), (3, 5 * MS)] {
            let mut machine = Machine::new(count, read_ns);
            machine.run(20_000 * MS, None);
            let most_ns = machine.now_ns / COST_PART + PIECE_NS + read_ns;
            assert!(machine.used_ns.get() <= most_ns, "{count} of {read_ns}: {:?}", machine.used_ns);
            let read = machine.read.borrow();
            let times = |id: u64| read.iter().filter(|other| **other == id).count();
            let all: Vec<usize> = (1..=count).map(times).collect();
            let (least, most) = (all.iter().min(), all.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{count}: {all:?}");
        }
        // As many as there mostly are, are read as often as there is a turn for it.
        let mut few = Machine::new(10, 2_000);
        few.run(1_000 * MS, None);
        assert!(few.read.borrow().len() >= 10 * 200, "{}", few.read.borrow().len());
    }

    #[test]
    fn one_of_hundreds_that_has_more_is_seen_once_it_is_its_turn() {
        for id in [1, 350, 700] {
            let mut machine = Machine::new(700, 2_000);
            machine.run(500 * MS, None);
            let began_ns = machine.now_ns;
            assert_eq!(machine.run(1_000 * MS, Some(id)), Some(id));
            assert!(machine.now_ns - began_ns <= 300 * MS, "{id}: after {} ns", machine.now_ns - began_ns);
        }
        assert!(!NearMaximum::default().has_more(0, |_| u64::MAX, || 0));
    }

    #[test]
    fn looks_that_come_before_all_had_their_turn_begin_it_anew_for_nobody() {
        let mut machine = Machine::new(700, 15_000);
        for _ in 0..200 {
            machine.run(20 * MS, None);
            // Some have gone meanwhile.
            let gone = machine.read.borrow().len() as u64 % 700;
            machine.near.set((1..=700).filter(|id| *id != gone).map(near).collect());
        }
        let read = machine.read.borrow();
        for id in 1..=700 {
            assert!(read.contains(&id), "{id} has had no turn of {}", read.len());
        }
        assert!(read.len() >= 1200, "{}", read.len());
    }
}
