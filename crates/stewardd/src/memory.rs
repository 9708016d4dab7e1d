//! The memory's room: what domains may use of it, and what is promised to them.
//!
//! - [`knobs`]: writes the kernel's minima and maxima; [`limits`]: what each domain is to have, and what became of it.
//! - [`state`]: what the room keeps.
//! - [`activity`]: whether protected domains are in use, and since when not.
//! - `availability`: the machine's memory in figures, and how much of it a domain may use; [`usage`]: what domains use.
//! - [`audit`]: whether what was promised was kept, judged and recorded.
//! - [`cared`]: what the memory loop does for whom, as it is shown.
//! - `explained`: what a domain has and why.
//! - `holding`: holds what protected domains use of files in memory.
//! - [`lately`]: who was held back in the last minute.
//! - [`manager`]: the memory loop, which keeps what protected domains use and takes memory from others.
//! - `programs`: has specifications' promises to processes kept; [`placed`]: what became of them.
//! - [`protected`]: what the daemon tells the loop, and does about what it says.
//! - [`told`]: what is told of all that as decisions.
//! - `pressure`: tells programs that know systemd's protocol when they should give memory back.
//! - [`scopes`]: asks systemd for scopes, for programs that are in its units.
//! - `shared`: what a thread here and whoever started it both see.
//! - [`sharing`]: finds out who uses pages of files that are charged to others.
//! - [`requests`]: who is told how much a domain may use; [`looks`]: the looks that are taken for that.

pub(crate) mod activity;
pub(crate) mod audit;
mod availability;
pub(crate) mod cared;
mod explained;
mod holding;
pub mod knobs;
pub(crate) mod lately;
pub mod limits;
pub(crate) mod looks;
pub(crate) mod manager;
pub(crate) mod placed;
mod pressure;
mod programs;
pub(crate) mod protected;
pub(crate) mod requests;
pub mod scopes;
mod shared;
pub(crate) mod sharing;
pub(crate) mod state;
pub(crate) mod told;
pub(crate) mod usage;
