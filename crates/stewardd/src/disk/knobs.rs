//! Writes whose requests are served first, and by what devices order them. The worker does it: it waits for the disk
//! (the undo journal), and for requests that are under way when the order changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use steward_core::disk::Limit;
use steward_core::disk::config;
use steward_core::disk::cost::Model;
use steward_core::disk::device::Device;
use steward_core::disk::elevator::{self, Choice, First, Need, Order, Weights};
use steward_core::disk::priority::Priority;
use steward_core::process::TaskId;
use steward_kernel::Roots;
use steward_kernel::cgroup::place::Place;
use steward_kernel::cgroup::reading::CgroupReader;
use steward_kernel::disk::devices::{self, Ordered};
use steward_kernel::disk::{cost, limit, weight, writeback};
use steward_kernel::journal::{Change, JournalError, SharedJournal};

use super::counts::{Counter, Counts};
use super::known::Known;
use super::moments::{Moments, Watcher};
use super::outcome::Outcome;
use super::spent::Spent;
use crate::files::journal::OwnJournal;
use refused::Refused;

mod given;
mod refused;

/// How many tasks are given their priorities before a disk has its elevator: of each the undo journal is brought to the
/// disk once, which the elevator would make quicker.
const AT_ONCE_MAX: usize = 8;

/// What is to be in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The priority of each task that is to have one of Steward's.
    pub priorities: BTreeMap<TaskId, Priority>,
    /// Whether devices are to order requests by class.
    pub ordered: bool,
    /// While they are, the disks that are there, and what can order their requests: one that comes, and one for which
    /// an elevator was loaded, is to be ordered too.
    pub disks: BTreeMap<(String, u64), Vec<String>>,
    /// Whether somebody is to be served first, for whose next request a device may be kept idle.
    pub waits: bool,
    /// The cgroups whose tasks, and what the kernel writes back for them, are served first by weights, by id, and
    /// those below them, of which each is so or not.
    pub first_by_weight: BTreeMap<u64, bool>,
    /// Of those with a priority, the tasks of domains that are served first.
    pub of_domains: BTreeSet<TaskId>,
    /// The weight of each cgroup that is to have one of Steward's, with the cgroup's id, by path.
    pub weights: BTreeMap<String, (u64, u16)>,
    /// Whether anybody has a part of a disk's time that counts also while nobody who is served first waits.
    pub has_parts: bool,
    /// While anybody has: the disks that nobody competes for, by number.
    pub free: BTreeSet<String>,
    /// The disks whose requests cgroups are to be charged for, by number.
    pub charged: BTreeMap<String, Charged>,
    /// Whether there is any disk whose requests are charged, by Steward or somebody else, so that weights count there.
    pub any_charged: bool,
    /// The limit of each cgroup that is to have one, by path and the device's number.
    pub limits: BTreeMap<(String, String), Limited>,
    /// The cgroups that hand the disk out because of Steward, by path, with their ids. That is done when this is
    /// wanted, since the worker may wait for the disk, and noted by it.
    pub handed_out: BTreeMap<String, u64>,
    /// How many times somebody has had a cgroup hand the disk out no longer, and with that what those below it had was
    /// gone.
    pub lost: u64,
    /// How many times what failed and may succeed later was to be tried again.
    pub again: u64,
    /// The disks, by name, that are to take all that is written to them: what memory is taken by goes there.
    pub written_freely: BTreeSet<String>,
    /// What is known of disks, where any are to be ordered or to take all that is written.
    pub known: Known,
    /// Tasks that have taken over a priority from the one that started them, and are not to have it.
    pub heirs: BTreeSet<TaskId>,
    /// Whether any task may have taken over one, for it was lost who did: all are looked at.
    pub any_heirs: bool,
    /// The same of tasks of domains that are served first no longer, or which have left them: they may as well have
    /// that of the [other way](Priority::other_way).
    pub left: BTreeMap<TaskId, Priority>,
}

/// A limit, and of whom on what: another cgroup may come to have the path, and another device the number, for which the
/// kernel knows no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// Which of the devices that have had the number it is (`diskseq`).
    pub sequence: u64,
    /// The most that may be read and written.
    pub max: Limit,
}

/// A disk whose requests are charged, and by what; another one may come to have its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Which of the devices that have had the number it is (`diskseq`).
    pub sequence: u64,
    /// What its requests cost.
    pub model: Model,
}

/// What writes it.
pub trait Knobs: fmt::Debug + Send + Sync {
    /// Brings this into force in place of what was.
    ///
    /// # Errors
    /// All that could not be done, each in a sentence; the rest is in force.
    fn apply(&self, wanted: &Wanted) -> Result<(), Vec<String>>;

    /// The elevators that disks have been given and that are not put back yet, by the disk's name.
    fn given_elevators(&self) -> BTreeMap<String, String>;

    /// What came of the last application.
    fn outcome(&self) -> Outcome;

    /// What its own threads have spent on [moments](super::moments), in nanoseconds of CPU time.
    fn spent_on_moments_ns(&self) -> u64;

    /// Has the kernel's flusher come round often ([`writeback`]), or as it did.
    ///
    /// # Errors
    /// In a sentence, why it does not.
    fn flush_often(&self, often: bool) -> Result<(), String>;

    /// Has it do so until what was changed before is written, and waits for that.
    fn flush(&self);

    /// Begins to count what disks do for whom, until it is dropped. It takes a moment.
    ///
    /// # Errors
    /// In a sentence, why nobody can.
    fn count(&self) -> Result<Box<dyn Counts>, String>;
}

/// The kernel's, through the undo journal.
#[derive(Debug)]
pub struct KernelKnobs {
    roots: Roots,
    journal: OwnJournal,
    watcher: Watcher,
    counter: Counter,
    state: Mutex<State>,
    outcome: Mutex<Outcome>,
    spent_on_moments: Spent,
    /// While the kernel's flusher comes round often: the change in the undo journal.
    flushes_often: Mutex<Option<u64>>,
}

/// What Steward has changed.
#[derive(Debug, Default)]
struct State {
    /// What tasks have by what was wanted.
    given: BTreeMap<TaskId, Has>,
    /// By name and sequence: one that comes after it under its name is another.
    ordered: BTreeMap<(String, u64), Elevator>,
    /// The disks that take all that is written to them, by name and sequence: the change in the undo journal.
    freely: BTreeMap<(String, u64), u64>,
    /// While somebody is to be served first: what is told when they wait, or that nothing tells it.
    moments: Option<Result<Moments, ()>>,
    /// The disks whose requests are charged by Steward, by number.
    charged: BTreeMap<String, Charged>,
    /// The weights that were written, with the cgroups' ids, by path and file.
    weights: BTreeMap<(String, &'static str), (u64, u16)>,
    /// The limits that were written, in the same way.
    limits: BTreeMap<(String, String), Limited>,
    /// The cgroups of which it is noted that they hand the disk out, by path, with their ids: the change in the undo
    /// journal.
    handed_out: BTreeMap<String, (u64, u64)>,
    /// What was known to be lost when they were.
    lost: u64,
    /// Devices on which it failed: they are not tried again and again, each time waiting for what is under way.
    refused: BTreeMap<(String, u64), Refused>,
    /// See [`Outcome::lacks_weights`].
    lacks_weights: bool,
}

/// What a task has.
#[derive(Clone, Copy, Debug)]
struct Has {
    priority: Priority,
    /// The change in the undo journal, and what it had before; `None` where it has it from elsewhere.
    changed: Option<(u64, Priority)>,
}

/// A device's elevator.
#[derive(Debug)]
struct Elevator {
    /// What it is for.
    need: Need,
    /// What was changed for it.
    ordered: Ordered,
}

impl KernelKnobs {
    /// Nothing is changed yet. `watcher` is what tells when somebody who is served first waits, and `counter` what
    /// disks do for whom.
    pub fn new(roots: &Roots, journal: &OwnJournal, watcher: Watcher, counter: Counter) -> Self {
        KernelKnobs {
            roots: roots.clone(),
            journal: journal.clone(),
            watcher,
            counter,
            state: Mutex::default(),
            outcome: Mutex::default(),
            spent_on_moments: Spent::default(),
            flushes_often: Mutex::default(),
        }
    }
}

impl Knobs for KernelKnobs {
    fn apply(&self, wanted: &Wanted) -> Result<(), Vec<String>> {
        let journal = self.journal.as_ref().map_err(|why| vec![why.clone()])?;
        // Whoever panicked with it had written what they did into the journal.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut work = Work { roots: &self.roots, journal, faults: Vec::new(), is_unnoted: false };
        work.disinherit(&state, wanted);
        if state.lost != wanted.lost {
            state.lost = wanted.lost;
            state.weights.clear();
            state.limits.clear();
        }
        work.note_handed_out(&mut state, wanted);
        // Before anybody has a priority, for which `steward run` waits: the first save of a program was held up by it
        // (7 ms in place of 2 on a disk of 0.1).
        work.charge(&mut state, wanted);
        // `steward run` waits for the priority. Where the disk is handed out among cgroups that alone counts within one
        // only, and without its weight the first save of a program stood behind all others for their turn (150 ms).
        let is_ordered = !state.ordered.is_empty() || !state.charged.is_empty();
        if is_ordered {
            work.weigh(&mut state, wanted);
        }
        // Before anybody can be told it takes more than a second of a slow CPU, for which nobody is to wait: until then
        // the disk stays idle for them all the time.
        if wanted.waits && state.moments.is_none() {
            work.at_once(&mut state, wanted);
        }
        attend(&mut state, wanted, self.watcher, &self.roots, &self.spent_on_moments);
        if let Some(moments) = state.told() {
            moments.serve_first(&wanted.first_by_weight);
        }
        work.take_back(&mut state, wanted);
        work.give(&mut state, wanted, usize::MAX);
        if wanted.any_heirs {
            work.disinherit_all(wanted);
        }
        work.order(&mut state, wanted);
        work.write_freely(&mut state, wanted);
        if !is_ordered {
            work.weigh(&mut state, wanted);
        }
        work.limit(&mut state, wanted);
        state.note(work.is_unnoted, &mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        if !wanted.waits {
            state.moments = None;
        }
        if work.faults.is_empty() { Ok(()) } else { Err(work.faults) }
    }

    fn given_elevators(&self) -> BTreeMap<String, String> {
        self.journal.as_ref().map(SharedJournal::given_elevators).unwrap_or_default()
    }

    fn outcome(&self) -> Outcome {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn spent_on_moments_ns(&self) -> u64 {
        self.spent_on_moments.ns()
    }

    fn flush_often(&self, often: bool) -> Result<(), String> {
        let journal = self.journal.as_ref().map_err(Clone::clone)?;
        let mut noted = self.flushes_often.lock().unwrap_or_else(PoisonError::into_inner);
        let change = match (often, noted.take()) {
            (true, None) => have_flushed_often(journal, &self.roots),
            (true, noted) => Ok(noted),
            (false, Some(number)) => have_flushed_as_before(journal, number, &self.roots).map(|()| None),
            (false, None) => Ok(None),
        };
        *noted = change.map_err(|error| error.to_string())?;
        Ok(())
    }

    fn flush(&self) {
        if self.flush_often(true).is_ok() {
            std::thread::sleep(writeback::SETTLES_WITHIN);
            let _ = self.flush_often(false);
        }
    }

    fn count(&self) -> Result<Box<dyn Counts>, String> {
        (self.counter)()
    }
}

/// Returns the change in the undo journal, or none where it comes round as often already.
fn have_flushed_often(journal: &SharedJournal, roots: &Roots) -> Result<Option<u64>, JournalError> {
    let Some((file, value)) = writeback::often(roots)? else { return Ok(None) };
    journal.write_file(&file, &value)
}

fn have_flushed_as_before(journal: &SharedJournal, number: u64, roots: &Roots) -> Result<(), JournalError> {
    journal.undo(number, roots)?;
    journal.close(number)
}

/// Begins to be told when somebody waits.
fn attend(state: &mut State, wanted: &Wanted, watcher: Watcher, roots: &Roots, spent: &Spent) {
    if !wanted.waits || state.moments.is_some() {
        return;
    }
    let started = Moments::start(watcher, roots, spent);
    state.moments = Some(started.map_err(|why| {
        tracing::info!(
            decision = "disk-moment",
            "disks stay idle for who is served first all the time, for nothing tells when they wait: {why}"
        );
    }));
}

impl State {
    /// What is told when somebody waits.
    fn told(&self) -> Option<&Moments> {
        self.moments.as_ref()?.as_ref().ok()
    }

    /// Notes what came of it, and whether anything `is_unnoted`, for want of room for the undo journal. Where nobody is
    /// to be told anything it is not found anew whether that could be.
    fn note(&self, is_unnoted: bool, outcome: &mut Outcome) {
        outcome.may_succeed_later =
            is_unnoted || self.refused.values().any(|refused| refused.later.is_some());
        outcome.settled = self.ordered.keys().chain(self.refused.keys()).cloned().collect();
        outcome.is_untold = self.moments.as_ref().map_or(outcome.is_untold, Result::is_err);
        outcome.lacks_weights = self.lacks_weights;
    }

    /// Has what differs in such moments do so.
    fn attend_to(&self, device: &Device, order: &Order) {
        if let Some(moments) = self.told().filter(|_| !order.moments.is_empty()) {
            moments.add(&device.name, order.moments);
        }
    }
}

/// One application.
struct Work<'a> {
    roots: &'a Roots,
    journal: &'a SharedJournal,
    faults: Vec<String>,
    /// Whether anything was not done because the undo journal could not be written.
    is_unnoted: bool,
}

impl Work<'_> {
    fn fail(&mut self, error: impl Into<JournalError>) {
        let error = error.into();
        self.is_unnoted |= matches!(error, JournalError::File { .. });
        self.faults.push(error.to_string());
    }

    /// Before weights and limits, which are taken back before it then.
    fn note_handed_out(&mut self, state: &mut State, wanted: &Wanted) {
        let journal = self.journal;
        state.handed_out.retain(|path, (id, number)| {
            let is_wanted = wanted.handed_out.get(path) == Some(id);
            if !is_wanted {
                // A record that stays open does no harm.
                let _ = journal.close(*number);
            }
            is_wanted
        });
        for (path, id) in &wanted.handed_out {
            if state.handed_out.contains_key(path) {
                continue;
            }
            match self.journal.record(Change::DiskHandedOut { cgroup: path.clone(), id: *id }) {
                Ok(number) => _ = state.handed_out.insert(path.clone(), (*id, number)),
                Err(error) => self.fail(error),
            }
        }
    }

    /// Undoes one change.
    fn put_back(&mut self, number: u64) {
        match self.journal.undo(number, self.roots) {
            // A record that stays open does no harm.
            Ok(()) => _ = self.journal.close(number),
            Err(error) => self.fail(error),
        }
    }

    /// Has programs be served first that are so from now on, as long as nobody can be told when they wait. What fails
    /// is tried again, and said, once somebody can.
    ///
    /// Priorities are given before the elevator is there, as far as that does not keep it waiting. It takes note of
    /// another class only when it comes to a queue the next time: who waits for the disk already, or is a journal's
    /// thread, stood behind all that was due to others by then, for seconds. And a program that it had made one queue
    /// with a journal's thread before would have the class of that as well (docs/disk.md#the-elevators-queues).
    fn at_once(&mut self, state: &mut State, wanted: &Wanted) {
        let said = self.faults.len();
        self.give(state, wanted, AT_ONCE_MAX);
        self.order(state, wanted);
        self.weigh(state, wanted);
        self.give(state, wanted, usize::MAX);
        self.faults.truncate(said);
    }

    /// The disks, with what is known of them; `None` where they cannot be read, which is a fault.
    fn devices(&mut self, known: &Known) -> Option<Vec<Device>> {
        match known.devices(self.roots) {
            Ok(devices) => Some(devices),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn order(&mut self, state: &mut State, wanted: &Wanted) {
        let Some(devices) = self.devices(&wanted.known) else { return };
        let there: BTreeSet<(String, u64)> = devices.iter().map(identity).collect();
        self.forget_gone(state, &there);
        if !wanted.ordered {
            state.refused.clear();
            for ((name, _), Elevator { ordered, .. }) in std::mem::take(&mut state.ordered) {
                if let Some(moments) = state.told() {
                    moments.remove_device(&name);
                }
                self.restore(&ordered);
            }
            return;
        }
        let first = match (wanted.waits, state.told()) {
            (false, _) => First::Nobody,
            (true, None) => First::Untold,
            (true, Some(_)) => First::Told,
        };
        for device in devices {
            let weights = match (wanted.has_parts, wanted.weights.is_empty()) {
                (true, false) if wanted.free.contains(&device.number) => Weights::PartsOfOne,
                (true, false) => Weights::Parts,
                (false, false) => Weights::First,
                (_, true) => Weights::Unused,
            };
            self.order_one(state, &device, Need { first, weights }, wanted.again);
        }
        self.faults.extend(state.refused.values().map(|refused| refused.sentence.clone()));
    }

    /// What was changed of disks that have gone is not to be put back to one that comes to have the name.
    fn forget_gone(&mut self, state: &mut State, there: &BTreeSet<(String, u64)>) {
        state.refused.retain(|device, _| there.contains(device));
        let gone: Vec<_> = state.ordered.keys().filter(|device| !there.contains(device)).cloned().collect();
        for device in gone {
            let Some(Elevator { ordered, .. }) = state.ordered.remove(&device) else { continue };
            if let Some(moments) = state.told() {
                moments.remove_device(&device.0);
            }
            self.restore(&ordered);
        }
    }

    /// After the elevators: with one of them the kernel holds nothing back, and does again with the next.
    fn write_freely(&mut self, state: &mut State, wanted: &Wanted) {
        if wanted.written_freely.is_empty() && state.freely.is_empty() {
            return;
        }
        let Some(devices) = self.devices(&wanted.known) else { return };
        let there: BTreeSet<(String, u64)> = devices.iter().map(identity).collect();
        let gone: Vec<_> = state.freely.keys().filter(|device| !there.contains(device)).cloned().collect();
        for device in gone {
            if let Some(number) = state.freely.remove(&device) {
                self.put_back(number);
            }
        }
        for device in &devices {
            let key = identity(device);
            let is_wanted =
                wanted.written_freely.contains(&device.name) && device.order != config::Order::Keep;
            match (is_wanted, state.freely.get(&key).copied()) {
                (true, None) => self.write_one_freely(state, device),
                // Not beside an elevator with which the kernel would not hold back either.
                (false, Some(number)) if device.elevator != elevator::BY_CLASS => {
                    self.put_back(number);
                    state.freely.remove(&key);
                }
                _ => {}
            }
        }
    }

    fn write_one_freely(&mut self, state: &mut State, device: &Device) {
        match devices::write_freely(self.journal, &device.name, self.roots) {
            Ok(None) => {}
            Ok(Some(number)) => {
                tracing::info!(
                    decision = "disk-written-freely",
                    device = device.name,
                    "what is swapped out is not held back while the disk is slow"
                );
                state.freely.insert(identity(device), number);
            }
            Err(error) => self.fail(error),
        }
    }

    fn restore(&mut self, ordered: &Ordered) {
        let outcome = devices::restore(self.journal, ordered, self.roots);
        self.faults.extend(outcome.err().map(|error| error.to_string()));
    }

    fn order_one(&mut self, state: &mut State, device: &Device, need: Need, again: u64) {
        let key = identity(device);
        let Choice::Order(order) = elevator::choose(device, need) else {
            // It is known better by now.
            state.refused.remove(&key);
            if let Some(Elevator { ordered, .. }) = state.ordered.remove(&key) {
                if let Some(moments) = state.told() {
                    moments.remove_device(&device.name);
                }
                self.restore(&ordered);
            }
            return;
        };
        if state.refused.get(&key).is_some_and(|refused| !refused.may_be_tried(device, again)) {
            return;
        }
        match state.ordered.get(&key) {
            // What somebody chose after Steward did stays.
            Some(Elevator { need: before, .. }) if *before == need || device.elevator != order.elevator => {
                return;
            }
            // To note something takes a write of the undo journal, which waits for the disk.
            Some(Elevator { need: before, .. }) if elevator::differ_in_moments(device, *before, need) => {
                if let Some(moments) = state.told() {
                    moments.change(&device.name, order.moments);
                }
                state.ordered.entry(key).and_modify(|elevator| elevator.need = need);
                return;
            }
            Some(Elevator { ordered, .. }) => {
                if let Some(moments) = state.told() {
                    moments.remove_device(&device.name);
                }
                let outcome = devices::retune(self.journal, device, ordered, &order, self.roots);
                match outcome {
                    Ok(ordered) => {
                        state.attend_to(device, &order);
                        state.ordered.insert(key, Elevator { need, ordered });
                    }
                    Err(error) => self.fail(error),
                }
                return;
            }
            None => {}
        }
        match or_second(order, |order| devices::order(self.journal, device, order, self.roots)) {
            Ok((order, ordered)) => {
                tracing::info!(
                    decision = "disk-ordered",
                    device = device.name,
                    elevator = order.elevator,
                    before = device.elevator,
                    requests = order.requests,
                    "requests are ordered by class"
                );
                state.attend_to(device, &order);
                state.refused.remove(&key);
                state.ordered.insert(key, Elevator { need, ordered });
            }
            Err(error) => {
                state.refused.insert(key, Refused::new(device, &order, &error, again));
            }
        }
    }

    /// Has requests of disks charged. What somebody else has set since stays.
    fn charge(&mut self, state: &mut State, wanted: &Wanted) {
        let is_over = |(number, had): &(&String, &Charged)| wanted.charged.get(*number) != Some(*had);
        let over: Vec<String> =
            state.charged.iter().filter(is_over).map(|(number, _)| number.clone()).collect();
        for number in over {
            state.charged.remove(&number);
            let outcome = cost::unset(self.journal, &number, self.roots);
            self.faults.extend(outcome.err().map(|error| error.to_string()));
        }
        for (number, charged) in &wanted.charged {
            if state.charged.contains_key(number) {
                continue;
            }
            match cost::set(self.journal, number, &charged.model, self.roots) {
                Ok(()) => {
                    tracing::info!(
                        decision = "disk-charged",
                        device = number,
                        "cgroups are charged for requests by the calibration"
                    );
                    state.charged.insert(number.clone(), *charged);
                }
                Err(error) => self.faults.push(format!(
                    "{number}: classes and fractions of domains count for nothing there: {error}; calibrate it again (steward disk \
                     calibrate), or write order = \"keep\" below [disk] in steward.toml"
                )),
            }
        }
    }

    /// Gives each domain its part of the disk's time. A cgroup that has gone has nothing to be put back.
    fn weigh(&mut self, state: &mut State, wanted: &Wanted) {
        let files = [Some(weight::OF_BFQ), wanted.any_charged.then_some(weight::OF_COST)];
        let files: Vec<&'static str> = files.into_iter().flatten().collect();
        let is_wanted = |path: &String, file: &str, id: u64| {
            files.contains(&file) && wanted.weights.get(path).is_some_and(|(same, _)| *same == id)
        };
        let gone: Vec<((String, &'static str), u64)> = state
            .weights
            .iter()
            .filter(|((path, file), (id, _))| !is_wanted(path, file, *id))
            .map(|(key, (id, _))| (key.clone(), *id))
            .collect();
        for ((path, file), cgroup_id) in gone {
            state.weights.remove(&(path.clone(), file));
            match weight::unset(self.journal, &Place { path, cgroup_id }, file, self.roots) {
                Ok(_) => {}
                Err(JournalError::Kernel(error)) if error.is_absent() => self.journal.forget_knobs(cgroup_id),
                Err(error) => self.fail(error),
            }
        }
        for (path, (cgroup_id, parts)) in &wanted.weights {
            for file in &files {
                if !self.weigh_one(state, (path, *cgroup_id), file, *parts) && !wanted.any_charged {
                    self.faults.push(NO_WEIGHTS.to_owned());
                    return;
                }
            }
        }
    }

    /// False where the kernel has no such file for a cgroup that is there.
    fn weigh_one(
        &mut self,
        state: &mut State,
        (path, cgroup_id): (&str, u64),
        file: &'static str,
        parts: u16,
    ) -> bool {
        let key = (path.to_owned(), file);
        if state.weights.get(&key) == Some(&(cgroup_id, parts)) {
            return true;
        }
        let place = Place { path: path.to_owned(), cgroup_id };
        match weight::set(self.journal, &place, file, parts, self.roots) {
            Ok(_) => {
                state.lacks_weights &= file != weight::OF_BFQ;
                state.weights.insert(key, (cgroup_id, parts));
            }
            Err(JournalError::Kernel(error)) if error.is_absent() => {
                let reader = CgroupReader::open_same(&place, self.roots).ok().flatten();
                let is_handed_out = reader.as_ref().is_some_and(|reader| matches!(reader.io(), Ok(Some(_))));
                state.lacks_weights |= file == weight::OF_BFQ
                    && is_handed_out
                    && state.ordered.values().any(|elevator| elevator.ordered.knows_weights());
                return reader.is_none();
            }
            Err(error) => self.fail(error),
        }
        true
    }
}

impl Work<'_> {
    /// Whether there is still this cgroup, and not another one at its path.
    fn is_there(&self, place: &Place) -> bool {
        matches!(CgroupReader::open_same(place, self.roots), Ok(Some(_)))
    }

    /// Holds each domain to the most that it may read and write of each disk. What has gone, cgroup or device, has
    /// nothing to be put back.
    fn limit(&mut self, state: &mut State, wanted: &Wanted) {
        let gone: Vec<_> = state
            .limits
            .iter()
            .filter(|(key, had)| {
                let is_same = |now: &Limited| (now.cgroup_id, now.sequence) == (had.cgroup_id, had.sequence);
                !wanted.limits.get(*key).is_some_and(is_same)
            })
            .map(|(key, had)| (key.clone(), had.cgroup_id))
            .collect();
        for ((path, number), cgroup_id) in gone {
            state.limits.remove(&(path.clone(), number.clone()));
            let place = Place { path, cgroup_id };
            match limit::unset(self.journal, &place, &number, self.roots) {
                Ok(_) => {}
                // Where it is the device that has gone, the cgroup's other files are not to be forgotten.
                Err(JournalError::Kernel(error)) if error.is_absent() => {
                    if !self.is_there(&place) {
                        self.journal.forget_knobs(cgroup_id);
                    }
                }
                Err(error) => self.fail(error),
            }
        }
        for ((path, number), limited) in &wanted.limits {
            let key = (path.clone(), number.clone());
            if state.limits.get(&key) == Some(limited) {
                continue;
            }
            let (max, place) = (limited.max, Place { path: path.clone(), cgroup_id: limited.cgroup_id });
            match limit::set(self.journal, &place, number, max, self.roots) {
                Ok(_) => _ = state.limits.insert(key, *limited),
                // It has gone meanwhile.
                Err(JournalError::Kernel(error))
                    if error.is_absent() && !self.is_there(&place) => {}
                Err(error) => self.faults.push(format!(
                    "the limit {max} is not in force on {number}: {error}; the kernel must be built with CONFIG_BLK_DEV_THROTTLING"
                )),
            }
        }
    }
}

/// What is said where the kernel has no file for weights.
const NO_WEIGHTS: &str = "classes and fractions of domains count for nothing: no disk of this machine has the elevator BFQ, which divides \
                          a disk's time by weights, or is calibrated (steward doctor says of each why)";

/// Orders a device so, or by the second choice where the kernel has not the first; with which of them.
fn or_second<T>(
    first: Order,
    order: impl Fn(&Order) -> Result<T, JournalError>,
) -> Result<(Order, T), JournalError> {
    match order(&first) {
        Ok(done) => Ok((first, done)),
        // So says the kernel of an elevator that it has not, and finds no module of (elevator_change()); of other
        // files, that it does not take what is written there.
        Err(JournalError::Kernel(error)) if devices::is_about_elevator(&error) => {
            let second = first.without_by_class();
            let outcome = order(&second).map(|done| (second, done));
            outcome.map_err(|_| JournalError::Kernel(error))
        }
        Err(error) => Err(error),
    }
}

/// What tells a device from a later one of its name.
fn identity(device: &Device) -> (String, u64) {
    (device.name.clone(), device.sequence)
}

#[cfg(test)]
mod tests;
