//! What the screen says of the disk alone.

use libsteward::api;
use serde::{Deserialize, Serialize};
use steward_core::quantity::{approximate_duration, approximate_size, percent};

/// A domain's part of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// How soon its requests are served; left out where nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<api::IoClass>,
    /// Disk time reserved, of its parent's; left out where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<f64>,
    /// What it had so far; left out where the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<api::DomainDisk>,
}

impl Disk {
    /// That of a domain; `None` where there is nothing to say.
    pub fn of(domain: &api::Domain) -> Option<Self> {
        let disk = Disk { class: domain.io, reserved: domain.disk, used: domain.disk_use };
        (disk != Disk::default()).then_some(disk)
    }

    /// In a few words.
    pub fn words(&self) -> String {
        let used = self.used.map(|used| {
            let (read, written) = (approximate_size(used.read), approximate_size(used.written));
            format!("{read} read, {written} written")
        });
        let waited = self.used.filter(|used| used.stalled_ns > 0);
        let busy = self.used.and_then(|used| used.device_time_ns);
        let parts = [
            self.class.map(|class| format!("disk {}", class.name())),
            self.reserved.map(|reserved| format!("{} of the disk reserved", percent(reserved))),
            used,
            busy.map(|time_ns| format!("{} of disks' time", approximate_duration(time_ns))),
            waited.map(|used| format!("waited {} for the disk", approximate_duration(used.stalled_ns))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_and_had_of_the_disk_is_said_and_nothing_else() {
        assert_eq!(Disk::of(&api::Domain::default()), None);
        let used = api::DomainDisk { read: 5 << 20, stalled_ns: 2_000_000_000, ..api::DomainDisk::default() };
        let domain = api::Domain {
            io: Some(api::IoClass::Background),
            disk: Some(0.2),
            disk_use: Some(used),
            ..api::Domain::default()
        };
        let words = Disk::of(&domain).expect("there is something to say").words();
        for phrase in ["disk background", "20 % of the disk reserved", "5M read", "waited 2", "for the disk"]
        {
            assert!(words.contains(phrase), "{phrase}: {words}");
        }
        assert!(!words.contains("disks' time"), "{words}");
    }
}
