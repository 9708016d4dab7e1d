//! Who pays for whom: a domain's children are paid out of the domain's own (Walfield, section 3.1).

use std::collections::BTreeMap;

use super::name::{self, Names};
use super::settings::Settings;
use crate::resource::Resource;

/// The most of the CPUs that can be reserved unless the configuration says otherwise: the kernel itself keeps 5 % of
/// each CPU from such schedulers.
pub const ROOT_LIMIT: f64 = 0.95;

/// What all domains may reserve of the machine together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Of its CPUs, a fraction.
    pub cpu: f64,
    /// Of its memory, in bytes.
    pub memory_bytes: u64,
    /// Of the memory that programs can have, a fraction: with what others promise, no more than that.
    pub memory_part: f64,
    /// What others than Steward promise of the memory, in bytes; it is not in `memory_bytes`.
    pub memory_of_others_bytes: u64,
    /// Of its disks' time, a fraction.
    pub disk: f64,
}

impl Default for Machine {
    /// [`ROOT_LIMIT`] of the CPUs, all of the disks' time, and no memory: how much there is must be said.
    fn default() -> Self {
        Machine { cpu: ROOT_LIMIT, memory_bytes: 0, memory_part: 1.0, memory_of_others_bytes: 0, disk: 1.0 }
    }
}

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
        self.settings.common.weight.unwrap_or(self.kernel_weight)
    }
}

/// All domains, by path from the root of the cgroup tree; the root's path is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    names: Names,
    machine: Machine,
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// A tree with nothing but the root, whose children may reserve that much of the machine together.
    pub fn new(names: Names, machine: Machine) -> Self {
        let nodes = BTreeMap::from([(String::new(), Node { has_own_tasks: true, ..Node::default() })]);
        Tree { names, machine, nodes }
    }

    /// What its domains may reserve of the machine together.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
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

    /// Takes all below a domain out, and leaves itself.
    pub fn remove_below(&mut self, path: &str) {
        self.nodes.retain(|other, _| other == path || !name::is_at_or_below(other, path));
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

    /// What the children of the domain at `path` have reserved together: a fraction of what it has, bytes of memory.
    pub fn reserved_below(&self, path: &str, resource: Resource) -> f64 {
        self.paid_by(path).map(|(_, node)| reserved_by(&node.settings, resource)).sum()
    }

    /// The most that the children of the domain at `path` may reserve together: a fraction of what it has, bytes of
    /// memory. Memory is paid out of what the domain itself is promised.
    pub fn limit(&self, path: &str, resource: Resource) -> f64 {
        self.machine.limit(self.get(path).map(|node| &node.settings), path.is_empty(), resource)
    }
}

impl Machine {
    /// The same with so much memory that programs can have, of which others than Steward promise so much, in bytes.
    /// What may be reserved is told in whole mebibytes.
    pub fn with_memory(self, programs_bytes: u64, of_others_bytes: u64) -> Machine {
        let promised_bytes = (programs_bytes as f64 * self.memory_part) as u64;
        let memory_bytes = promised_bytes.saturating_sub(of_others_bytes) >> 20 << 20;
        Machine { memory_bytes, memory_of_others_bytes: of_others_bytes, ..self }
    }

    /// The most that the children of a domain with these settings may reserve together, as [`Tree::limit`] has it.
    pub fn limit(&self, settings: Option<&Settings>, is_root: bool, resource: Resource) -> f64 {
        match (resource, is_root) {
            (Resource::Cpu, is_root) => {
                let of_all = if is_root { self.cpu } else { 1.0 };
                settings.and_then(|settings| settings.cpu.reservable).map_or(of_all, |own| own.min(of_all))
            }
            (Resource::Memory, true) => self.memory_bytes as f64,
            (Resource::Memory, false) => settings.map_or(0.0, |own| reserved_by(own, Resource::Memory)),
            (Resource::Disk, true) => self.disk,
            (Resource::Disk, false) => 1.0,
        }
    }
}

/// What is reserved for a domain with these settings: a fraction of what its parent has, bytes of memory.
pub(crate) fn reserved_by(settings: &Settings, resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => settings.cpu.reserved.unwrap_or(0.0),
        Resource::Memory => settings.memory.min_bytes.unwrap_or(0) as f64,
        Resource::Disk => settings.disk.reserved.unwrap_or(0.0),
    }
}
