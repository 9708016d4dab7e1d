//! What part of the disk's time each domain of a level has (Eclipse 1998, sections 3 and 5.2): what is reserved for it,
//! and its part of what nobody has reserved. The kernel's elevator (BFQ) serves each so many sectors as its weight
//! says, charges by time whoever is so slow that a turn runs out, and what one does not want goes to the others.
//!
//! A class divides what nobody has reserved: what is in the background has a tenth of what a usual domain has, and
//! an interactive one ten times as much. So neither takes from others what was reserved for them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Class, Settings};
use crate::domain::name::{domain_of, parent_of, upwards};
use crate::domain::tree::{Node, Tree};

/// The largest weight (block/bfq-iosched.h, `BFQ_MAX_WEIGHT`).
const WEIGHT_MAX: f64 = 1000.0;
/// What a cgroup has that nobody gave a weight.
pub const WEIGHT_USUAL: u16 = 100;
/// The least that is taken to be left beside what is reserved: were it nothing, who has nothing reserved would have no
/// weight at all.
const REST_MIN: f64 = 0.01;

/// The part of a domain of this class in what nobody has reserved, beside others.
///
/// The elevator serves one for up to an eighth of a second in a row, and after that nobody of its level comes again
/// before the others have had as much by their weights. So who has a hundredth beside one that always wants the disk
/// waits for 12.5 s, and as long again after it was given more: with a tenth it is 1.25 s. An interactive domain would
/// leave one in the background a hundredth: it loses its place for a while where it takes that much (`guard`).
fn part(class: Class) -> f64 {
    match class {
        Class::Interactive => WEIGHT_MAX,
        Class::Normal => f64::from(WEIGHT_USUAL),
        Class::Background => 10.0,
    }
}

/// The weight of each domain of a level, in their order, beside `others` cgroups of which each has the usual weight and
/// keeps it: those that are not Steward's to write.
///
/// With the parts c of what is left, which are C together with the others', and the fractions f that are reserved, S
/// together, a domain is due f + (1 - S) c / C. The others' weight says what a unit of weight is worth, which makes it
/// c + f C / (1 - S). Where that is more than there can be, all have less in proportion, and the others a little more.
pub fn weights(level: &[Settings], others: usize) -> Vec<u16> {
    let part = |settings: &Settings| part(settings.class.unwrap_or_default());
    let parts = level.iter().map(part).sum::<f64>() + part(&Settings::default()) * others as f64;
    let reserved: f64 = level.iter().map(|settings| settings.reserved.unwrap_or(0.0)).sum();
    let unit = parts / (1.0 - reserved).max(REST_MIN);
    let ideal: Vec<f64> =
        level.iter().map(|settings| part(settings) + settings.reserved.unwrap_or(0.0) * unit).collect();
    let largest = ideal.iter().copied().fold(WEIGHT_MAX, f64::max);
    ideal.iter().map(|ideal| (ideal * WEIGHT_MAX / largest).round().clamp(1.0, WEIGHT_MAX) as u16).collect()
}

/// The part of the disk's time of its level that a cgroup is due while all who are there want it, 0 to 1, by the
/// weights that they have; `tree` has the cgroups with processes of that level. It may be less than what is reserved:
/// the weights of cgroups that are not Steward's stay, and none can be more than ten times as large.
pub fn part_due(tree: &Tree, path: &str, weight_of: &dyn Fn(&str) -> Option<u16>) -> Option<f64> {
    let (_, parent) = (tree.get(path)?, parent_of(path)?);
    let weight = |path: &str| f64::from(weight_of(path).unwrap_or(WEIGHT_USUAL));
    let is_beside = |path: &&str| domain_of(path) == *path && parent_of(path) == Some(parent);
    let beside: f64 = tree.iter().map(|(path, _)| path.as_str()).filter(is_beside).map(weight).sum();
    let own = if parent.is_empty() { 0.0 } else { f64::from(WEIGHT_USUAL) };
    Some(weight(path) / (beside + own))
}

/// The class of a domain: its own, or that of the nearest one above it that has one.
pub fn class_of(tree: &Tree, path: &str) -> Class {
    upwards(path).find_map(|path| tree.get(path)?.settings.disk.class).unwrap_or_default()
}

/// By which domain comes first whatever is at or below a path: the highest one there that is interactive itself.
pub fn highest_first<'path>(tree: &Tree, path: &'path str) -> Option<&'path str> {
    let is_first =
        |path: &&str| tree.get(path).is_some_and(|node| node.settings.disk.class == Some(Class::Interactive));
    upwards(path).filter(is_first).last()
}

/// Whether any domain was given this class.
pub fn has_class(tree: &Tree, class: Class) -> bool {
    tree.iter().any(|(_, node)| node.settings.disk.class == Some(class))
}

/// The cgroups right below which a domain is in the background, by path.
pub fn with_background(tree: &Tree) -> BTreeSet<String> {
    let is_last = |(_, node): &(&String, &Node)| node.settings.disk.class == Some(Class::Background);
    tree.iter().filter(is_last).filter_map(|(path, _)| parent_of(path).map(str::to_owned)).collect()
}

/// Whether what domains were given needs weights: what comes first can be told by tasks alone, and what comes last, or
/// has a fraction, cannot.
pub fn needs_weights(tree: &Tree) -> bool {
    tree.iter().any(|(_, node)| {
        let disk = node.settings.disk;
        disk.reserved.is_some() || disk.class == Some(Class::Background)
    })
}

/// Whether weights bring each interactive domain before all others, and nobody else with it: each is at the top, and
/// none of those below it has a class of its own. By weights a domain would stand beside those that it is within, and
/// what is not interactive below one that is would come first with it.
pub fn reach_the_top(tree: &Tree) -> bool {
    let is_at_the_top = |path: &str| parent_of(path) == Some("");
    let has_class = |(_, node): &(&String, &Node)| node.settings.disk.class.is_some();
    tree.iter().filter(has_class).all(|(path, node)| {
        let is_first = node.settings.disk.class == Some(Class::Interactive);
        let above = parent_of(path).map_or(Class::Normal, |path| class_of(tree, path));
        above != Class::Interactive && (!is_first || is_at_the_top(path))
    })
}

/// The weight of each cgroup that is to have another than the usual one, by path: on each level on which a domain was
/// given something. `tree` has all cgroups of these levels; `is_made` says which of them are Steward's to write.
pub fn all_weights(tree: &Tree, is_made: &dyn Fn(&str) -> bool) -> BTreeMap<String, u16> {
    let mut levels: BTreeMap<&str, Vec<(&str, Settings)>> = BTreeMap::new();
    for (path, node) in tree.iter().filter(|(path, _)| domain_of(path) == path.as_str()) {
        if let Some(parent) = parent_of(path) {
            levels.entry(parent).or_default().push((path, node.settings.disk));
        }
    }
    let mut weights_of = BTreeMap::new();
    for (parent, level) in levels {
        if level.iter().all(|(path, settings)| !settings.has_part() || !is_made(path)) {
            continue;
        }
        let (made, others): (Vec<_>, Vec<_>) = level.into_iter().partition(|(path, _)| is_made(path));
        // A domain's own processes stand beside its children, in a leaf.
        let own = usize::from(!parent.is_empty());
        let settings: Vec<Settings> = made.iter().map(|(_, settings)| *settings).collect();
        let each = made.iter().zip(weights(&settings, others.len() + own));
        let told = each.filter(|((_, settings), weight)| settings.has_part() || *weight != WEIGHT_USUAL);
        weights_of.extend(told.map(|((path, _), weight)| ((*path).to_owned(), weight)));
    }
    weights_of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::name::Names;
    use crate::domain::tree::Machine;
    use proptest::prelude::*;

    fn of(class: Option<Class>, reserved: Option<f64>) -> Settings {
        Settings { class, reserved, ..Settings::default() }
    }

    /// The part of the disk's time that the first one gets when all want it.
    fn part_of_first(level: &[Settings], others: usize) -> f64 {
        let weights = weights(level, others);
        let all = weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
        f64::from(weights[0]) / (all + f64::from(WEIGHT_USUAL) * others as f64)
    }

    #[test]
    fn a_reserved_fraction_is_had_and_the_rest_is_shared_evenly() {
        // A player beside ten readers (Eclipse 1998, figure 10): its 26 % and an eleventh of the rest.
        let level: Vec<Settings> =
            [of(None, Some(0.26))].into_iter().chain(std::iter::repeat_n(of(None, None), 10)).collect();
        assert!((part_of_first(&level, 0) - (0.26 + 0.74 / 11.0)).abs() < 0.002);
        assert!((part_of_first(&level[..1], 10) - (0.26 + 0.74 / 11.0)).abs() < 0.002);
        // All of it is reserved: 10, 30 and 60 %.
        let all = [0.1, 0.3, 0.6].map(|reserved| of(None, Some(reserved)));
        assert!((part_of_first(&all, 0) - 0.1).abs() < 0.01, "{:?}", weights(&all, 0));
    }

    #[test]
    fn what_is_in_the_background_has_a_tenth_and_who_waits_for_it_ten_times_as_much() {
        let level = [Class::Background, Class::Normal, Class::Interactive].map(|class| of(Some(class), None));
        assert_eq!(weights(&level, 3), [10, 100, 1000]);
    }

    #[test]
    fn only_levels_on_which_something_was_given_are_told_and_of_them_who_is_stewards() {
        let mut tree = Tree::new(Names::default(), Machine::default());
        let mut put = |path: &str, disk: Settings| {
            let mut node = Node::default();
            node.settings.disk = disk;
            tree.insert(path, node);
        };
        put("user.slice", of(Some(Class::Background), None));
        put("steward.web", of(None, None));
        put("steward.web/a", of(Some(Class::Background), None));
        put("steward.web/b", of(None, None));
        put("steward.batch", of(None, None));
        put("user.slice/a.scope", of(Some(Class::Interactive), None));
        put("user.slice/a.scope/b", of(Some(Class::Interactive), None));
        for (path, highest) in [
            ("user.slice/a.scope", Some("user.slice/a.scope")),
            ("user.slice/a.scope/b/c", Some("user.slice/a.scope")),
            ("steward.web", None),
        ] {
            assert_eq!(highest_first(&tree, path), highest);
        }
        let is_made = |path: &str| path.starts_with("steward.");
        assert_eq!(all_weights(&tree, &is_made), BTreeMap::from([("steward.web/a".to_owned(), 10)]));
        assert_eq!(with_background(&tree), BTreeSet::from(["".to_owned(), "steward.web".to_owned()]));
        assert_eq!(class_of(&tree, "steward.web/a/.own"), Class::Background);
        assert_eq!(class_of(&tree, "steward.web/b"), Class::Normal);
        assert!(needs_weights(&tree));
    }

    #[test]
    fn a_domain_within_another_one_does_not_come_before_all_by_its_weight() {
        let reach = |classes: &[(&str, Option<Class>)]| {
            let mut tree = Tree::new(Names::default(), Machine::default());
            for (path, class) in classes {
                let mut node = Node::default();
                node.settings.disk = of(*class, None);
                tree.insert(path, node);
            }
            reach_the_top(&tree)
        };
        let first = Some(Class::Interactive);
        assert!(reach(&[]) && reach(&[("steward.a", first), ("steward.b", None)]));
        assert!(reach(&[("steward.a", first), ("steward.a/b", None), ("steward.c/d", Some(Class::Normal))]));
        assert!(!reach(&[("steward.a", first), ("steward.a/b", first)]));
        assert!(!reach(&[("steward.a", first), ("steward.a/b", Some(Class::Normal))]));
        assert!(!reach(&[("steward.a", None), ("steward.a/b", first), ("steward.c", first)]));
        assert!(!reach(&[("user.slice", None), ("user.slice/a.scope", first)]));
    }

    #[test]
    fn what_is_due_of_a_large_fraction_beside_cgroups_of_others_is_told_by_the_weights_that_there_are() {
        let mut tree = Tree::new(Names::default(), Machine::default());
        for (path, reserved) in [("system.slice", None), ("steward.web", Some(0.9)), ("user.slice", None)] {
            let mut node = Node::default();
            node.settings.disk = of(None, reserved);
            tree.insert(path, node);
        }
        let weights = all_weights(&tree, &|path| path.starts_with("steward."));
        let due = |path| part_due(&tree, path, &|path| weights.get(path).copied());
        // As 1000 of 1200, and not nine tenths.
        assert_eq!(due("steward.web").map(|part| (part * 1000.0).round()), Some(833.0));
        assert_eq!(due("system.slice").map(|part| (part * 1000.0).round()), Some(83.0));
        assert_eq!(due("steward.gone"), None);
    }

    proptest! {
        #[test]
        fn whoever_is_beside_it_a_domain_has_what_is_reserved_for_it(
            level in proptest::collection::vec(
                (0..3_usize, proptest::option::of(0.01_f64..1.0)),
                1..12,
            ),
            scale in 0.1_f64..0.9,
        ) {
            let asked: f64 = level.iter().filter_map(|(_, reserved)| *reserved).sum();
            let settings: Vec<Settings> = level
                .iter()
                .map(|(class, reserved)| {
                    of(Some(Class::ALL[*class]), reserved.map(|reserved| reserved * scale / asked.max(1.0)))
                })
                .collect();
            let weights = weights(&settings, 0);
            let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
            for (settings, weight) in settings.iter().zip(&weights) {
                prop_assert!((1..=1000).contains(weight));
                // Weights are whole numbers: each may be off by half of one.
                let off = 0.5 * (weights.len() as f64 + 1.0) / all;
                prop_assert!(f64::from(*weight) / all >= settings.reserved.unwrap_or(0.0) - off);
            }
        }
    }
}
