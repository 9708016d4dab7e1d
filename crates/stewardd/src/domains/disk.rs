//! What domains were given of the disk.

use std::collections::BTreeSet;

use libsteward::ApiError;
use steward_core::domain::{Setting, Tree, name};

use super::Domains;

impl Domains {
    /// The paths of those that Steward made.
    pub(crate) fn made(&self) -> impl Iterator<Item = &str> {
        self.held.values().filter(|held| held.made).map(|held| held.path.as_str())
    }

    /// All cgroups with processes of the levels on which a domain with processes was given something of the disk;
    /// `None` where there is no such domain.
    pub(crate) fn disk_levels(&self) -> Option<Tree> {
        let mut populated = self.populated.borrow_mut();
        let cgroups = self.cgroups.as_ref().ok()?.as_ref();
        let mut is_populated = |path: &str| populated.is_populated(cgroups, path);
        let given = self.held.values().filter(|held| held.made && !held.settings.disk.is_default());
        let used: Vec<&str> =
            given.map(|held| held.path.as_str()).filter(|path| is_populated(path)).collect();
        if used.is_empty() {
            return None;
        }
        let payers: BTreeSet<&str> = used.iter().filter_map(|path| name::parent_of(path)).collect();
        // Who has no process takes nothing.
        let beside: Vec<String> = payers
            .into_iter()
            .flat_map(|path| self.children_of(cgroups, path).each)
            .filter(|path| is_populated(path))
            .collect();
        Some(self.tree_of(beside.iter().map(String::as_str)))
    }

    /// Whether a domain may have what it was given of the disk.
    ///
    /// # Errors
    /// [`ApiError::InvalidParameter`] where its cgroup is somebody else's.
    pub(super) fn outcome_of_disk(&self, path: &str) -> Result<(), ApiError> {
        let Some(held) = self.held.get(path).filter(|held| !held.settings.disk.is_default() && !held.made)
        else {
            return Ok(());
        };
        let given = held.settings.disk;
        let setting = match (given.class, given.reserved, given.max.bytes_per_second) {
            (Some(_), ..) => Setting::Io,
            (_, Some(_), _) => Setting::Disk,
            (.., Some(_)) => Setting::IoMaxBytes,
            _ => Setting::IoMaxRequests,
        };
        let reason = format!(
            "{} was not made by Steward, and its part of the disk is its manager's business: make a domain of your own (steward \
             domain create), or ask systemd (systemctl set-property UNIT IOWeight=..., IOReadBandwidthMax=...)",
            self.names.name_of(path)
        );
        Err(ApiError::InvalidParameter { parameter: setting.name().into(), reason })
    }

    /// Why what a domain was given of the disk is not in force.
    pub(crate) fn disk_trouble(&self, path: &str) -> Option<&str> {
        let is_given = self.held.get(path).is_some_and(|held| !held.settings.disk.is_default());
        self.disk_problem.as_deref().or(self.disk_failure.as_deref()).filter(|_| is_given)
    }
}
