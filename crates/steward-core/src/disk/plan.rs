//! What is to be done about the disk, from who is there: which tasks' requests have which priority, and whether devices
//! are to order requests by it.
//!
//! It is looked once a second, and soon after somebody was given something. What each look sees comes in, and what is
//! wanted goes out; nothing is read or written here.

use std::collections::{BTreeMap, BTreeSet};

use super::guard::{Disks, Guard, SET_BACK_TO, Taken};
use super::priority::Priority;
use crate::process::TaskId;

/// How long devices stay ordered after the last one who is served first has ended, in nanoseconds: who opens one file
/// after the other would find them being given another elevator, which waits for all requests that are under way. In
/// between nobody is kept from the disk by it.
const STAYS_FOR_NS: u64 = 30_000_000_000;
/// How far looks at how much they take are apart at least, in nanoseconds.
const GUARD_EVERY_NS: u64 = 900_000_000;

/// What is seen at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What tasks are to have by their programs' specifications.
    pub programs: BTreeMap<TaskId, Priority>,
    /// Of these, the kernel's threads, which work for others.
    pub for_others: BTreeSet<TaskId>,
    /// What tasks are to have by the domains that they are in; a program's own specification says more of it.
    pub domains: BTreeMap<TaskId, Priority>,
    /// The process of each of these tasks that is not its first thread.
    pub processes: BTreeMap<TaskId, i32>,
    /// What is in the background without a reservation, by specifications.
    pub background: BTreeMap<TaskId, Priority>,
    /// Whether any domain is to have a weight.
    pub has_weights: bool,
    /// Whether devices may be given another order.
    pub may_order: bool,
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The priority of each task that is to have one of Steward's.
    pub priorities: BTreeMap<TaskId, Priority>,
    /// Whether devices are to order requests by class.
    pub ordered: bool,
    /// Whether somebody is to be served first, for whose next request a device may be kept idle.
    pub waits: bool,
    /// Tasks that are no longer to have what they were born with in their domain.
    pub left: BTreeMap<TaskId, Priority>,
    /// Those who have lost their place for a while, each with the name of the disk that they took most of.
    pub set_back: BTreeMap<TaskId, String>,
}

/// What is to be remembered from one look to the next.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    guard: Guard,
    /// When it was looked last what they take.
    guarded_at_ns: Option<u64>,
    /// When anybody was to be served first last.
    anybody_at_ns: Option<u64>,
    /// The tasks of domains that are served first, as it was seen last.
    of_domains: BTreeMap<TaskId, Priority>,
}

impl Seen {
    /// Programs that are to be served first; not the kernel's threads, which work for others.
    pub fn first(&self) -> BTreeSet<TaskId> {
        let is_first = |(task, priority): &(&TaskId, &Priority)| {
            matches!(priority, Priority::RealTime(_)) && !self.for_others.contains(task)
        };
        let beside = self.domains.iter().filter(|(task, _)| !self.programs.contains_key(task));
        self.programs.iter().chain(beside).filter(is_first).map(|(task, _)| *task).collect()
    }

    /// The processes of those that are to be served first.
    pub fn first_processes(&self) -> BTreeSet<i32> {
        self.first().into_iter().map(|task| self.process_of(task)).collect()
    }

    fn process_of(&self, task: TaskId) -> i32 {
        self.processes.get(&task).copied().unwrap_or(task.tid)
    }
}

impl Plan {
    /// Whether it is time to look what those who are served first take.
    pub fn guard_is_due(&self, now_ns: u64) -> bool {
        self.guarded_at_ns.is_none_or(|at_ns| now_ns >= at_ns + GUARD_EVERY_NS)
    }

    /// Decides about a look. `taken` is what the [processes](Seen::first_processes) that are served first have had so
    /// far, and what the disks did since it was said last, where it is [due](Plan::guard_is_due).
    pub fn decide(
        &mut self,
        now_ns: u64,
        seen: Seen,
        taken: Option<(&Disks, &BTreeMap<i32, Taken>)>,
    ) -> Decision {
        let first: BTreeMap<TaskId, i32> =
            seen.first().into_iter().map(|task| (task, seen.process_of(task))).collect();
        let mut priorities = seen.domains.clone();
        priorities.extend(&seen.programs);
        // What has left a domain that is served first, or is in it no longer served so, was born with its priority.
        let has_left = |(task, _): &(&TaskId, &Priority)| !priorities.contains_key(*task);
        let left =
            self.of_domains.iter().filter(has_left).map(|(task, priority)| (*task, *priority)).collect();
        self.of_domains = seen.domains;
        if let Some((disks, taken)) = taken {
            self.guarded_at_ns = Some(now_ns);
            self.guard.look(now_ns, disks, taken);
        }
        let lost = |(task, pid): (&TaskId, &i32)| Some((*task, self.guard.set_back_for(*pid)?.to_owned()));
        let set_back: BTreeMap<TaskId, String> = first.iter().filter_map(lost).collect();
        priorities.extend(set_back.keys().map(|task| (*task, SET_BACK_TO)));
        priorities.extend(&seen.background);
        if first.is_empty() {
            // Nobody waits for the kernel's own threads who is to come first.
            priorities.retain(|_, priority| !matches!(priority, Priority::RealTime(_)));
        } else {
            self.anybody_at_ns = Some(now_ns);
        }
        let lately = self.anybody_at_ns.is_some_and(|at_ns| now_ns < at_ns + STAYS_FOR_NS);
        let ordered = (lately || seen.has_weights) && seen.may_order;
        Decision { priorities, ordered, waits: ordered && lately, left, set_back }
    }
}
