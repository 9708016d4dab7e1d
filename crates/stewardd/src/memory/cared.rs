//! What the memory loop does for domains and takes from them, as it is shown.

use std::collections::BTreeMap;

use steward_core::domain::OWN_LEAF;

/// What the memory loop does for cgroups, and takes from them. By path, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cared {
    /// What is kept of protected ones; 0 of one that is demoted.
    pub(crate) kept_bytes: BTreeMap<String, u64>,
    /// What was taken for others.
    pub(crate) taken_bytes: BTreeMap<String, u64>,
}

impl Cared {
    /// What is kept of a domain itself, in its cgroup and the leaf of its own processes; `None` where it is not
    /// protected.
    pub(crate) fn kept(&self, path: &str) -> Option<u64> {
        let leaf = self.kept_bytes.get(&format!("{path}/{OWN_LEAF}")).copied().unwrap_or(0);
        Some(self.kept_bytes.get(path)?.saturating_add(leaf))
    }

    /// What was taken from a domain itself.
    pub(crate) fn taken(&self, path: &str) -> u64 {
        let of = |path: &str| self.taken_bytes.get(path).copied().unwrap_or(0);
        of(path).saturating_add(of(&format!("{path}/{OWN_LEAF}")))
    }
}
