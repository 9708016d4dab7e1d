//! What domains may reserve of the machine together.

use steward_core::domain::{Machine, Settings, name};

use super::Domains;

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
        // What a scope of Steward's is promised was told of its slice too, and counts once.
        let has_scope =
            |path: &str| self.held.values().any(|held| held.scope && name::top_of(&held.path) == path);
        let is_of_others = |path: &str| !path.starts_with(self.names.prefix()) && !has_scope(path);
        if let Some(seen) = cgroups.and_then(|cgroups| cgroups.promisable(&is_of_others)) {
            self.machine = self.machine.with_memory(seen.programs_bytes, seen.of_others_bytes);
        }
    }
}
