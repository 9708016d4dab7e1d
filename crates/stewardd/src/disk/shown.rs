//! What disks did for domains and who waited for them, as it is told: by domain, and without the names of those whom
//! the caller may not see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use libsteward::api;
use steward_core::authority::{Action, Request};
use steward_core::disk::explain::{Holder, Lately, Waited, explain_lately, explain_wait};
use steward_core::disk::minute::{ByCgroup, Done};
use steward_core::disk::waits::Reason;
use steward_core::printable::printable;
use steward_core::resource::Resource;
use steward_kernel::cgroup::tree::Cgroup;

use super::counting::{Judged, News};
use crate::daemon::Daemon;
use crate::domains::reading::{Group, Groups};
use crate::server::peer::Caller;
use crate::turn::clock::now_ns;

/// How many waits are told of, the latest, and for how long, in nanoseconds: a process may have got the number of one
/// that has gone.
const TOLD_MAX: usize = 5;
const TOLD_FOR_NS: u64 = 600_000_000_000;

impl Daemon {
    /// Has it be counted while it is wanted, and takes in what is new.
    pub(super) fn tick_counting(&mut self, now_ns: u64) {
        let (is_in_use, knobs) = (self.disk.is_in_use(), Arc::clone(&self.disk.knobs));
        let news = self.disk.counting.tick(now_ns, is_in_use, &knobs, &self.options.roots);
        let Some(news) = news else { return };
        self.look_for_groups(&news, now_ns);
        let groups = &self.cpu.sampler.groups;
        let mut lately: BTreeMap<Arc<str>, Lately> = BTreeMap::new();
        for_each_above(groups, &news.minute, |group, done| {
            let lately = lately.entry(Arc::clone(&group.about.path)).or_default();
            lately.seen_ns = news.seen_ns;
            lately.done.add(done);
        });
        self.domains.disk_lately = lately;
        let places: BTreeSet<String> = self.domains.places().into_iter().map(|(path, _)| path).collect();
        let totals = &mut self.disk.totals;
        totals.retain(|path, _| places.contains(&**path));
        for_each_above(groups, &news.new, |group, done| {
            if places.contains(&*group.about.path) {
                let total = totals.entry(Arc::clone(&group.about.path)).or_default();
                total.device_ns = total.device_ns.saturating_add(done.device_ns);
            }
        });
        for Judged { wait, verdict } in &news.over {
            let above =
                at_and_above(groups, wait.cgroup_id).filter(|group| places.contains(&*group.about.path));
            for group in above {
                let total = totals.entry(Arc::clone(&group.about.path)).or_default();
                let (count, waited_ns) = total.waits.entry(verdict.reason).or_default();
                *count += 1;
                *waited_ns = waited_ns.saturating_add(wait.waited_ns());
            }
        }
    }

    /// Looks for cgroups that are not known, some at a time.
    fn look_for_groups(&mut self, news: &News, now_ns: u64) {
        let over = news.over.iter().chain(&self.disk.counting.waiting);
        let named = over.flat_map(|Judged { wait, verdict }| {
            verdict.by.iter().map(|part| part.cgroup_id).chain([wait.cgroup_id])
        });
        let groups = &mut self.cpu.sampler.groups;
        if news.minute.keys().copied().chain(named).any(|id| groups.index(id).is_none()) {
            groups.look_until_whole(&self.domains, now_ns);
            groups.take_over(&self.domains, now_ns);
        }
    }

    /// What requests of a domain took lately, and who in it waited for the disk; each line ends. Whoever asks has it
    /// counted for a while.
    pub(crate) fn explain_disk_lately(&mut self, caller: &Caller, cgroup: &Cgroup) -> String {
        self.disk.counting.ask(now_ns());
        let path = cgroup.path.as_str();
        let nothing = Lately { seen_ns: self.disk.counting.seen_ns, ..Lately::default() };
        let lately = self.domains.disk_lately.get(path);
        let lately = lately.or_else(|| self.disk.counting.has_counted().then_some(&nothing));
        let dirty_bytes = self.domains.cgroups().ok().and_then(|cgroups| cgroups.dirty_bytes(path));
        let mut text = explain_lately(lately, dirty_bytes);
        let waits = self.waits_below(path);
        text.extend(waits.iter().map(|judged| explain_wait(&self.waited(caller, judged))));
        text + &self.uncounted()
    }

    /// Who of a process waited for the disk; each line ends.
    pub(crate) fn explain_disk_of(&mut self, caller: &Caller, pid: i32) -> String {
        self.disk.counting.ask(now_ns());
        let waits = self.waits_of(pid);
        let text: String = waits.iter().map(|judged| explain_wait(&self.waited(caller, judged))).collect();
        text + &self.uncounted()
    }

    /// Why not all of that can be told.
    fn uncounted(&self) -> String {
        let counting = &self.disk.counting;
        match &counting.problem {
            Some(why) => format!("What disks do is not all told: {why}.\n"),
            None if !counting.has_counted() => {
                "What disk requests take, and who waits for whom, is counted from now on, as somebody asks.\n"
                    .to_owned()
            }
            None => String::new(),
        }
    }

    /// The waits of a process that are told of.
    pub(crate) fn disk_waits_of(&self, caller: &Caller, pid: i32) -> Vec<api::DiskWait> {
        self.waits_of(pid).iter().map(|judged| self.shown_wait(caller, judged)).collect()
    }

    /// The waits of a domain with all below it that are told of.
    pub(crate) fn disk_waits_below(&self, caller: &Caller, path: &str) -> Vec<api::DiskWait> {
        self.waits_below(path).iter().map(|judged| self.shown_wait(caller, judged)).collect()
    }

    fn waits_of(&self, pid: i32) -> Vec<Judged> {
        self.waits(|judged| judged.wait.pid == pid)
    }

    fn waits_below(&self, path: &str) -> Vec<Judged> {
        let groups = &self.cpu.sampler.groups;
        self.waits(|judged| {
            at_and_above(groups, judged.wait.cgroup_id).any(|group| &*group.about.path == path)
        })
    }

    /// Those of these who wait, and who waited last; those who still do come last.
    fn waits(&self, is_meant: impl Fn(&Judged) -> bool) -> Vec<Judged> {
        let counting = &self.disk.counting;
        let waiting = counting.waiting.iter().filter(|judged| is_meant(judged));
        let since_ns = now_ns().saturating_sub(TOLD_FOR_NS);
        let over =
            counting.over.iter().rev().filter(|judged| judged.wait.ended_ns > since_ns && is_meant(judged));
        let mut latest: Vec<Judged> = waiting.chain(over).take(TOLD_MAX).cloned().collect();
        latest.reverse();
        latest
    }

    /// A wait as this caller may know it: all whom it may not see are one, without a name.
    fn waited(&self, caller: &Caller, Judged { wait, verdict }: &Judged) -> Waited {
        let (mut by, mut others_ns): (Vec<Holder>, u64) = (Vec::new(), 0);
        for part in &verdict.by {
            let group = at_and_above(&self.cpu.sampler.groups, part.cgroup_id).next();
            match group.filter(|group| self.may_see_disk_of(caller, &group.about.path)) {
                None => others_ns = others_ns.saturating_add(part.device_ns),
                Some(group) => by.push(Holder {
                    domain: Some(group.about.name.clone()),
                    program: part.program.as_deref().map(|program| printable(program).into_owned()),
                    device_ns: part.device_ns,
                }),
            }
        }
        by.extend((others_ns > 0).then_some(Holder { device_ns: others_ns, ..Holder::default() }));
        by.sort_by_key(|holder| std::cmp::Reverse(holder.device_ns));
        Waited {
            name: printable(&wait.name).into_owned(),
            pid: wait.pid,
            waited_ns: wait.waited_ns(),
            journal_ns: wait.journal_ns,
            dirty_ns: wait.dirty_ns,
            ago_ns: (!wait.goes_on).then(|| now_ns().saturating_sub(wait.ended_ns)),
            reason: verdict.reason,
            own_ns: verdict.own_ns,
            by,
        }
    }

    fn shown_wait(&self, caller: &Caller, judged: &Judged) -> api::DiskWait {
        let Waited { name, pid, waited_ns, journal_ns, dirty_ns, ago_ns, reason, own_ns, by } =
            self.waited(caller, judged);
        let holder = |Holder { domain, program, device_ns }: Holder| api::DiskHolder {
            domain,
            program,
            device_time_ns: device_ns,
        };
        api::DiskWait {
            pid,
            name,
            goes_on: ago_ns.is_none(),
            at_ns: judged.wait.ended_ns,
            waited_ns,
            journal_ns,
            dirty_ns,
            reason: shown_reason(reason),
            own_time_ns: own_ns,
            by: by.into_iter().map(holder).collect(),
        }
    }

    /// Whether a caller may see what a domain does with the disk, without anybody being asked.
    fn may_see_disk_of(&self, caller: &Caller, path: &str) -> bool {
        let cgroup = self.domains.cgroups().ok().and_then(|cgroups| cgroups.find(path).ok());
        // Of one that has gone nobody knows whose it was.
        let Some(cgroup) = cgroup else { return false };
        let (target, about) = self.target(caller, &cgroup);
        self.is_own_domain(caller, &cgroup)
            || self.is_permitted(caller, &Request::new(Action::Read, Resource::Disk, target, about))
    }
}

/// As the API has it.
fn shown_reason(reason: Reason) -> api::DiskWaitReason {
    match reason {
        Reason::Queue => api::DiskWaitReason::Queue,
        Reason::DirtyLimit => api::DiskWaitReason::DirtyLimit,
        Reason::Journal => api::DiskWaitReason::Journal,
    }
}

/// The cgroup with this id and those above it; of one that is not known, the root.
fn at_and_above(groups: &Groups, cgroup_id: u64) -> impl Iterator<Item = &Group> {
    let first = groups.all().get(groups.index(cgroup_id).unwrap_or(0));
    std::iter::successors(first, |group| groups.all().get(group.parent?))
}

/// Calls with each cgroup that had something and each above it.
fn for_each_above(groups: &Groups, done: &ByCgroup, mut each: impl FnMut(&Group, &Done)) {
    for (cgroup_id, done) in done {
        at_and_above(groups, *cgroup_id).for_each(|group| each(group, done));
    }
}

#[cfg(test)]
mod tests;
