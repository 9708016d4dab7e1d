//! The machine's memory in figures.

use libsteward::api;
use steward_core::resource::Resource;
use steward_kernel::memory;

use crate::daemon::Daemon;

impl Daemon {
    pub(crate) fn memory_state(&self) -> api::MemoryState {
        let roots = &self.options.roots;
        let tree = self.domains.tree_of_top();
        api::MemoryState {
            // Where it cannot be read, nothing is known.
            total: memory::total_bytes(roots).unwrap_or(0),
            available: memory::available_bytes(roots).unwrap_or(0),
            promised: tree.reserved_below("", Resource::Memory) as u64,
            reservable: tree.limit("", Resource::Memory) as u64,
        }
    }
}
