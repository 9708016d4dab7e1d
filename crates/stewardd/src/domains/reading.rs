//! The tree of cgroups as forecasts need it: what each has, what it is called and whose it is.
//!
//! Reading it costs some files for each cgroup, so it is read again only when something has changed in it, at most once
//! a second. What the scheduler itself knows of domains is asked for every time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use steward_core::cpu::forecast::{Changed, DomainSample, TaskReading, TaskSample};
use steward_core::cpu::mechanism::DomainRecord;
use steward_core::cpu::policy::DomainPolicy;
use steward_core::domain::name;
use steward_kernel::cgroup::changes::CgroupChanges;
use steward_kernel::cgroup::reading::CpuShare;

use crate::domains::Domains;
use crate::turn::clock::cpu_time_ns;

/// How old what is known of cgroups may be, in nanoseconds, when something has changed or nobody tells of changes.
const KEPT_FOR_NS: u64 = 1_000_000_000;
/// The same when nothing has changed as far as is known.
const KEPT_UNCHANGED_FOR_NS: u64 = 30_000_000_000;
/// How soon after the last look a task in an unknown cgroup is reason for another, in nanoseconds.
const UNKNOWN_AFTER_NS: u64 = 90_000_000;
/// How often what is told of changes is taken in although nobody asks, in nanoseconds.
const DRAIN_EVERY_NS: u64 = 1_000_000_000;
/// `cpu.weight` of a cgroup that nobody gave one.
const WEIGHT_DEFAULT: u32 = 100;
/// What a cgroup with `cpu.idle` weighs: the least that there is (the kernel takes 3 of 1024).
const WEIGHT_IDLE: u32 = 1;
/// Reading that took less is no matter, in nanoseconds of CPU time.
const COSTLY_NS: u64 = 20_000_000;
/// The id that stands for the root where there are no cgroups. The kernel's own root has it too.
const ROOT_ID: u64 = 1;

/// A cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// From the root of the hierarchy, without a leading slash.
    pub(crate) path: String,
    /// The name of the domain that it belongs to: a leaf's is its parent's.
    pub(crate) name: String,
    /// Whether it is a domain, and not the leaf of one.
    pub(crate) is_domain: bool,
    /// The index of the one above it.
    pub(crate) parent: Option<usize>,
    /// The users whose it is: its own and those of all above it.
    users: Vec<u32>,
    /// The fraction of the machine that is guaranteed to it, 0 when nothing is.
    pub(crate) guaranteed: f64,
    /// As the kernel's own files say.
    sample: DomainSample,
}

impl Group {
    /// Whether the user owns it, or a domain above it.
    pub(crate) fn belongs_to(&self, uid: u32) -> bool {
        self.users.contains(&uid)
    }

    /// The cgroup's id.
    pub(crate) fn cgroup_id(&self) -> u64 {
        self.sample.cgroup_id
    }

    /// The user that it belongs to itself.
    pub(crate) fn user(&self) -> Option<u32> {
        self.users.first().copied()
    }
}

/// All cgroups, parents before children.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Shared with answers that are being made from them.
    groups: Arc<Vec<Group>>,
    by_id: HashMap<u64, usize>,
    read_at_ns: Option<u64>,
    /// What CPU time that took, in nanoseconds.
    cost_ns: u64,
    generation: u64,
    /// Tells of changes; `None` where nobody does.
    changes: Option<CgroupChanges>,
    /// When what it tells was taken in last although nobody asked.
    drained_at_ns: u64,
}

impl Groups {
    /// From now on changes are told of by this.
    pub(crate) fn watch(&mut self, changes: Option<CgroupChanges>) {
        self.changes = changes;
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

    /// They are read again when they are needed next.
    pub(crate) fn invalidate(&mut self) {
        self.read_at_ns = None;
    }

    /// Looks for new cgroups when the one with this id is not known.
    pub(crate) fn ensure(&mut self, cgroup_id: u64, domains: &Domains, now_ns: u64) {
        let is_missing = self.index(cgroup_id).is_none() && self.may_be_read_again(now_ns, 0);
        if self.read_at_ns.is_none() || is_missing {
            self.read(domains, now_ns);
        }
    }

    /// Looks for new cgroups when tasks are in one that is not known.
    pub(crate) fn adopt(&mut self, reading: &TaskReading<'_>, domains: &Domains, now_ns: u64) {
        if let Some(changes) = &mut self.changes
            && now_ns.saturating_sub(self.drained_at_ns) >= DRAIN_EVERY_NS
        {
            // So that they do not pile up while nobody asks.
            changes.has_changed();
            self.drained_at_ns = now_ns;
        }
        if self.may_be_read_again(now_ns, UNKNOWN_AFTER_NS) {
            let mut last_id = 0;
            let mut is_unknown = |sample: &TaskSample| {
                let differs = sample.cgroup_id != last_id;
                last_id = sample.cgroup_id;
                differs && !self.by_id.contains_key(&sample.cgroup_id)
            };
            let is_missing = self.read_at_ns.is_none()
                || match reading.changed {
                    Changed::All => reading.tasks.iter().any(&mut is_unknown),
                    Changed::At(places) => {
                        places.iter().any(|place| is_unknown(&reading.tasks[*place as usize]))
                    }
                };
            if is_missing {
                self.read(domains, now_ns);
            }
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
            self.read(domains, now_ns);
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

    fn is_old(&mut self, now_ns: u64) -> bool {
        let Some(read_at_ns) = self.read_at_ns else { return true };
        let age_ns = now_ns.saturating_sub(read_at_ns);
        self.may_be_read_again(now_ns, KEPT_FOR_NS)
            && (age_ns >= KEPT_UNCHANGED_FOR_NS
                || self.changes.as_mut().is_none_or(CgroupChanges::has_changed))
    }

    /// Whether they were read at least so long ago, and where that was costly ten times as long ago as it took: whoever
    /// makes and removes cgroups without end has a tenth of a CPU spent on them.
    fn may_be_read_again(&self, now_ns: u64, after_ns: u64) -> bool {
        let patience_ns = if self.cost_ns < COSTLY_NS { 0 } else { 10 * self.cost_ns };
        self.read_at_ns.is_none_or(|at| now_ns.saturating_sub(at) >= after_ns.max(patience_ns))
    }

    fn read(&mut self, domains: &Domains, now_ns: u64) {
        let begun_ns = cpu_time_ns();
        self.read_all(domains);
        self.read_at_ns = Some(now_ns);
        self.cost_ns = cpu_time_ns().saturating_sub(begun_ns);
    }

    fn read_all(&mut self, domains: &Domains) {
        self.generation += 1;
        if let Some(changes) = &mut self.changes {
            changes.forget();
        }
        let listed = domains.cgroups().ok().and_then(|cgroups| cgroups.list().ok()).unwrap_or_default();
        if let Some(Err(error)) = self.changes.as_mut().map(|changes| changes.follow(&listed)) {
            tracing::warn!(%error, "cannot watch all cgroups: they are read once a second while somebody watches forecasts");
            self.changes = None;
        }
        let guarantees = domains.guarantees();
        let mut groups: Vec<Group> = Vec::with_capacity(listed.len());
        self.by_id.clear();
        let mut by_path: HashMap<String, usize> = HashMap::new();
        for cgroup in &listed {
            let parent = name::parent_of(&cgroup.path).and_then(|above| by_path.get(above).copied());
            if parent.is_none() && !cgroup.path.is_empty() {
                // The one above it has gone meanwhile.
                continue;
            }
            let index = groups.len();
            let mut users = vec![domains.user_of(cgroup)];
            // The root belongs to root, which says nothing about those below.
            let above = parent.map(|parent| &groups[parent]).filter(|above| !above.path.is_empty());
            users.extend(above.into_iter().flat_map(|above| above.users.iter().copied()));
            let parent_id = parent.map(|parent| groups[parent].cgroup_id());
            groups.push(Group {
                name: domains.names().name_of(name::domain_of(&cgroup.path)),
                is_domain: name::domain_of(&cgroup.path) == cgroup.path,
                parent,
                users,
                guaranteed: guaranteed(&guarantees, domains, &cgroup.path),
                sample: sample(domains, &cgroup.path, cgroup.id, parent_id),
                path: cgroup.path.clone(),
            });
            self.by_id.insert(cgroup.id, index);
            by_path.insert(cgroup.path.clone(), index);
        }
        if groups.is_empty() {
            groups.push(Group {
                path: String::new(),
                name: domains.names().name_of(""),
                is_domain: true,
                parent: None,
                users: vec![0],
                guaranteed: 0.0,
                sample: sample(domains, "", ROOT_ID, None),
            });
            self.by_id.insert(ROOT_ID, 0);
        }
        self.groups = Arc::new(groups);
    }
}

/// What the kernel's files say of a cgroup, with the id of the one above it.
fn sample(domains: &Domains, path: &str, cgroup_id: u64, parent_id: Option<u64>) -> DomainSample {
    let cgroups = domains.cgroups().ok();
    let share = cgroups.map(|cgroups| cgroups.cpu_share(path)).unwrap_or_default();
    let suspended = cgroups.is_some_and(|cgroups| cgroups.is_frozen(path).unwrap_or(false));
    let weight = if parent_id.is_none() { Some(WEIGHT_DEFAULT) } else { weight(&share) };
    DomainSample {
        cgroup_id,
        parent_id: parent_id.unwrap_or(0),
        policy: DomainPolicy { weight, ..DomainPolicy::default() },
        limit_cpus: limit_cpus(&share),
        suspended,
    }
}

/// What is guaranteed to a domain by a reservation of its own or below one; a mere weight guarantees nothing for sure.
fn guaranteed(guarantees: &BTreeMap<String, f64>, domains: &Domains, path: &str) -> f64 {
    let is_reserved = domains.held(path).is_some_and(|held| held.settings.cpu.reserved.is_some());
    if is_reserved { guarantees.get(path).copied().unwrap_or(0.0) } else { 0.0 }
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
    fn what_was_costly_to_read_is_read_again_after_ten_times_as_long() {
        const MS: u64 = 1_000_000;
        let cheap = Groups { read_at_ns: Some(0), cost_ns: 5 * MS, ..Groups::default() };
        assert!(cheap.may_be_read_again(1, 0) && !cheap.may_be_read_again(MS, 2 * MS));
        let costly = Groups { read_at_ns: Some(0), cost_ns: 30 * MS, ..Groups::default() };
        assert!(!costly.may_be_read_again(299 * MS, 0) && costly.may_be_read_again(300 * MS, 100 * MS));
        assert!(Groups { read_at_ns: None, ..costly }.may_be_read_again(0, 100 * MS));
    }

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
