//! The memory's room: what domains may use of it, and what is promised to them.
//!
//! - [`knobs`]: writes the kernel's minima and maxima; [`limits`]: what each domain is to have, and what became of it.
//! - `programs`: has specifications' promises to processes kept; [`placed`]: what became of them.
//! - [`state`]: the machine's memory in figures, and what a domain may use; [`usage`]: what domains use of it.
//! - [`requests`]: who is told how much a domain may use; [`looks`]: the looks that are taken for that.

pub mod knobs;
pub mod limits;
pub(crate) mod looks;
pub(crate) mod placed;
mod programs;
mod requests;
pub(crate) mod state;
pub(crate) mod usage;
