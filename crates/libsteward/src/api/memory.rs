//! Memory: what the machine has, what is promised of it, and what each domain uses and may use.

use serde::{Deserialize, Serialize};

use super::Method;

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

/// What a domain and all below it use of the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainMemory {
    /// All that is charged to it.
    pub used: u64,
    /// What of it is in the swap besides.
    pub swapped: u64,
    /// How much it may use now: what it uses, what nobody uses, and what it can take back from those who use more than
    /// their part.
    pub available: u64,
    /// What is kept of it because it was used within its protection period, or soon will be; 0 while the domain is
    /// demoted. Nothing where it is not protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// What Steward has taken from it for others so far.
    pub taken: u64,
    /// For how long at least one of its tasks stood still for want of memory so far, in nanoseconds.
    pub stalled_ns: u64,
}

/// How much memory a domain may use: first at once, then each change of 5 % or more of what was told last, in less than
/// 300 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchAvailability {
    /// The domain's name; that of the caller unless said, also when the caller is moved to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// What [`WatchAvailability`] answers with, again and again (Walfield, section 3.5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Availability {
    /// Whom it is about: the domain, or the nearest one above it whose memory is counted.
    pub domain: String,
    /// When it was read, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What it used then with all below it, in bytes.
    pub used: u64,
    /// How much it may use, in bytes: what it uses, what nobody uses, and what it can take back from those who use more
    /// than their part.
    pub available: u64,
}

method!(WatchAvailability, "io.steward.WatchAvailability", Availability);
