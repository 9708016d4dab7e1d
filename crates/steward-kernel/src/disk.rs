//! Disks: which ones there are and what orders their requests; whose requests are served first.
//!
//! - [`devices`]: read, and changed through the undo journal.
//! - [`usage`]: what they and single tasks have read and written.
//! - [`priority`]: the priority of a task's requests, the same way; [`weight`]: the weight of a cgroup's.

pub mod devices;
pub mod priority;
pub mod usage;
pub mod weight;
