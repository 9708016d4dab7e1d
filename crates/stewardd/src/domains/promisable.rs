//! What domains may reserve of the machine together.

use steward_core::domain::{Machine, Settings, name};

use super::Domains;
use super::cgroups::Ours;

impl Domains {
    /// Changes what domains may reserve of the machine together. What is reserved already stays.
    pub fn set_machine(&mut self, machine: Machine) {
        self.machine = machine;
        self.measure();
    }

    /// Looks anew how much memory can be promised where a domain is to be promised more than it is: what the kernel
    /// keeps for itself and what others promise may have changed.
    pub(super) fn measure_memory(&mut self, path: &str, settings: &Settings) {
        let promised = self.held.get(path).and_then(|held| held.settings.memory.min_bytes).unwrap_or(0);
        if settings.memory.min_bytes.unwrap_or(0) > promised {
            self.measure();
        }
    }

    /// Where it cannot be read, what was known counts.
    fn measure(&mut self) {
        let cgroups = self.cgroups.as_ref().ok();
        let beside = |path: &str| {
            // All of it is Steward's own.
            if path.starts_with(self.names.prefix()) {
                return None;
            }
            let scopes = self.held.values().filter(|held| held.scope && name::top_of(&held.path) == path);
            let promised = scopes.filter_map(|held| held.settings.memory.min_bytes);
            let promised_bytes = promised.fold(0, u64::saturating_add);
            Some(Ours { told_bytes: self.memory.told_min_bytes(path), promised_bytes })
        };
        if let Some(seen) = cgroups.and_then(|cgroups| cgroups.promisable(&beside)) {
            self.machine = self.machine.with_memory(seen.programs_bytes, seen.of_others_bytes);
        }
    }
}
