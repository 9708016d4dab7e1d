//! Domains as the API shows them.

use std::collections::BTreeMap;

use libsteward::api::{self, ApiError};
use steward_core::cpu::mechanism::DomainRecord;
use steward_core::disk;
use steward_core::domain::{OWN_LEAF, Settings, Tree, name};
use steward_core::memory::signs::Evidence;
use steward_core::printable::printable;
use steward_core::resource::Resource;
use steward_kernel::cgroup::tree::Cgroup;

use super::{Domains, kernel_failed};
use crate::domains::cgroups::Cgroups;
use crate::memory::activity::Known;
use crate::memory::cared::Cared;
use crate::memory::usage::Usage;
use crate::server::sight::Whose;
use crate::turn::clock::now_ns;

/// How exactly it is shown when somebody used a domain, in nanoseconds: anybody may ask, and from the moments of keys
/// it could be guessed what was typed. The kernel says of a terminal to 8 seconds when it was read.
const USE_SHOWN_NS: u64 = 10_000_000_000;

/// What the mechanism says of each cgroup, by id.
pub type Records = BTreeMap<u64, DomainRecord>;

/// Everything that is needed to show any domain of a tree.
struct Sight<'a> {
    tree: Tree,
    guarantees: BTreeMap<String, f64>,
    /// What children have reserved together, by the path of who pays.
    sums: BTreeMap<String, Sums>,
    records: Option<&'a Records>,
    memory: Option<Usage>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    cpu: f64,
    memory_min_bytes: u64,
    disk: f64,
}

impl<'a> Sight<'a> {
    fn of(tree: Tree, records: Option<&'a Records>, cgroups: Option<&dyn Cgroups>, cared: &Cared) -> Self {
        let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
        for (path, node) in tree.iter() {
            let Some(payer) = name::parent_of(path) else { continue };
            let sum = sums.entry(payer.to_owned()).or_default();
            let settings = &node.settings;
            sum.cpu += settings.cpu.reserved.unwrap_or(0.0);
            let min_bytes = settings.memory.min_bytes.unwrap_or(0);
            sum.memory_min_bytes = sum.memory_min_bytes.saturating_add(min_bytes);
            sum.disk += settings.disk.reserved.unwrap_or(0.0);
        }
        let memory = cgroups.map(|cgroups| Usage::of(cgroups, &tree, cared));
        Sight { guarantees: tree.guarantees(), tree, sums, records, memory }
    }
}

impl Domains {
    /// All domains, parents before children.
    ///
    /// # Errors
    /// [`ApiError::MechanismFailed`] when the tree cannot be read.
    pub fn list(&self, records: &Records) -> Result<Vec<api::Domain>, ApiError> {
        let mut cgroups = self.cgroups()?.list().map_err(|error| kernel_failed(&error))?;
        cgroups.retain(|cgroup| name::domain_of(&cgroup.path) == cgroup.path);
        cgroups.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
        let tree = self.tree_of(cgroups.iter().map(|cgroup| cgroup.path.as_str()));
        let sight = Sight::of(tree, Some(records), self.cgroups().ok(), &self.cared);
        Ok(cgroups.iter().map(|cgroup| self.show(cgroup, &sight)).collect())
    }

    /// What each domain is guaranteed, by path; nothing where nobody has reserved anything.
    pub fn guarantees(&self) -> BTreeMap<String, f64> {
        if self.held.values().all(|held| held.settings.cpu.reserved.is_none()) {
            return BTreeMap::new();
        }
        let listed = self.cgroups().ok().and_then(|cgroups| cgroups.list().ok()).unwrap_or_default();
        self.tree_of(listed.iter().map(|cgroup| cgroup.path.as_str())).guarantees()
    }

    /// One domain; `None` when it is not there.
    pub fn view(&self, path: &str, records: Option<&Records>) -> Option<api::Domain> {
        let cgroups = self.cgroups().ok()?;
        let cgroup = cgroups.find(path).ok()?;
        let tree = self.tree_around(cgroups, path);
        Some(self.show(&cgroup, &Sight::of(tree, records, Some(cgroups), &self.cared)))
    }

    /// What the children of a domain use of the memory and could use, and those of all above it.
    ///
    /// # Errors
    /// [`ApiError::MechanismFailed`] when there are no domains on this machine.
    pub(crate) fn memory_usage_below(&self, path: &str) -> Result<Usage, ApiError> {
        let cgroups = self.cgroups()?;
        Ok(Usage::of(cgroups, &self.tree_around(cgroups, path), &self.cared))
    }

    /// A domain with its children, its siblings and those of everybody above it: what it is guaranteed, and what it
    /// may use, depends on them.
    pub(crate) fn tree_around(&self, cgroups: &dyn Cgroups, path: &str) -> Tree {
        let above = std::iter::successors(Some(path), |path| name::parent_of(path));
        let beside: Vec<Cgroup> = above.filter_map(|path| cgroups.children(path).ok()).flatten().collect();
        self.tree_of(beside.iter().map(|cgroup| cgroup.path.as_str()).chain([path]))
    }

    /// Whose a domain is, for who is to be told of it: also of one whose cgroup is gone.
    pub(crate) fn whose(&self, path: &str) -> Whose {
        let held = self.held.get(path).map(|held| held.user);
        let found = || self.cgroups().ok()?.find(path).ok().map(|cgroup| self.user_of(&cgroup));
        let user = held.or_else(found).or_else(|| name::user_of_slice(path));
        Whose { user, above: self.users_above(path).into_iter().flatten().collect() }
    }

    fn show(&self, cgroup: &Cgroup, sight: &Sight<'_>) -> api::Domain {
        let path = cgroup.path.as_str();
        let held = self.held.get(path).filter(|held| held.cgroup_id == cgroup.id);
        let settings = held.map(|held| held.settings.clone()).unwrap_or_default();
        let Settings { common, cpu, memory, disk } = settings;
        let tree = &sight.tree;
        let sums = sight.sums.get(path).copied().unwrap_or_default();
        api::Domain {
            name: self.names.name_of(path),
            path: format!("/{}", printable(path)),
            cgroup_id: cgroup.id,
            parent: name::parent_of(path).map(|payer| self.names.name_of(payer)),
            made: held.is_some_and(|held| held.made),
            keep: held.is_some_and(|held| held.keep),
            user: self.user_of(cgroup),
            priority: common.priority,
            lowered: self.is_lowered(cgroup.id),
            weight: tree.get(path).map_or(100, steward_core::domain::Node::weight),
            own_priority: common.own_priority,
            own_weight: common.own_weight,
            cpu: cpu.reserved,
            cpu_sum: sums.cpu,
            cpu_reservable: tree.limit(path, Resource::Cpu),
            cpu_guaranteed: sight.guarantees.get(path).copied().unwrap_or(0.0),
            memory_min: memory.min_bytes,
            memory_max: memory.max_bytes,
            protect: memory.protect_ns,
            memory_min_sum: sums.memory_min_bytes,
            memory_reservable: tree.limit(path, Resource::Memory) as u64,
            memory: self
                .cgroups()
                .ok()
                .and_then(|cgroups| sight.memory.as_ref()?.show(cgroups, path, &self.cared)),
            activity: held.and_then(|held| self.activity_of(path, held.cgroup_id)).map(activity),
            io: disk.class.map(class),
            disk: disk.reserved,
            disk_use: self.cgroups().ok().and_then(|cgroups| cgroups.disk_use(path)).map(disk_use),
            disk_dirty: self.cgroups().ok().and_then(|cgroups| cgroups.dirty_bytes(path)),
            disk_minute: self.disk_lately.get(path).map(shown_lately),
            disk_sum: sums.disk,
            disk_reservable: tree.limit(path, Resource::Disk),
            complaints: self.complaints.get(path).copied().unwrap_or(0),
            usage: sight.records.and_then(|records| self.usage(cgroup, records)),
            problem: self.problem(path),
        }
    }

    /// What the scheduler counts for a domain's own tasks, wherever they are.
    fn usage(&self, cgroup: &Cgroup, records: &Records) -> Option<api::DomainUsage> {
        let has_leaf = self.held.get(&cgroup.path).is_some_and(|held| held.leaf);
        let leaf = has_leaf.then(|| format!("{}/{OWN_LEAF}", cgroup.path));
        let leaf = leaf.and_then(|leaf| self.cgroups().ok()?.find(&leaf).ok());
        let mut usage = api::DomainUsage::default();
        let mut known = false;
        for id in [Some(cgroup.id), leaf.map(|leaf| leaf.id)].into_iter().flatten() {
            let Some(record) = records.get(&id) else { continue };
            known = true;
            // With a leaf, only the leaf can have tasks that are due something.
            usage.share = record.share;
            usage.best_effort_time_ns += record.best_effort_time_ns;
            usage.reserved_time_ns += record.reserved_time_ns;
            usage.waiting_time_ns += record.waiting_time_ns;
            usage.tasks += record.tasks;
            usage.runnable += record.runnable;
            usage.throttled |= record.throttled;
        }
        known.then_some(usage)
    }
}

fn class(class: disk::Class) -> api::IoClass {
    match class {
        disk::Class::Interactive => api::IoClass::Interactive,
        disk::Class::Normal => api::IoClass::Normal,
        disk::Class::Background => api::IoClass::Background,
    }
}

fn disk_use(used: disk::explain::Use) -> api::DomainDisk {
    api::DomainDisk {
        read: used.read_bytes,
        written: used.written_bytes,
        requests: used.requests,
        device_time_ns: used.device_time_ns,
        stalled_ns: used.stalled_ns,
    }
}

/// What was done lately, as the API has it.
fn shown_lately(disk::explain::Lately { seen_ns, done }: &disk::explain::Lately) -> api::DiskMinute {
    let percentile_ns = |part| done.percentile_ns(part).unwrap_or(0);
    api::DiskMinute {
        seen_ns: *seen_ns,
        requests: done.latencies.requests(),
        device_time_ns: done.device_ns,
        median_ns: percentile_ns(0.5),
        p99_ns: percentile_ns(0.99),
        max_ns: done.max_ns,
    }
}

fn activity(known: &Known) -> api::Activity {
    let (standing, [minute, hour, day]) = (&known.standing, known.spans);
    let shown = |at_ns: u64| at_ns / USE_SHOWN_NS * USE_SHOWN_NS;
    api::Activity {
        lapsed: standing.is_lapsed,
        idle_ns: shown(now_ns()).saturating_sub(shown(standing.last.at_ns)),
        evidence: match standing.last.evidence {
            Evidence::Protected => api::Evidence::Protected,
            Evidence::Terminal => api::Evidence::Terminal,
            Evidence::Input => api::Evidence::Input,
            Evidence::Work => api::Evidence::Work,
            Evidence::Faults => api::Evidence::Faults,
        },
        watched_ns: standing.times.watched_ns,
        used_ns: shown(standing.times.used_ns),
        used_minute_ns: shown(minute.used_ns),
        used_hour_ns: shown(hour.used_ns),
        used_day_ns: shown(day.used_ns),
    }
}
