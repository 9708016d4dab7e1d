//! Domains as the API shows them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use libsteward::api::{self, ApiError};
use steward_core::cpu::guarantee::guarantees_of;
use steward_core::cpu::mechanism::DomainRecord;
use steward_core::disk;
use steward_core::domain::{Node, OWN_LEAF, Settings, Tree, name};
use steward_core::memory::signs::Evidence;
use steward_core::printable::printable;
use steward_core::resource::Resource;
use steward_kernel::cgroup::reading::MemoryUse;
use steward_kernel::cgroup::tree::{BELOW_MAX, Cgroup};

use super::Domains;
use super::reading::Group;
use crate::domains::cgroups::Cgroups;
use crate::memory::activity::Known;
use crate::memory::looks::Amounts;
use crate::memory::usage::{Usage, User, divide, is_rest, rest_of, shown};
use crate::server::sight::Whose;
use crate::turn::clock::now_ns;

/// How exactly it is shown when somebody used a domain, in nanoseconds: anybody may ask, and from the moments of keys
/// it could be guessed what was typed. The kernel says of a terminal to 8 seconds when it was read.
const USE_SHOWN_NS: u64 = 10_000_000_000;

/// So many cgroups directly below one are looked at one by one for what is said of one of them. Whoever has a part of
/// the tree makes as many in it as they like, and nobody else is answered meanwhile: of more than these only those are
/// looked at that were given something, and the rest are taken for one that weighs as many as they are.
const EACH_MAX: usize = 256;

/// Who is directly below a cgroup.
pub(crate) struct Children {
    /// The paths of those that are looked at one by one.
    pub(crate) each: Vec<String>,
    /// How many there are beside them.
    pub(crate) rest: usize,
}

/// What the mechanism says of each cgroup, by id.
pub type Records = BTreeMap<u64, DomainRecord>;

/// What is to be known of a domain beside itself, to show it: what it has of others and others of it.
struct Beside {
    weight: u32,
    /// What its children have reserved together.
    sums: Sums,
    /// What they may reserve together.
    limits: Sums,
    guaranteed: f64,
    memory: Option<api::DomainMemory>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    cpu: f64,
    memory_min_bytes: u64,
    disk: f64,
}

impl Sums {
    fn add(&mut self, settings: &Settings) {
        self.cpu += settings.cpu.reserved.unwrap_or(0.0);
        let min_bytes = settings.memory.min_bytes.unwrap_or(0);
        self.memory_min_bytes = self.memory_min_bytes.saturating_add(min_bytes);
        self.disk += settings.disk.reserved.unwrap_or(0.0);
    }

    fn limits(limit: impl Fn(Resource) -> f64) -> Self {
        Sums {
            cpu: limit(Resource::Cpu),
            memory_min_bytes: limit(Resource::Memory) as u64,
            disk: limit(Resource::Disk),
        }
    }
}

/// What is to be known of all groups, to show any of their domains: by their indices.
pub(crate) struct Figures {
    weights: Vec<u32>,
    sums: Vec<Sums>,
    guarantees: Vec<f64>,
    used: Vec<Option<(MemoryUse, Amounts)>>,
}

impl Figures {
    /// What they take of memory, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let each = size_of::<u32>() + size_of::<Sums>() + size_of::<f64>();
        self.weights.capacity() * (each + size_of::<Option<(MemoryUse, Amounts)>>())
    }
}

/// The domains among groups: their places, and each with the place of the one above it.
struct Nodes {
    /// Of each group, the place of the domain that it belongs to.
    place_of: Vec<usize>,
    nodes: Vec<(Option<usize>, Node)>,
}

impl Domains {
    /// The users that cgroups were given to, by their id.
    pub(crate) fn users_given(&self) -> HashMap<u64, u32> {
        self.held.values().map(|held| (held.cgroup_id, held.user)).collect()
    }

    /// Those that have something reserved of the CPU, by path and id.
    pub(crate) fn reserved(&self) -> impl Iterator<Item = (&str, u64)> {
        let reserved = self.held.values().filter(|held| held.settings.cpu.reserved.is_some());
        reserved.map(|held| (held.path.as_str(), held.cgroup_id))
    }

    /// What each domain among these is guaranteed, by path.
    pub(crate) fn guarantees_among(&self, groups: &[Group]) -> HashMap<Arc<str>, f64> {
        let Nodes { place_of, nodes } = self.nodes(groups);
        let guarantees = guarantees_of(&nodes);
        let of = |(group, place): (&Group, usize)| (Arc::clone(&group.about.path), guarantees[place]);
        groups.iter().zip(place_of).filter(|(group, _)| group.about.is_domain).map(of).collect()
    }

    fn nodes(&self, groups: &[Group]) -> Nodes {
        let mut place_of = Vec::with_capacity(groups.len());
        let mut nodes: Vec<(Option<usize>, Node)> = Vec::with_capacity(groups.len());
        for group in groups {
            let parent: Option<usize> = group.parent.map(|parent| place_of[parent]);
            match parent.filter(|_| !group.about.is_domain) {
                Some(domain) => place_of.push(domain),
                None => {
                    place_of.push(nodes.len());
                    nodes.push((parent, self.node_with(&group.about.path, || group.kernel_weight)));
                }
            }
        }
        Nodes { place_of, nodes }
    }

    /// What is to be known of these groups to show them. `used` is what each uses of the memory, where that is counted.
    pub(crate) fn figures(&self, groups: &[Group], used: Vec<Option<MemoryUse>>) -> Figures {
        let Nodes { place_of, nodes } = self.nodes(groups);
        let mut sums = vec![Sums::default(); nodes.len()];
        for (parent, node) in &nodes {
            if let Some(parent) = parent {
                sums[*parent].add(&node.settings);
            }
        }
        let guarantees = guarantees_of(&nodes);
        let amounts = self.amounts(groups, &used, &place_of, &nodes);
        Figures {
            weights: place_of.iter().map(|place| nodes[*place].1.weight()).collect(),
            sums: place_of.iter().map(|place| sums[*place]).collect(),
            guarantees: place_of.iter().map(|place| guarantees[*place]).collect(),
            used: used.into_iter().zip(amounts).map(|(used, amounts)| used.zip(amounts)).collect(),
        }
    }

    /// What those of whom that is counted may use of the memory.
    fn amounts(
        &self,
        groups: &[Group],
        used: &[Option<MemoryUse>],
        place_of: &[usize],
        nodes: &[(Option<usize>, Node)],
    ) -> Vec<Option<Amounts>> {
        // What a domain's own processes use can be taken from its children where they have a leaf.
        let mut has_children = vec![false; groups.len()];
        for (group, used) in groups.iter().zip(used) {
            if let (true, true, Some(parent)) = (group.about.is_domain, used.is_some(), group.parent) {
                has_children[parent] = true;
            }
        }
        let left = self.cgroups().ok().map(|cgroups| self.left_to_others(cgroups));
        let mut users: Vec<User<'_>> = Vec::new();
        let mut user_of: Vec<Option<usize>> = Vec::with_capacity(groups.len());
        for (index, group) in groups.iter().enumerate() {
            let counts = group.about.is_domain || group.parent.is_some_and(|parent| has_children[parent]);
            let user = used[index].as_ref().filter(|_| counts && group.parent.is_some()).map(|used| User {
                path: &group.about.path,
                parent: group.parent.and_then(|parent| user_of[parent]),
                node: &nodes[place_of[index]].1,
                used,
                left_bytes: left.as_ref().map_or(0, |left| left(&group.about.path, used.used_bytes)),
            });
            user_of.push(user.is_some().then_some(users.len()));
            users.extend(user);
        }
        // Where it cannot be read, nothing is known to be free.
        let machine = self.cgroups().ok().and_then(|cgroups| cgroups.machine_memory()).unwrap_or_default();
        let amounts = divide(&users, &machine, &self.cared);
        user_of.into_iter().map(|user| user.map(|user| amounts[user])).collect()
    }

    /// The domain with this index among those that these figures are about; `None` where it is none of its own.
    pub(crate) fn listed(
        &self,
        groups: &[Group],
        index: usize,
        figures: &Figures,
        records: &Records,
    ) -> Option<api::Domain> {
        let group = &groups[index];
        let path = &*group.about.path;
        let cgroups = self.cgroups().ok().filter(|_| group.about.is_domain)?;
        let settings = self.held.get(path).map(|held| &held.settings);
        let used = figures.used[index].as_ref();
        let beside = Beside {
            weight: figures.weights[index],
            sums: figures.sums[index],
            limits: Sums::limits(|resource| self.machine.limit(settings, path.is_empty(), resource)),
            guaranteed: figures.guarantees[index],
            memory: used.map(|(used, amounts)| shown(cgroups, path, used, amounts, &self.cared)),
        };
        Some(self.show(&group.cgroup(), beside, Some(records)))
    }

    /// One domain; `None` when it is not there.
    pub fn view(&self, path: &str, records: Option<&Records>) -> Option<api::Domain> {
        let cgroups = self.cgroups().ok()?;
        let cgroup = cgroups.find(path).ok()?;
        let mut tree = self.tree_around(cgroups, path);
        let mut sums = Sums::default();
        tree.paid_by(path).for_each(|(_, node)| sums.add(&node.settings));
        let mut beside = Beside {
            weight: tree.get(path).map_or(100, Node::weight),
            sums,
            limits: Sums::limits(|resource| tree.limit(path, resource)),
            guaranteed: tree.guarantees().get(path).copied().unwrap_or(0.0),
            memory: None,
        };
        // What those below it use is in what it uses, and may be many files to read. Root has nobody beside it.
        if !path.is_empty() {
            tree.remove_below(path);
        }
        beside.memory = self.usage_of_memory(cgroups, &tree).show(cgroups, path, &self.cared);
        Some(self.show(&cgroup, beside, records))
    }

    /// What the children of a domain use of the memory and could use, and those of all above it.
    ///
    /// # Errors
    /// [`ApiError::MechanismFailed`] when there are no domains on this machine.
    pub(crate) fn memory_usage_below(&self, path: &str) -> Result<Usage, ApiError> {
        let cgroups = self.cgroups()?;
        Ok(self.usage_of_memory(cgroups, &self.tree_around(cgroups, path)))
    }

    fn usage_of_memory(&self, cgroups: &dyn Cgroups, tree: &Tree) -> Usage {
        Usage::of(cgroups, tree, &self.cared, &self.left_to_others(cgroups))
    }

    /// What of the memory that a cgroup uses the kernel leaves to it though it is not Steward's, in bytes: by the word
    /// of its manager, which counts in full at the top alone, or because a scope below it is promised memory.
    fn left_to_others<'a>(&'a self, cgroups: &'a dyn Cgroups) -> impl Fn(&str, u64) -> u64 + 'a {
        let scopes = self.held.values().filter(|held| held.scope);
        let above = scopes.flat_map(|held| {
            std::iter::successors(name::parent_of(&held.path), |path| name::parent_of(path))
        });
        let above: BTreeSet<&str> = above.collect();
        let is_made =
            |path: &str| self.held.get(name::domain_of(path)).is_some_and(|held| held.made || held.scope);
        move |path, used_bytes| {
            let counts = name::parent_of(path) == Some("") || above.contains(path);
            if !counts || is_rest(path) || is_made(path) {
                return 0;
            }
            // Without a bound it is all.
            let bounds = cgroups.memory_bounds(path);
            bounds.map_or(0, |has| has.min.limit_bytes().unwrap_or(u64::MAX).min(used_bytes))
        }
    }

    /// A domain with its children, its siblings and those of everybody above it: what it is guaranteed, and what it
    /// may use, depends on them.
    pub(crate) fn tree_around(&self, cgroups: &dyn Cgroups, path: &str) -> Tree {
        let mut beside = vec![path.to_owned()];
        let mut rests = Vec::new();
        for above in std::iter::successors(Some(path), |path| name::parent_of(path)) {
            let Children { each, rest } = self.children_of(cgroups, above);
            beside.extend(each);
            rests.extend((rest > 0).then(|| (rest_of(above), rest)));
        }
        let mut tree = self.tree_of(beside.iter().map(String::as_str));
        for (path, count) in rests {
            let weights =
                u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(Node::default().kernel_weight);
            tree.insert(&path, Node { kernel_weight: weights, ..Node::default() });
        }
        tree
    }

    /// The top of the tree, as far as it is held.
    pub(crate) fn tree_of_top(&self) -> Tree {
        let is_top = |path: &&str| name::parent_of(path) == Some("");
        self.tree_of(self.held.keys().map(String::as_str).filter(is_top))
    }

    /// Who is directly below a cgroup.
    pub(crate) fn children_of(&self, cgroups: &dyn Cgroups, above: &str) -> Children {
        // At the top it is root alone who makes them.
        let names_max = if above.is_empty() { usize::MAX } else { BELOW_MAX[0] };
        let names = cgroups.names_below(above, names_max).unwrap_or_default();
        if above.is_empty() || names.len() <= EACH_MAX {
            let path = |name: String| if above.is_empty() { name } else { format!("{above}/{name}") };
            return Children { each: names.into_iter().map(|(name, _)| path(name)).collect(), rest: 0 };
        }
        let given = self.held.keys().filter(|held| name::parent_of(held) == Some(above));
        let each: Vec<String> = given.take(EACH_MAX).cloned().collect();
        Children { rest: names.len().saturating_sub(each.len()), each }
    }

    /// Whose a domain is, for who is to be told of it: also of one whose cgroup is gone.
    pub(crate) fn whose(&self, path: &str) -> Whose {
        let held = self.held.get(path).map(|held| held.user);
        let found = || self.cgroups().ok()?.find(path).ok().map(|cgroup| self.user_of(&cgroup));
        let user = held.or_else(found).or_else(|| name::user_of_slice(path));
        Whose { user, above: self.users_above(path).into_iter().flatten().collect() }
    }

    fn show(&self, cgroup: &Cgroup, beside: Beside, records: Option<&Records>) -> api::Domain {
        let path = cgroup.path.as_str();
        let held = self.held.get(path).filter(|held| held.cgroup_id == cgroup.id);
        let settings = held.map(|held| held.settings.clone()).unwrap_or_default();
        let Settings { common, cpu, memory, disk } = settings;
        let Beside { weight, sums, limits, guaranteed, memory: memory_use } = beside;
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
            weight,
            own_priority: common.own_priority,
            own_weight: common.own_weight,
            cpu: cpu.reserved,
            cpu_sum: sums.cpu,
            cpu_reservable: limits.cpu,
            cpu_guaranteed: guaranteed,
            memory_min: memory.min_bytes,
            memory_max: memory.max_bytes,
            protect: memory.protect_ns,
            memory_min_sum: sums.memory_min_bytes,
            memory_reservable: limits.memory_min_bytes,
            memory: memory_use,
            activity: held.and_then(|held| self.activity_of(path, held.cgroup_id)).map(activity),
            io: disk.class.map(class),
            disk: disk.reserved,
            io_max_bytes: disk.max.bytes_per_second,
            io_max_requests: disk.max.requests_per_second,
            disk_use: self.cgroups().ok().and_then(|cgroups| cgroups.disk_use(path)).map(disk_use),
            disk_dirty: self.cgroups().ok().and_then(|cgroups| cgroups.dirty_bytes(path)),
            disk_minute: self.disk_lately.get(path).map(shown_lately),
            disk_sum: sums.disk,
            disk_reservable: limits.disk,
            complaints: self.complaints.get(path).copied().unwrap_or(0),
            usage: records.and_then(|records| self.usage(cgroup, records)),
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

/// Whether a domain is in use, as the API has it.
pub(crate) fn activity(known: &Known) -> api::Activity {
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
