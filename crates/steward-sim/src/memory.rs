//! The memory's part of the machine: pages in groups, the kernel's reclaim, swap and its out-of-memory killer, programs
//! that want memory, and the loop that asks `steward_core::memory` what is to be done.
//!
//! docs/simulator.md says what is modelled and what is not.

pub mod decide;
mod event;
mod kernel;
mod lru;
pub mod machine;
pub mod measure;
mod program;
pub mod replay;
pub mod scenario;
mod steward;

pub use steward::Told;

/// Pages come in groups of this many bytes, which are used, taken and read together: the least that Steward takes.
pub const GROUP_BYTES: u64 = steward_core::memory::victims::PIECE_MIN_BYTES;
