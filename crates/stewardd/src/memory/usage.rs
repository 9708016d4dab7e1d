//! What domains use of the memory and could use, as the API shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use libsteward::api;
use steward_core::domain::{Node, OWN_LEAF, Tree, name};
use steward_core::memory::availability::{Available, Room, available};
use steward_core::memory::pace::time_to_write_ns;
use steward_core::memory::principal::Principal;
use steward_core::memory::seen::Machine;
use steward_core::memory::swappable::{Own, swappable};
use steward_core::resource::Resource;
use steward_kernel::cgroup::reading::MemoryUse;

use super::cared::Cared;
use super::looks::Amounts;
use crate::domains::cgroups::Cgroups;
use crate::turn::clock::now_ns;

/// What the processes of a domain itself weigh beside its children, as a cgroup does to which nobody gave anything.
const OWN_WEIGHT: u32 = 100;

/// What domains use, and could use, by path.
pub(crate) struct Usage {
    used: BTreeMap<String, MemoryUse>,
    amounts: BTreeMap<String, Amounts>,
}

impl Usage {
    /// Reads what the domains of a tree use, wherever somebody counts it, and divides what there is. `cared` says what
    /// the memory loop keeps of them, and `left` what the kernel leaves to others' cgroups.
    pub(crate) fn of(cgroups: &dyn Cgroups, tree: &Tree, cared: &Cared, left: Left<'_>) -> Self {
        let read = |path: &String| Some((path.clone(), cgroups.memory_use(path)?));
        let (rests, paths): (Vec<&String>, Vec<&String>) =
            tree.iter().map(|(path, _)| path).filter(|path| !path.is_empty()).partition(|path| is_rest(path));
        let mut used: BTreeMap<String, MemoryUse> = paths.into_iter().filter_map(read).collect();
        // What a domain's own processes use beside its children can be taken from them where they have a leaf.
        let parents: BTreeSet<&str> = used.keys().filter_map(|path| name::parent_of(path)).collect();
        let leaves: Vec<String> = parents.into_iter().map(|path| format!("{path}/{OWN_LEAF}")).collect();
        used.extend(leaves.iter().filter_map(read));
        for rest in rests {
            let of_rest = used_by_rest(rest, &used);
            used.extend(of_rest.map(|of_rest| (rest.clone(), of_rest)));
        }
        // Where it cannot be read, nothing is known to be free.
        let machine = cgroups.machine_memory().unwrap_or_default();
        let amounts = divide_of_tree(tree, &used, &machine, cared, left);
        Usage { used, amounts }
    }

    /// What of each is known: what it uses and what it may use, by path; only where somebody counts it.
    pub(crate) fn figures(self) -> impl Iterator<Item = (String, Amounts)> {
        self.amounts.into_iter()
    }

    /// What the API says of one; `None` where nobody counts it.
    pub(crate) fn show(&self, cgroups: &dyn Cgroups, path: &str, cared: &Cared) -> Option<api::DomainMemory> {
        let used = self.used.get(path)?;
        let amounts = self.amounts.get(path).copied().unwrap_or_default();
        Some(shown(cgroups, path, used, &amounts, cared))
    }
}

/// What of the memory that a cgroup uses the kernel leaves to it though it is not Steward's, in bytes, by its path and
/// what it uses.
pub(crate) type Left<'a> = &'a dyn Fn(&str, u64) -> u64;

/// Stands in a tree for those directly below a cgroup that are not in it one by one: no cgroup has such a path.
pub(crate) fn rest_of(above: &str) -> String {
    format!("{above}/")
}

/// Whether it is what stands for those.
pub(crate) fn is_rest(path: &str) -> bool {
    path.ends_with('/')
}

/// What they use: what all below that cgroup use without those that are known.
fn used_by_rest(rest: &str, used: &BTreeMap<String, MemoryUse>) -> Option<MemoryUse> {
    let above = rest.strip_suffix('/')?;
    let beside = used.iter().filter(|(path, _)| name::parent_of(path) == Some(above));
    let all = MemoryUse { max_bytes: None, swap_left_bytes: None, ..*used.get(above)? };
    Some(beside.fold(all, |all, (_, one)| MemoryUse {
        used_bytes: all.used_bytes.saturating_sub(one.used_bytes),
        swapped_bytes: all.swapped_bytes.saturating_sub(one.swapped_bytes),
        file_bytes: all.file_bytes.saturating_sub(one.file_bytes),
        clean_bytes: all.clean_bytes.saturating_sub(one.clean_bytes),
        anonymous_bytes: all.anonymous_bytes.saturating_sub(one.anonymous_bytes),
        fixed_bytes: all.fixed_bytes.saturating_sub(one.fixed_bytes),
        refaulted_bytes: all.refaulted_bytes.saturating_sub(one.refaulted_bytes),
        max_bytes: None,
        swap_left_bytes: None,
    }))
}

/// What the API says of one that uses and may use this much.
pub(crate) fn shown(
    cgroups: &dyn Cgroups,
    path: &str,
    used: &MemoryUse,
    amounts: &Amounts,
    cared: &Cared,
) -> api::DomainMemory {
    api::DomainMemory {
        used: used.used_bytes,
        swapped: used.swapped_bytes,
        available: Some(amounts.available_bytes),
        available_at_once: Some(amounts.at_once_bytes),
        time_to_free_ns: Some(amounts.time_to_free_ns),
        kept: cared.kept(path),
        used_from: cared.kept(path).and(cared.used_from()),
        taken: cared.taken(path),
        claimed: cared.claimed_bytes(path, used.used_bytes),
        claims_from: match cared.file_uses.contains_key(path) {
            true => api::ClaimSource::MappedPages,
            false => api::ClaimSource::Charge,
        },
        refaulted: used.refaulted_bytes,
        stalled_ns: cgroups.stalled_ns(path, Resource::Memory).unwrap_or(0),
    }
}

/// What is told of a domain to who may not know how much memory it may use.
pub(crate) fn without_availability(domain: api::Domain) -> api::Domain {
    let hidden = |memory| api::DomainMemory {
        available: None,
        available_at_once: None,
        time_to_free_ns: None,
        ..memory
    };
    api::Domain { memory: domain.memory.map(hidden), ..domain }
}

fn divide_of_tree(
    tree: &Tree,
    used: &BTreeMap<String, MemoryUse>,
    machine: &Machine,
    cared: &Cared,
    left: Left<'_>,
) -> BTreeMap<String, Amounts> {
    let places: BTreeMap<&str, usize> = used.keys().map(String::as_str).zip(0..).collect();
    let default = Node::default();
    let user = |(path, used)| User {
        path,
        parent: name::parent_of(path).and_then(|parent| places.get(parent)).copied(),
        node: tree.get(name::domain_of(path)).unwrap_or(&default),
        used,
        left_bytes: left(path, used.used_bytes),
    };
    let users: Vec<User<'_>> = used.iter().map(|(path, used)| user((path.as_str(), used))).collect();
    let amounts = divide(&users, machine, cared);
    users.iter().map(|user| user.path.to_owned()).zip(amounts).collect()
}

/// One of those that memory is divided among: a domain, or the leaf of a domain's own processes.
#[derive(Clone, Copy)]
pub(crate) struct User<'a> {
    pub(crate) path: &'a str,
    /// The place of the one above it among them, before its own; `None` at the top.
    pub(crate) parent: Option<usize>,
    /// The domain, or the one that the leaf is of.
    pub(crate) node: &'a Node,
    pub(crate) used: &'a MemoryUse,
    /// What of that the kernel leaves to it beside what it is promised, in bytes.
    pub(crate) left_bytes: u64,
}

/// What each of them uses and may use.
pub(crate) fn divide(users: &[User<'_>], machine: &Machine, cared: &Cared) -> Vec<Amounts> {
    let now_ns = now_ns();
    let own = |user: &User<'_>| Own {
        parent: user.parent,
        anonymous_bytes: user.used.anonymous_bytes,
        swap_left_bytes: user.used.swap_left_bytes,
    };
    let own: Vec<Own> = users.iter().map(own).collect();
    let swappable_bytes = swappable(&own, machine.anonymous_bytes, machine.swap_free_bytes);
    let principal = |(user, swappable_bytes): (&User<'_>, u64)| {
        let User { path, parent, node, used, left_bytes } = *user;
        let standing = standing(node, path);
        // Beyond a ceiling nobody gets more as fast as they ask for it.
        let most = used.max_bytes.into_iter().chain(cared.ceilings.get(path).copied()).min();
        let principal = Principal {
            parent,
            claimed_bytes: used.used_bytes,
            clean_bytes: used.clean_bytes,
            kept_bytes: cared.kept(path).unwrap_or(0).max(stays_bytes(used, swappable_bytes)),
            max_bytes: most.unwrap_or(u64::MAX),
            adapts: cared.adapts(path, now_ns),
            min_bytes: standing.min_bytes.max(left_bytes),
            ..standing
        };
        cared.file_uses.get(path).map_or(principal, |file_use| file_use.claims_of(principal))
    };
    let principals: Vec<Principal> = users.iter().zip(swappable_bytes).map(principal).collect();
    let told = available(
        &principals,
        &room(users, machine, cared.untold_bytes(machine.high_watermark_bytes, now_ns)),
    );
    let amounts = |(user, told): (&User<'_>, Available)| Amounts {
        used_bytes: user.used.used_bytes,
        available_bytes: told.bytes,
        at_once_bytes: told.at_once_bytes,
        time_to_free_ns: time_to_write_ns(told.to_write_bytes, cared.written_per_second),
    };
    users.iter().zip(told).map(amounts).collect()
}

/// What one stands for beside its siblings: a domain, or the leaf of a domain's own processes.
fn standing(node: &Node, path: &str) -> Principal {
    let weight = |weight: u32| NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN);
    let common = &node.settings.common;
    if name::domain_of(path) != path {
        let own = Principal::of_weight(weight(common.own_weight.unwrap_or(OWN_WEIGHT)));
        return Principal { priority: common.own_priority, ..own };
    }
    Principal {
        priority: common.priority,
        min_bytes: node.settings.memory.min_bytes.unwrap_or(0),
        ..Principal::of_weight(weight(node.weight()))
    }
}

/// What of one's memory nobody could take, whatever is asked: the kernel's own, and all of its own but what can go into
/// the swap.
fn stays_bytes(used: &MemoryUse, swappable_bytes: u64) -> u64 {
    used.fixed_bytes.saturating_add(used.anonymous_bytes.saturating_sub(swappable_bytes))
}

/// What there is beside what is charged to those at the top, of which so much must stay free.
fn room(users: &[User<'_>], machine: &Machine, target_bytes: u64) -> Room {
    let at_top = users.iter().filter(|user| name::parent_of(user.path) == Some(""));
    let of_files = at_top.map(|user| user.used.file_bytes).fold(0, u64::saturating_add);
    // Pages of files that are charged to nobody below the root: what has been read, and nobody has left.
    let nobodys_bytes = machine.file_bytes.saturating_sub(of_files);
    Room {
        free_bytes: machine.free_bytes.saturating_add(nobodys_bytes),
        target_bytes,
        total_bytes: machine.total_bytes,
    }
}

#[cfg(test)]
mod tests {
    use steward_core::domain::Names;
    use steward_core::domain::tree;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine() -> Machine {
        Machine {
            total_bytes: 1000 * MIB,
            free_bytes: 100 * MIB,
            high_watermark_bytes: 20 * MIB,
            file_bytes: 300 * MIB,
            anonymous_bytes: 400 * MIB,
            swap_free_bytes: 2000 * MIB,
            ..Machine::default()
        }
    }

    fn used(anonymous_mib: u64, file_mib: u64, fixed_mib: u64) -> MemoryUse {
        let [anonymous_bytes, file_bytes, fixed_bytes] =
            [anonymous_mib, file_mib, fixed_mib].map(|mib| mib * MIB);
        MemoryUse {
            used_bytes: anonymous_bytes + file_bytes + fixed_bytes,
            file_bytes,
            clean_bytes: file_bytes,
            anonymous_bytes,
            fixed_bytes,
            ..MemoryUse::default()
        }
    }

    /// What two domains, of which the first has everything and the second nothing, may use: of the second, in MiB.
    fn of_second(has: MemoryUse, machine: &Machine, cared: &Cared) -> (u64, u64, u64) {
        let used =
            BTreeMap::from([("steward.a".to_owned(), has), ("steward.b".to_owned(), MemoryUse::default())]);
        let tree = Tree::new(Names::default(), tree::Machine::default());
        let amounts = divide_of_tree(&tree, &used, machine, cared, &|_, _| 0)["steward.b"];
        (amounts.available_bytes / MIB, amounts.at_once_bytes / MIB, amounts.time_to_free_ns / 1_000_000_000)
    }

    #[test]
    fn what_is_told_knows_of_the_watermark_the_reserve_and_what_is_kept() {
        let cared = Cared::default();
        // 80 of what is free, and 100 of files that nobody has; half of that and of 600. Of a's files 200 go at once.
        assert_eq!(of_second(used(400, 200, 0), &machine(), &cared), (390, 380, 26));
        let reserve =
            Cared { target_bytes: 36 * MIB, written_per_second: Some(100 * MIB), ..Cared::default() };
        assert_eq!(of_second(used(400, 200, 0), &machine(), &reserve), (382, 364, 2));
        // The same while anybody goes by what is told, though the memory loop sleeps.
        let mut adapting = Cared { written_per_second: Some(100 * MIB), ..Cared::default() };
        adapting.note_adapting("steward.c", now_ns(), 16 * MIB);
        assert_eq!(of_second(used(400, 200, 0), &machine(), &adapting), (382, 364, 2));
        let kept_bytes = BTreeMap::from([("steward.a".to_owned(), 500 * MIB)]);
        assert_eq!(of_second(used(400, 200, 0), &machine(), &Cared { kept_bytes, ..cared }).0, 280);
    }

    #[test]
    fn beyond_where_who_allocates_is_slowed_nothing_is_told() {
        let limited = MemoryUse { max_bytes: Some(160 * MIB), ..used(40, 0, 0) };
        let used = BTreeMap::from([
            ("steward.a".to_owned(), limited),
            ("steward.a/x".to_owned(), used(40, 0, 0)),
            ("steward.a/y".to_owned(), used(0, 0, 0)),
        ]);
        let of_y = |cared: &Cared| {
            let tree = Tree::new(Names::default(), tree::Machine::default());
            divide_of_tree(&tree, &used, &machine(), cared, &|_, _| 0)["steward.a/y"].available_bytes / MIB
        };
        let kept_bytes = BTreeMap::from([("steward.a/x".to_owned(), 40 * MIB)]);
        let cared = Cared { kept_bytes, ..Cared::default() };
        assert_eq!(of_y(&cared), 120);
        let ceilings = BTreeMap::from([("steward.a".to_owned(), 150 * MIB)]);
        assert_eq!(of_y(&Cared { ceilings, ..cared }), 110);
    }

    #[test]
    fn what_its_own_manager_has_the_kernel_leave_to_another_is_told_to_nobody() {
        let used = BTreeMap::from([
            ("system.slice".to_owned(), used(400, 200, 0)),
            ("steward.b".to_owned(), used(0, 0, 0)),
        ]);
        let tree = Tree::new(Names::default(), tree::Machine::default());
        let of_b = |left: Left<'_>| {
            divide_of_tree(&tree, &used, &machine(), &Cared::default(), left)["steward.b"].available_bytes
                / MIB
        };
        assert_eq!(of_b(&|_, _| 0), 390);
        let of_slice =
            |path: &str, used_bytes| if path == "system.slice" { used_bytes - 100 * MIB } else { 0 };
        assert_eq!(of_b(&of_slice), 280, "100 of what it uses, and what nobody has");
    }

    #[test]
    fn those_who_are_not_looked_at_one_by_one_use_what_is_left_of_what_all_use() {
        let of = |mib: u64| used(mib, 2 * mib, mib);
        let known = [("a", of(100)), ("a/x", of(10)), ("a/.own", of(5)), ("a/x/deep", of(3)), ("b", of(50))];
        let known = known.map(|(path, used)| (path.to_owned(), used)).into_iter().collect();
        assert_eq!(used_by_rest(&rest_of("a"), &known), Some(of(85)));
        assert_eq!(used_by_rest(&rest_of("a/x"), &known), Some(of(7)));
        assert_eq!(used_by_rest(&rest_of("c"), &known), None, "nobody counts it");
    }

    #[test]
    fn what_is_left_by_who_goes_by_what_it_is_told_is_told_to_nobody_else() {
        let mut cared = Cared::default();
        let of_first = |has_mib: u64, cared: &Cared| {
            let used = BTreeMap::from([
                ("steward.a".to_owned(), used(has_mib, 0, 0)),
                ("steward.b".to_owned(), used(100, 0, 0)),
            ]);
            let tree = Tree::new(Names::default(), tree::Machine::default());
            divide_of_tree(&tree, &used, &machine(), cared, &|_, _| 0)["steward.a"].available_bytes / MIB
        };
        let before = of_first(200, &cared);
        cared.note_adapting("steward.b", now_ns(), 0);
        assert_eq!(of_first(200, &cared), before - 25, "a quarter of what b has");
        cared.note_adapting("steward.a", now_ns(), 0);
        assert_eq!(of_first(200, &cared), before - 25, "its own makes no difference to it");
    }

    #[test]
    fn what_has_no_room_in_the_swap_or_is_the_kernels_own_is_told_to_nobody() {
        let of = |has, swap_mib: u64| {
            let machine = Machine { swap_free_bytes: swap_mib * MIB, ..machine() };
            of_second(has, &machine, &Cared::default()).0
        };
        assert_eq!(of(used(400, 200, 0), 0), 380, "files alone");
        assert_eq!(of(used(400, 100, 100), 0), 380, "and 200 that nobody has");
        assert_eq!(of(used(400, 0, 200), 100), 480, "a quarter of its own goes into the swap");
        assert_eq!(of(used(400, 0, 200), 0), 380, "and 300 of files that nobody has");
    }

    #[test]
    fn what_may_not_be_swapped_out_by_its_own_limit_or_one_above_it_is_told_to_nobody() {
        let limited = |used, left_mib: u64| MemoryUse { swap_left_bytes: Some(left_mib * MIB), ..used };
        let of = |has| of_second(has, &machine(), &Cared::default()).0;
        assert_eq!(of(used(400, 200, 0)), 390, "half of all");
        assert_eq!(of(limited(used(400, 200, 0), 400)), 390, "all of it may");
        assert_eq!(of(limited(used(400, 200, 0), 100)), 390, "with its files that is enough");
        assert_eq!(of(limited(used(400, 200, 0), 0)), 380, "files alone");
        assert_eq!(of(limited(used(500, 100, 0), 50)), 430, "280 that nobody has, files, and what may go");
        // The limit is above two that have it together.
        let used = BTreeMap::from([
            ("steward.a".to_owned(), limited(used(400, 0, 0), 40)),
            ("steward.a/x".to_owned(), used(300, 0, 0)),
            ("steward.a/y".to_owned(), used(100, 0, 0)),
            ("steward.a/z".to_owned(), used(0, 0, 0)),
        ]);
        let tree = Tree::new(Names::default(), tree::Machine::default());
        let full = Machine { free_bytes: 20 * MIB, file_bytes: 0, ..machine() };
        let told = divide_of_tree(&tree, &used, &full, &Cared::default(), &|_, _| 0);
        // Levels are rounded down.
        assert_eq!((told["steward.a/z"].available_bytes + MIB / 2) / MIB, 40);
    }
}
