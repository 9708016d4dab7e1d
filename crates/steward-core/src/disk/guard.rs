//! Keeps whoever is served first from taking the disk for themselves (Yang 2009, section 10.2.2: no request may wait
//! for ever). The kernel's real-time class has no such limit: an editor that copies a large file would keep everybody
//! else from the disk for as long as that takes, and anybody may start an editor.
//!
//! What interactive programs read and write is little, and now and then (section 10.3). Those that take more than half
//! of a disk's time together for two looks in a row lose their place for a while, the greediest first, as many as it
//! takes. They are then the first among all others. While any have lost theirs, one look is enough for the next.
//!
//! It is told by process, with what threads and children took that have ended: whoever takes the disk with one
//! short-lived thread after the other is seen to like any. And all threads of a process keep their place, or none.

use std::collections::BTreeMap;

use super::priority::Priority;
/// The part of a disk's time that those who are served first may take together.
const SHARE_MAX: f64 = 0.5;
/// For how long in a row they take more before any loses its place, in looks.
const LOOKS: u32 = 2;
/// For how long one loses its place, in nanoseconds.
const SET_BACK_NS: u64 = 10_000_000_000;
/// What it has meanwhile: the first among those that have no class.
pub const SET_BACK_TO: Priority = Priority::BestEffort(0);

/// What the disks did since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disks {
    /// For which part of the time the busiest one had requests, 0 to 1.
    pub busy: f64,
    /// What all of them read and wrote, in bytes.
    pub bytes: u64,
    /// With how many requests.
    pub requests: u64,
}

/// What a process has had of the disks, ever, with its threads and the children that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Read and written, in bytes.
    pub bytes: u64,
    /// How often it has read or written, whether the disk was asked or not.
    pub calls: u64,
}

/// What a request costs a disk that rotates beside what it carries, in bytes that it could carry meanwhile: some 8 ms
/// at some 130 MB/s. On the lab's disk of 10 ms it is 2.8 MB.
const REQUEST_COSTS_BYTES: u64 = 1 << 20;
/// The smallest request, and the largest that is common (`max_sectors_kb`), in bytes.
const REQUEST_BYTES: (u64, u64) = (4096, 512 << 10);

impl Taken {
    fn since(self, before: Taken) -> Taken {
        Taken {
            bytes: self.bytes.saturating_sub(before.bytes),
            calls: self.calls.saturating_sub(before.calls),
        }
    }

    /// What it cost the disks, in bytes that they could have carried. The kernel counts nowhere how many requests a
    /// process makes: they are as many as its calls, as far as that is possible with these bytes. For who reads a file
    /// in small pieces that is too many, since the kernel reads ahead: it loses its place sooner than it should, and
    /// keeps it never too long.
    fn cost_bytes(self) -> u64 {
        let (least, most) = (self.bytes.div_ceil(REQUEST_BYTES.1), self.bytes.div_ceil(REQUEST_BYTES.0));
        self.bytes + self.calls.clamp(least, most) * REQUEST_COSTS_BYTES
    }
}

impl Disks {
    fn cost_bytes(self) -> u64 {
        self.bytes + self.requests * REQUEST_COSTS_BYTES
    }
}

/// Who was seen to take how much, and who has lost its place until when.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// What each had taken at the last look, by process.
    seen: BTreeMap<i32, Taken>,
    /// For how many looks in a row they have taken too much together.
    over: u32,
    /// Until when, in nanoseconds of the caller's clock.
    set_back: BTreeMap<i32, u64>,
}

impl Guard {
    /// Takes in a look: what each process of those who are to be served first has taken so far, by its number. The
    /// looks are about a second apart.
    pub fn look(&mut self, now_ns: u64, disks: Disks, processes: &BTreeMap<i32, Taken>) {
        self.set_back.retain(|pid, until_ns| *until_ns > now_ns && processes.contains_key(pid));
        let taken: Vec<(i32, u64)> = processes
            .iter()
            .filter_map(|(pid, taken)| Some((*pid, taken.since(*self.seen.get(pid)?).cost_bytes())))
            .filter(|(pid, _)| !self.set_back.contains_key(pid))
            .collect();
        self.seen.clone_from(processes);
        let together: u64 = taken.iter().map(|(_, cost)| cost).sum();
        // What comes out of memory counts for a task, and not for a disk.
        let all = disks.cost_bytes().max(together).max(1) as f64;
        let share = |cost: u64| disks.busy * cost as f64 / all;
        if share(together) <= SHARE_MAX {
            self.over = 0;
            return;
        }
        self.over += 1;
        // When one has lost its place another may take up what it leaves: that is seen at once.
        if self.over < LOOKS && self.set_back.is_empty() {
            return;
        }
        self.over = 0;
        self.set_back_the_greediest(now_ns, taken, together, &share);
    }

    fn set_back_the_greediest(
        &mut self,
        now_ns: u64,
        mut taken: Vec<(i32, u64)>,
        mut together: u64,
        share: &dyn Fn(u64) -> f64,
    ) {
        taken.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        for (pid, cost) in taken {
            if share(together) <= SHARE_MAX {
                break;
            }
            together -= cost;
            self.set_back.insert(pid, now_ns + SET_BACK_NS);
        }
    }

    /// Whether a process has lost its place at the moment.
    pub fn is_set_back(&self, pid: i32) -> bool {
        self.set_back.contains_key(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// So many bytes in requests as large as can be.
    fn large(bytes: u64) -> Taken {
        Taken { bytes, calls: 0 }
    }

    /// Looks each second at tasks that take so many bytes each in it, of so many that the disks do.
    fn after(seconds: u64, busy: f64, bytes: u64, each: &[u64]) -> Guard {
        let mut guard = Guard::default();
        for second in 0..=seconds {
            let tasks = (1..).zip(each).map(|(tid, each)| (tid, large(each * second))).collect();
            let requests = bytes.div_ceil(REQUEST_BYTES.1);
            guard.look(second * SECOND_NS, Disks { busy, bytes, requests }, &tasks);
        }
        guard
    }

    #[test]
    fn who_saves_now_and_then_or_reads_a_film_keeps_its_place() {
        for (busy, all, own) in
            [(1.0, 40_000_000, 600_000), (1.0, 40_000_000, 19_000_000), (0.3, 5_000_000, 5_000_000)]
        {
            assert!(!after(60, busy, all, &[own]).is_set_back(1), "{own} of {all}");
        }
    }

    #[test]
    fn who_takes_most_of_the_disk_for_two_seconds_is_set_back_and_comes_back() {
        assert!(!after(1, 1.0, 40_000_000, &[30_000_000]).is_set_back(1));
        let mut guard = after(2, 1.0, 40_000_000, &[30_000_000, 1_000]);
        assert!(guard.is_set_back(1) && !guard.is_set_back(2));
        let quiet = BTreeMap::from([(1, large(60_000_000))]);
        guard.look(11 * SECOND_NS, Disks::default(), &quiet);
        assert!(guard.is_set_back(1));
        guard.look(12 * SECOND_NS, Disks::default(), &quiet);
        assert!(!guard.is_set_back(1));
    }

    #[test]
    fn a_moment_of_greed_is_forgotten() {
        let mut guard = Guard::default();
        let mut bytes = 0;
        for second in 0..60 {
            bytes += if second % 2 == 0 { 40_000_000 } else { 0 };
            let tasks = BTreeMap::from([(1, large(bytes))]);
            guard.look(second * SECOND_NS, Disks { busy: 1.0, bytes: 40_000_000, requests: 80 }, &tasks);
            assert!(!guard.is_set_back(1), "after {second} s");
        }
    }

    #[test]
    fn whoever_takes_up_what_one_leaves_that_was_set_back_is_set_back_at_the_next_look() {
        let mut guard = Guard::default();
        let mut look = |second: u64, one: u64, other: u64| {
            let tasks = BTreeMap::from([(1, large(one)), (2, large(other))]);
            guard.look(second * SECOND_NS, Disks { busy: 1.0, bytes: 40_000_000, requests: 80 }, &tasks);
            [1, 2].map(|task| guard.is_set_back(task))
        };
        look(0, 0, 0);
        assert_eq!(look(1, 30_000_000, 10_000_000), [false, false]);
        assert_eq!(look(2, 60_000_000, 20_000_000), [true, false]);
        assert_eq!(look(3, 60_000_000, 60_000_000), [true, true]);
    }

    #[test]
    fn what_requests_cost_counts_beside_what_they_carry() {
        // Of a disk that serves 100 requests a second: 90 of 4 KiB, beside ten of 512 KiB that carry most.
        let after = |taken: Taken| {
            let mut guard = Guard::default();
            for second in 0..3 {
                let so_far = Taken { bytes: taken.bytes * second, calls: taken.calls * second };
                let disks = Disks { busy: 1.0, bytes: 90 * 4096 + (10 << 19), requests: 100 };
                guard.look(second * SECOND_NS, disks, &BTreeMap::from([(1, so_far)]));
            }
            guard.is_set_back(1)
        };
        assert!(
            after(Taken { bytes: 90 * 4096, calls: 90 }),
            "who makes the small ones takes most of the time"
        );
        assert!(!after(Taken { bytes: 10 << 19, calls: 10 }), "and who makes the large ones does not");
        // Calls that asked no disk are no requests.
        assert!(!after(Taken { bytes: 0, calls: 1_000_000 }));
    }

    proptest! {
        #[test]
        fn whatever_they_take_those_who_keep_their_place_take_half_of_the_disk_at_most(
            each in proptest::collection::vec(0_u64..100_000_000, 1..20),
            others in 0_u64..100_000_000,
            busy in 0.0_f64..=1.0,
        ) {
            let all = each.iter().sum::<u64>() + others;
            let guard = after(2, busy, all, &each);
            let cost = |bytes: &u64| large(*bytes).cost_bytes();
            let together: u64 = each.iter().map(cost).sum();
            let disks = Disks { busy, bytes: all, requests: all.div_ceil(REQUEST_BYTES.1) };
            let all = disks.cost_bytes().max(together).max(1) as f64;
            let keeps = |tid: i32| !guard.is_set_back(tid);
            let kept: u64 = (1..).zip(&each).filter(|(tid, _)| keeps(*tid)).map(|(_, bytes)| cost(bytes)).sum();
            prop_assert!(busy * kept as f64 <= 0.5 * all + 1.0);
            // And nobody loses it for what others take.
            if busy * together as f64 <= 0.5 * all {
                prop_assert!((1..).zip(&each).all(|(tid, _)| keeps(tid)));
            }
        }
    }
}
