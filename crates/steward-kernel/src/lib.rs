//! What Steward reads from and writes to the kernel, without opinion.
//!
//! - [`executable`]: which program a path names, and how the kernel knows it.
//! - [`processes`]: every process and thread, cheaply; [`process_events`]: what changes among them, as it happens.
//! - [`cgroups`]: where a process stands in the tree, and what its cgroup was given; [`cgroups_tree`]: the tree
//!   itself, listed, changed and watched; [`cgroup_changes`]: whether what others do to it matters.
//! - [`user_namespaces`]: on whose behalf a process in a user namespace runs.
//! - [`cpus`]: which CPUs there are.
//! - [`scheduling`]: the scheduling state of one task, read and written.
//! - [`sessions`]: who sits at the machine, as logind says.
//! - [`deadline`]: reservations through SCHED_DEADLINE, for kernels without sched_ext.
//! - [`journal`]: every change is recorded with its old value before it is made, so that it can be undone.
//! - [`files`]: files that people and Steward write, read without waiting; [`sealed`]: lines that show damage.
//! - [`doctor`]: what this machine offers and which promises hold on it.
//!
//! Every path of procfs, sysfs, cgroupfs and /run starts at a [`Roots`], which a test points at a directory.

pub mod cgroup_changes;
pub mod cgroups;
pub mod cgroups_tree;
pub mod cpus;
pub mod deadline;
pub mod doctor;
pub mod error;
pub mod executable;
pub mod files;
pub mod idle;
pub mod journal;
pub mod memory;
pub mod mounts;
pub mod pressure;
pub mod process_events;
pub mod processes;
mod rescheduling;
pub mod roots;
pub mod scheduling;
pub mod sealed;
pub mod sessions;
pub mod user_namespaces;

pub use error::KernelError;
pub use roots::Roots;
