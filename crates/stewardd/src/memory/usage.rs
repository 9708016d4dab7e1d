//! What domains use of the memory, as the API shows it.

use libsteward::api;
use steward_core::resource::Resource;

use crate::domains::cgroups::Cgroups;

/// What a cgroup and all below it use; `None` where nobody counts it.
pub(crate) fn of(cgroups: &dyn Cgroups, path: &str) -> Option<api::DomainMemory> {
    let used = cgroups.memory_use(path)?;
    Some(api::DomainMemory {
        used: used.used_bytes,
        swapped: used.swapped_bytes,
        stalled_ns: cgroups.stalled_ns(path, Resource::Memory).unwrap_or(0),
    })
}
