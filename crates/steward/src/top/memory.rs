//! What the screen says of memory alone.

use libsteward::api;
use serde::{Deserialize, Serialize};
use steward_core::quantity::approximate_size;

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
}

impl Memory {
    /// That of a domain; `None` where the kernel does not count it.
    pub fn of(domain: &api::Domain) -> Option<Self> {
        let api::DomainMemory { used, swapped, .. } = domain.memory?;
        Some(Memory { used, swapped, promised: domain.memory_min, most: domain.memory_max })
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
        assert_eq!(Memory::of(&api::Domain::default()), None);
    }
}
