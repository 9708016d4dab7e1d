//! What the mechanism is told, so that the guarantees of the [`tree`](super::tree) hold.
//!
//! The mechanism knows cgroups, and takes every reservation as a fraction of the cgroup above. A domain in the
//! folder has its reservation of the machine, though, so that it is said as a fraction of what the folder has; and
//! the folder is told to have all that, plus what its weight would give it, as one reservation. Its weight is then
//! as small as can be: what is left over goes to the others in proportion, as it would without the folder.

use std::collections::BTreeMap;

use super::name::{self, OWN_LEAF};
use super::tree::Tree;
use crate::mechanism::DomainPolicy;

/// The policy of every cgroup that needs one, by path. `has_leaf` says which domains keep their own processes in
/// a leaf ([`OWN_LEAF`]).
pub fn policies(tree: &Tree, has_leaf: &dyn Fn(&str) -> bool) -> BTreeMap<String, DomainPolicy> {
    let folder = tree.names().folder();
    let reserved_in_folder: f64 = in_folder(tree).filter_map(|(_, reserved)| reserved).sum();
    let factors = if reserved_in_folder > 0.0 { tree.factors() } else { BTreeMap::new() };
    let folder_has = factors.get(folder).copied().unwrap_or(1.0).min(1.0);
    let mut policies = BTreeMap::new();
    if reserved_in_folder > 0.0 && tree.get(folder).is_some() {
        let policy = DomainPolicy { reserved: folder_has, weight: Some(1), ..DomainPolicy::default() };
        policies.insert(folder.to_owned(), policy);
    }
    for (path, node) in tree.iter() {
        if path == folder {
            continue;
        }
        let mut policy = node.settings.policy();
        if name::parent_of(path) == Some(folder) && policy.reserved > 0.0 {
            policy.reserved = (policy.reserved / folder_has).min(1.0);
        }
        if has_leaf(path) {
            let leaf = DomainPolicy {
                priority: policy.own_priority,
                weight: policy.own_weight,
                ..DomainPolicy::default()
            };
            policies.insert(format!("{path}/{OWN_LEAF}"), leaf);
        }
        policies.insert(path.clone(), policy);
    }
    policies.retain(|_, policy| *policy != DomainPolicy::default());
    policies
}

/// The domains directly in the folder, with what they have reserved.
fn in_folder(tree: &Tree) -> impl Iterator<Item = (&String, Option<f64>)> {
    let folder = tree.names().folder();
    tree.iter()
        .filter(move |(path, _)| name::parent_of(path) == Some(folder))
        .map(|(path, node)| (path, node.settings.cpu))
}

#[cfg(test)]
mod tests {
    use super::super::name::Names;
    use super::super::settings::Settings;
    use super::super::tree::{Node, ROOT_LIMIT};
    use super::*;

    fn tree(domains: &[(&str, Settings)]) -> Tree {
        let mut tree = Tree::new(Names::default(), ROOT_LIMIT);
        for (path, settings) in domains {
            tree.insert(path, Node { settings: settings.clone(), ..Node::default() });
        }
        tree
    }

    fn reserved(cpu: f64) -> Settings {
        Settings { cpu: Some(cpu), ..Settings::default() }
    }

    #[test]
    fn nothing_is_told_where_nobody_asked_for_anything() {
        let tree = tree(&[("user.slice", Settings::default()), ("steward/a", Settings::default())]);
        assert!(policies(&tree, &|_| false).is_empty());
    }

    #[test]
    fn a_reservation_in_the_folder_is_of_the_machine() {
        let plain = Settings::default();
        let tree = tree(&[
            ("system.slice", plain.clone()),
            ("user.slice", plain.clone()),
            ("steward", plain.clone()),
            ("steward/a", reserved(0.2)),
            ("steward/b", plain),
            ("steward/a/x", reserved(0.5)),
        ]);
        let told = policies(&tree, &|_| false);
        let folder = told["steward"];
        // The rest of 80 % is shared by the root's own tasks, both slices and the folder.
        assert!((folder.reserved - 0.4).abs() < 1e-9 && folder.weight == Some(1), "{folder:?}");
        assert!((folder.reserved * told["steward/a"].reserved - 0.2).abs() < 1e-9);
        assert_eq!(told["steward/a/x"].reserved, 0.5);
        assert!(!told.contains_key("steward/b"));
        assert!((tree.guarantees()["steward/b"] - 0.1).abs() < 1e-9, "{:?}", tree.guarantees());
    }

    #[test]
    fn what_a_domain_keeps_for_itself_goes_to_its_leaf() {
        let settings = Settings { own_weight: Some(300), own_priority: 6, ..Settings::default() };
        let tree = tree(&[("steward/a", settings), ("steward/a/b", Settings::default())]);
        let told = policies(&tree, &|path| path == "steward/a");
        let leaf = told["steward/a/.own"];
        assert_eq!((leaf.weight, leaf.priority), (Some(300), 6));
    }
}
