//! Who pays for whom: a domain's children are paid out of the domain's own (Walfield, section 3.1).

use std::collections::BTreeMap;

use super::name::{self, Names};
use super::settings::Settings;
use crate::resource::Resource;

/// The most that can be reserved of the whole machine unless the configuration says otherwise: the kernel itself
/// keeps 5 % of each CPU from such schedulers.
pub const ROOT_LIMIT: f64 = 0.95;

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
        self.paid_by(path).map(|(_, node)| fraction_of(&node.settings, resource)).sum()
    }

    /// The most that the children of the domain at `path` may reserve together.
    pub fn limit(&self, path: &str, resource: Resource) -> f64 {
        let own =
            self.get(path).and_then(|node| node.settings.cpu_limit).filter(|_| resource == Resource::Cpu);
        let of_all = if path.is_empty() { self.root_limit } else { 1.0 };
        own.map_or(of_all, |own| own.min(of_all))
    }
}

/// The fraction of its parent's that is reserved for a domain with these settings. Memory is reserved in bytes, which no
/// level counts: 0.
pub(crate) fn fraction_of(settings: &Settings, resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => settings.cpu.unwrap_or(0.0),
        Resource::Memory => 0.0,
        Resource::Disk => settings.disk.unwrap_or(0.0),
    }
}
