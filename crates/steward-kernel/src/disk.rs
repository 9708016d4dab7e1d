//! Disks: which ones there are and what orders their requests; whose requests are served first.
//!
//! - [`below`]: which disks partitions and those devices end up at that stand for others.
//! - [`devices`]: read, and changed through the undo journal; `elevators`: what is put back of that.
//! - [`usage`]: what they and single tasks have read and written.
//! - [`priority`]: the priority of a task's requests, the same way (`ioprio`: the system calls); [`weight`]: the weight
//!   of a cgroup's; [`limit`]: the most that it may read and write.

pub mod below;
pub mod devices;
pub(crate) mod elevators;
pub(crate) mod ioprio;
pub mod limit;
pub mod priority;
pub mod usage;
pub mod weight;
