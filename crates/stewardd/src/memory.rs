//! The memory's room: what domains may use of it, and what is promised to them.
//!
//! - [`knobs`]: writes the kernel's minima and maxima; [`limits`]: what each domain is to have, and what became of it.
//! - [`cared`]: what the memory loop does for whom, as it is shown.
//! - `holding`: holds what protected domains use of files in memory.
//! - [`manager`]: the memory loop, which keeps what protected domains use and takes memory from others.
//! - `programs`: has specifications' promises to processes kept; [`placed`]: what became of them.
//! - [`protected`]: what the daemon tells the loop, and does about what it says.
//! - [`state`]: the machine's memory in figures, and what a domain may use; [`usage`]: what domains use of it.
//! - [`requests`]: who is told how much a domain may use; [`looks`]: the looks that are taken for that.

pub(crate) mod cared;
mod holding;
pub mod knobs;
pub mod limits;
pub(crate) mod looks;
pub(crate) mod manager;
pub(crate) mod placed;
mod programs;
pub(crate) mod protected;
mod requests;
pub(crate) mod state;
pub(crate) mod usage;
