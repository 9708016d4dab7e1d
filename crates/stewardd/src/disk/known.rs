//! What is known of disks beside what they say themselves: what was found of them, and what the machine's owner wants.

use steward_core::disk::config::Config;
use steward_core::disk::device::Device;
use steward_kernel::disk::calibrations::Calibrations;
use steward_kernel::disk::devices;
use steward_kernel::{KernelError, Roots};

/// What is known of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// What was found of those that were calibrated.
    pub calibrations: Calibrations,
    /// What the configuration says.
    pub config: Config,
}

impl Known {
    /// The machine's disks, with what is known of them.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) fn devices(&self, roots: &Roots) -> Result<Vec<Device>, KernelError> {
        let mut devices = devices::list(roots)?;
        self.tell(&mut devices);
        Ok(devices)
    }

    /// Has disks say it.
    pub fn tell(&self, devices: &mut [Device]) {
        self.calibrations.tell(devices);
        for device in devices {
            device.order = self.config.order_of(&device.name, &device.identity);
        }
    }
}
