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
    /// What its requests took in the last minute; left out where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minute: Option<api::DiskMinute>,
    /// What it has changed that is not on the disk yet, in bytes; left out where that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty: Option<u64>,
}

impl Disk {
    /// That of a domain; `None` where there is nothing to say.
    pub fn of(domain: &api::Domain) -> Option<Self> {
        let disk = Disk {
            class: domain.io,
            reserved: domain.disk,
            used: domain.disk_use,
            minute: domain.disk_minute,
            dirty: domain.disk_dirty.filter(|bytes| *bytes > 0),
        };
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
            self.minute.map(|minute| minute_words(&minute)),
            self.dirty.map(|bytes| format!("{} not on the disk yet", approximate_size(bytes))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn minute_words(minute: &api::DiskMinute) -> String {
    let [median, p99, max] = [minute.median_ns, minute.p99_ns, minute.max_ns].map(approximate_duration);
    format!("requests took {median} (half), {p99} (99 of 100), {max} (all)")
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
        assert!(!words.contains("requests took") && !words.contains("not on the disk"), "{words}");
        let minute =
            api::DiskMinute { median_ns: 10_000_000, max_ns: 90_000_000, ..api::DiskMinute::default() };
        let busy =
            api::Domain { disk_minute: Some(minute), disk_dirty: Some(3 << 20), ..api::Domain::default() };
        let more = Disk::of(&busy).expect("there is something to say").words();
        assert!(
            more.contains("requests took 10ms (half)") && more.contains("3M not on the disk yet"),
            "{more}"
        );
        for phrase in ["disk background", "20 % of the disk reserved", "5M read", "waited 2", "for the disk"]
        {
            assert!(words.contains(phrase), "{phrase}: {words}");
        }
        assert!(!words.contains("disks' time"), "{words}");
    }
}
