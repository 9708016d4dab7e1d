//! What a domain gets of its parent's CPU.

use serde::{Deserialize, Serialize};

/// The number of priorities that a domain can have: 0 to 7, higher is served first.
pub const PRIORITIES: u8 = 8;
/// The priority of a domain that nobody gave one.
pub const PRIORITY_DEFAULT: u8 = 4;

/// What a domain gets from its parent, and what it keeps for its own tasks beside its children (Walfield, sections
/// 3.2 and 4.1; Eclipse 1998, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainPolicy {
    /// Order among siblings, 0 to 7: what a higher one wants, a lower one gets only by its reservation.
    pub priority: u8,
    /// Share of the unreserved rest among siblings of one priority, 1 to 10,000; `None`: the cgroup's `cpu.weight`.
    pub weight: Option<u32>,
    /// CPU reserved, as a fraction of the parent's, 0 to 1; 0: none.
    pub reserved: f64,
    /// Priority of the domain's own tasks beside its children.
    pub own_priority: u8,
    /// Weight of the domain's own tasks together, beside its children; `None`: the sum of their own weights (100 for
    /// a task of nice 0), as the kernel's default scheduler has it.
    pub own_weight: Option<u32>,
}

impl Default for DomainPolicy {
    fn default() -> Self {
        DomainPolicy {
            priority: PRIORITY_DEFAULT,
            weight: None,
            reserved: 0.0,
            own_priority: PRIORITY_DEFAULT,
            own_weight: None,
        }
    }
}
