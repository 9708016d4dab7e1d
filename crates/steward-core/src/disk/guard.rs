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
//! What processes had that ended between two looks is told by where they were, their domain or else their cgroup, and
//! it is this that loses its place then, with all that is served first there and begins to be meanwhile: whoever takes
//! the disk with one short-lived process after the other is seen to as well. It also does, for the rest of the time,
//! when one ends that has lost its own.

use std::collections::{BTreeMap, BTreeSet};

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
/// For how long one loses its place, in nanoseconds; and the real-time class alone, which is given to each thread anew
/// and noted in the undo journal each time.
const SET_BACK_NS: u64 = 10_000_000_000;
const SET_BACK_BESIDES_WEIGHT_NS: u64 = 60_000_000_000;

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
    /// The same of those processes together that were served first and have ended, by their [place](Places). Nothing
    /// where it is not counted.
    pub ended: BTreeMap<String, f64>,
}

/// All disks, by name.
pub type Disks = BTreeMap<String, Disk>;

/// Where each process is that is served first, by its number: the path of the domain by which it comes first, the
/// highest one, or else that of its cgroup.
pub type Places = BTreeMap<i32, String>;

/// Who had a part of a disk's time, and may lose their place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Process(i32),
    /// The processes of a place that have ended, and then all that are there.
    Place(String),
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

    /// As much of it as disks that did so much together, in bytes, can have carried. A process is charged with all of
    /// what is kept as one in memory (a large folio, 1 MiB and more) when it changes a page of that, of which that page
    /// alone is written.
    fn of_disks(self, all_bytes: u64) -> Taken {
        Taken { bytes: self.bytes.min(all_bytes), ..self }
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

    /// Which part of its time each process had, 0 to 1, of these that are served first; and those that have ended.
    ///
    /// Where it is counted for whom it was at work, that is what a process had. But its children are not told there;
    /// so it is what it must have had by bytes, if that is more. Where it is not counted, all that a process has taken
    /// is held against it on each disk. What is held against its place for those who have ended is not held against a
    /// process that may have waited for them.
    fn parts(&self, taken: &[(i32, Taken)], others_bytes: u64, places: &Places) -> Vec<(Who, f64)> {
        let cost = |taken: &Taken| {
            let taken = taken.of_disks(self.bytes + others_bytes);
            let here = if self.had.is_some() { taken.certain_part(others_bytes) } else { 1.0 };
            here * taken.cost_bytes() as f64
        };
        let together: f64 = taken.iter().map(|(_, taken)| cost(taken)).sum();
        // What comes out of memory counts for a task, and not for a disk.
        let all = together.max(self.cost_bytes() as f64).max(1.0);
        let counted = |pid: i32| self.had.as_ref().and_then(|had| had.get(&pid)).copied().unwrap_or(0.0);
        let ended = self.ended.iter().filter(|(_, part)| **part > 0.0);
        let mut parts: Vec<(Who, f64)> =
            ended.map(|(place, part)| (Who::Place(place.clone()), *part)).collect();
        // What of it was not found again in what a process there has waited for.
        let mut ended = self.ended.clone();
        for (pid, taken) in taken {
            let (own, mut reckoned) = (counted(*pid), self.busy * cost(taken) / all);
            if let Some(of_place) = places.get(pid).and_then(|place| ended.get_mut(place)) {
                let found = (reckoned - own).clamp(0.0, *of_place);
                (*of_place, reckoned) = (*of_place - found, reckoned - found);
            }
            parts.push((Who::Process(*pid), own.max(reckoned)));
        }
        parts
    }
}

/// Who was seen to take how much, and who has lost its place until when.
#[derive(Clone, Debug)]
pub struct Guard {
    /// The part of a disk's time that they may take together.
    share_max: f64,
    /// How many domains have to want it.
    domains_min: usize,
    /// For how long one loses its place, in nanoseconds.
    set_back_ns: u64,
    /// What each had taken at the last look, by process.
    seen: BTreeMap<i32, Taken>,
    /// For how many looks in a row they have taken too much of a disk together, by its name and the cgroup below which
    /// their domains are.
    over: BTreeMap<(String, String), u32>,
    set_back: BTreeMap<Who, SetBack>,
}

/// That somebody has lost their place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SetBack {
    /// Until when, in nanoseconds of the caller's clock.
    until_ns: u64,
    /// For what it took of which disk.
    disk: String,
    /// Where it is.
    place: Option<String>,
}

/// Where those are that are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Where<'seen> {
    /// The place of each process.
    pub places: &'seen Places,
    /// The domain by which each comes first, where it is by their weights.
    pub domains: &'seen BTreeMap<i32, String>,
    /// The cgroups right below which a domain is in the background.
    pub with_background: &'seen BTreeSet<String>,
}

impl Guard {
    /// For those who are served first by the real-time class.
    pub fn by_class() -> Self {
        Guard::of(SHARE_MAX_BY_CLASS, 0, SET_BACK_NS)
    }

    /// For those whose domains come first by their weights, and who have the real-time class besides.
    pub fn besides_weight() -> Self {
        Guard::of(SHARE_MAX_BY_CLASS, 0, SET_BACK_BESIDES_WEIGHT_NS)
    }

    /// For those whose domains come first by their weights.
    pub fn by_weight() -> Self {
        Guard::of(SHARE_MAX_BY_WEIGHT, DOMAINS_MIN_BY_WEIGHT, SET_BACK_NS)
    }

    fn of(share_max: f64, domains_min: usize, set_back_ns: u64) -> Self {
        Guard {
            share_max,
            domains_min,
            set_back_ns,
            seen: BTreeMap::new(),
            over: BTreeMap::new(),
            set_back: BTreeMap::new(),
        }
    }

    /// Takes in a look: what each process of those who are to be served first has taken so far, by its number. The
    /// looks are about a second apart. Each level of the tree of domains is looked at by itself: a domain comes first
    /// among those beside it.
    pub fn look(&mut self, now_ns: u64, disks: &Disks, processes: &BTreeMap<i32, Taken>, at: Where<'_>) {
        self.forget_set_back(now_ns, processes);
        let place = |pid: &i32| at.places.get(pid).map(String::as_str);
        // One that has begun since the last look has had what was counted for it.
        let since = |(pid, taken): (&i32, &Taken)| {
            (*pid, self.seen.get(pid).map_or_else(Taken::default, |before| taken.since(*before)))
        };
        let taken: Vec<(i32, Taken)> = processes
            .iter()
            .filter(|(pid, _)| self.set_back_for(**pid, place(pid)).is_none())
            .map(since)
            .collect();
        self.seen.clone_from(processes);
        let bytes: u64 = disks.values().map(|disk| disk.bytes).sum();
        let before = std::mem::take(&mut self.over);
        for (name, disk) in disks.iter().filter(|(_, disk)| disk.serves_first) {
            let mut parts = disk.parts(&taken, bytes - disk.bytes, at.places);
            parts.retain(|(who, _)| !self.set_back.contains_key(who));
            for (above, parts) in self.levels(parts, at) {
                if together(&parts) <= self.share_max {
                    continue;
                }
                let key = (name.clone(), above);
                let over = before.get(&key).map_or(1, |looks| looks + 1);
                // When one has lost its place another may take up what it leaves: that is seen at once.
                if over < LOOKS && !self.set_back.values().any(|lost| lost.disk == *name) {
                    self.over.insert(key, over);
                    continue;
                }
                self.set_back_the_greediest(now_ns, name, parts, at.places);
            }
        }
    }

    /// Whoever has ended leaves it to those who are where it was, for as long as it had lost its place, or as all in a
    /// place lose theirs: it may have started another one in time.
    fn forget_set_back(&mut self, now_ns: u64, processes: &BTreeMap<i32, Taken>) {
        self.set_back.retain(|_, lost| lost.until_ns > now_ns);
        let is_there = |who: &Who| !matches!(who, Who::Process(pid) if !processes.contains_key(pid));
        let (there, gone): (BTreeMap<Who, SetBack>, _) =
            std::mem::take(&mut self.set_back).into_iter().partition(|(who, _)| is_there(who));
        self.set_back = there;
        for lost in gone.into_values() {
            let Some(place) = lost.place.clone() else { continue };
            let until_ns = lost.until_ns.min(now_ns + SET_BACK_NS);
            let lost = SetBack { until_ns, ..lost };
            let known = self.set_back.entry(Who::Place(place)).or_insert_with(|| lost.clone());
            known.until_ns = known.until_ns.max(until_ns);
        }
    }

    /// These parts of a disk's time by the cgroup below which the domains are, where enough domains want it there.
    fn levels(&self, parts: Vec<(Who, f64)>, at: Where<'_>) -> BTreeMap<String, Vec<(Who, f64)>> {
        // By the real-time class nothing is below anything.
        let is_weighed = self.domains_min > 0;
        let of = |who: &Who| match who {
            Who::Process(pid) => at.domains.get(pid).cloned().unwrap_or_default(),
            Who::Place(path) if is_weighed => path.clone(),
            Who::Place(_) => String::new(),
        };
        let mut levels: BTreeMap<String, Vec<(Who, f64)>> = BTreeMap::new();
        for (who, part) in parts {
            let above = parent_of(&of(&who)).unwrap_or("").to_owned();
            levels.entry(above).or_default().push((who, part));
        }
        levels.retain(|above, parts| {
            let domains_min = if at.with_background.contains(above) { 1 } else { self.domains_min };
            let wanting = parts.iter().filter(|(_, part)| *part > 0.0).map(|(who, _)| of(who));
            wanting.collect::<BTreeSet<String>>().len() >= domains_min
        });
        levels
    }

    fn set_back_the_greediest(
        &mut self,
        now_ns: u64,
        disk_name: &str,
        mut parts: Vec<(Who, f64)>,
        places: &Places,
    ) {
        parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        // Reckoned anew each time: what is left of a sum of such numbers after all were taken away need not be nothing.
        for (place, (who, _)) in parts.iter().enumerate() {
            if together(&parts[place..]) <= self.share_max {
                break;
            }
            let place = match who {
                Who::Process(pid) => places.get(pid).cloned(),
                Who::Place(place) => Some(place.clone()),
            };
            let lost = SetBack { until_ns: now_ns + self.set_back_ns, disk: disk_name.to_owned(), place };
            self.set_back.insert(who.clone(), lost);
        }
    }

    /// For what of which disk a process has lost its place at the moment, by the disk's name: for what it takes itself,
    /// or for what those took that have ended where it is.
    pub fn set_back_for(&self, pid: i32, place: Option<&str>) -> Option<&str> {
        let of_place = || self.set_back.get(&Who::Place(place?.to_owned()));
        self.set_back.get(&Who::Process(pid)).or_else(of_place).map(|lost| lost.disk.as_str())
    }

    /// The places that all lose theirs in, with the name of the disk for what was taken of which.
    pub fn set_back_places(&self) -> impl Iterator<Item = (&str, &str)> {
        self.set_back.iter().filter_map(|(who, lost)| match who {
            Who::Place(path) => Some((path.as_str(), lost.disk.as_str())),
            Who::Process(_) => None,
        })
    }
}

fn together(parts: &[(Who, f64)]) -> f64 {
    parts.iter().map(|(_, part)| part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A look at processes of which none is in a place that counts.
    fn look_at(guard: &mut Guard, now_ns: u64, disks: &Disks, processes: &BTreeMap<i32, Taken>) {
        look_in(guard, now_ns, disks, processes, &Places::new());
    }

    fn look_in(
        guard: &mut Guard,
        now_ns: u64,
        disks: &Disks,
        processes: &BTreeMap<i32, Taken>,
        places: &Places,
    ) {
        let (domains, with_background) = (&BTreeMap::new(), &BTreeSet::new());
        guard.look(now_ns, disks, processes, Where { places, domains, with_background });
    }

    impl Guard {
        fn is_set_back(&self, pid: i32) -> bool {
            self.set_back_for(pid, None).is_some()
        }
    }

    /// A disk that is busy all the time, on which somebody is served first.
    fn full() -> Disk {
        Disk { busy: 1.0, bytes: 1 << 20, requests: 80, serves_first: true, ..Disk::default() }
    }

    /// So many bytes in requests as large as can be.
    fn large(bytes: u64) -> Taken {
        Taken { bytes, calls: 0 }
    }

    /// A disk on which somebody is served first, and of which it is not counted for whom it works.
    fn one(busy: f64, bytes: u64, requests: u64) -> Disks {
        let disk = Disk { busy, bytes, requests, serves_first: true, ..Disk::default() };
        BTreeMap::from([("sda".to_owned(), disk)])
    }

    /// Looks each second at tasks that take so many bytes each in it, of so many that the disks do.
    fn after(seconds: u64, busy: f64, bytes: u64, each: &[u64]) -> Guard {
        let mut guard = Guard::by_class();
        for second in 0..=seconds {
            let tasks = (1..).zip(each).map(|(tid, each)| (tid, large(each * second))).collect();
            let requests = bytes.div_ceil(REQUEST_BYTES.1);
            look_at(&mut guard, second * SECOND_NS, &one(busy, bytes, requests), &tasks);
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
        look_at(&mut guard, 11 * SECOND_NS, &Disks::default(), &quiet);
        assert!(guard.is_set_back(1));
        look_at(&mut guard, 12 * SECOND_NS, &Disks::default(), &quiet);
        assert!(!guard.is_set_back(1));
    }

    #[test]
    fn who_changes_a_page_of_a_large_file_has_written_a_page() {
        // Each page is one of a folio of 1 MiB: the kernel charges 26 MiB, and the disk has written 26 pages of it.
        let mut guard = Guard::by_class();
        for second in 0..5 {
            let taken = Taken { bytes: second * (26 << 20), calls: second * 26 };
            let had = Some(BTreeMap::from([(1, 0.26)]));
            let disk = Disk { bytes: 100 * 4096, requests: 100, had, ..full() };
            let disks = Disks::from([("sda".to_owned(), disk)]);
            look_at(&mut guard, second * SECOND_NS, &disks, &BTreeMap::from([(1, taken)]));
        }
        assert!(!guard.is_set_back(1));
    }

    #[test]
    fn a_moment_of_greed_is_forgotten() {
        let mut guard = Guard::by_class();
        let mut bytes = 0;
        for second in 0..60 {
            bytes += if second % 2 == 0 { 40_000_000 } else { 0 };
            let tasks = BTreeMap::from([(1, large(bytes))]);
            look_at(&mut guard, second * SECOND_NS, &one(1.0, 40_000_000, 80), &tasks);
            assert!(!guard.is_set_back(1), "after {second} s");
        }
    }

    #[test]
    fn whoever_takes_up_what_one_leaves_that_was_set_back_is_set_back_at_the_next_look() {
        let mut guard = Guard::by_class();
        let mut look = |second: u64, first: u64, other: u64| {
            let tasks = BTreeMap::from([(1, large(first)), (2, large(other))]);
            look_at(&mut guard, second * SECOND_NS, &one(1.0, 40_000_000, 80), &tasks);
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
                look_at(&mut guard, second * SECOND_NS, &disks, &BTreeMap::from([(1, so_far)]));
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
        let hard =
            Disk { busy: 1.0, bytes: HARD_BYTES, requests: 80, serves_first: true, had, ..Disk::default() };
        let fast =
            Disk { busy: 1.0, bytes: FAST_BYTES, requests: 20_000, serves_first: false, ..Disk::default() };
        let disks = BTreeMap::from([("nvme0n1".to_owned(), fast), ("sda".to_owned(), hard)]);
        let mut guard = Guard::by_class();
        for second in 0..5 {
            let calls = second * bytes.div_ceil(4096);
            let taken = BTreeMap::from([(1, Taken { bytes: bytes * second, calls })]);
            look_at(&mut guard, second * SECOND_NS, &disks, &taken);
        }
        assert_eq!(guard.set_back_for(1, None).is_some_and(|name| name == "sda"), guard.is_set_back(1));
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
            look_at(&mut guard, second * SECOND_NS, &disks, &taken);
        }
        assert!(!guard.is_set_back(1));
    }

    #[test]
    fn greed_for_a_moment_on_one_disk_is_forgiven_while_somebody_has_lost_their_place_on_another() {
        let disk = |bytes, had| Disk { bytes, had: Some(had), ..full() };
        let mut guard = Guard::by_class();
        let mut look = |second: u64, other_part: f64| {
            let disks = BTreeMap::from([
                ("sda".to_owned(), disk(40_000_000, BTreeMap::from([(1, 1.0)]))),
                ("sdb".to_owned(), disk(40_000_000, BTreeMap::from([(2, other_part)]))),
            ]);
            let taken = BTreeMap::from([(1, large(second * 40_000_000)), (2, large(0))]);
            look_at(&mut guard, second * SECOND_NS, &disks, &taken);
            [1, 2].map(|pid| guard.is_set_back(pid))
        };
        look(0, 0.0);
        look(1, 0.0);
        assert_eq!(look(2, 0.0), [true, false]);
        assert_eq!(look(3, 1.0), [true, false]);
        assert_eq!(look(4, 1.0), [true, true]);
    }

    /// A second in which the disk was at work for one process, which is there, and for some that have ended where the
    /// others are.
    fn second(guard: &mut Guard, second: u64, had: (i32, f64), ended: (&str, f64), places: &Places) {
        let (had, ended) = (BTreeMap::from([had]), BTreeMap::from([(ended.0.to_owned(), ended.1)]));
        let disks = Disks::from([("sda".to_owned(), Disk { had: Some(had), ended, ..full() })]);
        let processes = places.keys().map(|pid| (*pid, Taken::default())).collect();
        look_in(guard, second * SECOND_NS, &disks, &processes, places);
    }

    #[test]
    fn who_takes_the_disk_with_one_short_lived_process_after_the_other_loses_its_place_and_so_does_the_next()
    {
        let mut guard = Guard::by_class();
        // None of them is there at two looks.
        let lost: Vec<[bool; 2]> = (0..14)
            .map(|each: u64| {
                let pid = 10 + each as i32;
                let places = Places::from([(1, "other".to_owned()), (pid, "loop".to_owned())]);
                let takes = if each < 5 { 0.7 } else { 0.0 };
                second(&mut guard, each, (pid, takes / 7.0), ("loop", takes), &places);
                let lost = |pid: i32| guard.set_back_for(pid, places.get(&pid).map(String::as_str)).is_some();
                // The next one, that begins between two looks, has lost it as well.
                assert_eq!(lost(pid), guard.set_back_for(1000, Some("loop")).is_some());
                [lost(1), lost(pid)]
            })
            .collect();
        let is_lost = |each: usize| [false, (1..11).contains(&each)];
        assert_eq!(lost, (0..14).map(is_lost).collect::<Vec<_>>());
        assert_eq!(guard.set_back_places().count(), 0);
    }

    #[test]
    fn who_has_lost_its_place_and_ends_leaves_that_to_the_next_one_for_the_rest_of_the_time() {
        let mut guard = Guard::by_class();
        let places = |pid| Places::from([(pid, "loop".to_owned())]);
        for each in 0..3 {
            second(&mut guard, each, (1, 0.9), ("loop", 0.0), &places(1));
        }
        assert!(
            guard.set_back_for(1, Some("loop")).is_some() && guard.set_back_for(2, Some("loop")).is_none()
        );
        for each in 3..15 {
            second(&mut guard, each, (2, 0.0), ("loop", 0.0), &places(2));
            let lost = guard.set_back_for(2, Some("loop"));
            assert_eq!(
                (lost, guard.set_back_for(3, Some("other"))),
                ((each < 11).then_some("sda"), None),
                "{each}"
            );
        }
    }

    #[test]
    fn what_a_shell_has_waited_for_counts_once() {
        // Two fifths of the time, in processes that have ended, which the shell has waited for.
        let loses = |part: f64| {
            let mut guard = Guard::by_class();
            let places = Places::from([(1, "loop".to_owned())]);
            for second in 0..5 {
                let requests = (80.0 * part) as u64;
                let each = Taken { bytes: requests * 4096, calls: requests };
                let ended = BTreeMap::from([("loop".to_owned(), part)]);
                let disk = Disk { bytes: 80 * 4096, had: Some(BTreeMap::new()), ended, ..full() };
                let taken = Taken { bytes: each.bytes * second, calls: each.calls * second };
                let disks = Disks::from([("sda".to_owned(), disk)]);
                look_in(&mut guard, second * SECOND_NS, &disks, &BTreeMap::from([(1, taken)]), &places);
            }
            guard.set_back_for(1, Some("loop")).is_some()
        };
        assert!(!loses(0.4) && loses(0.6));
    }

    #[test]
    fn of_domains_that_come_first_by_weight_those_whose_processes_have_ended_are_looked_at_by_level() {
        let loses = |with_background: &[&str]| {
            let mut guard = Guard::by_weight();
            let (places, domains) = (Places::new(), BTreeMap::new());
            let with_background = with_background.iter().map(|path| (*path).to_owned()).collect();
            for second in 0..3 {
                let ended = BTreeMap::from([("u/a".to_owned(), 0.99)]);
                let disk = Disk { had: Some(BTreeMap::new()), ended, ..full() };
                let disks = Disks::from([("sda".to_owned(), disk)]);
                let at = Where { places: &places, domains: &domains, with_background: &with_background };
                guard.look(second * SECOND_NS, &disks, &BTreeMap::new(), at);
            }
            guard.set_back_places().next().is_some_and(|lost| lost == ("u/a", "sda"))
        };
        // Alone it leaves others an eleventh by its weight.
        assert!(!loses(&[]) && !loses(&[""]) && loses(&["u"]));
    }

    proptest! {
        #[test]
        fn whoever_has_ended_those_who_keep_their_place_had_half_of_the_time_at_most(
            parts in proptest::collection::vec((0.0_f64..0.3, 0.0_f64..0.3), 1..6),
        ) {
            // One process in each place, and what those had there that have ended.
            let places: Places = (1..).zip(&parts).map(|(pid, _)| (pid, format!("place-{pid}"))).collect();
            let had: BTreeMap<i32, f64> = (1..).zip(&parts).map(|(pid, (own, _))| (pid, *own)).collect();
            let ended = (1..).zip(&parts).map(|(pid, (_, ended))| (places[&pid].clone(), *ended)).collect();
            let disk = Disk { had: Some(had.clone()), ended, ..full() };
            let disks = Disks::from([("sda".to_owned(), disk)]);
            let mut guard = Guard::by_class();
            for second in 0..3 {
                let processes = places.keys().map(|pid| (*pid, Taken::default())).collect();
                look_in(&mut guard, second * SECOND_NS, &disks, &processes, &places);
            }
            let kept: f64 = (1..)
                .zip(&parts)
                .map(|(pid, (own, ended))| {
                    let place = Some(places[&pid].as_str());
                    let own = if guard.set_back_for(pid, place).is_some() { 0.0 } else { *own };
                    // Who begins there next.
                    let ended = if guard.set_back_for(1000, place).is_some() { 0.0 } else { *ended };
                    own + ended
                })
                .sum();
            prop_assert!(kept <= 0.5 + 1e-9, "{kept}");
            let all: f64 = parts.iter().map(|(own, ended)| own + ended).sum();
            prop_assert_eq!(all <= 0.5, (1..=parts.len() as i32).all(|pid| {
                guard.set_back_for(pid, places.get(&pid).map(String::as_str)).is_none()
            }));
        }

        #[test]
        fn on_each_of_two_disks_those_who_keep_their_place_had_half_of_its_time_at_most(
            parts in proptest::collection::vec((0.0_f64..0.3, 0.0_f64..0.3, 0_u64..1 << 30), 1..12),
        ) {
            // What is counted of both disks, and bytes that may all be of the other one.
            let disk = |of: fn(&(f64, f64, u64)) -> f64| {
                let had = (1..).zip(parts.iter().map(of)).collect();
                Disk { bytes: 1 << 30, had: Some(had), ..full() }
            };
            let (a, b) = (disk(|parts| parts.0), disk(|parts| parts.1));
            let disks = BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
            let mut guard = Guard::by_class();
            for second in 0..3 {
                let each = parts.iter().map(|(_, _, bytes)| large(bytes * second));
                look_at(&mut guard, second * SECOND_NS, &disks, &(1..).zip(each).collect());
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
