//! The best-effort layer: in which order domains get what reservations of tasks leave.

use std::fmt;

use serde::{Deserialize, Serialize};

/// In which order domains get what reservations of tasks leave: the best-effort layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BestEffortOrder {
    /// Virtual time at each level of the tree, with credit of a cycle for those who come back: exact, and with the
    /// cumulative service guarantee (Eclipse 1998, section 5).
    #[default]
    VirtualTime,
    /// Move-To-Rear List Scheduling as published (Eclipse 1998, section 5), for comparison.
    MtrLs,
    /// Weighted round-robin by service cycles (Eclipse 1998, section 6.2), for comparison.
    Wrr,
}

impl fmt::Display for BestEffortOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BestEffortOrder::VirtualTime => "virtual-time",
            BestEffortOrder::MtrLs => "mtr-ls",
            BestEffortOrder::Wrr => "wrr",
        })
    }
}

/// How the best-effort layer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestEffortSettings {
    /// The order among domains.
    pub order: BestEffortOrder,
    /// `T`: in which time every domain gets its fraction, in nanoseconds, 10 ms to 10 s.
    pub service_cycle_ns: u64,
    /// What runs is not preempted by an earlier domain before it has run this long, in nanoseconds, at most 10 ms.
    pub preemption_interval_ns: u64,
}

impl Default for BestEffortSettings {
    /// Virtual time with the paper's cycle of 500 ms (Eclipse 1998, section 6.2) and preemption at once.
    fn default() -> Self {
        BestEffortSettings {
            order: BestEffortOrder::VirtualTime,
            service_cycle_ns: 500_000_000,
            preemption_interval_ns: 0,
        }
    }
}
