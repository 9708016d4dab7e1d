//! Keeps whoever is served first from taking the disk for themselves (Yang 2009, section 10.2.2: no request may wait
//! for ever). The kernel's real-time class has no such limit: an editor that copies a large file would keep everybody
//! else from the disk for as long as that takes, and anybody may start an editor.
//!
//! What interactive programs read and write is little, and now and then (section 10.3). Those that take more than half
//! of a disk's time together for two looks in a row lose their place for a while, the greediest first, as many as it
//! takes. They are then the first among all others. While any have lost theirs, one look is enough for the next.
//! Where domains come first by weight it is nineteen twentieths, and counts from three such domains on that want the
//! disk beside each other: a weight leaves others their part, but many leave them little. Beside a domain in the
//! background one is enough, whose weight leaves that a hundredth.
//!
//! Each disk is looked at by itself, and only those on which anybody is served first. What a process had of one disk is
//! known where it is counted by whom disks are given their requests (`ledger`); else it is taken for all that the
//! process has read and written anywhere.
//!
//! It is told by process, with what threads and children took that have ended: whoever takes the disk with one
//! short-lived thread after the other is seen to like any. And all threads of a process keep their place, or none.

use std::collections::{BTreeMap, BTreeSet};

use super::priority::Priority;
use crate::domain::name::parent_of;

/// The part of a disk's time that those who are served first may take together: by the real-time class, which leaves
/// others what is left over; and by weight, by which ten elevenths are due to a domain beside one of the usual weight.
const SHARE_MAX_BY_CLASS: f64 = 0.5;
const SHARE_MAX_BY_WEIGHT: f64 = 0.95;
/// How many domains beside each other have to want a disk at the least before any of them loses its place, where they
/// come first by weight: fewer leave others of the usual weight about a twentieth by their weights alone, whatever they
/// take. Where somebody in the background is beside them it is one: a hundredth is a turn each 12.5 s
/// ([`shares`](super::shares)).
const DOMAINS_MIN_BY_WEIGHT: usize = 3;
/// For how long in a row they take more before any loses its place, in looks.
const LOOKS: u32 = 2;
/// For how long one loses its place, in nanoseconds.
const SET_BACK_NS: u64 = 10_000_000_000;
/// What it has meanwhile: the first among those that have no class.
pub const SET_BACK_TO: Priority = Priority::BestEffort(0);

/// What a disk did since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    /// For which part of the time it had requests, 0 to 1.
    pub busy: f64,
    /// What it read and wrote, in bytes.
    pub bytes: u64,
    /// With how many requests.
    pub requests: u64,
    /// Whether who has the real-time class is served first there; where not, nobody can keep others from it.
    pub serves_first: bool,
    /// For which part of the time it was at work for requests that each process made itself, 0 to 1; `None` where that
    /// is not counted.
    pub had: Option<BTreeMap<i32, f64>>,
}

/// All disks, by name.
pub type Disks = BTreeMap<String, Disk>;

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

    /// Which part of it, 0 to 1, was of one disk for certain: what all others did together, in bytes, is too little for
    /// the rest.
    fn certain_part(self, others_bytes: u64) -> f64 {
        self.bytes.saturating_sub(others_bytes) as f64 / self.bytes.max(1) as f64
    }
}

impl Disk {
    fn cost_bytes(&self) -> u64 {
        self.bytes + self.requests * REQUEST_COSTS_BYTES
    }

    /// Which part of its time each process had, 0 to 1, of these that are served first.
    ///
    /// Where it is counted for whom it was at work, that is what a process had. But its children are not told there;
    /// so it is what it must have had by bytes, if that is more. Where it is not counted, all that a process has taken
    /// is held against it on each disk.
    fn parts(&self, taken: &[(i32, Taken)], others_bytes: u64) -> Vec<(i32, f64)> {
        let cost = |taken: &Taken| {
            let here = if self.had.is_some() { taken.certain_part(others_bytes) } else { 1.0 };
            here * taken.cost_bytes() as f64
        };
        let together: f64 = taken.iter().map(|(_, taken)| cost(taken)).sum();
        // What comes out of memory counts for a task, and not for a disk.
        let all = together.max(self.cost_bytes() as f64).max(1.0);
        let counted = |pid: i32| self.had.as_ref().and_then(|had| had.get(&pid)).copied().unwrap_or(0.0);
        let part = |(pid, taken): &(i32, Taken)| (*pid, counted(*pid).max(self.busy * cost(taken) / all));
        taken.iter().map(part).collect()
    }
}

/// Who was seen to take how much, and who has lost its place until when.
#[derive(Clone, Debug)]
pub struct Guard {
    /// The part of a disk's time that they may take together.
    share_max: f64,
    /// How many domains have to want it.
    domains_min: usize,
    /// What each had taken at the last look, by process.
    seen: BTreeMap<i32, Taken>,
    /// For how many looks in a row they have taken too much of a disk together, by its name and the cgroup below which
    /// their domains are.
    over: BTreeMap<(String, String), u32>,
    /// Until when, in nanoseconds of the caller's clock, and for what it took of which disk.
    set_back: BTreeMap<i32, (u64, String)>,
}

impl Guard {
    /// For those who are served first by the real-time class.
    pub fn by_class() -> Self {
        Guard::of(SHARE_MAX_BY_CLASS, 0)
    }

    /// For those whose domains come first by their weights.
    pub fn by_weight() -> Self {
        Guard::of(SHARE_MAX_BY_WEIGHT, DOMAINS_MIN_BY_WEIGHT)
    }

    fn of(share_max: f64, domains_min: usize) -> Self {
        Guard {
            share_max,
            domains_min,
            seen: BTreeMap::new(),
            over: BTreeMap::new(),
            set_back: BTreeMap::new(),
        }
    }

    /// Takes in a look: what each process of those who are to be served first has taken so far, by its number. The
    /// looks are about a second apart.
    pub fn look(&mut self, now_ns: u64, disks: &Disks, processes: &BTreeMap<i32, Taken>) {
        self.look_at_domains(now_ns, disks, processes, &BTreeMap::new(), &BTreeSet::new());
    }

    /// The same of processes that come first by domains, of which `domains` says the path, by process. Each level of
    /// the tree is looked at by itself: a domain comes first among those beside it. `with_background` are the cgroups
    /// right below which a domain is in the background.
    pub fn look_at_domains(
        &mut self,
        now_ns: u64,
        disks: &Disks,
        processes: &BTreeMap<i32, Taken>,
        domains: &BTreeMap<i32, String>,
        with_background: &BTreeSet<String>,
    ) {
        self.set_back.retain(|pid, (until_ns, _)| *until_ns > now_ns && processes.contains_key(pid));
        let taken: Vec<(i32, Taken)> = processes
            .iter()
            .filter_map(|(pid, taken)| Some((*pid, taken.since(*self.seen.get(pid)?))))
            .filter(|(pid, _)| !self.set_back.contains_key(pid))
            .collect();
        self.seen.clone_from(processes);
        let bytes: u64 = disks.values().map(|disk| disk.bytes).sum();
        let before = std::mem::take(&mut self.over);
        for (name, disk) in disks.iter().filter(|(_, disk)| disk.serves_first) {
            for (above, parts) in
                self.levels(disk.parts(&taken, bytes - disk.bytes), domains, with_background)
            {
                if together(&parts) <= self.share_max {
                    continue;
                }
                let key = (name.clone(), above);
                let over = before.get(&key).map_or(1, |looks| looks + 1);
                // When one has lost its place another may take up what it leaves: that is seen at once.
                if over < LOOKS && !self.set_back.values().any(|(_, lost_for)| lost_for == name) {
                    self.over.insert(key, over);
                    continue;
                }
                self.set_back_the_greediest(now_ns, name, parts);
            }
        }
    }

    /// These parts of a disk's time by the cgroup below which the domains are, where enough domains want it there.
    fn levels(
        &self,
        parts: Vec<(i32, f64)>,
        domains: &BTreeMap<i32, String>,
        with_background: &BTreeSet<String>,
    ) -> BTreeMap<String, Vec<(i32, f64)>> {
        let of = |pid: i32| domains.get(&pid).map_or("", String::as_str);
        let mut levels: BTreeMap<String, Vec<(i32, f64)>> = BTreeMap::new();
        for (pid, part) in parts {
            let above = parent_of(of(pid)).unwrap_or("").to_owned();
            levels.entry(above).or_default().push((pid, part));
        }
        levels.retain(|above, parts| {
            let domains_min = if with_background.contains(above) { 1 } else { self.domains_min };
            let wanting = parts.iter().filter(|(_, part)| *part > 0.0).map(|(pid, _)| of(*pid));
            wanting.collect::<BTreeSet<&str>>().len() >= domains_min
        });
        levels
    }

    fn set_back_the_greediest(&mut self, now_ns: u64, disk_name: &str, mut parts: Vec<(i32, f64)>) {
        parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        // Reckoned anew each time: what is left of a sum of such numbers after all were taken away need not be nothing.
        for (place, (pid, _)) in parts.iter().enumerate() {
            if together(&parts[place..]) <= self.share_max {
                break;
            }
            self.set_back.insert(*pid, (now_ns + SET_BACK_NS, disk_name.to_owned()));
        }
    }

    /// For what it takes of which disk a process has lost its place at the moment, by the disk's name.
    pub fn set_back_for(&self, pid: i32) -> Option<&str> {
        self.set_back.get(&pid).map(|(_, disk_name)| disk_name.as_str())
    }

    /// Whether a process has lost its place at the moment.
    pub fn is_set_back(&self, pid: i32) -> bool {
        self.set_back.contains_key(&pid)
    }
}

fn together(parts: &[(i32, f64)]) -> f64 {
    parts.iter().map(|(_, part)| part).sum()
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

    /// A disk on which somebody is served first, and of which it is not counted for whom it works.
    fn one(busy: f64, bytes: u64, requests: u64) -> Disks {
        let disk = Disk { busy, bytes, requests, serves_first: true, had: None };
        BTreeMap::from([("sda".to_owned(), disk)])
    }

    /// Looks each second at tasks that take so many bytes each in it, of so many that the disks do.
    fn after(seconds: u64, busy: f64, bytes: u64, each: &[u64]) -> Guard {
        let mut guard = Guard::by_class();
        for second in 0..=seconds {
            let tasks = (1..).zip(each).map(|(tid, each)| (tid, large(each * second))).collect();
            let requests = bytes.div_ceil(REQUEST_BYTES.1);
            guard.look(second * SECOND_NS, &one(busy, bytes, requests), &tasks);
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
        guard.look(11 * SECOND_NS, &Disks::default(), &quiet);
        assert!(guard.is_set_back(1));
        guard.look(12 * SECOND_NS, &Disks::default(), &quiet);
        assert!(!guard.is_set_back(1));
    }

    #[test]
    fn a_moment_of_greed_is_forgotten() {
        let mut guard = Guard::by_class();
        let mut bytes = 0;
        for second in 0..60 {
            bytes += if second % 2 == 0 { 40_000_000 } else { 0 };
            let tasks = BTreeMap::from([(1, large(bytes))]);
            guard.look(second * SECOND_NS, &one(1.0, 40_000_000, 80), &tasks);
            assert!(!guard.is_set_back(1), "after {second} s");
        }
    }

    #[test]
    fn whoever_takes_up_what_one_leaves_that_was_set_back_is_set_back_at_the_next_look() {
        let mut guard = Guard::by_class();
        let mut look = |second: u64, first: u64, other: u64| {
            let tasks = BTreeMap::from([(1, large(first)), (2, large(other))]);
            guard.look(second * SECOND_NS, &one(1.0, 40_000_000, 80), &tasks);
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
            let mut guard = Guard::by_class();
            for second in 0..3 {
                let so_far = Taken { bytes: taken.bytes * second, calls: taken.calls * second };
                let disks = one(1.0, 90 * 4096 + (10 << 19), 100);
                guard.look(second * SECOND_NS, &disks, &BTreeMap::from([(1, so_far)]));
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

    /// A hard disk and a fast one, of which the first alone serves anybody first.
    const HARD_BYTES: u64 = 40_000_000;
    const FAST_BYTES: u64 = 2_000_000_000;

    /// Looks for five seconds at 1, which reads so many bytes a second and has such a part of the hard disk's time,
    /// beside others who keep both disks busy.
    fn beside_a_fast_disk(bytes: u64, hard_part: f64, is_counted: bool) -> bool {
        let had = is_counted.then(|| BTreeMap::from([(1, hard_part), (7, 1.0 - hard_part)]));
        let hard = Disk { busy: 1.0, bytes: HARD_BYTES, requests: 80, serves_first: true, had };
        let fast = Disk { busy: 1.0, bytes: FAST_BYTES, requests: 20_000, serves_first: false, had: None };
        let disks = BTreeMap::from([("nvme0n1".to_owned(), fast), ("sda".to_owned(), hard)]);
        let mut guard = Guard::by_class();
        for second in 0..5 {
            let calls = second * bytes.div_ceil(4096);
            let taken = BTreeMap::from([(1, Taken { bytes: bytes * second, calls })]);
            guard.look(second * SECOND_NS, &disks, &taken);
        }
        assert_eq!(guard.set_back_for(1).is_some_and(|name| name == "sda"), guard.is_set_back(1));
        guard.is_set_back(1)
    }

    #[test]
    fn who_takes_a_hard_disk_is_set_back_however_busy_another_disk_is() {
        for is_counted in [false, true] {
            assert!(beside_a_fast_disk(HARD_BYTES, 1.0, is_counted));
        }
        // Its children have ended, and are not counted as its own: it is seen by what no other disk can have carried.
        assert!(beside_a_fast_disk(FAST_BYTES + HARD_BYTES, 0.0, true));
    }

    #[test]
    fn who_reads_from_a_fast_disk_keeps_its_place_while_others_keep_a_hard_disk_busy() {
        assert!(!beside_a_fast_disk(FAST_BYTES, 0.0, true));
        assert!(!beside_a_fast_disk(FAST_BYTES, 0.4, true));
        assert!(beside_a_fast_disk(FAST_BYTES, 0.6, true));
    }

    #[test]
    fn of_a_disk_on_which_nobody_is_served_first_anybody_may_have_all() {
        let mut guard = Guard::by_class();
        for second in 0..5 {
            let mut disks = one(1.0, 40_000_000, 80);
            disks.values_mut().for_each(|disk| disk.serves_first = false);
            let taken = BTreeMap::from([(1, large(40_000_000 * second))]);
            guard.look(second * SECOND_NS, &disks, &taken);
        }
        assert!(!guard.is_set_back(1));
    }

    #[test]
    fn greed_for_a_moment_on_one_disk_is_forgiven_while_somebody_has_lost_their_place_on_another() {
        let disk = |bytes, had| Disk { busy: 1.0, bytes, requests: 80, serves_first: true, had: Some(had) };
        let mut guard = Guard::by_class();
        let mut look = |second: u64, other_part: f64| {
            let disks = BTreeMap::from([
                ("sda".to_owned(), disk(40_000_000, BTreeMap::from([(1, 1.0)]))),
                ("sdb".to_owned(), disk(40_000_000, BTreeMap::from([(2, other_part)]))),
            ]);
            let taken = BTreeMap::from([(1, large(second * 40_000_000)), (2, large(0))]);
            guard.look(second * SECOND_NS, &disks, &taken);
            [1, 2].map(|pid| guard.is_set_back(pid))
        };
        look(0, 0.0);
        look(1, 0.0);
        assert_eq!(look(2, 0.0), [true, false]);
        assert_eq!(look(3, 1.0), [true, false]);
        assert_eq!(look(4, 1.0), [true, true]);
    }

    proptest! {
        #[test]
        fn on_each_of_two_disks_those_who_keep_their_place_had_half_of_its_time_at_most(
            parts in proptest::collection::vec((0.0_f64..0.3, 0.0_f64..0.3, 0_u64..1 << 30), 1..12),
        ) {
            // What is counted of both disks, and bytes that may all be of the other one.
            let disk = |of: fn(&(f64, f64, u64)) -> f64| {
                let had = (1..).zip(parts.iter().map(of)).collect();
                Disk { busy: 1.0, bytes: 1 << 30, requests: 80, serves_first: true, had: Some(had) }
            };
            let (a, b) = (disk(|parts| parts.0), disk(|parts| parts.1));
            let disks = BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
            let mut guard = Guard::by_class();
            for second in 0..3 {
                let each = parts.iter().map(|(_, _, bytes)| large(bytes * second));
                guard.look(second * SECOND_NS, &disks, &(1..).zip(each).collect());
            }
            for disk in disks.values() {
                let had = disk.had.as_ref().expect("it is counted");
                let kept: f64 = had.iter().filter(|(pid, _)| !guard.is_set_back(**pid)).map(|(_, part)| part).sum();
                prop_assert!(kept <= 0.5 + 1e-9);
            }
            // And nobody loses it where neither disk is taken.
            if disks.values().all(|disk| disk.had.iter().flat_map(BTreeMap::values).sum::<f64>() <= 0.5) {
                prop_assert!((1..=parts.len() as i32).all(|pid| !guard.is_set_back(pid)));
            }
        }

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
            let disks = one(busy, all, all.div_ceil(REQUEST_BYTES.1));
            let all = disks["sda"].cost_bytes().max(together).max(1) as f64;
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
