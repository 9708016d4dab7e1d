//! The tree of cgroups as forecasts need it: what each has, what it is called and whose it is.
//!
//! What the kernel's files say of cgroups is [kept](super::survey), and looked at in pieces where it has changed. What
//! is made of it here stands for a second, unless somebody asks about a cgroup that is not in it, tasks are in one, or
//! something was changed through the daemon. What the scheduler itself knows of domains is asked for every time.

use std::collections::HashMap;
use std::sync::Arc;

use steward_core::cpu::forecast::{Changed, DomainSample, TaskReading, TaskSample};
use steward_core::cpu::mechanism::DomainRecord;
use steward_core::cpu::policy::DomainPolicy;
use steward_core::domain::name;
use steward_kernel::cgroup::changes::CgroupChanges;
use steward_kernel::cgroup::reading::CpuShare;
use steward_kernel::cgroup::tree::Cgroup;

use crate::domains::Domains;
use crate::domains::survey::{Seen, Survey};
use crate::turn::clock::now_ns;

/// How old what is known of cgroups may be for an answer, in nanoseconds.
const KEPT_FOR_NS: u64 = 1_000_000_000;
/// How soon after the last look a task in an unknown cgroup is reason for another, in nanoseconds.
const UNKNOWN_AFTER_NS: u64 = 90_000_000;
/// How many pieces are looked at for an answer before it is made of what is known: whoever changes the tree without end
/// holds up nobody else's.
pub(crate) const PIECES_MAX: usize = 8;
/// `cpu.weight` of a cgroup that nobody gave one.
const WEIGHT_DEFAULT: u32 = 100;
/// What a cgroup with `cpu.idle` weighs: the least that there is (the kernel takes 3 of 1024).
const WEIGHT_IDLE: u32 = 1;
/// The id that stands for the root where there are no cgroups. The kernel's own root has it too.
const ROOT_ID: u64 = 1;

/// A cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// What stays as it is for most.
    pub(crate) about: Arc<About>,
    /// The index of the one above it.
    pub(crate) parent: Option<usize>,
    /// The fraction of the machine that is guaranteed to it, 0 when nothing is.
    pub(crate) guaranteed: f64,
    /// As the kernel's own files say.
    sample: DomainSample,
    /// `cpu.weight`, where it has one.
    pub(crate) kernel_weight: Option<u32>,
    /// The user that its directory belongs to.
    uid: u32,
}

/// What a cgroup is called, and whose it is.
#[derive(Debug)]
pub(crate) struct About {
    /// From the root of the hierarchy, without a leading slash.
    pub(crate) path: Arc<str>,
    /// The name of the domain that it belongs to: a leaf's is its parent's.
    pub(crate) name: String,
    /// Whether it is a domain, and not the leaf of one.
    pub(crate) is_domain: bool,
    /// The users whose it is: its own and those of all above it.
    users: Vec<u32>,
}

impl Group {
    /// Whether the user owns it, or a domain above it.
    pub(crate) fn belongs_to(&self, uid: u32) -> bool {
        self.about.users.contains(&uid)
    }

    /// The cgroup's id.
    pub(crate) fn cgroup_id(&self) -> u64 {
        self.sample.cgroup_id
    }

    /// The users whose it is: its own, then those of all above it, nearest first.
    pub(crate) fn users(&self) -> &[u32] {
        &self.about.users
    }

    /// The user that it belongs to itself.
    pub(crate) fn user(&self) -> Option<u32> {
        self.about.users.first().copied()
    }

    /// The cgroup itself.
    pub(crate) fn cgroup(&self) -> Cgroup {
        Cgroup { path: self.about.path.to_string(), id: self.cgroup_id(), uid: self.uid }
    }
}

/// All cgroups, parents before children.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    survey: Survey,
    /// Shared with answers that are being made from them.
    groups: Arc<Vec<Group>>,
    by_id: HashMap<u64, usize>,
    /// What they were made of, and when.
    made_of: Option<MadeOf>,
    generation: u64,
    /// When something was changed through the daemon last.
    invalid_since_ns: u64,
    /// When unknown ones were looked for last.
    sought_at_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct MadeOf {
    at_ns: u64,
    revision: u64,
    was_whole: bool,
}

impl Groups {
    /// From now on changes are told of by this.
    pub(crate) fn watch(&mut self, changes: Option<CgroupChanges>) {
        self.survey.watch(changes);
    }

    /// A number that changes when their places may.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// All of them, in the order of [`Groups::samples`].
    pub(crate) fn all(&self) -> &[Group] {
        &self.groups
    }

    /// The same, as they stay for whoever holds on to them.
    pub(crate) fn shared(&self) -> Arc<Vec<Group>> {
        Arc::clone(&self.groups)
    }

    /// The index of the cgroup with this id.
    pub(crate) fn index(&self, cgroup_id: u64) -> Option<usize> {
        self.by_id.get(&cgroup_id).copied()
    }

    /// Something was changed through the daemon.
    pub(crate) fn invalidate(&mut self) {
        self.invalid_since_ns = now_ns();
        self.made_of = None;
    }

    /// Looks at some of what has changed, unless what is known will do for an answer of this moment, for which so many
    /// pieces were looked at. Returns whether it will do now.
    pub(crate) fn look(&mut self, domains: &Domains, pieces: usize) -> bool {
        let since_ns = now_ns().saturating_sub(KEPT_FOR_NS).max(self.invalid_since_ns);
        if self.survey.is_whole_since(since_ns) {
            return true;
        }
        self.survey.go_on(domains.cgroups().ok());
        self.survey.is_whole_since(since_ns) || (pieces >= PIECES_MAX && self.survey.was_whole())
    }

    /// Looks at some of what has changed, until all that was changed before this moment is known, which is what is
    /// returned.
    pub(crate) fn look_until_whole(&mut self, domains: &Domains, since_ns: u64) -> bool {
        if !self.survey.is_whole_since(since_ns) {
            self.survey.go_on(domains.cgroups().ok());
        }
        self.survey.is_whole_since(since_ns)
    }

    /// Has all that is known be among them.
    pub(crate) fn take_over(&mut self, domains: &Domains, now_ns: u64) {
        if self.made_of.is_none_or(|made_of| made_of.revision != self.survey.revision()) {
            self.make(domains, now_ns);
        }
    }

    /// Looks for a cgroup that somebody asks about when it is not known.
    pub(crate) fn ensure(&mut self, cgroup: &Cgroup, domains: &Domains, now_ns: u64) {
        if self.index(cgroup.id).is_some() && self.made_of.is_some() {
            return;
        }
        if self.survey.get(cgroup.id).is_none()
            && let Ok(cgroups) = domains.cgroups()
        {
            if !self.survey.was_whole() {
                self.survey.go_on(Some(cgroups));
            }
            self.survey.look_at(&cgroup.path, cgroups);
        }
        self.make(domains, now_ns);
    }

    /// To be called often: looks at some of what has changed, now and then.
    pub(crate) fn go_on_at_rest(&mut self, domains: &Domains, now_ns: u64) {
        self.survey.go_on_at_rest(domains.cgroups().ok(), now_ns);
    }

    /// When [`Groups::go_on_at_rest`] has something to do that nothing else announces.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        self.survey.wake_at_ns()
    }

    /// Looks for new cgroups when tasks are in one that is not known.
    pub(crate) fn adopt(&mut self, reading: &TaskReading<'_>, domains: &Domains, now_ns: u64) {
        if now_ns.saturating_sub(self.sought_at_ns) < UNKNOWN_AFTER_NS {
            return;
        }
        let mut last_id = 0;
        let mut is_unknown = |sample: &TaskSample| {
            let differs = sample.cgroup_id != last_id;
            last_id = sample.cgroup_id;
            differs && !self.by_id.contains_key(&sample.cgroup_id)
        };
        let is_missing = match reading.changed {
            Changed::All => reading.tasks.iter().any(&mut is_unknown),
            Changed::At(places) => places.iter().any(|place| is_unknown(&reading.tasks[*place as usize])),
        };
        if is_missing {
            self.sought_at_ns = now_ns;
            self.survey.go_on(domains.cgroups().ok());
            self.take_over(domains, now_ns);
        }
    }

    /// All of them as the models need them: as `records` of the scheduler say, where it knows them.
    pub(crate) fn samples(
        &mut self,
        domains: &Domains,
        records: Option<&[DomainRecord]>,
        now_ns: u64,
    ) -> Vec<DomainSample> {
        if self.is_old(now_ns) {
            self.make(domains, now_ns);
        }
        let mut samples: Vec<DomainSample> = self.groups.iter().map(|group| group.sample.clone()).collect();
        let Some(records) = records else { return samples };
        for sample in samples.iter_mut().filter(|sample| sample.parent_id != 0) {
            // Unless it says otherwise below, the scheduler does not see it as a group.
            sample.policy = DomainPolicy { weight: None, ..DomainPolicy::default() };
        }
        for record in records {
            if let Some(index) = self.index(record.cgroup_id) {
                let weight = Some(record.policy.weight.unwrap_or(WEIGHT_DEFAULT));
                samples[index].policy = DomainPolicy { weight, ..record.policy };
            }
        }
        samples
    }

    fn is_old(&self, now_ns: u64) -> bool {
        let Some(made_of) = self.made_of else { return true };
        let is_partial = self.survey.was_whole() && !made_of.was_whole;
        made_of.revision != self.survey.revision()
            && (is_partial || now_ns.saturating_sub(made_of.at_ns) >= KEPT_FOR_NS)
    }

    fn make(&mut self, domains: &Domains, now_ns: u64) {
        let before = std::mem::take(&mut self.by_id);
        let seen = self.survey.all();
        let given = domains.users_given();
        let mut guarantees = None;
        let mut groups: Vec<Group> = Vec::with_capacity(seen.len().max(1));
        for seen in seen {
            let parent = self.by_id.get(&seen.parent_id).copied();
            let old = before.get(&seen.cgroup_id).map(|index| &self.groups[*index]);
            let user = given.get(&seen.cgroup_id).copied();
            let user = user.or_else(|| name::user_of_slice(&seen.path)).unwrap_or(seen.uid);
            let about = about(&seen.path, user, parent.map(|parent| &groups[parent]), old, domains);
            self.by_id.insert(seen.cgroup_id, groups.len());
            groups.push(Group {
                about,
                parent,
                guaranteed: 0.0,
                sample: sample(seen),
                kernel_weight: seen.share.weight.and_then(|weight| u32::try_from(weight).ok()),
                uid: seen.uid,
            });
        }
        if groups.is_empty() {
            groups.push(nothing_but_the_root(domains));
            self.by_id.insert(ROOT_ID, 0);
        }
        for (path, cgroup_id) in domains.reserved() {
            if let Some(index) = self.by_id.get(&cgroup_id) {
                let guarantees = guarantees.get_or_insert_with(|| domains.guarantees_among(&groups));
                groups[*index].guaranteed = guarantees.get(path).copied().unwrap_or(0.0);
            }
        }
        let (revision, was_whole) = (self.survey.revision(), self.survey.was_whole());
        self.made_of = Some(MadeOf { at_ns: now_ns, revision, was_whole });
        self.generation += 1;
        self.groups = Arc::new(groups);
    }
}

/// What a cgroup is called and whose it is: as before, where that is the same.
fn about(
    path: &Arc<str>,
    user: u32,
    above: Option<&Group>,
    old: Option<&Group>,
    domains: &Domains,
) -> Arc<About> {
    // The root belongs to root, which says nothing about those below.
    let above = above.filter(|above| !above.about.path.is_empty());
    let users_above = above.map_or(&[][..], |above| &above.about.users);
    let is_same = |old: &&Group| old.about.users.split_first() == Some((&user, users_above));
    if let Some(old) = old.filter(|old| Arc::ptr_eq(&old.about.path, path)).filter(is_same) {
        return Arc::clone(&old.about);
    }
    Arc::new(About {
        path: Arc::clone(path),
        name: domains.names().name_of(name::domain_of(path)),
        is_domain: name::domain_of(path) == &**path,
        users: [&[user], users_above].concat(),
    })
}

/// The root, where there are no cgroups.
fn nothing_but_the_root(domains: &Domains) -> Group {
    let about = About { path: "".into(), name: domains.names().name_of(""), is_domain: true, users: vec![0] };
    let policy = DomainPolicy { weight: Some(WEIGHT_DEFAULT), ..DomainPolicy::default() };
    let sample = DomainSample {
        cgroup_id: ROOT_ID,
        parent_id: 0,
        policy,
        limit_cpus: f64::INFINITY,
        suspended: false,
    };
    Group { about: Arc::new(about), parent: None, guaranteed: 0.0, sample, kernel_weight: None, uid: 0 }
}

/// What the kernel's files say of a cgroup.
fn sample(seen: &Seen) -> DomainSample {
    let weight = if seen.parent_id == 0 { Some(WEIGHT_DEFAULT) } else { weight(&seen.share) };
    DomainSample {
        cgroup_id: seen.cgroup_id,
        parent_id: seen.parent_id,
        policy: DomainPolicy { weight, ..DomainPolicy::default() },
        limit_cpus: limit_cpus(&seen.share),
        suspended: seen.is_frozen,
    }
}

fn weight(share: &CpuShare) -> Option<u32> {
    if share.idle == Some(true) {
        return Some(WEIGHT_IDLE);
    }
    share.weight.map(|weight| weight.clamp(1, 10_000) as u32)
}

fn limit_cpus(share: &CpuShare) -> f64 {
    let limit = share.limit.and_then(|limit| Some((limit.quota_us?, limit.period_us)));
    match limit {
        Some((quota_us, period_us)) if period_us > 0 => quota_us as f64 / period_us as f64,
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use steward_kernel::cgroup::reading::CpuLimit;

    use super::*;

    #[test]
    fn files_become_a_weight_and_a_limit_in_cpus() {
        let limit = CpuLimit { quota_us: Some(150_000), period_us: 100_000 };
        let share = CpuShare { weight: Some(250), limit: Some(limit), idle: Some(false) };
        assert_eq!((weight(&share), limit_cpus(&share)), (Some(250), 1.5));
        assert_eq!(weight(&CpuShare { idle: Some(true), ..share }), Some(WEIGHT_IDLE));
        let nothing = CpuShare::default();
        assert_eq!((weight(&nothing), limit_cpus(&nothing)), (None, f64::INFINITY));
    }
}
