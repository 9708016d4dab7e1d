//! What each domain is guaranteed of the CPU: what is reserved for it, and of what nobody reserved, its weight's part
//! among those of the highest priority (Eclipse 1998, section 6, where all weights are equal).

use std::collections::BTreeMap;

use crate::domain::name;
use crate::domain::tree::{Node, Tree};

impl Tree {
    /// What each domain with all below it is guaranteed, as a fraction of the machine, when everybody wants to run: the
    /// product, up to the root, of what is reserved plus the weight's part of what nobody reserved. Where the parent
    /// has tasks of its own and no weight for them, they weigh the more the more of them there are, and nothing but
    /// what is reserved is sure.
    pub fn guarantees(&self) -> BTreeMap<String, f64> {
        let mut guarantees = BTreeMap::from([(String::new(), 1.0)]);
        for (path, factor) in self.factors() {
            let above =
                name::parent_of(&path).and_then(|above| guarantees.get(above)).copied().unwrap_or(0.0);
            guarantees.insert(path, above * factor);
        }
        guarantees
    }

    /// For every domain but the root, what it gets of its parent.
    fn factors(&self) -> BTreeMap<String, f64> {
        let mut children: BTreeMap<&str, Vec<(&str, &Node)>> = BTreeMap::new();
        for (path, node) in self.iter() {
            if let Some(parent) = name::parent_of(path) {
                children.entry(parent).or_default().push((path, node));
            }
        }
        let mut factors = BTreeMap::new();
        for (parent, level) in children {
            let nodes: Vec<&Node> = level.iter().map(|(_, node)| *node).collect();
            let paths = level.iter().map(|(path, _)| (*path).to_owned());
            factors.extend(paths.zip(divide(self.get(parent), &nodes)));
        }
        factors
    }
}

/// The same as [`Tree::guarantees`] of domains in a list, parents before children and the root first: each with the place
/// of its parent in the list. One without a parent is guaranteed nothing.
pub fn guarantees_of(domains: &[(Option<usize>, Node)]) -> Vec<f64> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); domains.len()];
    for (place, (parent, _)) in domains.iter().enumerate() {
        if let Some(level) = parent.and_then(|parent| children.get_mut(parent)) {
            level.push(place);
        }
    }
    let mut guarantees = vec![0.0; domains.len()];
    guarantees.iter_mut().take(1).for_each(|root| *root = 1.0);
    for (above, level) in children.iter().enumerate().filter(|(_, level)| !level.is_empty()) {
        let nodes: Vec<&Node> = level.iter().map(|place| &domains[*place].1).collect();
        for (place, factor) in level.iter().zip(divide(Some(&domains[above].1), &nodes)) {
            guarantees[*place] = guarantees[above] * factor;
        }
    }
    guarantees
}

/// Divides one domain among its children and its own tasks: what each child gets of it.
fn divide(parent: Option<&Node>, level: &[&Node]) -> Vec<f64> {
    let reserved = |node: &Node| node.settings.cpu.reserved.unwrap_or(0.0);
    let own = parent.filter(|node| node.has_own_tasks);
    let priorities = level.iter().map(|node| node.settings.common.priority);
    let first = priorities.chain(own.map(|node| node.settings.common.own_priority)).max().unwrap_or(0);
    let weight =
        |node: &Node| if node.settings.common.priority == first { f64::from(node.weight()) } else { 0.0 };
    let beside = own.filter(|node| node.settings.common.own_priority == first);
    let own_weight =
        beside.map_or(0.0, |node| node.settings.common.own_weight.map_or(f64::INFINITY, f64::from));
    let weights: f64 = level.iter().map(|node| weight(node)).sum::<f64>() + own_weight;
    let rest = (1.0 - level.iter().map(|node| reserved(node)).sum::<f64>()).max(0.0);
    let part = |node: &Node| if weights > 0.0 { rest * weight(node) / weights } else { 0.0 };
    level.iter().map(|node| reserved(node) + part(node)).collect()
}

#[cfg(test)]
mod tests;
