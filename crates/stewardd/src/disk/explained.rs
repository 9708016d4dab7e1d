//! What a domain has of the disk and why, gathered for `steward_core::disk::explain`.

use libsteward::api;
use steward_core::disk::cost::Standing;
use steward_core::disk::device::Device;
use steward_core::disk::elevator::InForce;
use steward_core::disk::explain::{Facts, explain};
use steward_core::disk::{Class, elevator, shares};
use steward_core::domain::Tree;
use steward_kernel::cgroup::tree::Cgroup;

use crate::daemon::Daemon;

impl Daemon {
    /// The disks that were calibrated, and are there.
    pub(crate) fn calibrated_disks(&self) -> Vec<api::CalibratedDisk> {
        if self.disk.known.calibrations.disks.is_empty() {
            return Vec::new();
        }
        let in_force = self.disks_in_force();
        let shown = |device: &Device| {
            let calibration = self.disk.known.calibrations.of(device)?;
            let standing = device.cost.as_ref().map(|lines| lines.standing(device.model.as_ref()));
            Some(api::CalibratedDisk {
                name: device.name.clone(),
                identity: calibration.identity.clone(),
                measured_at: calibration.measured_at,
                charged: standing == Some(Standing::Stewards),
                text: elevator::backend(device, &in_force),
            })
        };
        self.disk.devices(&self.options.roots).iter().filter_map(shown).collect()
    }

    /// What is done with disks, as far as these do not show it.
    pub(super) fn disks_in_force(&self) -> InForce {
        InForce { given: self.disk.knobs.given_elevators() }
    }

    /// Whether disk requests of whoever is in a domain are to be served before all others; not where there is none of
    /// that name.
    pub(crate) fn is_served_first(&self, domain: &str) -> bool {
        let (Ok(cgroups), Ok(Cgroup { path, .. })) = (self.domains.cgroups(), self.domains.resolve(domain))
        else {
            return false;
        };
        shares::class_of(&self.domains.tree_around(cgroups, &path), &path) == Class::Interactive
    }

    /// What there is to say of a domain's part of the disk.
    pub(crate) fn explain_disk(&self, cgroup: &Cgroup) -> String {
        let path = cgroup.path.as_str();
        let Ok(cgroups) = self.domains.cgroups() else { return String::new() };
        let tree: Tree = self.domains.tree_around(cgroups, path);
        let levels = self.domains.disk_levels();
        let weight_of = |path: &str| self.disk.weight_of(path);
        let given = self.domains.held(path).map(|held| held.settings.disk).unwrap_or_default();
        explain(&Facts {
            name: self.domains.names().name_of(path),
            given,
            class: shares::class_of(&tree, path),
            weight: self.disk.weight_of(path),
            due: levels.and_then(|levels| shares::part_due(&levels, path, &weight_of)),
            used: cgroups.disk_use(path),
            anybody_first: self.disk.has_anybody_first(),
            problem: self.domains.disk_trouble(path).map(str::to_owned),
            devices: self.disk.devices(&self.options.roots),
            in_force: self.disks_in_force(),
        })
    }
}
