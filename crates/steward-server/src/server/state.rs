//! Who waits, who works, and who gets what next. Everything here is done under one lock and takes no time.
//!
//! Accepted requests of a route are served by workers that have a reservation, the one that has been idle for longest
//! first: its reservation is the freshest. All else is served by best-effort workers. A route of which no worker has a
//! reservation is served by these too, ahead of all else, by deadline.
//!
//! An accepted request that has just come has most of its time before it, and a hopeful one that came earlier has not.
//! Were the accepted one served at once, the other would be late for nothing. So it gives way for as long as all that
//! were accepted have more than enough time, whatever becomes of the others; the worker that is to serve it sleeps
//! until then, so that nobody without a reservation has to wake it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::thread::Thread;

use super::announce::Task;
use super::entry::Entry;
use super::rest::{Busy, Rest};
use crate::clock;
use crate::controller::{Controller, End, RouteId, Ticket};
use crate::goal::nanoseconds;

/// What a worker is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Accepted requests of one route; it has a reservation.
    Reserved(RouteId),
    /// Everything else.
    BestEffort,
}

/// A request that a worker is at.
#[derive(Clone, Copy, Debug)]
struct AtWork {
    route: RouteId,
    number: u64,
    is_accepted: bool,
    is_hopeful: bool,
    deadline_ns: u64,
    since_ns: u64,
    /// The worker's CPU time at its beginning, in nanoseconds.
    cpu_ns: u64,
}

/// A thread that serves requests.
struct Worker {
    class: Class,
    task: Task,
    thread: Thread,
    is_idle: bool,
    /// What it is handed to begin with.
    hand: Option<Entry>,
    at_work: Option<AtWork>,
    /// It was given up: its request does not end.
    is_stray: bool,
    /// CPU time in every period, in nanoseconds.
    reserved: Option<(u64, u64)>,
}

/// A route's requests and workers.
#[derive(Default)]
struct Line {
    accepted: VecDeque<Entry>,
    waiting: VecDeque<Entry>,
    idle: VecDeque<u64>,
    workers: usize,
    wanted: usize,
    /// How many of its accepted requests workers are handed or are at, but for those that were given up.
    served: usize,
    /// While accepted requests give way: the idle worker that looks again by itself, and when, in nanoseconds.
    alarm: Option<(u64, u64)>,
}

/// What a worker is told when it asks.
pub(super) enum Told {
    /// To serve this.
    Serve(Entry),
    /// To wait until it is woken, or until then, in nanoseconds.
    Rest(Option<u64>),
    /// To end.
    End,
}

/// What a thread of the service is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    /// CPU time in every period, in nanoseconds.
    pub(super) pair: (u64, u64),
    /// Whether it has it.
    pub(super) is_given: bool,
}

/// A worker with a reservation, as the one who reserves sees it.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub(super) worker: u64,
    pub(super) task: Task,
    /// CPU time in every period, in nanoseconds.
    pub(super) has: Option<(u64, u64)>,
}

pub(super) struct State {
    pub(super) controller: Controller,
    lines: Vec<Line>,
    rest: Rest,
    cpus: usize,
    idle_best_effort: VecDeque<u64>,
    best_effort_count: usize,
    pub(super) best_effort_wanted: usize,
    workers: BTreeMap<u64, Worker>,
    /// Those of them that are handed a request or are at one.
    engaged: BTreeSet<u64>,
    /// Those of these that are at one, or are handed one that was not accepted. There are few, and each request has
    /// them looked at often, where hundreds may be handed accepted ones at once.
    begun: BTreeSet<u64>,
    /// The accepted requests that workers are handed and have not begun, by deadline, in nanoseconds, and worker.
    handed: BTreeSet<(u64, u64)>,
    /// The worker that is about to ask what to do: it need not be woken.
    asks: Option<u64>,
    next: u64,
    strays: usize,
    strays_max: usize,
    /// No request arrives any more: what is there is served, and then workers end.
    pub(super) is_closing: bool,
    /// Requests that were let in, and of which it is not known yet what is to be done.
    places: usize,
    /// Threads of the service that are to have a reservation, by their number as tasks.
    pub(super) threads: BTreeMap<i32, Reservation>,
    /// Why nothing is reserved, where that is so.
    pub(super) unreserved: Option<String>,
    /// The one who reserves has something to look at.
    pub(super) is_changed: bool,
    /// The one who reserves, and the keeper, were woken since they last waited.
    pub(super) is_reserver_awake: bool,
    pub(super) is_keeper_awake: bool,
    /// When the keeper looks next by itself, and when there will be something to see that it does not know of yet, in
    /// nanoseconds.
    keeper_wakes_ns: Option<u64>,
    due_ns: Option<u64>,
}

impl State {
    pub(super) fn new(controller: Controller, cpus: u32, strays_max: usize) -> Self {
        let lines = controller.routes().map(|_| Line::default()).collect();
        State {
            controller,
            lines,
            rest: Rest::new(cpus),
            cpus: usize::try_from(cpus).unwrap_or(usize::MAX).max(1),
            idle_best_effort: VecDeque::new(),
            best_effort_count: 0,
            best_effort_wanted: 0,
            workers: BTreeMap::new(),
            engaged: BTreeSet::new(),
            begun: BTreeSet::new(),
            handed: BTreeSet::new(),
            asks: None,
            next: 0,
            strays: 0,
            strays_max,
            is_closing: false,
            places: 0,
            threads: BTreeMap::new(),
            unreserved: None,
            is_changed: true,
            is_reserver_awake: false,
            is_keeper_awake: false,
            keeper_wakes_ns: None,
            due_ns: None,
        }
    }

    /// The keeper has looked, and looks again then by itself.
    pub(super) fn keeper_wakes(&mut self, at_ns: Option<u64>) {
        self.keeper_wakes_ns = at_ns;
        self.due_ns = None;
    }

    /// Whether there will be something to see before the keeper looks.
    pub(super) fn keeper_is_early(&self) -> bool {
        self.due_ns.is_some_and(|due_ns| self.keeper_wakes_ns.is_none_or(|wakes_ns| due_ns < wakes_ns))
    }

    fn is_due(&mut self, at_ns: Option<u64>) {
        self.due_ns = [self.due_ns, at_ns].into_iter().flatten().min();
    }

    /// How many requests wait for a worker or for their turn.
    pub(super) fn waiting(&self) -> usize {
        let lines: usize = self.lines.iter().map(|line| line.accepted.len() + line.waiting.len()).sum();
        self.rest.len() + lines
    }

    /// How many workers have a reservation, and how many have none; those that were given up are neither.
    pub(super) fn workers(&self) -> (usize, usize) {
        (self.lines.iter().map(|line| line.workers).sum(), self.best_effort_count)
    }

    /// Whether everything was served but what was given up.
    pub(super) fn is_over(&self) -> bool {
        self.places == 0 && self.waiting() == 0 && self.workers.values().all(|worker| worker.is_stray)
    }

    /// How many requests are at work.
    pub(super) fn at_work(&self) -> usize {
        self.engaged.len()
    }

    /// The workers that are at a request, or are handed one that was not accepted, but for those that were given up.
    fn begun(&self) -> impl Iterator<Item = &Worker> {
        self.begun.iter().filter_map(|worker| self.workers.get(worker)).filter(|worker| !worker.is_stray)
    }

    /// A request was let in: what is to be done comes later, with [`State::put`], or [`State::place_ends`] says that
    /// nothing does.
    pub(super) fn place_begins(&mut self) {
        self.places += 1;
    }

    /// It is known what is to be done for a request, or that it is nothing.
    pub(super) fn place_ends(&mut self) {
        self.places -= 1;
        if self.is_closing && self.places == 0 {
            self.wake_idle();
        }
    }

    /// A request is to be served; what waits for its turn waits at the end of its route's line.
    pub(super) fn put(&mut self, route: RouteId, mut entry: Entry) {
        if self.is_closing && entry.ticket.is_none() {
            entry.ticket = Some(self.controller.let_in_late(route, entry.arrived_ns));
        }
        match &entry.ticket {
            None => {
                self.lines[route.0].waiting.push_back(entry);
                self.try_waiting(route);
                self.is_due(self.controller.poll_timeout(clock::now_ns()));
            }
            Some(ticket) if ticket.is_accepted() => self.lines[route.0].accepted.push_back(entry),
            Some(_) => self.rest.push(entry),
        }
        self.hand_out();
    }

    /// Lets in those that wait and whose turn it is.
    pub(super) fn let_in(&mut self, now_ns: u64) {
        for index in 0..self.lines.len() {
            let (route, line) = (RouteId(index), &mut self.lines[index]);
            while let Some(first) = line.waiting.front()
                && let Some(ticket) = self.controller.admit_waiting(route, first.arrived_ns, now_ns)
            {
                let first = line.waiting.pop_front().expect("it was there");
                line.accepted.push_back(Entry { ticket: Some(ticket), ..first });
            }
            self.try_waiting(route);
        }
        self.hand_out();
    }

    /// Has the one that has waited longest served as best-effort, if its route's requests were too dear lately and
    /// nobody is served: it says whether they are still.
    fn try_waiting(&mut self, route: RouteId) {
        let line = &mut self.lines[route.0];
        if self.controller.tries_one(route)
            && let Some(first) = line.waiting.pop_front()
        {
            let ticket = self.controller.let_in_late(route, first.arrived_ns);
            self.rest.push(Entry { ticket: Some(ticket), ..first });
        }
    }

    /// Gives what waits to workers that are idle.
    fn hand_out(&mut self) {
        debug_assert!(
            self.workers.iter().all(|(number, worker)| {
                (worker.hand.is_some() || worker.at_work.is_some()) == self.engaged.contains(number)
            }),
            "who is engaged is known"
        );
        debug_assert!(
            (0..self.lines.len()).all(|index| self.lines[index].served == self.served(RouteId(index))),
            "how many accepted requests are served is known"
        );
        for index in 0..self.lines.len() {
            while let Some(worker) = self.lines[index].idle.front().copied()
                && !self.lines[index].accepted.is_empty()
            {
                if let Some(until_ns) = self.gives_way_until_ns(index) {
                    self.set_alarm(index, until_ns);
                    break;
                }
                let line = &mut self.lines[index];
                line.idle.pop_front();
                line.alarm = line.alarm.filter(|(on_alarm, _)| *on_alarm != worker);
                if let Some(entry) = line.accepted.pop_front() {
                    self.hand(worker, entry);
                }
            }
        }
        while let Some(worker) = self.idle_best_effort.front().copied()
            && let Some(entry) = self.next_best_effort()
        {
            self.idle_best_effort.pop_front();
            self.hand(worker, entry);
        }
    }

    /// Until when the first accepted request of a route gives way to best-effort ones that are due sooner, in
    /// nanoseconds, if it does. All that were accepted have twice the time then that they need with nothing but what is
    /// promised to them, whatever becomes of the others.
    fn gives_way_until_ns(&self, index: usize) -> Option<u64> {
        if self.is_closing || !self.controller.rest_computes() {
            return None;
        }
        let (line, now_ns) = (&self.lines[index], clock::now_ns());
        let deadline_ns = line.accepted.front()?.ticket.as_ref()?.deadline_ns();
        let served = line.served;
        let at_work = self.begun().filter_map(|worker| worker.at_work);
        let takes_ns = self.controller.takes_ns(RouteId(index), line.accepted.len() + served)?;
        let largest_ns = self.controller.costs(RouteId(index))?.largest_ns;
        let until_ns =
            deadline_ns.saturating_sub(takes_ns.saturating_mul(GIVES_WAY).saturating_add(largest_ns));
        if until_ns <= now_ns {
            return None;
        }
        let is_sooner = |other_ns: &u64| now_ns < *other_ns && *other_ns < deadline_ns;
        let sooner = at_work.filter(|at_work| at_work.is_hopeful).map(|at_work| at_work.deadline_ns);
        let sooner: Vec<u64> = sooner.chain(self.rest.deadline_ns()).filter(is_sooner).collect();
        // On a CPU that is free nobody is in the way.
        let is_free = sooner.len() + served < self.cpus;
        sooner.iter().min().filter(|_| !is_free).map(|first_ns| until_ns.min(*first_ns))
    }

    /// How many accepted requests of a route workers are handed or are at, but for those that were given up.
    fn served(&self, route: RouteId) -> usize {
        let serves = |worker: &&Worker| {
            let in_hand = worker.hand.as_ref().and_then(|entry| entry.ticket.as_ref());
            let in_hand = in_hand.map(|ticket| (ticket.is_accepted(), ticket.route()));
            let at_work = worker.at_work.map(|at_work| (at_work.is_accepted, at_work.route));
            in_hand.or(at_work) == Some((true, route))
        };
        self.workers.values().filter(|worker| !worker.is_stray).filter(serves).count()
    }

    /// Has an idle worker of a route look again then, unless one looks sooner.
    fn set_alarm(&mut self, index: usize, until_ns: u64) {
        let line = &mut self.lines[index];
        let is_idle = |worker: &u64| self.workers.get(worker).is_some_and(|worker| worker.is_idle);
        if line.alarm.is_some_and(|(worker, at_ns)| at_ns <= until_ns && is_idle(&worker)) {
            return;
        }
        let Some(worker) = line.idle.front().copied() else { return };
        line.alarm = Some((worker, until_ns));
        self.wake(worker);
    }

    /// Has a worker ask what to do.
    fn wake(&self, number: u64) {
        if self.asks != Some(number) {
            self.workers[&number].thread.unpark();
        }
    }

    fn hand(&mut self, number: u64, entry: Entry) {
        self.engages(number, &entry);
        let ticket = entry.ticket.as_ref().filter(|ticket| ticket.is_accepted());
        self.handed.extend(ticket.map(|ticket| (ticket.deadline_ns(), number)));
        let worker = self.workers.get_mut(&number).expect("who is idle is there");
        worker.hand = Some(entry);
        worker.is_idle = false;
        self.wake(number);
    }

    /// A worker is handed a request, or begins with it.
    fn engages(&mut self, number: u64, entry: &Entry) {
        let ticket = entry.ticket.as_ref().expect("who is served was let in");
        let is_new = self.engaged.insert(number);
        if ticket.is_accepted() {
            self.lines[ticket.route().0].served += usize::from(is_new);
        } else {
            self.begun.insert(number);
        }
    }

    /// A request of that route is about to arrive: those that wait and that can be answered in time by now come before
    /// it.
    pub(super) fn look(&mut self, route: RouteId, now_ns: u64) {
        self.look_at_costs(route, None, now_ns);
        self.rest.look(&mut self.controller, now_ns);
    }

    /// What a best-effort worker serves next: accepted requests of routes that have no worker of their own, by
    /// deadline; then those that were not accepted; and when the server closes, those that wait for their turn.
    fn next_best_effort(&mut self) -> Option<Entry> {
        let deadline_ns = |line: &Line| {
            let first = line.accepted.front()?;
            (line.workers == 0).then(|| first.ticket.as_ref().map_or(0, Ticket::deadline_ns))
        };
        let lines = self.lines.iter().enumerate();
        let first = lines.filter_map(|(index, line)| Some((deadline_ns(line)?, index))).min();
        if let Some((_, index)) = first {
            return self.lines[index].accepted.pop_front();
        }
        if self.rest.len() == 0 {
            return None;
        }
        let now_ns = clock::now_ns();
        let mut busy = busy(self.begun(), &self.controller, now_ns);
        // More than there are CPUs make no difference.
        busy.accepted_ns.extend(self.handed.iter().take(self.cpus).map(|(deadline_ns, _)| *deadline_ns));
        self.rest.next(&mut self.controller, now_ns, busy)
    }

    /// Adds a worker; its thread asks with [`State::ask`].
    pub(super) fn add(
        &mut self,
        class: Class,
        reserved: Option<(u64, u64)>,
        task: Task,
        thread: Thread,
    ) -> u64 {
        match class {
            Class::Reserved(route) => self.lines[route.0].workers += 1,
            Class::BestEffort => self.best_effort_count += 1,
        }
        self.next += 1;
        let (is_idle, is_stray) = (false, false);
        let worker = Worker { class, task, thread, is_idle, hand: None, at_work: None, is_stray, reserved };
        self.workers.insert(self.next, worker);
        self.next
    }

    /// A worker asks what to do.
    pub(super) fn ask(&mut self, number: u64) -> Told {
        let worker = self.workers.get_mut(&number).expect("it is removed when it is told to end");
        let class = worker.class;
        if worker.is_idle && !self.looks_again(class, number) {
            return Told::Rest(self.alarm_ns(class, number));
        }
        let worker = self.workers.get_mut(&number).expect("as above");
        let next = match worker.hand.take() {
            Some(entry) => Told::Serve(entry),
            None => self.next(class, number),
        };
        match next {
            Told::Serve(entry) => {
                self.begin(number, &entry);
                Told::Serve(entry)
            }
            Told::Rest(_) => {
                self.workers.get_mut(&number).expect("as above").is_idle = true;
                match class {
                    Class::Reserved(route) => self.lines[route.0].idle.push_back(number),
                    Class::BestEffort => self.idle_best_effort.push_back(number),
                }
                // Those that give way may be waiting for him.
                self.hand_out();
                self.ask(number)
            }
            Told::End => {
                self.remove(number);
                Told::End
            }
        }
    }

    /// An idle worker asks. Whether it is not any more.
    fn looks_again(&mut self, class: Class, number: u64) -> bool {
        if self.alarm_ns(class, number).is_some_and(|at_ns| at_ns <= clock::now_ns())
            && let Class::Reserved(route) = class
        {
            self.lines[route.0].alarm = None;
            self.hand_out();
        }
        !self.workers[&number].is_idle
    }

    /// When that worker is to look again by itself.
    fn alarm_ns(&self, class: Class, number: u64) -> Option<u64> {
        let Class::Reserved(route) = class else { return None };
        self.lines[route.0].alarm.filter(|(worker, _)| *worker == number).map(|(_, at_ns)| at_ns)
    }

    fn next(&mut self, class: Class, number: u64) -> Told {
        if self.workers[&number].is_stray {
            return Told::End;
        }
        let entry = match class {
            Class::Reserved(route) => {
                let line = &self.lines[route.0];
                if line.workers > line.wanted {
                    return Told::End;
                }
                match self.gives_way_until_ns(route.0) {
                    Some(_) => None,
                    None => self.lines[route.0].accepted.pop_front(),
                }
            }
            Class::BestEffort if self.best_effort_count > self.best_effort_wanted => return Told::End,
            Class::BestEffort => self.next_best_effort(),
        };
        match entry {
            Some(entry) => Told::Serve(entry),
            None if self.is_closing && self.places == 0 => Told::End,
            None => Told::Rest(None),
        }
    }

    fn begin(&mut self, number: u64, entry: &Entry) {
        let ticket = entry.ticket.as_ref().expect("who is served was let in");
        let at_work = AtWork {
            route: ticket.route(),
            number: ticket.number(),
            is_accepted: ticket.is_accepted(),
            is_hopeful: ticket.is_hopeful(),
            deadline_ns: ticket.deadline_ns(),
            since_ns: clock::now_ns(),
            cpu_ns: clock::thread_cpu_ns(),
        };
        self.engages(number, entry);
        self.handed.remove(&(ticket.deadline_ns(), number));
        self.begun.insert(number);
        self.workers.get_mut(&number).expect("it asked").at_work = Some(at_work);
        self.is_due(Some(at_work.since_ns.saturating_add(overdue_after_ns(&self.controller, &at_work))));
    }

    fn remove(&mut self, number: u64) {
        let Some(worker) = self.workers.remove(&number) else { return };
        match worker.class {
            _ if worker.is_stray => self.strays -= 1,
            Class::Reserved(route) => self.lines[route.0].workers -= 1,
            Class::BestEffort => self.best_effort_count -= 1,
        }
        // If it was the last one of its route, others serve what it leaves.
        self.is_changed = true;
        self.hand_out();
    }

    /// A worker is done with a request. It is to ask at once what to do next: nobody wakes it for what it is handed.
    pub(super) fn finish(&mut self, number: u64, ticket: Ticket, end: End, cpu_ns: Option<u64>) {
        let now_ns = clock::now_ns();
        self.is_free(number, &ticket);
        self.asks = Some(number);
        self.stands_by(number);
        self.end(ticket, end, cpu_ns, now_ns);
        self.asks = None;
    }

    /// A worker leaves a request to others, after so much CPU time, which waits for something for longer than it may:
    /// it is no longer counted on, as one that was given up. As [`State::finish`], but that the request ends later.
    #[cfg(feature = "tower")]
    pub(super) fn leaves(&mut self, number: u64, ticket: &Ticket, cpu_ns: u64) {
        let now_ns = clock::now_ns();
        self.is_free(number, ticket);
        self.asks = Some(number);
        self.stands_by(number);
        // Of one that was given up before, nothing more is learned.
        self.controller.take_back(ticket.route(), ticket.number(), cpu_ns, now_ns);
        self.is_changed = true;
        self.let_in(now_ns);
        self.asks = None;
    }

    /// A worker is at nothing any more.
    fn is_free(&mut self, number: u64, was_at: &Ticket) {
        self.engaged.remove(&number);
        self.begun.remove(&number);
        let worker = self.workers.get_mut(&number).expect("it is removed when it is told to end");
        worker.at_work = None;
        if !worker.is_stray && was_at.is_accepted() {
            self.lines[was_at.route().0].served -= 1;
        }
    }

    /// A worker that is done is idle, if it is to go on at all. Without a reservation it is the first to get what
    /// waits: to wake another one would cost two switches between threads. With one it is the last, for it has used up
    /// some of what the others have.
    fn stands_by(&mut self, number: u64) {
        let worker = self.workers.get_mut(&number).expect("it is removed when it is told to end");
        if worker.is_stray || self.is_closing {
            return;
        }
        match worker.class {
            Class::Reserved(route) => {
                let line = &mut self.lines[route.0];
                if line.workers <= line.wanted {
                    line.idle.push_back(number);
                    worker.is_idle = true;
                }
            }
            Class::BestEffort if self.best_effort_count <= self.best_effort_wanted => {
                self.idle_best_effort.push_front(number);
                worker.is_idle = true;
            }
            Class::BestEffort => {}
        }
    }

    /// Tells the controller what the requests of a route but the one that ends have cost so far, where it is about to
    /// want that: a few microseconds for each that is at work, once a second or in a hundred requests.
    fn look_at_costs(&mut self, route: RouteId, ends: Option<u64>, now_ns: u64) {
        if !self.controller.is_about_to_adjust(route, ends.is_some(), now_ns) {
            return;
        }
        for number in &self.engaged {
            let Some(worker) = self.workers.get(number).filter(|worker| !worker.is_stray) else { continue };
            let Some(at_work) = worker.at_work else { continue };
            let is_done = worker.task.is_done.load(Ordering::Relaxed);
            if at_work.route == route && Some(at_work.number) != ends && !is_done {
                let used_ns = clock::cpu_ns_of(worker.task.tid).saturating_sub(at_work.cpu_ns);
                self.controller.has_used(route, at_work.number, used_ns);
            }
        }
    }

    /// A worker is about to be done with a request that has cost so much, and waited for something else than a CPU for
    /// so long, in nanoseconds.
    pub(super) fn slept(&mut self, ticket: &Ticket, slept_ns: u64, cpu_ns: u64) {
        let before = self.controller.workers_wished(ticket.route());
        self.controller.slept(ticket, slept_ns, cpu_ns);
        self.is_changed |= self.controller.workers_wished(ticket.route()) != before;
    }

    /// A request ends, at a worker or without one.
    pub(super) fn end(&mut self, ticket: Ticket, end: End, cpu_ns: Option<u64>, now_ns: u64) {
        let route = ticket.route();
        self.look_at_costs(route, Some(ticket.number()), now_ns);
        let wishes =
            |state: &Self| (state.controller.specifications(route), state.controller.workers_wished(route));
        let before = wishes(self);
        self.controller.finish(ticket, end, cpu_ns, now_ns);
        self.is_changed |= wishes(self) != before;
        self.let_in(now_ns);
    }

    /// No request arrives any more: those that wait for their turn are served by whoever has time.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
        for index in 0..self.lines.len() {
            let waiting = std::mem::take(&mut self.lines[index].waiting);
            for entry in waiting {
                let ticket = self.controller.let_in_late(RouteId(index), entry.arrived_ns);
                self.rest.push(Entry { ticket: Some(ticket), ..entry });
            }
        }
        self.hand_out();
        self.wake_idle();
    }

    /// Has idle workers ask again: there are too many of them, or the server closes.
    fn wake_idle(&mut self) {
        for line in &mut self.lines {
            line.idle.clear();
            line.alarm = None;
        }
        self.idle_best_effort.clear();
        for worker in self.workers.values_mut().filter(|worker| worker.is_idle) {
            worker.is_idle = false;
            worker.thread.unpark();
        }
    }

    /// Gives up requests that have been worked on for far too long. Their specifications go back, and others are to
    /// take the place of their workers. Returns when the next one would be due, in nanoseconds, and how many were
    /// given up.
    pub(super) fn give_up(&mut self, now_ns: u64) -> (Option<u64>, usize) {
        let (mut next_ns, mut count) = (None::<u64>, 0);
        for worker in self.workers.values_mut().filter(|worker| !worker.is_stray) {
            let Some(at_work) = worker.at_work else { continue };
            let limit_ns = overdue_after_ns(&self.controller, &at_work);
            let due_ns = at_work.since_ns.saturating_add(limit_ns);
            if due_ns > now_ns || self.strays >= self.strays_max {
                next_ns =
                    Some(next_ns.map_or(due_ns, |next_ns| next_ns.min(due_ns.max(now_ns + limit_ns / 4))));
                continue;
            }
            let used_ns = clock::cpu_ns_of(worker.task.tid).saturating_sub(at_work.cpu_ns);
            self.controller.take_back(at_work.route, at_work.number, used_ns, now_ns);
            self.lines[at_work.route.0].served -= usize::from(at_work.is_accepted);
            worker.is_stray = true;
            self.strays += 1;
            count += 1;
            match worker.class {
                Class::Reserved(route) => self.lines[route.0].workers -= 1,
                Class::BestEffort => self.best_effort_count -= 1,
            }
        }
        if count > 0 {
            self.is_changed = true;
            self.let_in(now_ns);
        }
        (next_ns, count)
    }

    /// How many best-effort workers are missing.
    pub(super) fn missing(&self) -> usize {
        // Somebody has to serve what is left, should all others have been given up.
        let wanted = if self.is_closing {
            usize::from(self.waiting() > 0 && self.workers().0 == 0)
        } else {
            self.best_effort_wanted
        };
        wanted.saturating_sub(self.best_effort_count)
    }

    /// From now on so many best-effort workers are wanted; busy ones finish first.
    pub(super) fn want_best_effort(&mut self, wanted: usize) {
        self.best_effort_wanted = wanted;
        if self.best_effort_count > wanted {
            self.wake_idle();
        }
    }

    /// From now on so many workers of a route are to have a reservation; busy ones finish first.
    pub(super) fn want_reserved(&mut self, route: RouteId, wanted: usize) {
        self.lines[route.0].wanted = wanted;
        if self.lines[route.0].workers > wanted {
            self.wake_idle();
        }
    }

    /// The workers of a route that have a reservation or are to have one.
    pub(super) fn reserved(&self, route: RouteId) -> Vec<Reserved> {
        let is_meant = |worker: &Worker| worker.class == Class::Reserved(route) && !worker.is_stray;
        let workers = self.workers.iter().filter(|(_, worker)| is_meant(worker));
        workers
            .map(|(number, worker)| Reserved {
                worker: *number,
                task: worker.task.clone(),
                has: worker.reserved,
            })
            .collect()
    }

    /// Workers that were given up and have a reservation still, which they lose.
    pub(super) fn reserved_strays(&mut self) -> Vec<i32> {
        let strays = self.workers.values_mut().filter(|worker| worker.is_stray);
        strays.filter_map(|worker| worker.reserved.take().map(|_| worker.task.tid)).collect()
    }

    /// A worker has another reservation now.
    pub(super) fn set_reserved(&mut self, worker: u64, reserved: (u64, u64)) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.reserved = Some(reserved);
        }
    }
}

/// What workers are at that was not accepted. One that is at it for longer than the response time waits rather than
/// computes, and does not count.
fn busy<'a>(begun: impl Iterator<Item = &'a Worker>, controller: &Controller, now_ns: u64) -> Busy {
    let mut busy = Busy { has_accepted: controller.has_accepted(), ..Busy::default() };
    for worker in begun {
        let response_time_ns = |route| nanoseconds(controller.goal(route).response_time);
        if let Some(at_work) = worker.at_work.filter(|at_work| at_work.is_accepted) {
            busy.accepted_ns.push(at_work.deadline_ns);
        }
        let (is_hopeful, route) = match (&worker.at_work, &worker.hand) {
            (Some(at_work), _) if !at_work.is_accepted => {
                if now_ns.saturating_sub(at_work.since_ns) > response_time_ns(at_work.route) {
                    continue;
                }
                (at_work.is_hopeful, at_work.route)
            }
            (None, Some(Entry { ticket: Some(ticket), .. })) if !ticket.is_accepted() => {
                (ticket.is_hopeful(), ticket.route())
            }
            _ => continue,
        };
        busy.all += 1;
        busy.late += usize::from(!is_hopeful);
        if is_hopeful {
            let shortest_ns = busy.shortest_ns.unwrap_or(u64::MAX).min(response_time_ns(route));
            busy.shortest_ns = Some(shortest_ns);
        }
    }
    busy
}

/// Accepted requests give way while they have so many times the time that they need.
const GIVES_WAY: u64 = 2;

/// An accepted request is given up after so many response times at work.
const OVERDUE_RESPONSE_TIMES: u64 = 4;
/// A request that was not accepted, after so many nanoseconds more: it only gets what nobody else wants.
const OVERDUE_BEST_EFFORT_NS: u64 = 30_000_000_000;

fn overdue_after_ns(controller: &Controller, at_work: &AtWork) -> u64 {
    let response_time_ns = nanoseconds(controller.goal(at_work.route).response_time);
    let more_ns = if at_work.is_accepted { 0 } else { OVERDUE_BEST_EFFORT_NS };
    response_time_ns.saturating_mul(OVERDUE_RESPONSE_TIMES).saturating_add(more_ns)
}

#[cfg(any(test, feature = "simulation"))]
pub(super) mod simulation;
#[cfg(test)]
mod tests;
