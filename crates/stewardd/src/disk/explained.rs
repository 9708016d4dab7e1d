//! What a domain has of the disk and why, gathered for `steward_core::disk::explain`.

use steward_core::disk::explain::{Facts, explain};
use steward_core::disk::shares;
use steward_core::domain::Tree;
use steward_kernel::cgroup::tree::Cgroup;
use steward_kernel::disk::devices;

use crate::daemon::Daemon;

impl Daemon {
    /// What there is to say of a domain's part of the disk.
    pub(crate) fn explain_disk(&self, cgroup: &Cgroup) -> String {
        let path = cgroup.path.as_str();
        let Ok(cgroups) = self.domains.cgroups() else { return String::new() };
        let tree: Tree = self.domains.tree_around(cgroups, path);
        let given = self.domains.held(path).map(|held| held.settings.disk).unwrap_or_default();
        explain(&Facts {
            name: self.domains.names().name_of(path),
            given,
            class: shares::class_of(&tree, path),
            weight: self.disk.weight_of(path),
            used: cgroups.disk_use(path),
            anybody_first: self.disk.has_anybody_first(),
            problem: self.domains.disk_trouble(path).map(str::to_owned),
            devices: devices::list(&self.options.roots).unwrap_or_default(),
        })
    }
}
