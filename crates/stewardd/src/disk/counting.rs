//! What disks do for whom, and who waits for them: a thread has the kernel count it (`steward_waits::ledger`), reads
//! it once a second, and finds out who held up whom (`steward_core::disk::waits`). There is one while a program or
//! domain was given something of the disk, and for two minutes after somebody asked: counting costs a little with
//! each request.
//!
//! What each process had of each disk is told from it to who keeps those from the disk who take it for themselves
//! (`steward_core::disk::guard`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steward_core::disk::contention::Contention;
use steward_core::disk::ledger::{Key, Reading, Served, Wait};
use steward_core::disk::minute::{ByCgroup, Minute, by_cgroup, merge};
use steward_core::disk::waits::{Reason, Verdict, judge};
use steward_kernel::Roots;
use steward_kernel::disk::devices;

use super::counts::Counts;
use super::knobs::Knobs;
use super::spent::Spent;
use crate::turn::clock::now_ns;
use crate::turn::part::Part;

/// How often it is read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For how long it is counted after somebody asked, in nanoseconds: whoever looks comes back, and metrics are read once
/// a minute or more often.
const ASKED_FOR_NS: u64 = 120_000_000_000;
/// How many lines of what disks did are kept, and of how many waits it is found out at a time whose fault they are.
const LINES_MAX: usize = 16_384;
const JUDGED_MAX: usize = 64;
/// How many are told of that are over, and how many of them of one cgroup: whoever waits all the time does not have the
/// others forgotten.
const OVER_MAX: usize = 512;
const OVER_OF_CGROUP_MAX: usize = 16;
/// How many bits of a disk's number are the minor.
const MINOR_BITS: u32 = 20;
/// Of so many it is counted apart before those are forgotten that make no requests.
const KEYS_MAX: usize = 1024;

/// A wait, and what was found about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Judged {
    pub(crate) wait: Wait,
    pub(crate) verdict: Verdict,
}

/// What was counted for a domain with all below it since the daemon began to, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) device_ns: u64,
    /// How often somebody waited for long, and for how long in nanoseconds, by where.
    pub(crate) waits: BTreeMap<Reason, (u64, u64)>,
}

/// What processes had of disks in a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Had {
    /// By the disk's number, the process and its cgroup, in nanoseconds of the disk's time.
    device_ns: BTreeMap<(u32, i32, u64), u64>,
    /// How long the span was, in nanoseconds.
    span_ns: u64,
    /// Whether some of it was gone before it was read.
    has_gaps: bool,
}

impl Had {
    /// Which part of its time the disk of this number, as in `8:0`, was at work for each process; `None` where that is
    /// not known.
    pub(crate) fn of_disk(&self, disk: &str) -> Option<BTreeMap<i32, f64>> {
        Some(sum(self.of_each(disk)?.map(|(pid, _, part)| (pid, part))))
    }

    /// The same of those who have ended, by where they were, which `place_of` says of a process and its cgroup; it says
    /// nothing of who is there, and of who does not count.
    pub(crate) fn of_ended<'place>(
        &self,
        disk: &str,
        place_of: impl Fn(i32, u64) -> Option<&'place str>,
    ) -> BTreeMap<String, f64> {
        let placed = |(pid, cgroup_id, part)| Some((place_of(pid, cgroup_id)?.to_owned(), part));
        self.of_each(disk).map(|each| sum(each.filter_map(placed))).unwrap_or_default()
    }

    /// Each process that the disk was at work for, its cgroup, and for which part of the time.
    fn of_each(&self, disk: &str) -> Option<impl Iterator<Item = (i32, u64, f64)>> {
        let disk = number(disk).filter(|_| self.span_ns > 0 && !self.has_gaps)?;
        let of_it = self.device_ns.range((disk, i32::MIN, u64::MIN)..=(disk, i32::MAX, u64::MAX));
        let part = |ns: &u64| *ns as f64 / self.span_ns as f64;
        Some(of_it.map(move |((_, pid, cgroup_id), ns)| (*pid, *cgroup_id, part(ns))))
    }

    /// Takes in what was read after another so many nanoseconds.
    fn add(&mut self, reading: &Reading, span_ns: u64) {
        self.span_ns += span_ns;
        self.has_gaps |= reading.served_missed > 0;
        // The kernel's own threads work for others.
        for served in reading.served.iter().filter(|served| served.pid != 0 && served.device_ns > 0) {
            let whose = (served.disk, served.pid, served.cgroup_id);
            *self.device_ns.entry(whose).or_default() += served.device_ns;
        }
    }
}

/// The sum of each.
fn sum<Whose: Ord>(parts: impl Iterator<Item = (Whose, f64)>) -> BTreeMap<Whose, f64> {
    let mut sums = BTreeMap::new();
    for (whose, part) in parts {
        *sums.entry(whose).or_default() += part;
    }
    sums
}

/// What the thread tells.
#[derive(Debug, Default)]
struct Told {
    /// What processes had of disks since this was taken last.
    had: Had,
    /// When it was read last.
    at_ns: u64,
    /// For how long the last minute was looked at, and what was done in it.
    seen_ns: u64,
    minute: ByCgroup,
    /// What was done since this was taken last, and what is over since.
    new: ByCgroup,
    over: Vec<Judged>,
    /// Who waits now.
    waiting: Vec<Judged>,
    /// The disks that one cgroup at most wants.
    free: BTreeSet<u32>,
    lacks: Vec<&'static str>,
    /// Why it does not count.
    problem: Option<String>,
}

/// What the daemon takes in.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) seen_ns: u64,
    pub(crate) minute: ByCgroup,
    pub(crate) new: ByCgroup,
    pub(crate) over: Vec<Judged>,
}

struct Running {
    told: Arc<Mutex<Told>>,
    /// Dropped, it ends the thread. Nobody waits for that: to let go of the kernel takes a moment.
    _stop: Sender<()>,
}

/// The thread, as the daemon sees it.
#[derive(Default)]
pub(crate) struct Counting {
    running: Option<Running>,
    asked_at_ns: Option<u64>,
    taken_at_ns: u64,
    /// What was taken last of what processes had.
    had: Option<Had>,
    /// For how long the last minute was looked at when it was taken last, in nanoseconds.
    pub(crate) seen_ns: u64,
    /// Who waits now, and who has waited, the latest last.
    pub(crate) waiting: Vec<Judged>,
    pub(crate) over: VecDeque<Judged>,
    /// Why it is not counted, or what of it is not; in a sentence.
    pub(crate) problem: Option<String>,
    /// What was spent on it.
    pub(crate) spent: Spent,
}

impl std::fmt::Debug for Counting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Counting").field("runs", &self.running.is_some()).finish_non_exhaustive()
    }
}

impl Counting {
    /// Somebody asks what is counted: it is, for a while.
    pub(crate) fn ask(&mut self, now_ns: u64) {
        self.asked_at_ns = Some(now_ns);
    }

    /// Whether it is counted, and has been for a while.
    pub(crate) fn has_counted(&self) -> bool {
        self.seen_ns > 0
    }

    /// Has it be counted if anybody has something of the disk or has asked, and takes in what is new.
    pub(crate) fn tick(
        &mut self,
        now_ns: u64,
        is_in_use: bool,
        knobs: &Arc<dyn Knobs>,
        roots: &Roots,
    ) -> Option<News> {
        let is_asked = self.asked_at_ns.is_some_and(|at_ns| now_ns < at_ns + ASKED_FOR_NS);
        if !is_in_use && !is_asked {
            self.asked_at_ns = None;
            if self.running.take().is_some() {
                *self = Counting { spent: self.spent.clone(), ..Counting::default() };
                return Some(News::default());
            }
            return None;
        }
        if self.running.is_none() {
            match start(knobs, roots, &self.spent) {
                Ok(running) => self.running = Some(running),
                Err(why) => {
                    // Whoever asks again has it tried again.
                    self.asked_at_ns = None;
                    self.problem = Some(why);
                }
            }
        }
        self.take(self.taken_at_ns)
    }

    /// What processes had of disks since the last call, or in the span before where nothing was read meanwhile; `None`
    /// where nobody counts it.
    pub(crate) fn take_had(&mut self) -> Option<Had> {
        let mut told = lock(&self.running.as_ref()?.told);
        if told.problem.is_some() {
            return None;
        }
        if told.had.span_ns > 0 {
            self.had = Some(std::mem::take(&mut told.had));
        }
        self.had.clone()
    }

    /// The numbers, as in `8:0`, of the disks that one cgroup at most wants; none where that is not known.
    pub(crate) fn free_disks(&self) -> BTreeSet<String> {
        let Some(running) = &self.running else { return BTreeSet::new() };
        let told = lock(&running.told);
        let known = told.free.iter().filter(|_| told.problem.is_none());
        known.map(|disk| format!("{}:{}", disk >> MINOR_BITS, disk & ((1 << MINOR_BITS) - 1))).collect()
    }

    fn take(&mut self, after_ns: u64) -> Option<News> {
        let mut told = lock(&self.running.as_ref()?.told);
        self.problem = told.problem.clone().or_else(|| {
            let lacks = told.lacks.join(", or ");
            (!lacks.is_empty()).then(|| format!("this kernel does not let anybody see {lacks}"))
        });
        if told.at_ns <= after_ns {
            return None;
        }
        (self.taken_at_ns, self.seen_ns) = (told.at_ns, told.seen_ns);
        self.waiting.clone_from(&told.waiting);
        let over = std::mem::take(&mut told.over);
        let news = News {
            seen_ns: told.seen_ns,
            minute: told.minute.clone(),
            new: std::mem::take(&mut told.new),
            over: over.clone(),
        };
        drop(told);
        for judged in over {
            self.keep(judged);
        }
        Some(news)
    }

    fn keep(&mut self, judged: Judged) {
        let is_of_same = |kept: &Judged| kept.wait.cgroup_id == judged.wait.cgroup_id;
        let oldest = self.over.iter().position(is_of_same);
        if self.over.iter().filter(|kept| is_of_same(kept)).count() >= OVER_OF_CGROUP_MAX {
            oldest.and_then(|oldest| self.over.remove(oldest));
        }
        if self.over.len() >= OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back(judged);
    }
}

impl Part for Counting {
    fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let is_to_begin = self.running.is_none() && self.asked_at_ns.is_some();
        let looks = self.running.is_some().then(|| now_ns + LOOK_EVERY.as_nanos() as u64);
        if is_to_begin { Some(now_ns) } else { looks }
    }
}

/// What is shared with the thread is whole whoever panicked with it.
fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(knobs: &Arc<dyn Knobs>, roots: &Roots, spent: &Spent) -> Result<Running, String> {
    let (stop, stopped) = channel();
    let told: Arc<Mutex<Told>> = Arc::default();
    let (tells, knobs, roots, spent) = (Arc::clone(&told), Arc::clone(knobs), roots.clone(), spent.clone());
    let builder = std::thread::Builder::new().name("disk-counting".into());
    let begun = builder.spawn(move || match knobs.count() {
        Ok(counts) => Work::new(counts, roots).run(&stopped, &tells, &spent),
        Err(why) => lock(&tells).problem = Some(why),
    });
    begun.map_err(|error| format!("starting a thread: {error}"))?;
    Ok(Running { told, _stop: stop })
}

/// What the thread knows.
struct Work {
    counts: Box<dyn Counts>,
    roots: Roots,
    minute: Minute,
    contention: Contention,
    lines: VecDeque<Served>,
    /// When it was read last.
    read_at_ns: Option<u64>,
    /// The disks that were looked at, and which of them stand for others.
    known: BTreeSet<u32>,
    for_others: BTreeSet<u32>,
}

impl Work {
    fn new(counts: Box<dyn Counts>, roots: Roots) -> Self {
        Work {
            counts,
            roots,
            minute: Minute::default(),
            contention: Contention::default(),
            lines: VecDeque::new(),
            read_at_ns: None,
            known: BTreeSet::new(),
            for_others: BTreeSet::new(),
        }
    }

    fn run(mut self, stopped: &Receiver<()>, told: &Mutex<Told>, spent: &Spent) {
        let mut meter = spent.by_this_thread();
        lock(told).lacks = self.counts.lacks();
        loop {
            match self.counts.read(now_ns()) {
                Ok(reading) => self.take_in(reading, told),
                Err(error) => lock(told).problem = Some(format!("reading what disks did: {error}")),
            }
            meter.note();
            if stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn take_in(&mut self, mut reading: Reading, told: &Mutex<Told>) {
        self.look_at_disks(&reading);
        let new = self.minute.add(&reading, |disk| !self.for_others.contains(&disk));
        // Of the first, nobody knows since when.
        if let Some(before_ns) = self.read_at_ns.replace(reading.at_ns) {
            let span_ns = reading.at_ns.saturating_sub(before_ns);
            lock(told).had.add(&reading, span_ns);
            self.contention.note(reading.at_ns, span_ns, &new);
        }
        self.lines.extend(std::mem::take(&mut reading.served));
        let too_many = self.lines.len().saturating_sub(LINES_MAX);
        self.lines.drain(..too_many);
        let judged = longest(reading.waits).map(|wait| {
            // They come in order, but for those of one moment.
            let first = self.lines.partition_point(|line| line.at_ns <= wait.began_ns);
            let verdict = judge(&wait, self.lines.range(first..));
            Judged { wait, verdict }
        });
        let (waiting, mut over): (Vec<Judged>, Vec<Judged>) = judged.partition(|judged| judged.wait.goes_on);
        over.sort_by_key(|judged| judged.wait.ended_ns);
        let minute = self.minute.sum();
        self.forget_idle(&reading.accounts.iter().map(|(key, _)| *key).collect::<Vec<_>>(), &minute);
        let mut told = lock(told);
        (told.at_ns, told.seen_ns) = (reading.at_ns, self.minute.seen_ns());
        told.minute = minute;
        told.free = self.contention.free(reading.at_ns);
        merge(&mut told.new, &by_cgroup(&new));
        told.over.append(&mut over);
        // The daemon may not have come to take them for long.
        let too_many = told.over.len().saturating_sub(OVER_MAX);
        told.over.drain(..too_many);
        told.waiting = waiting;
        told.problem = None;
    }

    /// Which disks stand for others is looked at when there is a new one.
    fn look_at_disks(&mut self, reading: &Reading) {
        let disks: BTreeSet<u32> = reading.accounts.iter().map(|(key, _)| key.disk).collect();
        if disks.is_subset(&self.known) {
            return;
        }
        self.known = disks;
        let devices = devices::list(&self.roots).unwrap_or_default();
        let for_others = devices.iter().filter(|device| device.stands_for_others);
        self.for_others = for_others.filter_map(|device| number(&device.number)).collect();
    }

    /// Makes room where there is little, for who makes requests now.
    fn forget_idle(&mut self, keys: &[Key], minute: &ByCgroup) {
        if keys.len() < KEYS_MAX {
            return;
        }
        for key in keys.iter().filter(|key| !minute.contains_key(&key.cgroup_id)) {
            self.counts.forget(key);
        }
    }
}

/// The waits that are looked into: the longest of each cgroup first, then the second of each, and so on, so that
/// whoever has many that wait for long hides nobody's.
fn longest(mut waits: Vec<Wait>) -> impl Iterator<Item = Wait> {
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited_ns()));
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    let place = |wait: Wait| {
        let longer = seen.entry(wait.cgroup_id).or_default();
        *longer += 1;
        (*longer, wait)
    };
    let mut placed: Vec<(usize, Wait)> = waits.into_iter().map(place).collect();
    placed.sort_by_key(|(longer, _)| *longer);
    placed.into_iter().map(|(_, wait)| wait).take(JUDGED_MAX)
}

/// A disk's number as the program has it, from `8:0`.
fn number(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    Some(major.parse::<u32>().ok()? << MINOR_BITS | minor.parse::<u32>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cgroup_id: u64, ended_ns: u64) -> Judged {
        Judged { wait: Wait { cgroup_id, ended_ns, ..Wait::default() }, ..Judged::default() }
    }

    #[test]
    fn who_waits_all_the_time_does_not_have_others_forgotten() {
        let mut counting = Counting::default();
        counting.keep(of(7, 1));
        for at_ns in 2..10_000 {
            counting.keep(of(8, at_ns));
        }
        assert_eq!(counting.over.len(), 1 + OVER_OF_CGROUP_MAX);
        assert_eq!(counting.over.front().map(|judged| judged.wait.cgroup_id), Some(7));
        assert_eq!(counting.over.back().map(|judged| judged.wait.ended_ns), Some(9_999));
        for cgroup_id in 0..10_000 {
            counting.keep(of(cgroup_id, 10_000));
        }
        assert_eq!(counting.over.len(), OVER_MAX);
    }

    #[test]
    fn who_has_many_that_wait_for_long_hides_nobody_who_waits() {
        let wait = |cgroup_id, ended_ns| Wait { cgroup_id, ended_ns, ..Wait::default() };
        let waits: Vec<Wait> =
            (0..1000).map(|more| wait(8, 500 + more)).chain([wait(7, 9), wait(7, 8)]).collect();
        let looked_into: Vec<(u64, u64)> =
            longest(waits).map(|wait| (wait.cgroup_id, wait.ended_ns)).collect();
        assert_eq!(looked_into[..5], [(8, 1499), (7, 9), (8, 1498), (7, 8), (8, 1497)]);
        assert_eq!(looked_into.len(), JUDGED_MAX);
    }

    #[test]
    fn what_each_process_had_of_each_disk_is_told_as_a_part_of_the_span_and_not_where_some_of_it_is_gone() {
        let served =
            |disk: u32, pid, device_ns| Served { disk: 8 << 20 | disk, pid, device_ns, ..Served::default() };
        let lines = vec![served(0, 7, 300), served(0, 7, 100), served(16, 7, 50), served(0, 0, 500)];
        let mut reading = Reading { served: lines, ..Reading::default() };
        let mut had = Had::default();
        assert_eq!(had.of_disk("8:0"), None);
        had.add(&reading, 1000);
        assert_eq!(had.of_disk("8:0"), Some(BTreeMap::from([(7, 0.4)])));
        assert_eq!(had.of_disk("8:16"), Some(BTreeMap::from([(7, 0.05)])));
        assert_eq!(had.of_disk("8:32"), Some(BTreeMap::new()));
        // By where they were, of those who have ended.
        let short = |pid| Served { cgroup_id: 5, ..served(0, pid, 50) };
        had.add(&Reading { served: vec![short(8), short(9)], ..Reading::default() }, 0);
        let ended = |disk| had.of_ended(disk, |pid, cgroup_id| (pid != 7 && cgroup_id == 5).then_some("a"));
        assert_eq!(ended("8:0"), BTreeMap::from([("a".to_owned(), 0.1)]));
        assert!(ended("8:16").is_empty());
        reading.served_missed = 1;
        had.add(&reading, 1000);
        assert_eq!(had.of_disk("8:0"), None);
    }

    #[test]
    fn disks_have_their_numbers_in_one() {
        assert_eq!((number("8:16"), number("x:1"), number("8")), (Some(8 << 20 | 16), None, None));
    }
}
