//! Memory: what the machine has, and what is promised of it.

use serde::{Deserialize, Serialize};

/// The machine's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryState {
    /// What there is.
    pub total: u64,
    /// What programs could still get without anything being written to the swap, as the kernel estimates it.
    pub available: u64,
    /// What the domains at the top are promised together.
    pub promised: u64,
    /// The most that they may be promised.
    pub reservable: u64,
}
