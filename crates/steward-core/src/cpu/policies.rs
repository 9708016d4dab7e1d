//! What the mechanism is told: the policy of every cgroup that has another than the default.

use std::collections::BTreeMap;

use crate::cpu::mechanism::MechanismKind;
use crate::cpu::policy::DomainPolicy;
use crate::domain::name::OWN_LEAF;
use crate::domain::tree::Tree;

/// Behind all others.
const PRIORITY_LEAST: u8 = 0;
const WEIGHT_LEAST: u32 = 1;

/// The policy of every cgroup that needs one, by path. `has_leaf` says which domains keep their own processes in a leaf
/// ([`OWN_LEAF`]): what such a domain has for its own tasks is told of the leaf, which stands beside its children.
pub fn policies(tree: &Tree, has_leaf: &dyn Fn(&str) -> bool) -> BTreeMap<String, DomainPolicy> {
    let mut policies = BTreeMap::new();
    for (path, node) in tree.iter() {
        let policy = node.settings.policy();
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

/// Changes what is told so that the cgroups at these paths come after all their siblings: by priority where the
/// mechanism knows priorities, otherwise by weight.
pub fn lower<'path>(
    policies: &mut BTreeMap<String, DomainPolicy>,
    lowered: impl Iterator<Item = &'path String>,
    mechanism: MechanismKind,
) {
    for path in lowered {
        let policy = policies.entry(path.clone()).or_default();
        match mechanism {
            MechanismKind::SchedExt => policy.priority = PRIORITY_LEAST,
            MechanismKind::Deadline | MechanismKind::Nice => policy.weight = Some(WEIGHT_LEAST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::name::Names;
    use crate::domain::settings::Settings;
    use crate::domain::tree::{Machine, Node};

    fn tree(domains: &[(&str, Settings)]) -> Tree {
        let mut tree = Tree::new(Names::default(), Machine::default());
        for (path, settings) in domains {
            tree.insert(path, Node { settings: settings.clone(), ..Node::default() });
        }
        tree
    }

    #[test]
    fn only_what_somebody_asked_for_is_told() {
        let mut reserved = Settings::default();
        reserved.cpu.reserved = Some(0.2);
        let tree = tree(&[("user.slice", Settings::default()), ("steward.a", reserved)]);
        let told = policies(&tree, &|_| false);
        assert_eq!(told.len(), 1);
        assert_eq!(told["steward.a"].reserved, 0.2);
    }

    #[test]
    fn what_is_lowered_comes_last_and_keeps_what_else_it_was_given() {
        let mut given = Settings::default();
        (given.cpu.reserved, given.common.weight, given.common.priority) = (Some(0.2), Some(300), 6);
        let tree = tree(&[("steward.a", given)]);
        let lowered = ["steward.a".to_owned(), "system.slice".to_owned()];
        let told = |mechanism| {
            let mut told = policies(&tree, &|_| false);
            lower(&mut told, lowered.iter(), mechanism);
            told
        };
        let by_priority = told(MechanismKind::SchedExt);
        let a = by_priority["steward.a"];
        assert_eq!((a.priority, a.weight, a.reserved), (0, Some(300), 0.2));
        assert_eq!(by_priority["system.slice"], DomainPolicy { priority: 0, ..DomainPolicy::default() });
        for mechanism in [MechanismKind::Deadline, MechanismKind::Nice] {
            let least = DomainPolicy { weight: Some(1), ..DomainPolicy::default() };
            assert_eq!(told(mechanism)["system.slice"], least);
        }
    }

    #[test]
    fn what_a_domain_keeps_for_itself_goes_to_its_leaf() {
        let mut settings = Settings::default();
        (settings.common.own_weight, settings.common.own_priority) = (Some(300), 6);
        let tree = tree(&[("steward.a", settings), ("steward.a/b", Settings::default())]);
        let told = policies(&tree, &|path| path == "steward.a");
        let leaf = told["steward.a/.own"];
        assert_eq!((leaf.weight, leaf.priority), (Some(300), 6));
    }
}
