//! Disks: which ones there are and what orders their requests; whose requests are served first.
//!
//! - [`below`]: which disks partitions and those devices end up at that stand for others.
//! - [`devices`]: read, and changed through the undo journal; `elevators`: what is put back of that.
//! - [`identity`]: which disk is which.
//! - [`usage`]: what they and single tasks have read and written.
//! - [`priority`]: the priority of a task's requests, the same way (`ioprio`: the system calls); [`weight`]: the weight
//!   of a cgroup's; [`limit`]: the most that it may read and write; [`handed_out`]: what becomes of cgroups that hand
//!   the disk out for that.
//! - [`cost`]: what requests are charged at, the same way; [`calibrations`]: what is known of that; [`measure`]: how it
//!   is found out, on a file that is nobody's; [`mounted`]: where there is room for one.
//! - [`writeback`]: how often the kernel brings to disks what was changed.

pub mod below;
pub mod calibrations;
pub mod cost;
pub mod devices;
pub mod elevators;
pub mod handed_out;
pub mod identity;
pub(crate) mod ioprio;
pub mod limit;
pub mod measure;
pub mod mounted;
pub mod priority;
pub mod usage;
pub mod weight;
pub mod writeback;
