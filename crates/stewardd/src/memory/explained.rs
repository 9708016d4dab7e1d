//! What a domain has of the memory and why, gathered for `steward_core::memory::explain`.

use std::num::NonZeroU32;

use steward_core::domain::{Node, OWN_LEAF, name};
use steward_core::memory::explain::{Facts, LeftBehind, Level, SlowedAbove, Standing, explain};
use steward_kernel::cgroup::tree::Cgroup;

use crate::daemon::Daemon;
use crate::turn::clock::now_ns;

impl Daemon {
    /// What there is to say of a domain's memory; nothing where nobody counts it. Of those who are protected only whom
    /// the reader `sees` are named.
    pub(crate) fn explain_memory(&self, cgroup: &Cgroup, sees: &dyn Fn(&str) -> bool) -> String {
        let facts = self.memory_facts(cgroup, sees);
        facts.map_or_else(String::new, |facts| explain(&facts))
    }

    fn memory_facts(&self, cgroup: &Cgroup, sees: &dyn Fn(&str) -> bool) -> Option<Facts> {
        let path = cgroup.path.as_str();
        let used = self.domains.cgroups().ok()?.memory_use(path)?;
        let cared = self.domains.cared();
        let taken = cared.taken_bytes.iter().filter(|(from, _)| name::is_at_or_below(from, path));
        let protected =
            cared.kept_bytes.keys().map(String::as_str).filter(|path| sees(name::domain_of(path)));
        Some(Facts {
            name: self.domains.names().name_of(path),
            is_made: self.domains.held(path).is_some_and(|held| held.made || held.scope),
            used_bytes: used.used_bytes,
            swapped_bytes: used.swapped_bytes,
            max_bytes: used.max_bytes,
            promised: self.promised_memory(cgroup),
            kept_bytes: cared.kept(path).unwrap_or(0),
            taken_bytes: taken.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add),
            protected: self.domains.names_of(protected),
            left: self.left(path),
            held_lately: self.memory.lately.of(path, now_ns()),
            slowed_above: self.slowed_above(path),
            levels: self.levels(path),
        })
    }

    /// The nearest maximum before which programs in a domain are slowed.
    fn slowed_above(&self, path: &str) -> Option<SlowedAbove> {
        let ceilings = &self.domains.cared().ceilings;
        let (above, bytes) = name::upwards(path).find_map(|above| ceilings.get_key_value(above))?;
        Some(SlowedAbove { name: self.domains.names().name_of(above), bytes: *bytes })
    }

    fn left(&self, path: &str) -> Vec<LeftBehind> {
        let left = self.domains.left_behind(path).into_iter();
        left.map(|(pid, charged_to, bytes)| LeftBehind { pid, charged_to, bytes }).collect()
    }

    /// A domain beside its siblings, and those above it beside theirs, from the top down.
    fn levels(&self, path: &str) -> Vec<Level> {
        let Ok(cgroups) = self.domains.cgroups() else { return Vec::new() };
        let tree = self.domains.tree_around(cgroups, path);
        let cared = self.domains.cared();
        let standing = |path: &str| {
            let node: Node = tree.get(path).cloned().unwrap_or_default();
            let kept_bytes = cared.kept(path).unwrap_or(0);
            let used_bytes = cgroups.memory_use(path)?.used_bytes;
            Some(Standing {
                priority: node.settings.common.priority,
                weight: NonZeroU32::new(node.weight()).unwrap_or(NonZeroU32::MIN),
                used_bytes,
                claimed_bytes: cared.claimed_bytes(path, used_bytes),
                floor_bytes: kept_bytes.max(node.settings.memory.min_bytes.unwrap_or(0)),
            })
        };
        let level = |path: &str| {
            let beside = self.domains.children_of(cgroups, name::parent_of(path)?).each;
            let others = beside.iter().map(String::as_str).filter(|other| *other != path);
            let others = others.filter(|other| !other.ends_with(OWN_LEAF));
            Some(Level {
                name: self.domains.names().name_of(path),
                own: standing(path)?,
                others: others.filter_map(&standing).collect(),
                in_turns: self.domains.held(path).is_none()
                    && cgroups.names_below(path, 1).is_ok_and(|below| below.is_empty()),
            })
        };
        let above = std::iter::successors(Some(path), |path| name::parent_of(path));
        let mut levels: Vec<Level> = above.filter(|path| !path.is_empty()).filter_map(level).collect();
        levels.reverse();
        levels
    }
}
