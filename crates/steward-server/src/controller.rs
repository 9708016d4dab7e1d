//! Which requests a server accepts, so that those that it accepts are answered in time (Yang 2009, 12.2). Pure: no
//! clock, no I/O, no threads.
//!
//! Each route has a goal: its requests are to be answered within RT, and may be promised the part P of the machine's
//! CPU time. What a request costs is learned from those that were served: Cavg on average, and Cmax is enough for 95 %
//! of them. Then N requests can be promised an answer in every RT, the largest N with N x Cavg < RT x P. There are N
//! *specifications*; a request that gets one is accepted, and that specification is eligible again no sooner than RT
//! later. A request that finds none waits, if the route's goal says so. Else it is best-effort if it is *hopeful*: at
//! the pace at which best-effort requests were served lately, it can be answered in time with what is not promised. If
//! it is not hopeful either, it is best-effort behind those that are, or refused, as the goal says.
//!
//! Costs are taken anew, and N with them, when RT or P is changed, when some number of requests was served since the
//! last time, and when some time has passed.

mod history;
mod pace;
mod route;
mod spare;
mod specifications;
mod ticket;

use crate::goal::{Goal, GoalError};
use crate::snapshot::Snapshot;
pub use history::Costs;
pub use route::End;
use route::{Admission, Route};
use spare::Spare;
pub use ticket::{RouteId, Ticket};

/// The part of each CPU that reservations may take unless the daemon says otherwise: its own default.
pub const RESERVABLE: f64 = 0.8;

/// What becomes of a request that has arrived.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request that was let in is given back with Controller::finish"]
pub enum Decision {
    /// Serve it: an answer in time is promised.
    Accepted(Ticket),
    /// Serve it when there is nothing better to do.
    BestEffort(Ticket),
    /// Keep it, behind those that wait already: [`Controller::admit_waiting`] says when it is its turn.
    Waits,
    /// Tell it to come back.
    Refused {
        /// In how many nanoseconds it may be accepted.
        retry_after_ns: u64,
    },
}

/// Decides for all routes of a server.
///
/// ```
/// use std::time::Duration;
/// use steward_server::{Controller, Decision, End, Goal};
///
/// let mut controller = Controller::new(1);
/// let goal = Goal::new(Duration::from_secs(1), 0.5).costing(Duration::from_millis(100));
/// let search = controller.add("/search", goal, 0).expect("a goal that can be held");
/// // Four requests of 100 ms fit into half a second with something to spare; the fifth is best-effort.
/// let accepted = (0..5).filter(|_| matches!(controller.arrive(search, 0), Decision::Accepted(_))).count();
/// assert_eq!(accepted, 4);
/// ```
#[derive(Clone, Debug)]
pub struct Controller {
    cpus: u32,
    reservable: f64,
    routes: Vec<Route>,
    spare: Spare,
    next: u64,
}

impl Controller {
    /// For a machine, or a part of one, of so many CPUs; at least one.
    pub fn new(cpus: u32) -> Self {
        let (cpus, routes) = (cpus.max(1), Vec::new());
        Controller { cpus, reservable: RESERVABLE, routes, spare: Spare::new(cpus), next: 0 }
    }

    /// Adds a route that has a goal.
    ///
    /// # Errors
    /// What is wrong with the goal, alone or beside those of the other routes.
    pub fn add(&mut self, name: &str, goal: Goal, now_ns: u64) -> Result<RouteId, GoalError> {
        if self.find(name).is_some() {
            return Err(GoalError::Twice(name.to_owned()));
        }
        self.check(&goal, None)?;
        self.routes.push(Route::new(name, goal, self.cpus, now_ns));
        Ok(RouteId(self.routes.len() - 1))
    }

    /// The route of that name.
    pub fn find(&self, name: &str) -> Option<RouteId> {
        self.routes.iter().position(|route| route.name() == name).map(RouteId)
    }

    /// All routes, in the order in which they were added.
    pub fn routes(&self) -> impl Iterator<Item = (RouteId, &str)> {
        self.routes.iter().enumerate().map(|(index, route)| (RouteId(index), route.name()))
    }

    /// Changes the goal of a route; requests in hand keep what they were promised.
    ///
    /// # Errors
    /// As [`Controller::add`]; the goal is then the one that it was.
    pub fn set_goal(&mut self, route: RouteId, goal: Goal, now_ns: u64) -> Result<(), GoalError> {
        self.check(&goal, Some(route))?;
        self.routes[route.0].set_goal(goal, now_ns);
        Ok(())
    }

    /// The goal of a route.
    pub fn goal(&self, route: RouteId) -> &Goal {
        self.routes[route.0].goal()
    }

    /// The part of each CPU that reservations may take in all ([`RESERVABLE`] unless said). Goals that want more
    /// together stay, and are refused from now on.
    ///
    /// # Errors
    /// That the goals that there are want more.
    pub fn set_reservable(&mut self, reservable: f64) -> Result<(), GoalError> {
        self.reservable = reservable;
        let sum: f64 = self.routes.iter().map(|route| route.goal().cpu).sum();
        if sum > reservable + ROUNDING {
            return Err(GoalError::TooMuch { asked: sum, others: 0.0, limit: reservable });
        }
        Ok(())
    }

    /// The part of the machine that could be reserved for a route, where that is less than its goal says: no more
    /// requests are accepted than fit into it. `None` when nothing is reserved: then what the goal says counts.
    pub fn set_granted(&mut self, route: RouteId, granted: Option<f64>, now_ns: u64) {
        self.routes[route.0].set_granted(granted.unwrap_or(f64::INFINITY), now_ns);
    }

    /// A request arrives.
    pub fn arrive(&mut self, route: RouteId, now_ns: u64) -> Decision {
        let number = self.number();
        let unpromised = self.unpromised();
        let is_tried = self.tries_one(route);
        let (spare, of) = (&self.spare, &mut self.routes[route.0]);
        let admission = of.arrive(number, now_ns, is_tried, |of| {
            let Some(costs) = of.costs() else { return false };
            let deadline_ns = now_ns.saturating_add(of.goal().response_time_ns());
            let tried_ns = of.goal().response_time_ns() as f64 * unpromised * TRIED;
            spare.is_hopeful(costs, now_ns, deadline_ns)
                || spare.may_be_tried() && costs.average_ns as f64 <= tried_ns
        });
        match admission {
            Admission::Accepted => Decision::Accepted(self.accepted(route, number, now_ns, now_ns)),
            Admission::BestEffort { is_hopeful } => {
                let mut ticket = self.best_effort(route, number, now_ns, now_ns);
                if is_hopeful {
                    self.goes_ahead(&ticket);
                    ticket.is_hopeful = true;
                }
                Decision::BestEffort(ticket)
            }
            Admission::Waits => Decision::Waits,
            Admission::Refused { retry_after_ns } => Decision::Refused { retry_after_ns },
        }
    }

    /// Whether a best-effort request that was not hopeful has become so, because others ended sooner than they were
    /// expected to. If so, it is now.
    pub fn has_hope(&mut self, ticket: &mut Ticket, now_ns: u64) -> bool {
        if ticket.is_accepted || ticket.is_hopeful {
            return ticket.is_hopeful;
        }
        let costs = self.routes[ticket.route.0].costs();
        let is_hopeful = costs.is_some_and(|costs| self.spare.is_hopeful(costs, now_ns, ticket.deadline_ns));
        if is_hopeful {
            self.goes_ahead(ticket);
            ticket.is_hopeful = true;
        }
        is_hopeful
    }

    /// Whether a hopeful request that has not begun is so no more, because it could not even be served by its deadline
    /// if it began now. If so, it is not any more.
    pub fn has_no_hope(&mut self, ticket: &mut Ticket, now_ns: u64) -> bool {
        let cost_ns = self.routes[ticket.route.0].costs().map_or(0, |costs| costs.average_ns);
        let is_late = now_ns.saturating_add(cost_ns) > ticket.deadline_ns;
        if is_late && ticket.is_hopeful {
            self.spare.steps_back(ticket.number);
            ticket.is_hopeful = false;
        }
        !ticket.is_hopeful
    }

    /// No best-effort request whose deadline is before that, in nanoseconds, is hopeful now.
    pub fn no_hope_before_ns(&self, now_ns: u64) -> u64 {
        let costs = self.routes.iter().filter_map(Route::costs);
        costs.map(|costs| self.spare.earliest_ns(costs, now_ns)).min().unwrap_or(u64::MAX)
    }

    /// A best-effort request that is not hopeful is served now: who comes later has to reckon with that.
    pub fn begins(&mut self, ticket: &Ticket) {
        self.goes_ahead(ticket);
    }

    /// Whether a route's costs are taken anew when a request of it arrives now, or `ends` now: then
    /// [`Controller::has_used`] is to be told first of those that are at work.
    pub fn is_about_to_adjust(&self, route: RouteId, ends: bool, now_ns: u64) -> bool {
        self.routes[route.0].is_about_to_adjust(ends, now_ns)
    }

    /// A request that was let in and is at work has used `cpu_ns` nanoseconds of CPU time so far. Dear ones end late:
    /// if only those counted that have ended, the mean would be too low and later too high.
    pub fn has_used(&mut self, route: RouteId, number: u64, cpu_ns: u64) {
        self.routes[route.0].has_used(number, cpu_ns);
    }

    /// A request that is about to be finished, and has cost so much CPU time, waited for something else than a CPU for
    /// so many nanoseconds.
    pub fn slept(&mut self, ticket: &Ticket, slept_ns: u64, cpu_ns: u64) {
        self.spare.slept(ticket.is_accepted, slept_ns, cpu_ns);
        self.routes[ticket.route.0].slept(slept_ns, cpu_ns);
    }

    /// How many workers of a route are to have a reservation, were all granted that its goal says: one for each
    /// specification, and fewer where requests only compute.
    pub fn workers_wished(&self, route: RouteId) -> usize {
        self.routes[route.0].workers()
    }

    /// Whether best-effort requests compute, rather than wait: then more of them at once are none the sooner.
    pub fn rest_computes(&self) -> bool {
        self.spare.computes()
    }

    /// Whether a request that came now would be hopeful if nobody were before it.
    pub fn leaves_hope(&self, now_ns: u64) -> bool {
        self.routes.iter().any(|route| {
            let response_time_ns = route.goal().response_time_ns();
            let is_short = |costs: Costs| self.spare.is_short(costs.average_ns, response_time_ns, now_ns);
            route.costs().is_some_and(is_short)
        })
    }

    /// Whether a request of a route is served whatever its goal says, because lately one has cost more than all that
    /// the goal allows, and nobody is served now: as many as can be are to say when that changes.
    pub fn tries_one(&self, route: RouteId) -> bool {
        self.routes[route.0].is_too_dear() && self.spare.is_idle() && !self.has_accepted()
    }

    /// Whether a request that was accepted is in hand.
    pub fn has_accepted(&self) -> bool {
        self.routes.iter().any(Route::has_accepted)
    }

    /// The request that has waited longest on a route, since `arrived_ns`, if it is its turn.
    pub fn admit_waiting(&mut self, route: RouteId, arrived_ns: u64, now_ns: u64) -> Option<Ticket> {
        let number = self.number();
        let is_accepted = self.routes[route.0].admit_waiting(number, now_ns);
        is_accepted.then(|| self.accepted(route, number, arrived_ns, now_ns))
    }

    /// The request that has waited longest on a route, since `arrived_ns`, is served though it is not its turn: nobody
    /// comes any more for whom something would have to be kept. It is best-effort.
    pub fn let_in_late(&mut self, route: RouteId, arrived_ns: u64) -> Ticket {
        let number = self.number();
        self.routes[route.0].let_in_late(number);
        self.best_effort(route, number, arrived_ns, arrived_ns)
    }

    /// A request that waited does not any more: nobody wants the answer.
    pub fn leave(&mut self, route: RouteId) {
        self.routes[route.0].leave();
    }

    /// How many requests of a route wait.
    pub fn waiting(&self, route: RouteId) -> u64 {
        self.routes[route.0].waiting()
    }

    /// A request that was let in is refused after all, because there is no room where it would wait for a worker.
    /// Returns in how many nanoseconds it may try again.
    pub fn refuse(&mut self, ticket: Ticket, now_ns: u64) -> u64 {
        if ticket.is_accepted {
            self.spare.leave_accepted(ticket.number, None, now_ns);
        } else {
            self.spare.leave(ticket.number, None, None, now_ns);
        }
        self.routes[ticket.route.0].refuse(ticket.number, now_ns)
    }

    /// A request that was told to wait is refused instead. Returns in how many nanoseconds it may try again.
    pub fn refuse_waiting(&mut self, route: RouteId, now_ns: u64) -> u64 {
        self.routes[route.0].refuse_waiting(now_ns)
    }

    /// A request ends, having used `cpu_ns` nanoseconds of CPU time; `None` if it never began.
    pub fn finish(&mut self, ticket: Ticket, end: End, cpu_ns: Option<u64>, now_ns: u64) {
        let was_in_hand = self.routes[ticket.route.0].finish(&ticket, end, cpu_ns, now_ns);
        if was_in_hand && ticket.is_accepted {
            self.spare.leave_accepted(ticket.number, cpu_ns, now_ns);
        } else if was_in_hand {
            let is_met = (ticket.is_hopeful && end == End::Answered).then_some(now_ns <= ticket.deadline_ns);
            self.spare.leave(ticket.number, cpu_ns, is_met, now_ns);
        }
    }

    /// Takes the specification back from a request that does not end: it has used `cpu_ns` nanoseconds of CPU time so
    /// far. It is finished later like any other, should it end.
    pub fn take_back(&mut self, route: RouteId, number: u64, cpu_ns: u64, now_ns: u64) {
        match self.routes[route.0].take_back(number, cpu_ns, now_ns) {
            Some(Some(_)) => self.spare.leave_accepted(number, Some(cpu_ns), now_ns),
            Some(None) => self.spare.leave(number, Some(cpu_ns), None, now_ns),
            None => {}
        }
    }

    /// How many specifications a route has (N).
    pub fn specifications(&self, route: RouteId) -> usize {
        self.routes[route.0].specifications()
    }

    /// How many specifications a route would have if all that its goal says could be reserved.
    pub fn specifications_wished(&self, route: RouteId) -> usize {
        self.routes[route.0].wished()
    }

    /// What a request of a route costs; `None` before some were served.
    pub fn costs(&self, route: RouteId) -> Option<Costs> {
        self.routes[route.0].costs()
    }

    /// The CPU time, in nanoseconds, that each of so many workers of a route is to have reserved in every response
    /// time.
    ///
    /// That the mean of requests fits into P is what the number of specifications sees to. So reservations for the
    /// largest ones may take more, as in the dissertation (86 of 11 ms in a second, of 90 %): up to what all routes may
    /// have, in proportion, except for a little that is left to the threads that take requests in.
    pub fn budget_ns(&self, route: RouteId, workers: usize) -> u64 {
        let sum = self.routes.iter().fold(0.0, |sum, route| sum + route.goal().cpu);
        let scale = (self.reservable * OF_RESERVABLE / sum).max(OF_GOAL);
        let route = &self.routes[route.0];
        route.budget_ns(workers, route.goal().cpu * scale)
    }

    /// How long so many accepted requests of a route take with what is promised to it, in nanoseconds; `None` while it
    /// is not known what they cost.
    pub fn takes_ns(&self, route: RouteId, requests: usize) -> Option<u64> {
        self.routes[route.0].takes_ns(requests)
    }

    /// When [`Controller::admit_waiting`] may have something to say though nothing else happens, in nanoseconds.
    pub fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        self.routes.iter().filter_map(|route| route.timeout_ns(now_ns)).min()
    }

    /// What there is to see.
    pub fn snapshot(&self) -> Snapshot {
        let routes = self.routes.iter().map(Route::snapshot).collect();
        Snapshot { routes, spare_cpus: self.spare.last_pace(), ..Snapshot::default() }
    }

    fn check(&self, goal: &Goal, of: Option<RouteId>) -> Result<(), GoalError> {
        goal.validate()?;
        let is_other = |(index, _): &(usize, &Route)| of != Some(RouteId(*index));
        let others = self
            .routes
            .iter()
            .enumerate()
            .filter(is_other)
            .fold(0.0, |sum, (_, route)| sum + route.goal().cpu);
        if goal.cpu + others > self.reservable + ROUNDING {
            return Err(GoalError::TooMuch { asked: goal.cpu, others, limit: self.reservable });
        }
        Ok(())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn ticket(&self, route: RouteId, number: u64, is_accepted: bool, arrived_ns: u64) -> Ticket {
        let deadline_ns = arrived_ns.saturating_add(self.routes[route.0].goal().response_time_ns());
        Ticket { route, number, is_accepted, is_hopeful: false, deadline_ns }
    }

    fn accepted(&mut self, route: RouteId, number: u64, arrived_ns: u64, now_ns: u64) -> Ticket {
        let cost_ns = self.routes[route.0].costs().map_or(0, |costs| costs.average_ns);
        self.spare.enter_accepted(number, cost_ns, now_ns);
        self.ticket(route, number, true, arrived_ns)
    }

    fn best_effort(&mut self, route: RouteId, number: u64, arrived_ns: u64, now_ns: u64) -> Ticket {
        self.spare.enter(now_ns);
        self.ticket(route, number, false, arrived_ns)
    }

    fn goes_ahead(&mut self, ticket: &Ticket) {
        let costs = self.routes[ticket.route.0].costs();
        self.spare.goes_ahead(ticket.number, costs.map_or(0, |costs| costs.average_ns));
    }

    /// The CPU time in each unit of time that no goal promises, in CPUs.
    fn unpromised(&self) -> f64 {
        let promised: f64 = self.routes.iter().map(|route| route.goal().cpu).sum();
        (1.0 - promised).max(0.0) * f64::from(self.cpus)
    }
}

/// Reservations of all routes together take this part of what is reservable, or this part of what their goals say, if
/// that is more: admission keeps loads below its limit, not at it.
const OF_RESERVABLE: f64 = 0.95;
const OF_GOAL: f64 = 0.99;

/// While nobody is served that was not accepted, a request may be tried that needs no more of its response time than
/// this part of what is not promised: otherwise nobody would learn how fast such are served, where others are refused.
const TRIED: f64 = 0.5;

/// 0.7 and 0.1 are no more than 0.8.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests;
