//! What domains use of the memory and could use, as the API shows it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use libsteward::api;
use steward_core::cpu::policy::PRIORITY_DEFAULT;
use steward_core::domain::{Node, Tree, name};
use steward_core::memory::availability::{Domain, Own, available};
use steward_core::resource::Resource;
use steward_kernel::cgroup::reading::MemoryUse;

use super::cared::Cared;
use crate::domains::cgroups::Cgroups;

/// What the processes of a domain itself weigh beside its children, as a cgroup does to which nobody gave anything.
const OWN_WEIGHT: u32 = 100;

/// What domains use, and could use, by path.
pub(crate) struct Usage {
    used: BTreeMap<String, MemoryUse>,
    available: BTreeMap<String, u64>,
}

impl Usage {
    /// Reads what the domains of a tree use, wherever somebody counts it, and divides what there is.
    pub(crate) fn of(cgroups: &dyn Cgroups, tree: &Tree) -> Self {
        let read = |path: &String| Some((path.clone(), cgroups.memory_use(path)?));
        let used: BTreeMap<String, MemoryUse> =
            tree.iter().map(|(path, _)| path).filter(|path| !path.is_empty()).filter_map(read).collect();
        let files = |(path, used): (&String, &MemoryUse)| match name::parent_of(path) {
            Some("") => used.file_bytes,
            _ => 0,
        };
        // What can be had of pages of files is counted as theirs who use them.
        let of_domains = used.iter().map(files).fold(0, u64::saturating_add);
        let free_bytes = cgroups.memory_available().unwrap_or(0).saturating_sub(of_domains);
        Usage { available: divide(tree, &used, free_bytes), used }
    }

    /// What of each is known: what it uses and what it may use, in bytes, by path; only where somebody counts it.
    pub(crate) fn figures(self) -> impl Iterator<Item = (String, (u64, u64))> {
        let Usage { used, mut available } = self;
        used.into_iter().map(move |(path, used)| {
            let available = available.remove(&path).unwrap_or(0);
            (path, (used.used_bytes, available))
        })
    }

    /// What the API says of one; `None` where nobody counts it.
    pub(crate) fn show(&self, cgroups: &dyn Cgroups, path: &str, cared: &Cared) -> Option<api::DomainMemory> {
        let used = self.used.get(path)?;
        Some(api::DomainMemory {
            used: used.used_bytes,
            swapped: used.swapped_bytes,
            available: self.available.get(path).copied().unwrap_or(0),
            kept: cared.kept(path),
            taken: cared.taken(path),
            stalled_ns: cgroups.stalled_ns(path, Resource::Memory).unwrap_or(0),
        })
    }
}

fn divide(tree: &Tree, used: &BTreeMap<String, MemoryUse>, free_bytes: u64) -> BTreeMap<String, u64> {
    let places: BTreeMap<&str, usize> = used.keys().map(String::as_str).zip(0..).collect();
    let weight = |weight: u32| NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN);
    let domains: Vec<Domain> = used
        .iter()
        .map(|(path, used)| {
            let node: Node = tree.get(path).cloned().unwrap_or_default();
            Domain {
                parent: name::parent_of(path).and_then(|parent| places.get(parent)).copied(),
                priority: node.settings.common.priority,
                weight: weight(node.weight()),
                used_bytes: used.used_bytes,
                min_bytes: node.settings.memory.min_bytes.unwrap_or(0),
                max_bytes: used.max_bytes.unwrap_or(u64::MAX),
            }
        })
        .collect();
    let own = Own { priority: PRIORITY_DEFAULT, weight: weight(OWN_WEIGHT) };
    used.keys().cloned().zip(available(&domains, free_bytes, own)).collect()
}
