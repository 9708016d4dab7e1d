//! The memory's room: what domains may use of it, and what is promised to them.
//!
//! - [`knobs`]: writes the kernel's minima and maxima; [`limits`]: what each domain is to have, and what became of it.
//! - `programs`: has specifications' promises to processes kept; [`placed`]: what became of them.
//! - [`state`]: the machine's memory in figures; [`usage`]: what domains use of it.

pub mod knobs;
pub mod limits;
pub(crate) mod placed;
mod programs;
pub(crate) mod state;
pub(crate) mod usage;
