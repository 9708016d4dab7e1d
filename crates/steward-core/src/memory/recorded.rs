//! What the memory loop saw at each look and decided, as it is recorded on a real machine (`stewardd --record-memory`)
//! to be replayed in the simulator: JSON lines, a [`Header`] and then a [`Look`] each.

use serde::{Deserialize, Serialize};

use super::manager::{Decision, Settings};
use super::seen::{Machine, Seen};

/// The version of the format.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub steward_memory_recording: u32,
}

/// One look at the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// The machine's memory.
    pub machine: Machine,
    /// What was set.
    pub settings: Settings,
    /// All domains, parents before children.
    pub domains: Vec<Seen>,
    /// Their cgroups, in the same order.
    pub paths: Vec<String>,
    /// What was to be done about it.
    pub decision: Decision,
}
