//! Steward in the disk machine: looks who is there, has the production rules decide, and brings it into the kernel a
//! little later, as the daemon's worker does.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::disk::device::Device;
use steward_core::disk::elevator::{self, Choice, First, Need, Order, Weights};
use steward_core::disk::guard::{Disk, Disks, Places, Taken};
use steward_core::disk::moments::Moments;
use steward_core::disk::plan::{Decision, Seen};
use steward_core::disk::priority::Priority;
use steward_core::disk::{Class, shares};
use steward_core::domain::name::{self, Names};
use steward_core::domain::tree::{Machine, Node};
use steward_core::domain::{Settings, Tree};
use steward_core::process::TaskId;

use super::decide::Decide;
use super::event::Event;
use super::kernel::{self, Kernel};
use super::request::Who;
use super::scenario::{CgroupSpec, DeviceSettings, ProgramSpec, StewardSettings};

/// What begins so was made by Steward.
const MADE: &str = "steward.";
/// The machine's only disk.
const DEVICE: &str = "sda";
/// The journal's thread, which is no program's.
const JOURNAL_TID: i32 = i32::MAX;

/// A thread that runs, and the program that it is of.
pub(super) struct Thread<'a> {
    pub(super) tid: i32,
    /// The place of its program, and the number of its process.
    pub(super) place: usize,
    pub(super) process: usize,
    pub(super) program: &'a ProgramSpec,
}

/// What is to be in the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wanted {
    priorities: BTreeMap<TaskId, Priority>,
    ordered: bool,
    waits: bool,
    /// By the place of the cgroup.
    weights: BTreeMap<usize, u16>,
}

pub(super) struct Steward {
    settings: StewardSettings,
    decides: Box<dyn Decide>,
    moments: Moments,
    jobs: Vec<Wanted>,
    /// The order that the device has from Steward.
    order: Option<Order>,
    is_moment: bool,
    /// Who has a priority from Steward.
    given: BTreeSet<TaskId>,
    /// What the machine had done at the last look at what each takes.
    done: (u64, u64, kernel::Taken),
    seen_set_back: BTreeSet<TaskId>,
    /// Where those are that are served first, and those that have ended since the last look.
    places: Places,
    pub(super) set_back: u64,
}

fn task(tid: i32) -> TaskId {
    TaskId { tid, started_ticks: 1 }
}

impl Steward {
    pub(super) fn new(settings: StewardSettings, decides: Box<dyn Decide>) -> Self {
        Steward {
            settings,
            decides,
            moments: Moments::default(),
            jobs: Vec::new(),
            order: None,
            is_moment: false,
            given: BTreeSet::new(),
            done: Default::default(),
            seen_set_back: BTreeSet::new(),
            places: Places::new(),
            set_back: 0,
        }
    }

    /// Looks, decides, and has it done in a while.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        cgroups: &[CgroupSpec],
        threads: &[Thread<'_>],
    ) {
        let tree = levels(cgroups, threads);
        let weights = self.weights(kernel, tree.as_ref(), cgroups);
        let mut seen = seen(tree.as_ref(), cgroups, threads, !weights.is_empty());
        let processes = seen.first_processes().into_iter();
        let taken: BTreeMap<i32, Taken> = processes.map(|pid| (pid, taken_by(kernel, pid))).collect();
        let is_due = self.decides.guard_is_due(now_ns);
        let first = seen.first_processes();
        let domain_of = |program: &ProgramSpec| {
            let path = &cgroups[program.cgroup?].path;
            Some(shares::highest_first(tree.as_ref()?, path)?.to_owned())
        };
        let placed = threads.iter().map(|thread| (pid_of(thread.process), domain_of(thread.program)));
        let placed = placed.filter(|(pid, _)| first.contains(pid));
        // Who is in no domain that is served first is in the root.
        seen.places = placed.map(|(pid, domain)| (pid, domain.unwrap_or_default())).collect();
        self.places.extend(seen.places.clone());
        let there = threads.iter().map(|thread| pid_of(thread.process)).collect();
        let domain_of =
            |program: usize| domain_of(threads.iter().find(|thread| thread.place == program)?.program);
        let disks = self.disks(now_ns, kernel, is_due, &there, &domain_of);
        let Decision { priorities, ordered, waits, set_back, .. } =
            self.decides.decide(now_ns, seen, is_due.then_some((&disks, &taken)));
        let set_back: BTreeSet<TaskId> = set_back.into_keys().collect();
        self.set_back += set_back.difference(&self.seen_set_back).count() as u64;
        self.seen_set_back = set_back;
        self.jobs.push(Wanted { priorities, ordered, waits, weights });
        kernel.events.push(now_ns + self.settings.write_ns, Event::Apply { number: self.jobs.len() - 1 });
        kernel.events.push(now_ns + self.settings.look_every_ns, Event::Look);
    }

    /// As the daemon does it (`stewardd/disk/domains.rs`): what needs weights is handed out.
    fn weights(
        &self,
        kernel: &mut Kernel,
        tree: Option<&Tree>,
        cgroups: &[CgroupSpec],
    ) -> BTreeMap<usize, u16> {
        let place = |path: &str| cgroups.iter().position(|cgroup| cgroup.path == path);
        let Some(tree) = tree.filter(|tree| shares::needs_weights(tree) || kernel.hands_out(0)) else {
            return BTreeMap::new();
        };
        let weights = self.decides.weights(tree, &|path: &str| path.starts_with(MADE));
        for path in weights.keys() {
            for above in std::iter::successors(name::parent_of(path), |path| name::parent_of(path)) {
                kernel.hand_out(place(above).map_or(0, |place| place + 1), true);
            }
        }
        weights.into_iter().filter_map(|(path, weight)| Some((place(&path)?, weight))).collect()
    }

    /// What the disk did since the last look. Who is no longer there was in the domain of its program, as far as that
    /// is served first, or where it was seen.
    fn disks(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        is_due: bool,
        there: &BTreeSet<i32>,
        domain_of: &dyn Fn(usize) -> Option<String>,
    ) -> Disks {
        let (at_ns, busy_ns, done) = self.done;
        if !is_due {
            return Disks::new();
        }
        self.done = (now_ns, kernel.busy_ns, kernel.done);
        let span_ns = (now_ns - at_ns).max(1) as f64;
        let (mut had, mut ended) = (BTreeMap::<i32, f64>::new(), BTreeMap::<String, f64>::new());
        for (tid, had_ns) in std::mem::take(&mut kernel.had_ns) {
            let (pid, part) = (pid_of(kernel.process_of(tid)), had_ns as f64 / span_ns);
            *had.entry(pid).or_default() += part;
            let seen = || self.places.get(&pid).cloned();
            let domain = kernel.owners.get(&tid).and_then(|program| domain_of(*program));
            if let Some(place) = domain.or_else(seen).filter(|_| !there.contains(&pid)) {
                *ended.entry(place).or_default() += part;
            }
        }
        self.places.retain(|pid, _| there.contains(pid));
        let busy = (kernel.busy_ns - busy_ns) as f64 / (now_ns - at_ns).max(1) as f64;
        let disk = Disk {
            busy: busy.min(1.0),
            bytes: kernel.done.bytes - done.bytes,
            requests: kernel.done.calls - done.calls,
            serves_first: self.order.is_some(),
            had: Some(had),
            ended,
        };
        Disks::from([(DEVICE.to_owned(), disk)])
    }

    /// What was wanted is brought into the kernel.
    pub(super) fn apply(&mut self, now_ns: u64, number: usize, kernel: &mut Kernel, device: &DeviceSettings) {
        let wanted = std::mem::take(&mut self.jobs[number]);
        kernel.watch.listens = wanted.waits && self.settings.told_after_ns.is_some();
        kernel.watch.told_after_ns = self.settings.told_after_ns.unwrap_or(0);
        // What threads were born with stays with them.
        for task in self.given.difference(&wanted.priorities.keys().copied().collect()) {
            kernel.priorities.remove(&Who::Task(task.tid));
        }
        self.given = wanted.priorities.keys().copied().collect();
        for (task, priority) in wanted.priorities.iter().filter(|(task, _)| task.tid != JOURNAL_TID) {
            kernel.priorities.insert(Who::Task(task.tid), *priority);
        }
        let journal = wanted.priorities.get(&task(JOURNAL_TID)).copied();
        kernel.priorities.insert(Who::Journal, journal.unwrap_or(kernel::JOURNAL_USUAL));
        let first = match (wanted.waits, kernel.watch.listens) {
            (false, _) => First::Nobody,
            (true, false) => First::Untold,
            (true, true) => First::Told,
        };
        let weights = if wanted.weights.is_empty() { Weights::Unused } else { Weights::Parts };
        let need = Need { first, weights };
        let order = match elevator::choose(&seen_device(device), need) {
            Choice::Order(order) if wanted.ordered => Some(order),
            _ => None,
        };
        if order != self.order {
            kernel.order(now_ns, order);
            self.order = order;
            self.is_moment = true;
            self.set_moment(now_ns, kernel, self.moments.poll_timeout().is_some());
        }
        for (place, weight) in wanted.weights {
            kernel.weigh(place + 1, weight);
        }
    }

    /// Its thread hears that somebody waits.
    pub(super) fn told(&mut self, now_ns: u64, kernel: &mut Kernel) {
        if self.moments.handle_announcement(now_ns) {
            self.set_moment(now_ns, kernel, true);
        }
        kernel.events.push_quiet(self.moments.poll_timeout());
    }

    /// It asks whether anybody still does.
    pub(super) fn ask(&mut self, now_ns: u64, kernel: &mut Kernel) {
        if self.moments.poll_timeout() != Some(now_ns) {
            return;
        }
        let are_over = kernel.watch.are_over(now_ns);
        if self.moments.handle_answer(now_ns, are_over) {
            self.set_moment(now_ns, kernel, false);
        }
        kernel.events.push_quiet(self.moments.poll_timeout());
    }

    fn set_moment(&mut self, now_ns: u64, kernel: &mut Kernel, is_moment: bool) {
        if self.is_moment == is_moment {
            return;
        }
        self.is_moment = is_moment;
        let Some(order) = self.order else { return };
        let value = |moment: &elevator::Moment| if is_moment { moment.waiting } else { moment.otherwise };
        let values: Vec<(&str, &str)> =
            order.moments.iter().map(|moment| (moment.name, value(moment))).collect();
        kernel.tune(now_ns, &values);
    }
}

/// The device as the daemon finds it.
fn seen_device(device: &DeviceSettings) -> Device {
    Device {
        name: DEVICE.to_owned(),
        rotational: device.is_rotational,
        queues: true,
        elevator: "none".to_owned(),
        requests: device.depth as u64,
        depth: Some(device.depth as u64),
        ..Device::default()
    }
}

/// The number of a process, by the place of its program.
fn pid_of(process: usize) -> i32 {
    process as i32 + 1
}

fn taken_by(kernel: &Kernel, pid: i32) -> Taken {
    let taken = kernel.taken.get(&(pid as usize - 1)).copied().unwrap_or_default();
    Taken { bytes: taken.bytes, calls: taken.calls }
}

fn is_populated(path: &str, cgroups: &[CgroupSpec], threads: &[Thread<'_>]) -> bool {
    threads.iter().any(|thread| {
        thread.program.cgroup.is_some_and(|place| name::is_at_or_below(&cgroups[place].path, path))
    })
}

/// The levels on which a domain with processes was given something (`Domains::disk_levels()` of the daemon).
fn levels(cgroups: &[CgroupSpec], threads: &[Thread<'_>]) -> Option<Tree> {
    let is_populated = |path: &str| is_populated(path, cgroups, threads);
    let given = cgroups.iter().filter(|cgroup| cgroup.path.starts_with(MADE) && !cgroup.given.is_default());
    let used: Vec<&str> =
        given.map(|cgroup| cgroup.path.as_str()).filter(|path| is_populated(path)).collect();
    if used.is_empty() {
        return None;
    }
    let payers: BTreeSet<&str> = used.iter().filter_map(|path| name::parent_of(path)).collect();
    let mut tree = Tree::new(Names::default(), Machine::default());
    for cgroup in cgroups {
        let is_beside = name::parent_of(&cgroup.path).is_some_and(|parent| payers.contains(parent));
        let is_above = payers.iter().any(|payer| name::is_at_or_below(payer, &cgroup.path));
        if is_above || is_beside && is_populated(&cgroup.path) {
            let settings = Settings { disk: cgroup.given, ..Settings::default() };
            tree.insert(&cgroup.path, Node { settings, ..Node::default() });
        }
    }
    Some(tree)
}

/// Who is there, and what each is to have (`stewardd/disk/programs.rs`).
fn seen(tree: Option<&Tree>, cgroups: &[CgroupSpec], threads: &[Thread<'_>], has_weights: bool) -> Seen {
    let mut seen = Seen { has_weights, may_order: true, ..Seen::default() };
    seen.for_others.insert(task(JOURNAL_TID));
    seen.programs.insert(task(JOURNAL_TID), Priority::FOR_OTHERS);
    for thread in threads {
        let id = task(thread.tid);
        seen.processes.insert(id, pid_of(thread.process));
        let own = thread.program.class.and_then(|class| Priority::of(class, None, thread.program.period_ns));
        match own {
            Some(priority) if thread.program.period_ns.is_some() => _ = seen.programs.insert(id, priority),
            Some(priority @ Priority::BestEffort(_)) => _ = seen.background.insert(id, priority),
            _ => {}
        }
        let class = thread.program.cgroup.map(|place| cgroups[place].path.as_str());
        let class = class.zip(tree).filter(|(path, _)| path.starts_with(MADE));
        if class.is_some_and(|(path, tree)| shares::class_of(tree, path) == Class::Interactive) {
            seen.domains.extend(Priority::of(Class::Interactive, None, None).map(|priority| (id, priority)));
        }
    }
    seen
}
