//! What the kernel is told of memory: the minimum and the maximum of every cgroup that needs one.
//!
//! Protection in the kernel goes down the tree: a cgroup is protected no further than the one above it, and where a
//! cgroup hands memory out, nothing of its minimum covers what is charged to a child that has none
//! (Documentation/admin-guide/cgroup-v2.rst, memory.min). So a domain whose own processes are in a leaf passes on to
//! that leaf what its other children are not promised.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::name::{OWN_LEAF, domain_of, is_below, parent_of};
use crate::domain::tree::Tree;
use crate::memory::shortage::kept_at_most;

/// What the kernel is told of one cgroup, in bytes; `None` for a file that is as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// `memory.min`.
    pub min_bytes: Option<u64>,
    /// `memory.high`: who allocates beyond it has memory taken there first, and is slowed.
    pub high_bytes: Option<u64>,
    /// `memory.max`.
    pub max_bytes: Option<u64>,
    /// Whether somebody else's cgroup is told it, because a minimum below it counts no further than its own: one that
    /// it has itself and that is larger stays.
    pub is_passed_on: bool,
}

/// Why a cgroup is told less than it is promised: somebody has given one above it a maximum that is smaller than what
/// is promised below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lessened {
    /// The path of the one above.
    pub above: String,
    /// Its maximum, in bytes.
    pub max_bytes: u64,
    /// What the kernel is told instead, in bytes.
    pub min_bytes: u64,
}

/// What the kernel is to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// By path of the cgroup; none of them has nothing.
    pub cgroups: BTreeMap<String, Told>,
    /// The cgroups that hand memory out to their children, so that these can have any; the ones above come first.
    pub hand_out: BTreeSet<String>,
    /// Those that are told less than they are promised, by path.
    pub lessened: BTreeMap<String, Lessened>,
    /// Those that are to be protected, by path: where nobody counts their memory, nothing could be kept of it.
    pub protected: BTreeSet<String>,
}

/// What the kernel is to be told of this tree. `is_made` says whose cgroups are Steward's, or were made for it: in
/// those of others nothing is written but what one below them needs. `has_leaf` says which domains keep
/// their own processes in a leaf ([`OWN_LEAF`]).
///
/// `kept` is what the memory loop keeps of protected cgroups, by path, in bytes: it goes beyond what they are promised,
/// and those above them are protected with it. `maxima` are those of others' cgroups, by path, in bytes.
pub fn limits(
    tree: &Tree,
    is_made: &dyn Fn(&str) -> bool,
    has_leaf: &dyn Fn(&str) -> bool,
    kept: &BTreeMap<String, u64>,
    maxima: &BTreeMap<String, u64>,
) -> Limits {
    let mut limits = Limits::default();
    let settings = |path: &str| tree.get(path).map(|node| node.settings.memory).unwrap_or_default();
    for (path, node) in tree.iter() {
        let memory = node.settings.memory;
        if memory.protect_ns.is_some() && !path.is_empty() && is_made(path) {
            limits.protected.insert(path.clone());
            limits.hand_out.extend(above(path).map(str::to_owned));
        }
        // How much a protection period protects is no amount that could be told.
        let told = Told { min_bytes: memory.min_bytes, max_bytes: memory.max_bytes, ..Told::default() };
        if path.is_empty() || told == Told::default() || !is_made(path) {
            continue;
        }
        limits.cgroups.insert(path.clone(), told);
        limits
            .hand_out
            .extend(std::iter::successors(parent_of(path), |path| parent_of(path)).map(str::to_owned));
    }
    for payer in limits.hand_out.iter().filter(|path| has_leaf(path)) {
        let promised: u64 =
            tree.paid_by(payer).map(|(_, node)| node.settings.memory.min_bytes.unwrap_or(0)).sum();
        let left = settings(payer).min_bytes.unwrap_or(0).saturating_sub(promised);
        if left > 0 {
            let own = Told { min_bytes: Some(left), ..Told::default() };
            limits.cgroups.insert(format!("{payer}/{OWN_LEAF}"), own);
        }
    }
    lessen(&mut limits, maxima);
    for (path, bytes) in kept.iter().filter(|(path, bytes)| **bytes > 0 && is_made(domain_of(path))) {
        let bytes = within_maxima(&limits, kept, path, *bytes);
        raise(&mut limits, path, bytes);
        limits.hand_out.extend(above(path).map(str::to_owned));
    }
    protect_above(&mut limits, is_made);
    limits
}

impl Limits {
    /// Has who allocates be slowed before it reaches a maximum with protected ones below it ([`super::beneath`]):
    /// beyond these, by path, in bytes. A maximum that is told may have been decided on after them, and counts.
    pub fn slow_above(&mut self, ceilings: &BTreeMap<String, u64>) {
        for (path, bytes) in ceilings.iter().filter(|(path, _)| !path.is_empty()) {
            let told = self.cgroups.entry(path.clone()).or_default();
            told.high_bytes = Some(told.max_bytes.map_or(*bytes, kept_at_most));
        }
    }
}

/// What of this is kept of a cgroup, so that all that is kept below one with a maximum leaves a part of it to everybody
/// there ([`super::beneath`]): in proportion, where a maximum is told that was decided on after what is kept.
fn within_maxima(limits: &Limits, kept: &BTreeMap<String, u64>, path: &str, bytes: u64) -> u64 {
    let maxima = above(path)
        .filter_map(|above| Some((above, limits.cgroups.get(above).and_then(|told| told.max_bytes)?)));
    maxima.fold(bytes, |bytes, (above, max_bytes)| {
        let most_bytes = kept_at_most(max_bytes);
        let all = kept
            .iter()
            .filter(|(path, _)| is_below(path, above))
            .map(|(_, bytes)| u128::from(*bytes))
            .sum::<u128>();
        let part = u128::from(bytes) * u128::from(most_bytes) / all.max(1);
        if all > u128::from(most_bytes) { u64::try_from(part).unwrap_or(bytes) } else { bytes }
    })
}

/// Has no more be told below others' cgroups than their maxima, in proportion: where all that is there were kept, the
/// kernel would have nothing to take at that maximum, and end somebody.
fn lessen(limits: &mut Limits, maxima: &BTreeMap<String, u64>) {
    for (above, max_bytes) in maxima {
        let told = limits.cgroups.iter_mut().filter(|(path, _)| is_below(path, above));
        let mut minima: Vec<(&String, &mut u64)> =
            told.filter_map(|(path, told)| Some((path, told.min_bytes.as_mut()?))).collect();
        let all = minima.iter().map(|(_, bytes)| u128::from(**bytes)).sum::<u128>();
        if all <= u128::from(*max_bytes) {
            continue;
        }
        for (path, bytes) in &mut minima {
            let part = u128::from(**bytes) * u128::from(*max_bytes) / all;
            **bytes = u64::try_from(part).unwrap_or(*max_bytes);
            let lessened = Lessened { above: above.clone(), max_bytes: *max_bytes, min_bytes: **bytes };
            limits.lessened.insert((*path).clone(), lessened);
        }
    }
}

/// Whose memory is handed out for a cgroup: those above it.
fn above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent_of(path), |path| parent_of(path))
}

/// Has a cgroup be protected up to this many bytes at least.
fn raise(limits: &mut Limits, path: &str, bytes: u64) {
    let told = limits.cgroups.entry(path.to_owned()).or_default();
    told.min_bytes = Some(told.min_bytes.unwrap_or(0).max(bytes));
}

/// Has those above be protected as far as all below them are together: the kernel protects nobody further than that.
fn protect_above(limits: &mut Limits, is_made: &dyn Fn(&str) -> bool) {
    // Paths of children sort after those of their parents: from the last, each sum is whole when it is added.
    let paths: BTreeSet<String> = limits
        .cgroups
        .keys()
        .flat_map(|path| above(path).chain([path.as_str()]))
        .map(str::to_owned)
        .collect();
    let mut below: BTreeMap<&str, u64> = BTreeMap::new();
    for path in paths.iter().rev().filter(|path| !path.is_empty()) {
        let needed = below.get(path.as_str()).copied().unwrap_or(0);
        if needed > 0 {
            raise(limits, path, needed);
        }
        if let Some(told) = limits.cgroups.get_mut(path) {
            told.is_passed_on = !is_made(domain_of(path));
        }
        let own = limits.cgroups.get(path).and_then(|told| told.min_bytes).unwrap_or(0);
        if let Some(parent) = parent_of(path) {
            let sum = below.entry(parent).or_default();
            *sum = sum.saturating_add(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::name::Names;
    use crate::domain::tree::{Machine, Node};

    fn tree(domains: &[(&str, Option<u64>, Option<u64>)]) -> Tree {
        let mut tree = Tree::new(Names::default(), Machine { memory_bytes: 1000, ..Machine::default() });
        for (path, min_bytes, max_bytes) in domains {
            let mut node = Node::default();
            (node.settings.memory.min_bytes, node.settings.memory.max_bytes) = (*min_bytes, *max_bytes);
            tree.insert(path, node);
        }
        tree
    }

    fn none() -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    #[test]
    fn what_is_kept_goes_beyond_a_promise_and_those_above_are_protected_with_it() {
        let tree = tree(&[
            ("steward.a", Some(50), None),
            ("steward.a/x", Some(20), None),
            ("steward.b", None, Some(90)),
        ]);
        let kept = [("steward.a/x", 70), ("steward.a/.own", 10), ("steward.b", 5), ("other", 9)];
        let kept = kept.map(|(path, bytes)| (path.to_owned(), bytes)).into();
        let told =
            limits(&tree, &|path| path.starts_with("steward."), &|path| path == "steward.a", &kept, &none());
        let min = |path: &str| told.cgroups.get(path).and_then(|told| told.min_bytes);
        // The leaf has 30 of the promise, which is more than is kept of it.
        assert_eq!(["steward.a", "steward.a/x", "steward.a/.own"].map(min), [Some(100), Some(70), Some(30)]);
        assert_eq!((min("steward.b"), min("other")), (Some(5), None));
        assert_eq!(told.hand_out.iter().collect::<Vec<_>>(), ["", "steward.a"]);
    }

    #[test]
    fn what_is_kept_below_one_with_a_maximum_leaves_a_part_of_it_to_everybody_there() {
        let kept = [("steward.a/x", 120), ("steward.a/.own", 60), ("steward.ab", 90)];
        let kept: BTreeMap<String, u64> = kept.map(|(path, bytes)| (path.to_owned(), bytes)).into();
        let mins = |max_bytes| {
            let domains = [("steward.a", None, Some(max_bytes)), ("steward.a/x", None, None)];
            let told = limits(&tree(&domains), &|_| true, &|path| path == "steward.a", &kept, &none());
            ["steward.a", "steward.a/x", "steward.a/.own", "steward.ab"]
                .map(|path| told.cgroups.get(path).and_then(|told| told.min_bytes).unwrap_or(0))
        };
        assert_eq!(mins(192), [180, 120, 60, 90]);
        assert_eq!(mins(96), [90, 60, 30, 90], "in proportion: fifteen sixteenths of it");
    }

    #[test]
    fn who_allocates_is_slowed_before_a_maximum_with_protected_ones_below_it_is_reached() {
        let mut told =
            limits(&tree(&[("steward.a", None, Some(160))]), &|_| true, &|_| false, &none(), &none());
        let ceilings = |of_a, of_slice| {
            BTreeMap::from([("steward.a".to_owned(), of_a), ("a.slice".to_owned(), of_slice)])
        };
        let of = |told: &Limits, path: &str| told.cgroups.get(path).copied();
        let of_others = Told { high_bytes: Some(300), ..Told::default() };
        // Its maximum is smaller or larger since.
        for of_a in [150, 120, 1500] {
            told.slow_above(&ceilings(of_a, 300));
            let own = Told { high_bytes: Some(150), max_bytes: Some(160), ..Told::default() };
            assert_eq!((of(&told, "steward.a"), of(&told, "a.slice")), (Some(own), Some(of_others)));
        }
    }

    #[test]
    fn only_cgroups_of_stewards_own_are_written_and_memory_is_handed_out_down_to_them() {
        let tree = tree(&[
            ("user.slice", Some(10), None),
            ("steward.a", None, None),
            ("steward.a/x", None, Some(50)),
            ("steward.b", None, None),
        ]);
        let told = limits(&tree, &|path| path.starts_with("steward."), &|_| false, &none(), &none());
        assert_eq!(told.cgroups.keys().collect::<Vec<_>>(), ["steward.a/x"]);
        assert_eq!(told.hand_out.iter().collect::<Vec<_>>(), ["", "steward.a"]);
    }

    #[test]
    fn the_slices_above_a_scope_are_promised_what_those_in_them_need_together() {
        let (slice, other) = ("user.slice/user-1.slice", "user.slice/user-2.slice");
        let scopes = [format!("{slice}/a.scope"), format!("{slice}/b.scope"), format!("{other}/c.scope")];
        let domains =
            [(&*scopes[0], Some(10), None), (&*scopes[1], Some(20), None), (&*scopes[2], None, Some(5))];
        let kept = BTreeMap::from([(scopes[2].clone(), 7)]);
        let told = limits(&tree(&domains), &|path| path.ends_with(".scope"), &|_| false, &kept, &none());
        let passed_on = |bytes| Some(Told { min_bytes: Some(bytes), is_passed_on: true, ..Told::default() });
        let of = |path: &str| told.cgroups.get(path).copied();
        assert_eq!(["user.slice", slice, other].map(of), [passed_on(37), passed_on(30), passed_on(7)]);
        let own = Told { min_bytes: Some(7), max_bytes: Some(5), ..Told::default() };
        assert_eq!(of(&scopes[2]), Some(own));
        assert_eq!(told.hand_out.iter().collect::<Vec<_>>(), ["", "user.slice", slice, other]);
        // Who limits only needs nothing of those above.
        let limited =
            limits(&tree(&domains[2..]), &|path| path.ends_with(".scope"), &|_| false, &none(), &none());
        assert_eq!(limited.cgroups.keys().collect::<Vec<_>>(), [&scopes[2]]);
    }

    #[test]
    fn no_more_is_told_below_anothers_cgroup_than_its_maximum_in_proportion() {
        let slice = "user.slice/user-1.slice";
        let scopes = ["a", "b"].map(|name| format!("{slice}/{name}.scope"));
        let domains = [(&*scopes[0], Some(30), Some(90)), (&*scopes[1], Some(10), None)];
        let told = |maxima: &[(&str, u64)]| {
            let maxima = maxima.iter().map(|(path, bytes)| ((*path).to_owned(), *bytes)).collect();
            limits(&tree(&domains), &|path| path.ends_with(".scope"), &|_| false, &none(), &maxima)
        };
        let minima = |told: &Limits| {
            [&*scopes[0], &scopes[1], slice]
                .map(|path| told.cgroups.get(path).and_then(|told| told.min_bytes))
        };
        for enough in [&[][..], &[(slice, 40)], &[("user.slice/user-11.slice", 1)]] {
            let told = told(enough);
            assert_eq!(minima(&told), [Some(30), Some(10), Some(40)], "{enough:?}");
            assert_eq!(told.lessened, BTreeMap::new());
        }
        let less = told(&[("user.slice", 100), (slice, 20)]);
        assert_eq!(minima(&less), [Some(15), Some(5), Some(20)]);
        let lessened = |min_bytes| Lessened { above: slice.to_owned(), max_bytes: 20, min_bytes };
        assert_eq!(less.lessened.into_values().collect::<Vec<_>>(), [lessened(15), lessened(5)]);
        assert_eq!(minima(&told(&[("user.slice", 4), (slice, 20)])), [Some(3), Some(1), Some(4)]);
        assert_eq!(minima(&told(&[(slice, 0)])), [Some(0), Some(0), None], "nothing is left to keep");
    }

    #[test]
    fn a_protection_period_alone_has_nothing_written() {
        let mut tree = tree(&[("steward.b", None, Some(50))]);
        let mut protected = Node::default();
        protected.settings.memory.protect_ns = Some(1_000_000_000);
        tree.insert("steward.a", protected);
        let told = limits(&tree, &|_| true, &|_| false, &none(), &none());
        assert_eq!(told.cgroups.keys().collect::<Vec<_>>(), ["steward.b"]);
    }

    #[test]
    fn memory_is_handed_out_to_who_is_protected_before_anything_of_it_is_known() {
        let mut tree = tree(&[("steward.a", None, None), ("user.slice", None, None)]);
        for path in ["steward.a/x", "user.slice"] {
            let mut protected = Node::default();
            protected.settings.memory.protect_ns = Some(1_000_000_000);
            tree.insert(path, protected);
        }
        let told = limits(&tree, &|path| path.starts_with("steward."), &|_| false, &none(), &none());
        assert_eq!(told.hand_out.iter().collect::<Vec<_>>(), ["", "steward.a"]);
        assert_eq!(told.protected.iter().collect::<Vec<_>>(), ["steward.a/x"]);
    }

    #[test]
    fn a_domains_own_processes_keep_what_its_children_are_not_promised() {
        let domains = [("steward.a", Some(600), None), ("steward.a/x", Some(500), None)];
        let told = limits(&tree(&domains), &|_| true, &|path| path == "steward.a", &none(), &none());
        let own = Told { min_bytes: Some(100), ..Told::default() };
        assert_eq!(told.cgroups.get("steward.a/.own"), Some(&own));
        let alone = limits(&tree(&domains[..1]), &|_| true, &|path| path == "steward.a", &none(), &none());
        assert_eq!(alone.cgroups.len(), 1, "nothing is handed out there: {alone:?}");
    }
}
