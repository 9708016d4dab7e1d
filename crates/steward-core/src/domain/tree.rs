//! Who pays for whom, admission, and what each domain is guaranteed.
//!
//! A domain's children are paid out of the domain's own (Walfield, section 3.1): what one level reserves together
//! never exceeds what its parent has, or the limit that the parent set. What is not reserved is shared by weight
//! among those of the highest priority (Eclipse 1998, section 6, where all weights are equal).

use std::collections::BTreeMap;

use super::name::{self, Names};
use super::settings::Settings;

/// The most that can be reserved of the whole machine unless the configuration says otherwise: the kernel itself
/// keeps 5 % of each CPU from such schedulers.
pub const ROOT_LIMIT: f64 = 0.95;
/// What sums of fractions may be off by, being sums of binary fractions.
const TOLERANCE: f64 = 1e-9;

/// One domain, as far as dividing needs to know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it was given.
    pub settings: Settings,
    /// The cgroup's `cpu.weight`, which counts where the settings have none.
    pub kernel_weight: u32,
    /// Whether it has tasks of its own beside its children.
    pub has_own_tasks: bool,
}

impl Default for Node {
    fn default() -> Self {
        Node { settings: Settings::default(), kernel_weight: 100, has_own_tasks: false }
    }
}

impl Node {
    /// The weight that counts.
    pub fn weight(&self) -> u32 {
        self.settings.weight.unwrap_or(self.kernel_weight)
    }
}

/// All domains, by path from the root of the cgroup tree; the root's path is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    names: Names,
    root_limit: f64,
    nodes: BTreeMap<String, Node>,
}

/// Which reservation an admission is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The CPU.
    Cpu,
    /// The disk's time.
    Disk,
}

impl Resource {
    fn of(self, settings: &Settings) -> f64 {
        match self {
            Resource::Cpu => settings.cpu.unwrap_or(0.0),
            Resource::Disk => settings.disk.unwrap_or(0.0),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Resource::Cpu => "CPU",
            Resource::Disk => "disk time",
        }
    }
}

/// Why a reservation was not admitted: what is there, what was asked, what is left.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The whole of it in a sentence, with what to do.
    pub reason: String,
    /// The fraction of the parent's that was asked for.
    pub asked: f64,
    /// What the other domains of this level have reserved.
    pub reserved: f64,
    /// The most that the level may reserve together.
    pub limit: f64,
}

impl Tree {
    /// A tree with nothing but the root, whose children may reserve `root_limit` together.
    pub fn new(names: Names, root_limit: f64) -> Self {
        let nodes = BTreeMap::from([(String::new(), Node { has_own_tasks: true, ..Node::default() })]);
        Tree { names, root_limit, nodes }
    }

    /// How domains are called.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Puts a domain in, or another in its place.
    pub fn insert(&mut self, path: &str, node: Node) {
        self.nodes.insert(path.to_owned(), node);
    }

    /// Takes a domain out, with all below it.
    pub fn remove(&mut self, path: &str) {
        self.nodes.retain(|other, _| !name::is_at_or_below(other, path));
    }

    /// The domain at a path.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// All domains by path, parents before children.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.nodes.iter()
    }

    /// Those that the domain at `path` pays for: its children.
    pub fn paid_by<'tree>(&'tree self, path: &str) -> impl Iterator<Item = (&'tree String, &'tree Node)> {
        self.nodes.iter().filter(move |(other, _)| name::parent_of(other) == Some(path))
    }

    /// What the children of the domain at `path` have reserved together, as a fraction of what it has.
    pub fn reserved_below(&self, path: &str, resource: Resource) -> f64 {
        self.paid_by(path).map(|(_, node)| resource.of(&node.settings)).sum()
    }

    /// The most that the children of the domain at `path` may reserve together.
    pub fn limit(&self, path: &str, resource: Resource) -> f64 {
        let own =
            self.get(path).and_then(|node| node.settings.cpu_limit).filter(|_| resource == Resource::Cpu);
        let of_all = if path.is_empty() { self.root_limit } else { 1.0 };
        own.map_or(of_all, |own| own.min(of_all))
    }

    /// Whether the domain at `path`, which need not exist yet, may have these settings.
    ///
    /// # Errors
    /// [`Refusal`] when the level would reserve more than its parent has, or its children more than the new limit.
    pub fn admit(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        self.admit_one(path, settings, Resource::Cpu)?;
        self.admit_one(path, settings, Resource::Disk)?;
        self.admit_limit(path, settings)
    }

    fn admit_one(&self, path: &str, settings: &Settings, resource: Resource) -> Result<(), Refusal> {
        let asked = resource.of(settings);
        let before = self.get(path).map_or(0.0, |node| resource.of(&node.settings));
        let Some(payer) = name::parent_of(path).filter(|_| asked > before) else { return Ok(()) };
        let reserved = (self.reserved_below(payer, resource) - before).max(0.0);
        let limit = self.limit(payer, resource);
        if asked + reserved <= limit + TOLERANCE {
            return Ok(());
        }
        let left = (limit - reserved).max(0.0);
        let whose = if payer.is_empty() { "the machine".to_owned() } else { self.names.name_of(payer) };
        let reason = format!(
            "{} cannot have {} of the {} of {whose}: other domains have {} of it, at most {} may be reserved, so {} \
             is left{}; ask for less, or lower one of those",
            self.names.name_of(path),
            percent(asked),
            resource.word(),
            percent(reserved),
            percent(limit),
            percent(left),
            self.largest(payer, path, resource),
        );
        Err(Refusal { reason, asked, reserved, limit })
    }

    /// Who has the most of a level, in parentheses.
    fn largest(&self, payer: &str, except: &str, resource: Resource) -> String {
        let mut others: Vec<(f64, String)> = self
            .paid_by(payer)
            .filter(|(path, _)| *path != except)
            .map(|(path, node)| (resource.of(&node.settings), self.names.name_of(path)))
            .filter(|(reserved, _)| *reserved > 0.0)
            .collect();
        others.sort_by(|one, other| other.0.total_cmp(&one.0));
        let named: Vec<String> =
            others.iter().take(3).map(|(reserved, name)| format!("{name} {}", percent(*reserved))).collect();
        match named.len() {
            0 => String::new(),
            _ if others.len() > 3 => format!(" ({}, and {} more)", named.join(", "), others.len() - 3),
            _ => format!(" ({})", named.join(", ")),
        }
    }

    /// A limit cannot be set below what the children have reserved.
    fn admit_limit(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        let Some(limit) = settings.cpu_limit else { return Ok(()) };
        let reserved = self.reserved_below(path, Resource::Cpu);
        if reserved <= limit + TOLERANCE {
            return Ok(());
        }
        let reason = format!(
            "the limit of {} cannot be {}: its children have reserved {} of its CPU; lower one of those first",
            self.names.name_of(path),
            percent(limit),
            percent(reserved)
        );
        Err(Refusal { reason, asked: limit, reserved, limit })
    }

    /// What each domain with all below it is guaranteed, as a fraction of the machine, when everybody wants to
    /// run: the product, up to the root, of what is reserved plus the weight's part of what nobody reserved. Where the parent has tasks
    /// of its own and no weight for them, they weigh the more the more of them there are, and nothing but what is reserved is sure.
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
        for (path, node) in &self.nodes {
            if let Some(parent) = name::parent_of(path) {
                children.entry(parent).or_default().push((path, node));
            }
        }
        let mut factors = BTreeMap::new();
        for (parent, level) in children {
            divide(self.nodes.get(parent), &level, &mut factors);
        }
        factors
    }
}

/// Divides one domain among its children and its own tasks.
fn divide(parent: Option<&Node>, level: &[(&str, &Node)], factors: &mut BTreeMap<String, f64>) {
    let reserved = |node: &Node| Resource::Cpu.of(&node.settings);
    let own = parent.filter(|node| node.has_own_tasks);
    let priorities = level.iter().map(|(_, node)| node.settings.priority);
    let first = priorities.chain(own.map(|node| node.settings.own_priority)).max().unwrap_or(0);
    let weight = |node: &Node| if node.settings.priority == first { f64::from(node.weight()) } else { 0.0 };
    let beside = own.filter(|node| node.settings.own_priority == first);
    let own_weight = beside.map_or(0.0, |node| node.settings.own_weight.map_or(f64::INFINITY, f64::from));
    let weights: f64 = level.iter().map(|(_, node)| weight(node)).sum::<f64>() + own_weight;
    let rest = (1.0 - level.iter().map(|(_, node)| reserved(node)).sum::<f64>()).max(0.0);
    for (path, node) in level {
        let part = if weights > 0.0 { rest * weight(node) / weights } else { 0.0 };
        factors.insert((*path).to_owned(), reserved(node) + part);
    }
}

/// A fraction as a percentage, with as many decimals as it has within a hundredth of a percent.
pub fn percent(fraction: f64) -> String {
    // Adding nothing makes a sum of nothing, which is -0, to 0.
    let text = format!("{:.2}", fraction * 100.0 + 0.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
