//! The disk's room: whose requests are served first, and by what devices order them.
//!
//! - [`knobs`]: writes priorities and what orders requests into the kernel; [`state`]: what is wanted of that.
//! - `again`: when what failed is tried again.
//! - [`known`]: what is known of disks beside what they say themselves.
//! - `moments`: what of that is so only while somebody who is served first waits for the disk.
//! - `counting`: what disks do for whom and who waits for them, as the kernel [counts](counts) it; `shown`: as it is
//!   told.
//! - `places`: where those are who are served first, and were lately.
//! - `writeback`: when the kernel is to bring to disks often what was changed.
//! - [`spent`]: what the daemon itself spends on all of it.
//! - `programs`: which tasks are to have which priority; `domains`: what part of a disk's time domains have, and
//!   `explained`: why.

mod again;
mod counting;
pub mod counts;
mod domains;
mod explained;
pub mod knobs;
pub mod known;
pub mod moments;
pub mod outcome;
mod places;
pub(crate) mod programs;
mod shown;
pub mod spent;
pub(crate) mod state;
mod writeback;

/// For how long cgroups go on handing the disk out after the last domain for which they began to, in nanoseconds,
/// unless somebody is to be served first in the one line in which all stand otherwise. Each time a cgroup begins to, or
/// ceases, the kernel brings nothing to the disk of what was changed below it until its flusher comes round (every 5
/// s): who changes files is slowed down to a quarter meanwhile (docs/disk.md#domains).
pub const HANDED_OUT_FOR_NS: u64 = 600_000_000_000;
