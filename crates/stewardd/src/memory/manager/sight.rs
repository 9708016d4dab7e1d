//! What the memory loop sees: the machine, and every cgroup whose memory is counted.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::ControlFlow;

use steward_core::memory::ageing::{Generation, Reading};
use steward_core::memory::bumps::Taker;
use steward_core::memory::principal::Principal;
use steward_core::memory::seen::{Limited, Machine, Protected, Seen};
use steward_core::memory::source::Source;
use steward_core::memory::trials::Signs;
use steward_core::resource::Resource;
use steward_kernel::cgroup::place;
use steward_kernel::cgroup::reading::{Bound, CgroupReader, KeptCharge};
use steward_kernel::cgroup::tree::{BELOW_MAX, Cgroup, CgroupTree};
use steward_kernel::memory::ages::{self, AgeingTarget};
use steward_kernel::memory::machine::{self, KeptUsage, MachineMemory, Zones};
use steward_kernel::{KernelError, Roots};

use super::orders::Orders;
use super::uses::{Permit, Uses};
use super::watched::Watched;
use crate::memory::sharing::FileUses;
use crate::turn::clock;

/// How often it is asked whether there are other cgroups, in nanoseconds.
const LIST_NS: u64 = 1_000_000_000;
/// The same while little is free: who moves on to a new cgroup each second would not be seen to take anything.
const LIST_LITTLE_NS: u64 = 100_000_000;
/// They are listed no more rarely than this, in nanoseconds, whatever is told of changes.
const LISTED_NS: u64 = 10_000_000_000;
/// How old what is read of one's limits may be, in nanoseconds; those of a part of them are read at each listing.
const LIMITS_NS: u64 = 5_000_000_000;
/// How old what is read of one's statistics may be, in nanoseconds, while no more than so much of its charge changes,
/// in bytes: it is the dearest of the files.
const STANDING_NS: u64 = 1_000_000_000;
const STANDING_BYTES: u64 = 1 << 20;
/// What is known of the machine's zones is read again when so many times as long has passed as that takes, and at the
/// latest after so long, in nanoseconds.
const ZONES_COST_PART: u64 = 200;
const ZONES_KEPT_NS: u64 = 5_000_000_000;
/// Of no more cgroups than this a file is kept open: others need descriptors, too.
const OPEN_MAX: usize = 1024;
/// Less than this that is charged to one and to nobody below it is the kernel's, or nobody's any more, in bytes.
const UNSEEN_MIN_BYTES: u64 = 16 << 20;
/// `cpu.weight` of a cgroup that nobody gave one.
const WEIGHT_DEFAULT: u32 = 100;

/// A cgroup whose memory is counted.
struct Group {
    path: String,
    id: u64,
    parent: Option<usize>,
    reader: CgroupReader,
    /// Where it can be kept open.
    charge: Option<KeptCharge>,
    limits: Limits,
    /// What is charged to it, as it was read last, in bytes.
    charged_bytes: u64,
    standing: Option<Standing>,
}

/// What a cgroup was given, as it was read last.
#[derive(Clone, Copy)]
struct Limits {
    weight: u32,
    /// What the kernel is told to leave to it; read only at the top.
    min_bytes: u64,
    max_bytes: u64,
    /// How much of it may be swapped out.
    swap_max_bytes: u64,
    read_at_ns: u64,
}

/// What of a cgroup's memory is where, as it was read last. Bytes.
#[derive(Clone, Copy)]
struct Standing {
    file_bytes: u64,
    clean_bytes: u64,
    /// Pages of files that were read once and not used since.
    read_once_bytes: u64,
    swapped_bytes: u64,
    /// Of it and all below it: pages of files, and programs' own, that can be taken.
    takeable_file_bytes: u64,
    takeable_own_bytes: u64,
    /// What it fetched back soon after it had been taken, so far.
    refaulted_bytes: u64,
    refaulted_file_bytes: u64,
    /// For how long tasks of it stood still for memory, and for the disk, so far, in nanoseconds; nothing unless that
    /// was asked for.
    stalled_ns: u64,
    disk_ns: u64,
    charged_bytes: u64,
    read_at_ns: u64,
}

impl Standing {
    fn is_old(&self, now_ns: u64, charged_bytes: u64) -> bool {
        self.charged_bytes.abs_diff(charged_bytes) > STANDING_BYTES
            || now_ns.saturating_sub(self.read_at_ns) >= STANDING_NS
    }
}

impl Group {
    /// What is charged to it now, in bytes; nothing where it has gone.
    fn charged_now(&self) -> u64 {
        match &self.charge {
            Some(charge) => charge.bytes().unwrap_or(0),
            None => self.reader.memory_current_bytes().ok().flatten().unwrap_or(0),
        }
    }

    /// What of it is where, read anew where what is known is old, with or without the kernel's pressure. What cannot be
    /// read is nothing.
    fn standing(&mut self, now_ns: u64, with_pressure: bool) -> Standing {
        let charged_bytes = self.charged_bytes;
        if let Some(known) = self.standing.filter(|known| !known.is_old(now_ns, charged_bytes)) {
            return known;
        }
        let stat = self.reader.memory_stat().ok().flatten().unwrap_or_default();
        let page_bytes = rustix::param::page_size() as u64;
        let waited = |resource: Resource| match with_pressure {
            true => self.reader.stalled(resource).ok().flatten().map_or(0, |stalled| stalled.some_ns),
            false => 0,
        };
        let read = Standing {
            file_bytes: stat.file_bytes.saturating_sub(stat.shmem_bytes),
            clean_bytes: stat.clean_bytes(),
            read_once_bytes: stat.read_once_bytes(),
            swapped_bytes: self.reader.memory_swap_bytes().ok().flatten().unwrap_or(0),
            takeable_file_bytes: stat.files_bytes(),
            takeable_own_bytes: stat.anonymous_bytes(),
            refaulted_bytes: stat.refaulted_pages().saturating_mul(page_bytes),
            refaulted_file_bytes: stat.workingset_refault_file_pages.saturating_mul(page_bytes),
            stalled_ns: waited(Resource::Memory),
            disk_ns: waited(Resource::Disk),
            charged_bytes,
            read_at_ns: now_ns,
        };
        *self.standing.insert(read)
    }

    /// What can be taken within it, where it has a limit that matters: a maximum, with protected ones below it, or one
    /// of what may be swapped out. Of that alone an older reading does: what it has more since is not of files.
    fn limited(&mut self, now_ns: u64, with_pressure: bool, is_above_protected: bool) -> Option<Limited> {
        let Limits { max_bytes, swap_max_bytes, .. } = self.limits;
        let standing = if max_bytes != u64::MAX && is_above_protected {
            self.standing(now_ns, with_pressure)
        } else if swap_max_bytes != u64::MAX {
            let is_recent = |known: &Standing| now_ns.saturating_sub(known.read_at_ns) < LIMITS_NS;
            self.standing.filter(is_recent).unwrap_or_else(|| self.standing(now_ns, with_pressure))
        } else {
            return None;
        };
        let grown_bytes = self.charged_bytes.saturating_sub(standing.charged_bytes);
        let swap_left_bytes = match swap_max_bytes {
            u64::MAX => u64::MAX,
            most_bytes => most_bytes.saturating_sub(standing.swapped_bytes),
        };
        Some(Limited {
            file_bytes: standing.takeable_file_bytes,
            anonymous_bytes: standing.takeable_own_bytes.saturating_add(grown_bytes),
            swap_left_bytes,
        })
    }
}

/// What the loop has taken from others, and is taking.
#[derive(Clone, Copy)]
pub(super) struct Reclaimed<'turns> {
    /// What was taken since the loop began, by path, in bytes.
    pub(super) taken_bytes: &'turns BTreeMap<String, u64>,
    /// What is in hand, by cgroup id, in bytes.
    pub(super) in_hand_bytes: &'turns BTreeMap<u64, u64>,
}

/// What `/proc/zoneinfo` said last. It names each CPU in each zone, so that it is long where there are many.
struct KnownZones {
    zones: Zones,
    read_at_ns: u64,
    cost_ns: u64,
}

impl KnownZones {
    fn is_old(&self, now_ns: u64) -> bool {
        let for_ns = self.cost_ns.saturating_mul(ZONES_COST_PART).min(ZONES_KEPT_NS);
        now_ns.saturating_sub(self.read_at_ns) >= for_ns
    }
}

/// What was seen at one look.
pub(super) struct View {
    pub(super) machine: Machine,
    /// In the order of the groups.
    pub(super) domains: Vec<Seen>,
}

/// The eyes of the loop.
pub(super) struct Sight {
    tree: CgroupTree,
    roots: Roots,
    usage: Option<KeptUsage>,
    zones: Option<KnownZones>,
    /// Those that were made first come first, so parents before children.
    groups: Vec<Group>,
    listed_at_ns: Option<u64>,
    /// When it was asked last whether they are to be listed anew.
    asked_at_ns: Option<u64>,
    watched: Watched,
    /// Whether some of them stand for all below them.
    are_folded: bool,
    /// By cgroup id, of protected ones: their pages' ages as they were read last.
    read: BTreeMap<u64, Reading>,
    uses: Uses,
    /// Protected cgroups with their periods, at the last look.
    periods: Vec<(u64, u64)>,
    /// The daemon's own cgroup.
    own: String,
    page_bytes: u64,
}

impl Sight {
    pub(super) fn open(roots: &Roots) -> Result<Self, KernelError> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let own = place::path_of(own, roots)?;
        Ok(Self::of(CgroupTree::open(roots)?, own.trim_start_matches('/').to_owned(), roots))
    }

    fn of(tree: CgroupTree, own: String, roots: &Roots) -> Self {
        Sight {
            tree,
            roots: roots.clone(),
            usage: KeptUsage::open(roots).ok(),
            zones: None,
            groups: Vec::new(),
            listed_at_ns: None,
            asked_at_ns: None,
            watched: Watched::open(roots),
            are_folded: false,
            read: BTreeMap::new(),
            uses: Uses::default(),
            periods: Vec::new(),
            own,
            page_bytes: rustix::param::page_size() as u64,
        }
    }

    /// How much is free, in bytes. It costs next to nothing.
    pub(super) fn free_bytes(&self) -> u64 {
        let info = rustix::system::sysinfo();
        (info.freeram as u64).saturating_mul(u64::from(info.mem_unit))
    }

    fn usage(&self) -> Result<MachineMemory, KernelError> {
        let kept = self.usage.as_ref().and_then(|kept| kept.read().ok());
        kept.map_or_else(|| machine::usage(&self.roots), Ok)
    }

    /// Read anew where that takes no more than a 200th of a CPU; watermarks change seldom, and what is in the lists of
    /// the CPUs is little.
    fn zones(&mut self, now_ns: u64) -> Result<Zones, KernelError> {
        if let Some(known) = self.zones.as_ref().filter(|known| !known.is_old(now_ns)) {
            return Ok(known.zones);
        }
        let began_ns = clock::cpu_time_ns();
        let zones = machine::zones(&self.roots)?;
        let cost_ns = clock::cpu_time_ns().saturating_sub(began_ns);
        self.zones = Some(KnownZones { zones, read_at_ns: now_ns, cost_ns });
        Ok(zones)
    }

    /// What is on the way to the disk, in bytes; nothing where that cannot be read.
    pub(super) fn writeback_bytes(&self) -> u64 {
        self.usage().map_or(0, |usage| usage.writeback_bytes)
    }

    /// How much the machine has left to give, in bytes; all of it where that cannot be read.
    pub(super) fn left_bytes(&self) -> u64 {
        self.usage().map_or(u64::MAX, |usage| as_seen(&usage).left_bytes())
    }

    /// The path and the id of the one at this place of the last look.
    pub(super) fn at(&self, place: usize) -> Option<(&str, u64)> {
        self.groups.get(place).map(|group| (group.path.as_str(), group.id))
    }

    /// The paths of all, in the order of the last look.
    pub(super) fn paths(&self) -> Vec<String> {
        self.groups.iter().map(|group| group.path.clone()).collect()
    }

    pub(super) fn path_of(&self, id: u64) -> Option<&str> {
        self.groups.iter().find(|group| group.id == id).map(|group| group.path.as_str())
    }

    /// What is charged to one at this moment, in bytes; nothing where it has gone.
    pub(super) fn charged_now(&self, id: u64) -> u64 {
        self.groups.iter().find(|group| group.id == id).map_or(0, Group::charged_now)
    }

    /// By what it is known what protected ones use.
    pub(super) fn source(&self) -> Source {
        self.uses.source()
    }

    /// Those whose pages are to be aged, by cgroup id, with their protection periods in nanoseconds.
    pub(super) fn to_age(&self) -> &[(u64, u64)] {
        if self.source() == Source::Mglru { &self.periods } else { &[] }
    }

    /// How something may be taken from a protected one, by cgroup id, of which so much is being taken, in bytes.
    pub(super) fn may_take(&self, id: u64, in_hand_bytes: u64) -> Permit {
        let period = self.periods.iter().find(|(known, _)| *known == id);
        let standing = self.groups.iter().find(|group| group.id == id).and_then(|group| group.standing);
        let read_once_bytes = standing.map_or(0, |standing| standing.read_once_bytes);
        let period_ns = period.map(|(_, period_ns)| *period_ns);
        self.uses.may_take(id, period_ns, read_once_bytes.saturating_sub(in_hand_bytes))
    }

    /// So much is being taken from a protected one as was permitted, by cgroup id, in bytes.
    pub(super) fn ask(&mut self, now_ns: u64, id: u64, permit: Permit, bytes: u64) {
        self.uses.ask(now_ns, id, permit, bytes);
    }

    /// Has the ages of one's pages be read anew at the next look.
    pub(super) fn forget_ages(&mut self, id: u64) {
        self.read.remove(&id);
    }

    /// Lists the cgroups anew where the list is old for a moment in which little is free; whether it did.
    pub(super) fn list_if_old(&mut self, now_ns: u64, orders: &Orders) -> Result<bool, KernelError> {
        if self.asked_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < LIST_LITTLE_NS) {
            return Ok(false);
        }
        self.list_anew(now_ns, orders)?;
        Ok(true)
    }

    /// Lists the cgroups anew where they may be others than they were.
    fn list_anew(&mut self, now_ns: u64, orders: &Orders) -> Result<(), KernelError> {
        let is_old = self.listed_at_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= LISTED_NS);
        // Both are to be asked: what was told is taken.
        if self.watched.may_differ() || self.are_folded || is_old {
            self.list(now_ns)?;
            self.listed_at_ns = Some(now_ns);
        } else {
            self.read_limits(now_ns);
        }
        self.fold(orders);
        self.asked_at_ns = Some(now_ns);
        Ok(())
    }

    /// Reads the limits anew of those of which they are old.
    fn read_limits(&mut self, now_ns: u64) {
        let is_old = |group: &&mut Group| now_ns.saturating_sub(group.limits.read_at_ns) >= LIMITS_NS;
        for group in self.groups.iter_mut().filter(is_old) {
            // Of one that has gone it is told.
            group.limits = limits(&group.reader, &group.path, now_ns).unwrap_or(group.limits);
        }
    }

    /// What everybody has, as it was read last or is read now, and of changed files. Where memory is counted below a
    /// cgroup, it has no processes itself, and is not among them.
    pub(super) fn takers(
        &mut self,
        orders: &Orders,
        reclaimed: Reclaimed<'_>,
        is_fresh: bool,
        with_dirty: bool,
    ) -> Vec<Taker> {
        if is_fresh {
            for group in &mut self.groups {
                group.charged_bytes = group.charged_now();
            }
        }
        let is_parent = self.has_children();
        let taker = |group: &Group| {
            let stat = with_dirty.then(|| group.reader.memory_stat().ok().flatten()).flatten();
            Taker {
                id: group.id,
                charged_bytes: group.charged_bytes,
                taken_bytes: reclaimed.taken_bytes.get(&group.path).copied().unwrap_or(0),
                being_taken_bytes: reclaimed.in_hand_bytes.get(&group.id).copied().unwrap_or(0),
                // Not what is on the way to the disk: for anonymous memory that is what is being taken from it.
                dirty_bytes: stat.map(|stat| stat.file_dirty_bytes),
                may_be_held: group.path != self.own && orders.protect_ns(&group.path).is_none(),
            }
        };
        self.groups
            .iter()
            .zip(is_parent)
            .filter(|(_, is_parent)| !is_parent)
            .map(|(group, _)| taker(group))
            .collect()
    }

    /// Looks at everything.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        orders: &Orders,
        file_uses: &FileUses,
    ) -> Result<View, KernelError> {
        if self.asked_at_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= LIST_NS) {
            self.list_anew(now_ns, orders)?;
        }
        let claimed_bytes: Vec<u64> = self.groups.iter().map(Group::charged_now).collect();
        let mut of_children = vec![0_u64; self.groups.len()];
        for (group, claimed_bytes) in self.groups.iter().zip(&claimed_bytes) {
            if let Some(parent) = group.parent {
                of_children[parent] = of_children[parent].saturating_add(*claimed_bytes);
            }
        }
        for (group, claimed_bytes) in self.groups.iter_mut().zip(&claimed_bytes) {
            group.charged_bytes = *claimed_bytes;
        }
        let machine = machine_seen(&self.usage()?, &self.zones(now_ns)?);
        self.uses.find_out(now_ns, orders.used_from, &orders.disks, &self.roots);
        let is_tried = self.source() == Source::RefaultsAndPressure;
        let (known, has_children) = (std::mem::take(&mut self.periods), self.has_children());
        self.uses.retain(|id| known.iter().any(|(known, _)| *known == id));
        self.read_ages(now_ns, orders, |place| claimed_bytes[place].saturating_sub(of_children[place]));
        let mut periods = Vec::new();
        let mut domains = Vec::with_capacity(self.groups.len());
        let are_above_protected = self.are_above(|group| orders.protect_ns(&group.path).is_some());
        for (place, group) in self.groups.iter_mut().enumerate() {
            let ordered = orders.of(&group.path);
            let weight =
                NonZeroU32::new(ordered.weight.unwrap_or(group.limits.weight)).unwrap_or(NonZeroU32::MIN);
            // What others promise covers what is used of it: nobody can know whether it will be more.
            let of_others_bytes = match orders.is_promised_by_others(&group.path) {
                true => group.limits.min_bytes.min(claimed_bytes[place]),
                false => 0,
            };
            let min_bytes = ordered.min_bytes.max(of_others_bytes);
            let principal = Principal {
                parent: group.parent,
                priority: ordered.priority,
                claimed_bytes: claimed_bytes[place],
                clean_bytes: match min_bytes {
                    0 => 0,
                    _ => group.standing(now_ns, is_tried).clean_bytes,
                },
                min_bytes,
                max_bytes: group.limits.max_bytes,
                takes_turns: !orders.domains.contains_key(&group.path),
                ..Principal::of_weight(weight)
            };
            let principal =
                file_uses.get(&group.path).map_or(principal, |file_use| file_use.claims_of(principal));
            let protected = orders.protect_ns(&group.path).map(|period_ns| {
                periods.push((group.id, period_ns));
                let own_bytes = claimed_bytes[place].saturating_sub(of_children[place]);
                let (user, standing) = (orders.user_of(&group.path), group.standing(now_ns, is_tried));
                let by_ages = self.read.get(&group.id);
                let by_ages = by_ages.map(|read| read.idle_bytes(period_ns, machine.swap_free_bytes));
                // What is counted of one that has others below it may be theirs.
                let read_once_bytes = if has_children[place] { 0 } else { standing.read_once_bytes };
                let idle_bytes = self.uses.idle_bytes(now_ns, period_ns, by_ages, read_once_bytes);
                let mut protected = protected(standing, user, idle_bytes, own_bytes, of_children[place]);
                let signs = Signs {
                    period_ns,
                    charged_bytes: claimed_bytes[place].saturating_sub(idle_bytes),
                    refaulted_bytes: standing.refaulted_bytes,
                    refaulted_file_bytes: standing.refaulted_file_bytes,
                    stalled_ns: standing.stalled_ns,
                    disk_ns: standing.disk_ns,
                };
                // What is taken from one that has others below it may be theirs.
                if !has_children[place] {
                    protected.offered_bytes = self.uses.offer(now_ns, group.id, signs);
                }
                if orders.is_all_used(&group.path, now_ns) {
                    protected.idle_bytes = of_children[place];
                    protected.offered_bytes = 0;
                }
                protected
            });
            let is_spared = group.path == self.own;
            let limited = group.limited(now_ns, is_tried, are_above_protected[place]);
            domains.push(Seen { id: group.id, principal, protected, is_spared, limited });
        }
        self.periods = periods;
        self.read.retain(|id, _| self.periods.iter().any(|(known, _)| known == id));
        Ok(View { machine, domains })
    }

    /// By place, whether others are below it.
    fn has_children(&self) -> Vec<bool> {
        self.are_above(|_| true)
    }

    /// By place, whether such ones are below it.
    fn are_above(&self, is_such: impl Fn(&Group) -> bool) -> Vec<bool> {
        let mut are_above = vec![false; self.groups.len()];
        for (place, group) in self.groups.iter().enumerate().rev() {
            if let Some(parent) = group.parent {
                are_above[parent] |= are_above[place] || is_such(group);
            }
        }
        are_above
    }

    /// Reads the ages of those that are protected, where what was read is too old; all of them at once, since the
    /// kernel tells them in one file. Of one whose ages cannot be read nothing is idle; the next ageing says why.
    fn read_ages(&mut self, now_ns: u64, orders: &Orders, own_bytes: impl Fn(usize) -> u64) {
        if self.source() != Source::Mglru {
            self.read.clear();
            return;
        }
        let is_old = |(place, group): (usize, &Group)| {
            let period_ns = orders.protect_ns(&group.path)?;
            let read = self.read.get(&group.id);
            let is_old = read.is_none_or(|read| read.is_old(now_ns, period_ns, own_bytes(place)));
            is_old.then_some(place)
        };
        let mut wanted: Vec<usize> = self.groups.iter().enumerate().filter_map(is_old).collect();
        if wanted.is_empty() {
            return;
        }
        let page_bytes = self.page_bytes;
        let generation = |seen: &ages::Generation| Generation {
            age_ns: seen.age_ms.saturating_mul(1_000_000),
            anonymous_bytes: seen.anon_pages.saturating_mul(page_bytes),
            file_bytes: seen.file_pages.saturating_mul(page_bytes),
        };
        let (groups, read) = (&self.groups, &mut self.read);
        for place in &wanted {
            let empty = Reading { nodes: Vec::new(), read_at_ns: now_ns, charged_bytes: own_bytes(*place) };
            read.insert(groups[*place].id, empty);
        }
        let _ = ages::each(&self.roots, |seen| {
            // Without the id, the last one of a path is the one that was made last: the same place is read again.
            let is_it = |place: &usize| {
                let group = &groups[*place];
                seen.cgroup_id.map_or(seen.cgroup == group.path, |id| id == group.id)
            };
            if let Some(found) = wanted.iter().position(is_it) {
                let nodes = seen.nodes.iter().map(|node| node.generations.iter().map(generation).collect());
                if let Some(read) = read.get_mut(&groups[wanted[found]].id) {
                    read.nodes = nodes.collect();
                }
                if seen.cgroup_id.is_some() {
                    wanted.swap_remove(found);
                }
            }
            if wanted.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    /// Ages the pages of one. Returns the CPU time it took, in nanoseconds.
    pub(super) fn age(&mut self, id: u64) -> Result<u64, KernelError> {
        let Some(group) = self.groups.iter().find(|group| group.id == id) else { return Ok(0) };
        let cgroup = Cgroup { path: group.path.clone(), id, uid: 0 };
        let Some(before) = ages::of(&cgroup, &self.roots)? else { return Ok(0) };
        let mut cost_ns = 0;
        for node in &before.nodes {
            let Some(youngest) = node.generations.last() else { continue };
            let target = AgeingTarget {
                memcg_id: before.memcg_id,
                node: node.node,
                sequence: youngest.sequence,
                with_anon: true,
                force_scan: true,
            };
            // One that has gone meanwhile is not looked at again.
            cost_ns += ages::age(&target, &self.roots).map_or(0, |ageing| ageing.cpu_ns);
        }
        // The next look reads what that says.
        self.read.remove(&id);
        Ok(cost_ns)
    }

    /// Takes parts of the tree of which the most is not seen as one: whoever was given a part may have more cgroups
    /// there than are listed, and would pay nothing for those.
    fn fold(&mut self, orders: &Orders) {
        let part = |group: &Group| Part {
            parent: group.parent,
            charged_bytes: group.charged_now(),
            is_ordered: orders.domains.contains_key(&group.path),
        };
        let parts: Vec<Part> = self.groups.iter().map(part).collect();
        let folded = folded(&parts, BELOW_MAX[BELOW_MAX.len() - 1]);
        self.are_folded = folded.contains(&true);
        let mut places = Vec::with_capacity(folded.len());
        let mut count = 0;
        for is_folded in &folded {
            places.push(count);
            count += usize::from(!is_folded);
        }
        let groups = std::mem::take(&mut self.groups).into_iter().zip(folded);
        self.groups = groups
            .filter(|(_, is_folded)| !is_folded)
            .map(|(group, _)| Group { parent: group.parent.map(|parent| places[parent]), ..group })
            .collect();
    }

    /// Lists the cgroups anew; those that are known stay open.
    fn list(&mut self, now_ns: u64) -> Result<(), KernelError> {
        let mut known: BTreeMap<u64, Group> =
            std::mem::take(&mut self.groups).into_iter().map(|group| (group.id, group)).collect();
        let mut listed = self.tree.list()?;
        self.watched.note(&listed);
        listed.sort_by_key(|cgroup| cgroup.id);
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for cgroup in listed.into_iter().filter(|cgroup| !cgroup.path.is_empty()) {
            let above = steward_core::domain::name::parent_of(&cgroup.path);
            let parent = above.and_then(|path| places.get(path)).copied();
            let group = match known.remove(&cgroup.id) {
                Some(group) => Some(Group { path: cgroup.path, ..group }),
                None => self.open_group(cgroup, now_ns),
            };
            // One that has gone meanwhile, or whose memory nobody counts, is not among them.
            let Some(mut group) = group else { continue };
            if now_ns.saturating_sub(group.limits.read_at_ns) >= LIMITS_NS {
                let Some(limits) = limits(&group.reader, &group.path, now_ns) else { continue };
                group.limits = limits;
            }
            group.parent = parent;
            places.insert(group.path.clone(), self.groups.len());
            self.groups.push(group);
        }
        Ok(())
    }

    fn open_group(&self, cgroup: Cgroup, now_ns: u64) -> Option<Group> {
        let reader = CgroupReader::open(&cgroup.path, &self.roots).ok()?;
        // So that not all of those that are found at once are read again at once.
        let spread_ns = cgroup.id % (LIMITS_NS / LIST_NS) * LIST_NS;
        let limits = limits(&reader, &cgroup.path, now_ns.saturating_sub(spread_ns))?;
        let may_be_open = self.groups.len() < OPEN_MAX;
        Some(Group {
            path: cgroup.path,
            id: cgroup.id,
            parent: None,
            charge: may_be_open.then(|| reader.keep_charge()).flatten(),
            reader,
            limits,
            charged_bytes: 0,
            standing: None,
        })
    }
}

/// What a cgroup was given; `None` where it has gone, or nobody counts its memory.
fn limits(reader: &CgroupReader, path: &str, read_at_ns: u64) -> Option<Limits> {
    let bytes = |bound: Bound| match bound {
        Bound::Bytes(bytes) => bytes,
        Bound::Max => u64::MAX,
    };
    let max_bytes = bytes(reader.memory_max().ok()??);
    let swap_max_bytes = reader.memory_swap_max().ok().flatten().map_or(u64::MAX, bytes);
    let min_bytes = if path.contains('/') { 0 } else { reader.memory_min().ok()?.map_or(0, bytes) };
    let weight = reader.cpu_weight().ok().flatten().and_then(|weight| u32::try_from(weight).ok());
    Some(Limits {
        weight: weight.unwrap_or(WEIGHT_DEFAULT),
        min_bytes,
        max_bytes,
        swap_max_bytes,
        read_at_ns,
    })
}

/// A cgroup, as far as it matters whether what is below it is looked at.
struct Part {
    /// The place of the one above it, before its own.
    parent: Option<usize>,
    charged_bytes: u64,
    /// Whether it was given anything.
    is_ordered: bool,
}

/// Which of them stand below one that counts as a whole: most of what is charged to that one is charged to nobody
/// who is seen below it, where so many are that not all may be, and nobody there was given anything.
fn folded(parts: &[Part], many: usize) -> Vec<bool> {
    let mut below = vec![0_usize; parts.len()];
    let mut of_children = vec![0_u64; parts.len()];
    let mut has_ordered: Vec<bool> = parts.iter().map(|part| part.is_ordered).collect();
    for (place, part) in parts.iter().enumerate().rev() {
        if let Some(parent) = part.parent {
            of_children[parent] = of_children[parent].saturating_add(part.charged_bytes);
            has_ordered[parent] |= has_ordered[place];
            below[parent] += below[place] + 1;
        }
    }
    let mut folded = vec![false; parts.len()];
    for (place, part) in parts.iter().enumerate() {
        let Some(parent) = part.parent else { continue };
        let above = parts[parent].charged_bytes;
        let unseen_bytes = above.saturating_sub(of_children[parent]);
        let is_most = unseen_bytes >= UNSEEN_MIN_BYTES && unseen_bytes > above / 2;
        let is_whole = is_most && below[parent] >= many && !has_ordered[parent];
        folded[place] = folded[parent] || is_whole;
    }
    folded
}

/// How a protected one stands. What is charged to its children is theirs: they are protected as it is.
fn protected(standing: Standing, user: u32, idle_bytes: u64, own_bytes: u64, of_children: u64) -> Protected {
    Protected {
        user,
        idle_bytes: of_children.saturating_add(idle_bytes.min(own_bytes)),
        offered_bytes: 0,
        swapped_bytes: if of_children > own_bytes { 0 } else { standing.swapped_bytes },
        file_bytes: standing.file_bytes.min(own_bytes),
        is_revocable: true,
    }
}

/// The machine's memory, as it is now.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn machine_memory(roots: &Roots) -> Result<Machine, KernelError> {
    Ok(machine_seen(&machine::usage(roots)?, &machine::zones(roots)?))
}

/// The same from what was read.
fn machine_seen(usage: &MachineMemory, zones: &Zones) -> Machine {
    let page_bytes = rustix::param::page_size() as u64;
    Machine {
        // What a low zone withholds from programs counts as free, and is none of the reserve.
        high_watermark_bytes: zones.high_with_withheld_pages().saturating_mul(page_bytes),
        // All that is neither free nor a page that can be taken, whatever it is: not all of it has a name.
        kernel_bytes: usage
            .total_bytes
            .saturating_sub(usage.free_bytes)
            .saturating_sub(usage.file_bytes)
            .saturating_sub(usage.anonymous_bytes)
            .saturating_sub(zones.per_cpu_pages.saturating_mul(page_bytes)),
        ..as_seen(usage)
    }
}

/// What one reading of the machine's memory says of it.
fn as_seen(usage: &MachineMemory) -> Machine {
    Machine {
        total_bytes: usage.total_bytes,
        free_bytes: usage.free_bytes,
        file_bytes: usage.file_bytes,
        anonymous_bytes: usage.anonymous_bytes,
        swap_free_bytes: usage.swap_free_bytes,
        ..Machine::default()
    }
}

#[cfg(test)]
mod tests;
