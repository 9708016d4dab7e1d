//! Best-effort requests that wait for a worker: those that can be answered in time first.
//!
//! There are two lines. Hopeful requests stand in the one, in the order in which they became so; the others in the
//! other, by deadline. A request changes lines when what is expected of it does, and is in exactly one until it is
//! served. Those that are not hopeful are passed over [`PASSED_OVER_MAX`] times at most; then the first of them is
//! served, so that each is some day.
//!
//! Where best-effort requests compute, no more hopeful ones are served at once than there are CPUs: none of them would
//! end sooner, and most of them later.
//!
//! A worker that is free takes one that is not hopeful, unless it would only slow down those that can still be in time:
//! where best-effort requests compute, and hopeful ones are there or may come, or accepted ones, which may need more
//! than what is reserved for them.

use std::collections::{BTreeMap, VecDeque};

use super::entry::{Entry, Job};
use crate::controller::{Controller, Ticket};
use crate::goal::nanoseconds;

/// So many hopeful requests may be served one after another while others wait. Each of those is late already, and takes
/// the time of one that would not be.
pub(super) const PASSED_OVER_MAX: u32 = 20;
/// At most so many change lines at once: this is done under the server's lock.
const CHANGES_MAX: usize = 16;

/// Best-effort requests that wait for a worker; `J` is what is to be done for one.
pub(super) struct Rest<J = Job> {
    hopeful: VecDeque<Entry<J>>,
    /// By deadline and number.
    others: BTreeMap<(u64, u64), Entry<J>>,
    passed_over: u32,
    cpus: usize,
}

/// What best-effort workers are at.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    /// The deadlines of accepted requests that workers are at, and of those that they are handed as many as there are
    /// CPUs, the most urgent ones: a worker that waits for a CPU is busy, too. In nanoseconds.
    pub(super) accepted_ns: Vec<u64>,
    /// Requests that were not accepted.
    pub(super) all: usize,
    /// Of those, requests that are not hopeful either.
    pub(super) late: usize,
    /// The shortest response time that a hopeful one is to have, in nanoseconds.
    pub(super) shortest_ns: Option<u64>,
    /// Whether somebody is at requests that were accepted.
    pub(super) has_accepted: bool,
}

impl<J> Rest<J> {
    /// On so many CPUs.
    pub(super) fn new(cpus: u32) -> Self {
        let cpus = usize::try_from(cpus).unwrap_or(usize::MAX).max(1);
        Rest { hopeful: VecDeque::new(), others: BTreeMap::new(), passed_over: 0, cpus }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.hopeful.len() + self.others.len()
    }

    /// The deadline of the hopeful request that waits and is served next, in nanoseconds.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.hopeful.front()?.ticket.as_ref().map(Ticket::deadline_ns)
    }

    /// One more waits, which was let in as best-effort.
    pub(super) fn push(&mut self, entry: Entry<J>) {
        let ticket = entry.ticket.as_ref().expect(LET_IN);
        if ticket.is_hopeful() {
            self.hopeful.push_back(entry);
        } else {
            self.others.insert((ticket.deadline_ns(), ticket.number()), entry);
        }
    }

    /// Looks at whether what was expected of those that wait is so still. A request that comes now comes after those
    /// that have become hopeful.
    pub(super) fn look(&mut self, controller: &mut Controller, now_ns: u64) {
        for _ in 0..CHANGES_MAX {
            let Some(first) = self.hopeful.front_mut() else { break };
            if !controller.has_no_hope(ticket_of(first), now_ns) {
                break;
            }
            let late = self.hopeful.pop_front().expect("it was there");
            self.push(late);
        }
        let mut from = (controller.no_hope_before_ns(now_ns), 0);
        for _ in 0..CHANGES_MAX {
            let Some((key, next)) = self.others.range_mut(from..).next() else { break };
            let key = *key;
            // Where routes differ, one that costs more may have to wait for a later look.
            from = (key.0, key.1 + 1);
            if controller.has_hope(ticket_of(next), now_ns) {
                self.hopeful.extend(self.others.remove(&key));
            }
        }
    }

    /// The one to be served next, while workers are at others.
    pub(super) fn next(&mut self, controller: &mut Controller, now_ns: u64, busy: Busy) -> Option<Entry<J>> {
        if self.len() == 0 {
            return None;
        }
        self.look(controller, now_ns);
        let may_be_late = !self.others.is_empty() && self.may_be_late(controller, now_ns, &busy);
        let is_passed_over = self.passed_over >= PASSED_OVER_MAX && may_be_late;
        if !is_passed_over && !self.may_begin(controller, &busy) {
            return None;
        }
        if !is_passed_over && let Some(first) = self.hopeful.pop_front() {
            self.passed_over += u32::from(!self.others.is_empty());
            return Some(first);
        }
        if !may_be_late {
            return None;
        }
        let (_, entry) = self.others.pop_first()?;
        self.passed_over = 0;
        controller.begins(entry.ticket.as_ref().expect(LET_IN));
        Some(entry)
    }

    /// Whether the next one that is hopeful may be served. Where they only compute, more of them at once than there are
    /// CPUs end none of them sooner, and most of them later; unless it is of a route that is to be answered sooner than
    /// all that are at work.
    fn may_begin(&self, controller: &Controller, busy: &Busy) -> bool {
        let next = self.hopeful.front().and_then(|entry| entry.ticket.as_ref());
        let response_time_ns = next.map(|ticket| nanoseconds(controller.goal(ticket.route()).response_time));
        let is_short = response_time_ns < busy.shortest_ns;
        let sooner = next.map_or(0, |ticket| {
            busy.accepted_ns.iter().filter(|due_ns| **due_ns < ticket.deadline_ns()).count()
        });
        busy.all - busy.late + sooner < self.cpus || is_short || !controller.rest_computes()
    }

    /// Whether one that is not hopeful may be served.
    fn may_be_late(&self, controller: &Controller, now_ns: u64, busy: &Busy) -> bool {
        let disturbs = busy.has_accepted || busy.all > busy.late || controller.leaves_hope(now_ns);
        if !disturbs || !controller.rest_computes() {
            return true;
        }
        // Each CPU may be put to use, and one that was passed over for long enough is served all the same.
        busy.all + busy.accepted_ns.len() < self.cpus || self.passed_over >= PASSED_OVER_MAX
    }
}

const LET_IN: &str = "what is best-effort was let in";

fn ticket_of<J>(entry: &mut Entry<J>) -> &mut Ticket {
    entry.ticket.as_mut().expect(LET_IN)
}

#[cfg(test)]
mod tests;
