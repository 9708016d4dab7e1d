//! The machine's memory in figures, and how much of it a domain may use.

use libsteward::api::{self, ApiError};
use steward_core::domain::name;
use steward_core::resource::Resource;
use steward_kernel::memory::machine;

use crate::daemon::Daemon;
use crate::memory::looks::{Amounts, Figures, Look};
use crate::server::turns::Payer;
use crate::turn::clock::cpu_time_ns;

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
            lapsed: self.domains.lapsed() as u64,
            used_from: self.domains.cared().used_from(),
        }
    }

    /// How much memory a domain may use, as it was seen a moment ago or is seen now; `payer` pays for looking. Where
    /// nobody counts it, that of the nearest one above it: at the top, the machine's.
    ///
    /// # Errors
    /// [`ApiError::MechanismFailed`] when there are no domains on this machine.
    pub(crate) fn availability(
        &mut self,
        path: &str,
        payer: Payer,
        now_ns: u64,
    ) -> Result<Figures, ApiError> {
        let Some(parent) = name::parent_of(path) else { return self.availability_of_machine(now_ns) };
        if self.memory.looks.recent(parent, payer, now_ns).is_none() {
            let begun_ns = cpu_time_ns();
            let figures = self.domains.memory_usage_below(parent)?.figures().collect();
            let cost_ns = cpu_time_ns().saturating_sub(begun_ns);
            self.memory.looks.keep(parent, Look { at_ns: now_ns, cost_ns, payer, figures });
        }
        let look = self.memory.looks.last(parent);
        let found = look.and_then(|look| Some((look.at_ns, *look.figures.get(path)?)));
        match found {
            Some((at_ns, amounts)) => Ok(Figures { path: path.to_owned(), at_ns, amounts }),
            None => self.availability(parent, payer, now_ns),
        }
    }

    fn availability_of_machine(&self, now_ns: u64) -> Result<Figures, ApiError> {
        let free_bytes = self.domains.cgroups()?.memory_available().unwrap_or(0);
        // Where it cannot be read, nothing is known to be used.
        let total_bytes =
            machine::usage(&self.options.roots).map_or(0, |memory| memory.total_bytes).max(free_bytes);
        let used_bytes = total_bytes - free_bytes;
        // What the kernel estimates can be had without anything being swapped out; the rest is somebody's.
        let amounts = Amounts {
            used_bytes,
            available_bytes: total_bytes,
            at_once_bytes: total_bytes,
            time_to_free_ns: 0,
        };
        Ok(Figures { path: String::new(), at_ns: now_ns, amounts })
    }
}
