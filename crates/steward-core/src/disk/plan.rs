//! What is to be done about the disk, from who is there: which tasks' requests have which priority, and whether devices
//! are to order requests by it.
//!
//! It is looked once a second, and soon after somebody was given something. What each look sees comes in, and what is
//! wanted goes out; nothing is read or written here.

use std::collections::{BTreeMap, BTreeSet};

use super::guard::{Disks, Guard, Places, Taken, Where};
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
    /// What tasks are to have that are served first for the domains that they are in; a program's own specification
    /// says more of it.
    pub domains: BTreeMap<TaskId, Priority>,
    /// Whether these come first by the weights of their domains, which leave others their part. Otherwise it is by the
    /// real-time class alone, which leaves them nothing.
    pub by_weight: bool,
    /// By which domain, by path, each of their processes comes first so beside others.
    pub first_domains: BTreeMap<i32, String>,
    /// Where each process is that is to be served first, as far as that is known. Whoever is in one whose processes
    /// have taken too much and ended has no place either.
    pub places: Places,
    /// The domains that come first so now or did lately, by path.
    pub weighed_places: BTreeSet<String>,
    /// The cgroups, by path, right below which a domain is in the background: by its weight it has little beside one
    /// that comes first.
    pub with_background: BTreeSet<String>,
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
    /// The places in which all have, for what those took that have ended.
    pub set_back_places: BTreeMap<String, String>,
}

/// What is to be remembered from one look to the next.
#[derive(Clone, Debug)]
pub struct Plan {
    by_class: Guard,
    by_weight: Guard,
    /// Of those who come first by weight: who has the real-time class besides.
    besides_weight: Guard,
    /// When it was looked last what they take.
    guarded_at_ns: Option<u64>,
    /// When anybody was to be served first last.
    anybody_at_ns: Option<u64>,
    /// The tasks of domains that are served first, as it was seen last.
    of_domains: BTreeMap<TaskId, Priority>,
}

impl Seen {
    /// Programs that are to be served first, each with its process; not the kernel's threads, which work for others.
    fn first(&self) -> BTreeMap<TaskId, i32> {
        self.by_class().chain(self.by_domain()).map(|task| (task, self.process_of(task))).collect()
    }

    /// Of these, those of whom their specifications say so, by the real-time class.
    fn by_class(&self) -> impl Iterator<Item = TaskId> {
        self.named().filter(|task| !self.is_weighed(*task))
    }

    /// The others, of whom their domains do.
    fn by_domain(&self) -> impl Iterator<Item = TaskId> {
        let has_none = |task: &TaskId| !self.programs.contains_key(task) || self.is_weighed(*task);
        self.domains.keys().copied().filter(has_none)
    }

    /// Those who are served first by what their specifications say, wherever they are.
    fn named(&self) -> impl Iterator<Item = TaskId> {
        let is_first = |(task, priority): &(&TaskId, &Priority)| {
            matches!(priority, Priority::RealTime(_)) && !self.for_others.contains(task)
        };
        self.programs.iter().filter(is_first).map(|(task, _)| *task)
    }

    /// Whether a task comes first by its domain's weight, whatever level its specification has.
    fn is_weighed(&self, task: TaskId) -> bool {
        let is_last = matches!(self.programs.get(&task), Some(Priority::BestEffort(_) | Priority::Idle));
        self.by_weight && self.domains.contains_key(&task) && !is_last
    }

    /// Those who are to be served first and are in no domain that is.
    pub fn first_elsewhere(&self, domains: &BTreeMap<TaskId, Priority>) -> impl Iterator<Item = TaskId> {
        self.named().filter(move |task| !domains.contains_key(task))
    }

    /// The processes of those that are to be served first.
    pub fn first_processes(&self) -> BTreeSet<i32> {
        self.first().into_values().collect()
    }

    /// The processes of all that are to have a priority, whichever.
    pub fn all_processes(&self) -> BTreeSet<i32> {
        let tasks = self.programs.keys().chain(self.domains.keys()).chain(self.background.keys());
        tasks.map(|task| self.process_of(*task)).collect()
    }

    fn process_of(&self, task: TaskId) -> i32 {
        self.processes.get(&task).copied().unwrap_or(task.tid)
    }
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            by_class: Guard::by_class(),
            by_weight: Guard::by_weight(),
            besides_weight: Guard::besides_weight(),
            guarded_at_ns: None,
            anybody_at_ns: None,
            of_domains: BTreeMap::new(),
        }
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
        let first = seen.first();
        let by_weight: BTreeSet<i32> = match seen.by_weight {
            true => seen.by_domain().map(|task| seen.process_of(task)).collect(),
            false => BTreeSet::new(),
        };
        let mut priorities = seen.domains.clone();
        priorities.extend(seen.programs.iter().filter(|(task, _)| !seen.is_weighed(**task)));
        // What has left a domain that is served first, or is in it no longer served so, was born with its priority.
        let has_left = |(task, _): &(&TaskId, &Priority)| !priorities.contains_key(*task);
        let left =
            self.of_domains.iter().filter(has_left).map(|(task, priority)| (*task, *priority)).collect();
        self.of_domains = seen.domains;
        if let Some((disks, taken)) = taken {
            self.guarded_at_ns = Some(now_ns);
            let (weighed, classed): (BTreeMap<i32, Taken>, _) =
                taken.iter().partition(|(pid, _)| by_weight.contains(pid));
            let (weighed_disks, classed_disks) = ended_apart(disks, &seen.weighed_places);
            let at = Where {
                places: &seen.places,
                domains: &seen.first_domains,
                with_background: &seen.with_background,
            };
            self.by_weight.look(now_ns, &weighed_disks, &weighed, at);
            let at = Where { domains: &BTreeMap::new(), with_background: &BTreeSet::new(), ..at };
            self.by_class.look(now_ns, &classed_disks, &classed, at);
            self.besides_weight.look(now_ns, &weighed_disks, &weighed, at);
        }
        let lost = |(task, pid): (&TaskId, &i32)| {
            let guard = if by_weight.contains(pid) { &self.by_weight } else { &self.by_class };
            let place = seen.places.get(pid).map(String::as_str);
            Some((*task, guard.set_back_for(*pid, place)?.to_owned()))
        };
        let set_back: BTreeMap<TaskId, String> = first.iter().filter_map(lost).collect();
        priorities.extend(set_back.keys().map(|task| (*task, Priority::SET_BACK)));
        // Who takes much has what its domain's weight gives it, and keeps that.
        let has_much = |(task, pid): (&TaskId, &i32)| {
            let place = seen.places.get(pid).map(String::as_str);
            let lost = by_weight.contains(pid) && self.besides_weight.set_back_for(*pid, place).is_some();
            lost.then_some((*task, Priority::SET_BACK))
        };
        priorities.extend(first.iter().filter_map(has_much));
        priorities.extend(&seen.background);
        if !first.is_empty() {
            self.anybody_at_ns = Some(now_ns);
        }
        let lately = self.anybody_at_ns.is_some_and(|at_ns| now_ns < at_ns + STAYS_FOR_NS);
        let ordered = (lately || seen.has_weights) && seen.may_order;
        if !lately {
            // The kernel's threads that work for others have it for as long as that, and not only while somebody waits:
            // the elevator makes one queue of a journal's thread and a program whose requests lie near to its own, and
            // a class that the thread is given then is the program's as well, for good.
            priorities.retain(|_, priority| !matches!(priority, Priority::RealTime(_)));
        }
        let places = self.by_weight.set_back_places().chain(self.by_class.set_back_places());
        let set_back_places = places.map(|(place, disk)| (place.to_owned(), disk.to_owned())).collect();
        Decision { priorities, ordered, waits: ordered && lately, left, set_back, set_back_places }
    }
}

/// The disks with what those had who have ended in one of these domains, which come first by their weights, and with
/// what the others had.
fn ended_apart(disks: &Disks, domains: &BTreeSet<String>) -> (Disks, Disks) {
    let of = |is_weighed: bool| {
        let mut disks = disks.clone();
        for disk in disks.values_mut() {
            disk.ended.retain(|place, _| domains.contains(place) == is_weighed);
        }
        disks
    };
    (of(true), of(false))
}

#[cfg(test)]
mod tests {
    use super::super::guard::Disk;
    use super::*;

    const S: u64 = 1_000_000_000;

    fn task(tid: i32) -> TaskId {
        TaskId { tid, started_ticks: 1 }
    }

    /// The task 1 in a domain that comes first, by its weight or by class.
    fn in_domain(by_weight: bool) -> Seen {
        let domains = BTreeMap::from([(task(1), Priority::OF_DOMAIN)]);
        Seen { domains, by_weight, may_order: true, ..Seen::default() }
    }

    #[test]
    fn who_comes_first_by_weight_keeps_its_place_as_long_as_that_leaves_others_their_part() {
        let loses_beside = |by_weight: bool, had: &[(&str, f64)], with_background: &[&str]| {
            let mut plan = Plan::default();
            let had_by = (1..).zip(had.iter().map(|(_, part)| *part)).collect();
            let disk = Disk {
                busy: 1.0,
                bytes: 1 << 20,
                requests: 9,
                serves_first: true,
                had: Some(had_by),
                ..Disk::default()
            };
            let disks = Disks::from([("sda".to_owned(), disk)]);
            let in_any = in_domain(by_weight);
            let tasks = (1..).zip(had).map(|(tid, _)| (task(tid), in_any.domains[&task(1)]));
            let seen = Seen {
                domains: tasks.collect(),
                first_domains: (1..).zip(had).map(|(pid, (path, _))| (pid, (*path).to_owned())).collect(),
                with_background: with_background.iter().map(|path| (*path).to_owned()).collect(),
                ..in_any
            };
            let taken: BTreeMap<i32, Taken> =
                (1..).zip(had).map(|(pid, _)| (pid, Taken::default())).collect();
            let looks = (0..4).map(|second| plan.decide(second * S, seen.clone(), Some((&disks, &taken))));
            looks.last().is_some_and(|last| last.set_back.contains_key(&task(1)))
        };
        let loses = |by_weight: bool, had: &[(&str, f64)]| loses_beside(by_weight, had, &[]);
        // A hundredth is due to one in the background, and a tenth when the other one has lost its place.
        for (had, above, lost) in [
            (&[("a", 0.99)][..], "", true),
            (&[("a", 0.92)], "", false),
            (&[("a", 0.99)], "u", false),
            (&[("u/a", 0.99)], "u", true),
        ] {
            assert_eq!(loses_beside(true, had, &[above]), lost, "{had:?} {above:?}");
        }
        // Ten elevenths are due to one beside one that has the usual weight.
        for (by_weight, had, lost) in [
            (true, &[("a", 0.9), ("b", 0.01), ("c", 0.01)][..], false),
            (true, &[("a", 0.95), ("b", 0.01), ("c", 0.01)], true),
            (true, &[("a", 0.97), ("b", 0.01)], false),
            // Who wants nothing of the disk takes nothing from anybody.
            (true, &[("a", 0.97), ("b", 0.01), ("c", 0.0)], false),
            // Two processes are no more than the domain that they are in.
            (true, &[("a", 0.95), ("b", 0.01), ("b", 0.01)], false),
            // Who is within another cgroup comes first there alone.
            (true, &[("u/a", 0.95), ("u/b", 0.01), ("u/c", 0.01)], true),
            (true, &[("a", 0.95), ("b", 0.01), ("u/c", 0.01)], false),
            (false, &[("a", 0.92)], true),
            (false, &[("a", 0.4)], false),
        ] {
            assert_eq!(loses(by_weight, had), lost, "{by_weight} {had:?}");
        }
    }

    #[test]
    fn who_takes_much_by_the_weight_of_its_domain_keeps_that_and_loses_the_class_for_a_minute() {
        let mut plan = Plan::default();
        let disk = |had: f64| {
            let had = Some(BTreeMap::from([(1, had)]));
            let disk =
                Disk { busy: 1.0, bytes: 1 << 20, requests: 9, serves_first: true, had, ..Disk::default() };
            Disks::from([("sda".to_owned(), disk)])
        };
        let taken = BTreeMap::from([(1, Taken::default())]);
        let mut look = |second: u64, had: f64| {
            let decision = plan.decide(second * S, in_domain(true), Some((&disk(had), &taken)));
            assert!(decision.set_back.is_empty() && decision.set_back_places.is_empty(), "its place");
            decision.priorities[&task(1)]
        };
        assert_eq!([(0, 0.9), (1, 0.4), (2, 0.9)].map(|(at, had)| look(at, had)), [Priority::OF_DOMAIN; 3]);
        assert_eq!([(3, 0.9), (30, 0.1), (62, 0.1)].map(|(at, had)| look(at, had)), [Priority::SET_BACK; 3]);
        assert_eq!(look(63, 0.1), Priority::OF_DOMAIN);
    }

    #[test]
    fn a_journal_is_first_from_when_somebody_is_until_half_a_minute_after_whoever_has_weights() {
        let mut plan = Plan::default();
        let journal = Priority::FOR_OTHERS;
        let with_journal = |seen: Seen| Seen {
            programs: BTreeMap::from([(task(2), journal)]),
            for_others: BTreeSet::from([task(2)]),
            has_weights: true,
            ..seen
        };
        let mut is_first = |second: u64, seen: Seen| {
            let decision = plan.decide(second * S, with_journal(seen), None);
            assert!(decision.ordered, "for the weights");
            decision.priorities.contains_key(&task(2))
        };
        let nobody = || Seen { may_order: true, ..Seen::default() };
        assert!(!is_first(0, nobody()) && is_first(1, in_domain(true)));
        assert!(is_first(30, nobody()) && !is_first(31, nobody()));
    }

    #[test]
    fn in_a_domain_that_comes_first_by_weight_no_level_of_a_specification_counts_but_the_last() {
        for (by_weight, named, has) in [
            (true, Priority::RealTime(2), Priority::OF_DOMAIN),
            (true, Priority::BestEffort(7), Priority::BestEffort(7)),
            (false, Priority::RealTime(2), Priority::RealTime(2)),
        ] {
            let programs = BTreeMap::from([(task(1), named)]);
            let seen = Seen { programs, ..in_domain(by_weight) };
            let decision = Plan::default().decide(0, seen, None);
            assert_eq!(decision.priorities, BTreeMap::from([(task(1), has)]));
            // In both ways somebody is waited for, unless they are the last.
            assert_eq!(decision.waits, named != Priority::BestEffort(7));
        }
    }

    #[test]
    fn whom_a_specification_brings_first_outside_of_such_domains_is_told_and_the_kernels_threads_are_not() {
        let named =
            |tid| Seen { programs: BTreeMap::from([(task(tid), Priority::RealTime(2))]), ..Seen::default() };
        let domains = in_domain(true).domains;
        let elsewhere = |seen: &Seen| seen.first_elsewhere(&domains).collect::<Vec<TaskId>>();
        assert_eq!(elsewhere(&named(2)), [task(2)]);
        assert!(elsewhere(&named(1)).is_empty());
        let journal = Seen { for_others: BTreeSet::from([task(2)]), ..named(2) };
        assert!(elsewhere(&journal).is_empty());
    }
}
