//! Memory: what the machine has and does, when pages were last used, reclaim, and what limits and protects a cgroup.
//!
//! - [`machine`]: the machine's figures; [`swap`]: where memory is swapped to; [`slow`]: whether it takes long to have
//!   it back.
//! - [`ages`]: when the pages of a cgroup were last used.
//! - [`reclaim`]: takes memory from a cgroup, in threads of its own.
//! - [`bounds`]: limits and protects a cgroup, through the undo journal.
//! - [`hold`]: keeps the file pages of processes in memory, whoever is charged for them.
//! - [`sharing`]: what a process uses of pages of files, whoever is charged for them.
//!
//! What a cgroup uses is read by [`crate::cgroup::reading`].

pub mod ages;
pub mod bounds;
pub mod hold;
pub mod machine;
pub mod reclaim;
pub mod sharing;
pub mod slow;
pub mod swap;
