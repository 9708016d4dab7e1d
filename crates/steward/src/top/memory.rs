//! What the screen says of memory alone.

use libsteward::api;
use serde::{Deserialize, Serialize};
use steward_core::quantity::{approximate_duration, approximate_size};

use crate::memory::activity;

/// The memory of a domain, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What it uses with all below it.
    pub used: u64,
    /// What of it is in the swap besides.
    pub swapped: u64,
    /// What it is promised; left out when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<u64>,
    /// The most that it may use; left out when nobody has limited it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// What is kept of it because it is protected, 0 while it is demoted; left out where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// What was taken from it for others so far.
    #[serde(default)]
    pub taken: u64,
    /// What its tasks fetched again soon after it had been taken, by whomever, so far.
    #[serde(default)]
    pub refaulted: u64,
    /// For how long at least one of its tasks stood still for want of memory so far, in nanoseconds.
    #[serde(default)]
    pub stalled_ns: u64,
    /// Whether it is in use; left out where it is not protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<api::Activity>,
}

impl Memory {
    /// That of a domain; `None` where the kernel does not count it.
    pub fn of(domain: &api::Domain) -> Option<Self> {
        let api::DomainMemory { used, swapped, kept, taken, refaulted, stalled_ns, .. } = domain.memory?;
        let (promised, most, activity) = (domain.memory_min, domain.memory_max, domain.activity);
        Some(Memory { used, swapped, promised, most, activity, kept, taken, refaulted, stalled_ns })
    }

    /// As a column has it.
    pub fn cell(&self) -> String {
        approximate_size(self.used)
    }

    /// In a few words.
    pub fn words(&self) -> String {
        let parts = [
            Some(format!("{} of memory", approximate_size(self.used))),
            (self.swapped > 0).then(|| format!("{} swapped", approximate_size(self.swapped))),
            self.promised.map(|bytes| format!("{} promised", approximate_size(bytes))),
            self.most.map(|bytes| format!("at most {}", approximate_size(bytes))),
            self.kept.map(|bytes| match bytes {
                0 => "protected, but demoted for now".to_owned(),
                bytes => format!("{} protected", approximate_size(bytes)),
            }),
            (self.taken > 0).then(|| format!("{} taken for others", approximate_size(self.taken))),
            (self.refaulted > 0).then(|| format!("{} fetched again", approximate_size(self.refaulted))),
            (self.stalled_ns > 0)
                .then(|| format!("waited {} for memory", approximate_duration(self.stalled_ns))),
            self.activity.as_ref().map(activity::words),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_domain_uses_is_told_with_what_it_was_given() {
        let used =
            api::DomainMemory { used: (300 << 20) + 4096, swapped: 5 << 10, ..api::DomainMemory::default() };
        let domain = api::Domain { memory: Some(used), memory_min: Some(64 << 20), ..api::Domain::default() };
        let memory = Memory::of(&domain).expect("it is counted");
        assert_eq!(memory.cell(), "300M");
        assert_eq!(memory.words(), "300M of memory, 5K swapped, 64M promised");
        let costs = api::DomainMemory { taken: 3 << 20, refaulted: 1 << 20, stalled_ns: 5_000_000, ..used };
        let protected = api::DomainMemory { kept: Some(0), ..costs };
        let domain = api::Domain { memory: Some(protected), ..domain };
        let words = Memory::of(&domain).expect("it is counted").words();
        let more =
            "protected, but demoted for now, 3M taken for others, 1M fetched again, waited 5ms for memory";
        assert!(words.ends_with(more), "{words}");
        let idle = Memory { activity: Some(api::Activity::default()), ..memory };
        assert_eq!(idle.words(), "300M of memory, 5K swapped, 64M promised, idle for 0s");
        assert_eq!(Memory::of(&api::Domain::default()), None);
    }
}
