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

pub use lru::GROUP_BYTES;
pub use steward::Told;
