//! The machine's memory in figures.

use libsteward::api;
use steward_core::resource::Resource;
use steward_kernel::memory::machine;

use crate::daemon::Daemon;

impl Daemon {
    pub(crate) fn memory_state(&self) -> api::MemoryState {
        // Where it cannot be read, nothing is known.
        let memory = machine::usage(&self.options.roots).unwrap_or_default();
        let tree = self.domains.tree_of_top();
        api::MemoryState {
            total: memory.total_bytes,
            available: memory.available_bytes,
            promised: tree.reserved_below("", Resource::Memory) as u64,
            reservable: tree.limit("", Resource::Memory) as u64,
        }
    }
}
