//! What is known of disks beside what they say themselves: what was found of them, and what the machine's owner wants.

use steward_core::disk::config::Config;
use steward_core::disk::device::Device;
use steward_kernel::disk::calibrations::Calibrations;

/// What is known of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// What was found of those that were calibrated.
    pub calibrations: Calibrations,
    /// What the configuration says.
    pub config: Config,
}

impl Known {
    /// Has disks say it.
    pub fn tell(&self, devices: &mut [Device]) {
        self.calibrations.tell(devices);
        for device in devices {
            device.order = self.config.order_of(&device.name, &device.identity);
        }
    }
}
