//! The kernel of the disk machine: places in the elevator, its order, the journal and the cache behind it, and who is
//! woken up by what is served.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use steward_core::disk::elevator::Order;
use steward_core::disk::moments::{Last, Seen};
use steward_core::disk::priority::Priority;

use super::cache::Cache;
use super::device::Device;
use super::elevator::{Bfq, Elevator, Tunables};
use super::event::Event;
use super::journal::{Journal, Next};
use super::measure::Counts;
use super::request::{Request, Who};
use super::scenario::{CacheSettings, DeviceSettings};
use crate::events::Events;
use crate::random::Random;

/// Who is woken up goes on after so long, in nanoseconds: the device is given its next request first.
const WAKE_NS: u64 = 20_000;
/// What ext4 gives its journal's thread (`journal_ioprio`).
pub(super) const JOURNAL_USUAL: Priority = Priority::BestEffort(3);
/// What the elevator does by itself: 8 ms idle (`bfq_slice_idle`), not strict.
const IDLE_USUAL_NS: u64 = 8_000_000;
/// How long one is served in a row by itself (`bfq_timeout`).
const TURN_USUAL_NS: u64 = 125_000_000;

/// Programs that are served first and wait, as `crates/steward-waits` tells of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// Whether anybody listens.
    pub(super) listens: bool,
    /// Within how long who listens hears of it.
    pub(super) told_after_ns: u64,
    /// Those who are bringing a file to the disk.
    waiting: BTreeSet<i32>,
    first: Option<Last>,
    others: Option<Last>,
    saved_at_ns: Option<u64>,
    dear_at_ns: Option<u64>,
    is_announced: bool,
}

impl Watch {
    /// Whether this is a moment.
    fn is_moment(&self, now_ns: u64) -> bool {
        let (waiting, first, others) = (self.waiting.len(), self.first, self.others);
        let (saved_at_ns, dear_at_ns) = (self.saved_at_ns, self.dear_at_ns);
        Seen { waiting, first, others, saved_at_ns, dear_at_ns }.is_moment(now_ns)
    }

    /// Whether the moment is over; then the next one is announced again.
    pub(super) fn are_over(&mut self, now_ns: u64) -> bool {
        let are_over = !self.is_moment(now_ns);
        self.is_announced &= !are_over;
        are_over
    }
}

/// What a process has had read and written, as /proc tells it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) bytes: u64,
    pub(super) calls: u64,
}

pub(super) struct Kernel {
    pub(super) events: Events<Event>,
    pub(super) counts: BTreeMap<i32, Counts>,
    /// By process: the place of its program.
    pub(super) taken: BTreeMap<usize, Taken>,
    /// For how long the device worked for each thread since this was taken last, in nanoseconds.
    pub(super) had_ns: BTreeMap<i32, u64>,
    pub(super) priorities: BTreeMap<Who, Priority>,
    pub(super) watch: Watch,
    pub(super) busy_ns: u64,
    pub(super) done: Taken,
    pub(super) elevators: u64,
    /// The programs that threads belong to.
    pub(super) owners: BTreeMap<i32, usize>,
    /// The process of each thread.
    processes: BTreeMap<i32, usize>,
    settings: DeviceSettings,
    device: Device,
    elevator: Elevator,
    /// What the elevator is to be once nothing is under way.
    changing: Option<Option<Order>>,
    /// What is set of it then.
    tuned_later: Vec<(&'static str, &'static str)>,
    places: usize,
    used: usize,
    /// Who waits for a place, in turn, and with what.
    waiters: VecDeque<Who>,
    wanted: BTreeMap<Who, VecDeque<Request>>,
    outstanding: BTreeMap<Who, usize>,
    /// Requests that were not served yet: whose, and since when.
    unserved: BTreeMap<u64, (Who, u64)>,
    /// The group above each group, and the weights of all but the root.
    parents: Vec<usize>,
    weights: Vec<u16>,
    /// The groups whose children have a part of the disk of their own.
    hands_out: BTreeSet<usize>,
    journal: Journal,
    commits_wait_for_data: bool,
    cache: Cache,
    next_id: u64,
}

impl Kernel {
    /// With these groups below the root, each with the number of the one above it.
    pub(super) fn new(
        settings: DeviceSettings,
        cache: CacheSettings,
        parents: Vec<usize>,
        random: Random,
    ) -> Self {
        Kernel {
            events: Events::default(),
            counts: BTreeMap::new(),
            taken: BTreeMap::new(),
            had_ns: BTreeMap::new(),
            priorities: BTreeMap::from([(Who::Journal, JOURNAL_USUAL)]),
            watch: Watch::default(),
            busy_ns: 0,
            done: Taken::default(),
            elevators: 0,
            owners: BTreeMap::new(),
            processes: BTreeMap::new(),
            settings,
            device: Device::new(settings, random),
            elevator: Elevator::Fifo(VecDeque::new()),
            changing: None,
            tuned_later: Vec::new(),
            places: settings.depth,
            used: 0,
            waiters: VecDeque::new(),
            wanted: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            unserved: BTreeMap::new(),
            weights: vec![100; parents.len()],
            commits_wait_for_data: cache.commits_wait_for_data,
            cache: Cache::new(cache, parents.len() + 1),
            parents,
            hands_out: BTreeSet::new(),
            journal: Journal::default(),
            next_id: 0,
        }
    }

    /// A thread is of this program, and of this process.
    pub(super) fn own(&mut self, tid: i32, program: usize, process: usize) {
        self.owners.insert(tid, program);
        self.processes.insert(tid, process);
    }

    /// The process of a thread.
    pub(super) fn process_of(&self, tid: i32) -> usize {
        self.processes[&tid]
    }

    // What programs ask for.

    /// A thread has so much read or written; its program goes on when all of it is done.
    pub(super) fn submit(&mut self, now_ns: u64, tid: i32, group: usize, bytes: u64, is_in_sync: bool) {
        self.note_wait(now_ns, tid, is_in_sync);
        if let Some(taken) = self.taken_by(tid) {
            (taken.bytes, taken.calls) = (taken.bytes + bytes, taken.calls + 1);
        }
        self.hand_on(now_ns, Who::Task(tid), group, bytes);
    }

    /// A thread waits until what it wrote is committed.
    pub(super) fn commit(&mut self, now_ns: u64, program: usize) {
        let next = self.journal.join(program);
        self.go_on_with_journal(now_ns, next);
    }

    /// A program writes into the cache; `false`: it is woken up when it has.
    pub(super) fn write(&mut self, now_ns: u64, program: usize, tid: i32, group: usize, bytes: u64) -> bool {
        let group = self.group_of(group);
        if let Some(taken) = self.taken_by(tid) {
            taken.bytes += bytes;
        }
        let is_written = self.cache.write(program, group, bytes);
        self.flush(now_ns);
        is_written
    }

    /// What the process of a thread has taken.
    fn taken_by(&mut self, tid: i32) -> Option<&mut Taken> {
        Some(self.taken.entry(*self.processes.get(&tid)?).or_default())
    }

    /// Has all that is in the cache be written.
    pub(super) fn flush_all(&mut self, now_ns: u64) {
        self.cache.force();
        self.flush(now_ns);
    }

    /// A program has been through what brings a file to the disk.
    pub(super) fn end_sync(&mut self, now_ns: u64, tid: i32) {
        if self.watch.waiting.remove(&tid) {
            self.watch.first = Some(self.last(now_ns, tid));
            self.watch.saved_at_ns = Some(now_ns);
        }
    }

    /// A thread is started by another, with its priority.
    pub(super) fn hand_down(&mut self, from_tid: i32, to_tid: i32) {
        if let Some(priority) = self.priorities.get(&Who::Task(from_tid)).copied() {
            self.priorities.insert(Who::Task(to_tid), priority);
        }
    }

    /// The threads whose requests are not served yet, with since when each has been waited for.
    pub(super) fn unserved(&self) -> impl Iterator<Item = (i32, u64)> {
        self.unserved.values().filter_map(|(who, since_ns)| match who {
            Who::Task(tid) => Some((*tid, *since_ns)),
            Who::Journal | Who::Flusher(_) => None,
        })
    }

    // What Steward sets.

    /// Has requests ordered so, or as before; waits until nothing is under way where the elevator changes.
    pub(super) fn order(&mut self, now_ns: u64, order: Option<Order>) {
        let is_same = self.changing.is_none()
            && matches!((&self.elevator, &order), (Elevator::Bfq(_), Some(_)) | (Elevator::Fifo(_), None));
        self.changing = Some(order);
        if is_same || self.used == 0 {
            self.change(now_ns);
        }
    }

    /// Sets what differs in moments, in turn.
    pub(super) fn tune(&mut self, now_ns: u64, values: &[(&'static str, &'static str)]) {
        if self.changing.is_some() {
            self.tuned_later.extend(values);
        } else if let Elevator::Bfq(bfq) = &mut self.elevator {
            bfq.tunables = tuned(bfq.tunables, values);
            self.kick(now_ns);
        }
    }

    /// Gives a group a weight.
    pub(super) fn weigh(&mut self, group: usize, weight: u16) {
        self.weights[group - 1] = weight;
        if let Elevator::Bfq(bfq) = &mut self.elevator {
            bfq.weigh(group, weight);
        }
    }

    /// Has the children of a group have parts of the disk of their own, or not.
    pub(super) fn hand_out(&mut self, group: usize, is_handed_out: bool) {
        if is_handed_out {
            self.hands_out.insert(group);
        } else {
            self.hands_out.remove(&group);
        }
    }

    pub(super) fn hands_out(&self, group: usize) -> bool {
        self.hands_out.contains(&group)
    }

    // What happens.

    /// The device has served a request.
    pub(super) fn served(&mut self, now_ns: u64, id: u64) {
        let Some((request, took_ns)) = self.device.end(id, now_ns) else { return };
        self.unserved.remove(&id);
        self.elevator.served(&request, now_ns);
        self.used -= 1;
        self.busy_ns += took_ns;
        (self.done.bytes, self.done.calls) = (self.done.bytes + request.bytes, self.done.calls + 1);
        if self.used == 0 && self.changing.is_some() {
            self.change(now_ns);
        }
        self.accept(now_ns);
        self.tell(now_ns, &request, took_ns);
        self.kick(now_ns);
    }

    /// The elevator has waited long enough.
    pub(super) fn kick(&mut self, now_ns: u64) {
        while self.device.has_room() {
            let Some(request) = self.elevator.dispatch(now_ns, self.device.under_way()) else { break };
            let done_ns = self.device.begin(request, now_ns);
            self.events.push(done_ns, Event::Served { id: request.id });
        }
        if let Some(until_ns) = self.elevator.idle_until_ns().filter(|until_ns| *until_ns > now_ns) {
            self.events.push(until_ns, Event::Elevator);
        }
    }

    fn tell(&mut self, now_ns: u64, request: &Request, took_ns: u64) {
        let outstanding = self.outstanding.entry(request.who).or_default();
        *outstanding = outstanding.saturating_sub(1);
        let is_last = *outstanding == 0;
        match request.who {
            Who::Task(tid) => {
                let counts = self.counts.entry(tid).or_default();
                counts.requests += 1;
                counts.bytes += request.bytes;
                counts.device_ns += took_ns;
                *self.had_ns.entry(tid).or_default() += took_ns;
                counts.wait_max_ns = counts.wait_max_ns.max(now_ns - request.since_ns);
                if let Some(program) = self.owners.get(&tid).copied().filter(|_| is_last) {
                    self.events.push(now_ns + WAKE_NS, Event::Step { program });
                }
            }
            Who::Journal if is_last => {
                let next = self.journal.written();
                self.go_on_with_journal(now_ns, next);
            }
            Who::Journal => {}
            Who::Flusher(group) => {
                for program in self.cache.written(group, request.bytes) {
                    self.events.push(now_ns + WAKE_NS, Event::Step { program });
                }
                let next = self.journal.data_written(request.id);
                self.go_on_with_journal(now_ns, next);
                self.flush(now_ns);
            }
        }
    }

    fn go_on_with_journal(&mut self, now_ns: u64, next: Next) {
        for program in next.done {
            self.events.push(now_ns + WAKE_NS, Event::Step { program });
        }
        if let Some(bytes) = next.writes {
            self.hand_on(now_ns, Who::Journal, 0, bytes);
        }
    }

    fn flush(&mut self, now_ns: u64) {
        for (group, bytes) in self.cache.take(self.settings.request_bytes_max) {
            let id = self.next_id + 1;
            if self.commits_wait_for_data {
                self.journal.with_data(id);
            }
            self.hand_on(now_ns, Who::Flusher(group), group, bytes);
        }
    }

    fn hand_on(&mut self, now_ns: u64, who: Who, group: usize, bytes: u64) {
        let group = self.group_of(group);
        let priority = self.priorities.get(&who).copied().unwrap_or_default();
        if who != Who::Journal && !matches!(priority, Priority::RealTime(_)) {
            self.note_other(now_ns, who);
        }
        let mut left = bytes;
        while left > 0 {
            let bytes = left.min(self.settings.request_bytes_max);
            left -= bytes;
            self.next_id += 1;
            let request = Request { id: self.next_id, who, group, bytes, priority, since_ns: now_ns };
            *self.outstanding.entry(who).or_default() += 1;
            self.unserved.insert(self.next_id, (who, now_ns));
            self.wanted.entry(who).or_default().push_back(request);
        }
        if !self.waiters.contains(&who) {
            self.waiters.push_back(who);
        }
        self.accept(now_ns);
        self.kick(now_ns);
    }

    /// Gives places to those who wait for one, in turn, whatever their class (Yang 2009, section 10.2.1).
    fn accept(&mut self, now_ns: u64) {
        while self.used < self.places && self.changing.is_none() {
            let Some(who) = self.waiters.pop_front() else { break };
            let Some(wanted) = self.wanted.get_mut(&who) else { continue };
            if let Some(request) = wanted.pop_front() {
                self.used += 1;
                self.elevator.insert(request, now_ns);
            }
            if wanted.is_empty() {
                self.wanted.remove(&who);
            } else {
                self.waiters.push_back(who);
            }
        }
    }

    fn change(&mut self, now_ns: u64) {
        let Some(order) = self.changing.take() else { return };
        let later = std::mem::take(&mut self.tuned_later);
        match (&mut self.elevator, order) {
            (Elevator::Bfq(bfq), Some(order)) => bfq.tunables = tuned(bfq.tunables, order.tunables),
            (_, Some(order)) => {
                let usual = Tunables {
                    idle_ns: IDLE_USUAL_NS,
                    is_strict: false,
                    turn_ns: TURN_USUAL_NS,
                    idles_for_speed: self.settings.is_rotational && self.settings.depth == 1,
                };
                let mut bfq = Bfq::new(&self.parents, tuned(tuned(usual, order.tunables), &later));
                for (place, weight) in self.weights.iter().enumerate() {
                    bfq.weigh(place + 1, *weight);
                }
                self.elevator = Elevator::Bfq(bfq);
                self.places = order.requests as usize;
                self.elevators += 1;
            }
            (Elevator::Fifo(_), None) => {}
            (Elevator::Bfq(_), None) => {
                self.elevator = Elevator::Fifo(VecDeque::new());
                self.places = self.settings.depth;
                self.elevators += 1;
            }
        }
        self.accept(now_ns);
        self.kick(now_ns);
    }

    /// The group that is charged for one: that, or one above it below which nothing is handed out.
    fn group_of(&self, group: usize) -> usize {
        let above = |group: usize| (group > 0).then(|| self.parents[group - 1]);
        let mut path: Vec<usize> = std::iter::successors(Some(group), |group| above(*group)).collect();
        path.reverse();
        let handed = path.iter().take_while(|group| self.hands_out.contains(group)).count();
        path[handed.min(path.len() - 1)]
    }

    fn note_wait(&mut self, now_ns: u64, tid: i32, is_in_sync: bool) {
        if !matches!(self.priorities.get(&Who::Task(tid)), Some(Priority::RealTime(_))) {
            if is_in_sync && self.watch.first.is_none_or(|first| first.pid != self.last(now_ns, tid).pid) {
                self.watch.dear_at_ns = Some(now_ns);
            }
            return;
        }
        if is_in_sync {
            self.watch.waiting.insert(tid);
        }
        self.watch.first = Some(self.last(now_ns, tid));
        self.announce(now_ns);
    }

    fn note_other(&mut self, now_ns: u64, who: Who) {
        let last = match who {
            Who::Task(tid) => self.last(now_ns, tid),
            Who::Journal | Who::Flusher(_) => Last { pid: 0, at_ns: now_ns },
        };
        if self.watch.first.is_none_or(|first| first.pid != last.pid) {
            self.watch.others = Some(last);
            self.announce(now_ns);
        }
    }

    fn last(&self, at_ns: u64, tid: i32) -> Last {
        Last { pid: self.processes.get(&tid).map_or(0, |process| *process as i32 + 1), at_ns }
    }

    /// Tells who listens of a moment that it has not heard of.
    fn announce(&mut self, now_ns: u64) {
        let watch = &mut self.watch;
        let is_news = watch.listens && !watch.is_announced && watch.is_moment(now_ns);
        if is_news {
            watch.is_announced = true;
            self.events.push(now_ns + watch.told_after_ns, Event::Told);
        }
    }
}

/// What is set, in turn; to be strict makes at least 8 ms of the idle time (`bfq_strict_guarantees_store()`).
fn tuned(mut tunables: Tunables, values: &[(&str, &str)]) -> Tunables {
    for (name, value) in values {
        match (*name, value.parse::<u64>()) {
            ("slice_idle_us", Ok(us)) => tunables.idle_ns = us * 1000,
            ("timeout_sync", Ok(ms)) => tunables.turn_ns = ms * 1_000_000,
            ("strict_guarantees", Ok(value)) => {
                tunables.is_strict = value != 0;
                if tunables.is_strict {
                    tunables.idle_ns = tunables.idle_ns.max(IDLE_USUAL_NS);
                }
            }
            _ => {}
        }
    }
    tunables
}
