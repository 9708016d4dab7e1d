//! What Steward reads from and writes to the kernel, without opinion.
//!
//! - [`process`]: every process and thread, cheaply, and what changes among them; which program a path names; who sits
//!   at the machine.
//! - [`cgroup`]: the tree of cgroups: read, changed and watched.
//! - [`cpu`]: which CPUs there are, how tasks are scheduled, and reservations for kernels without sched_ext.
//! - [`memory`]: how much there is, when it was last used, and taking, limiting, protecting and holding it.
//! - [`disk`]: which disks there are, what orders their requests, and whose are served first.
//! - [`journal`]: every change is recorded with its old value before it is made, so that it can be undone.
//! - [`files`]: files that people and Steward write, read without waiting; [`sealed`]: lines that show damage.
//! - [`doctor`]: what this machine offers and which promises hold on it.
//!
//! Every path of procfs, sysfs, cgroupfs and /run starts at a [`Roots`], which a test points at a directory.

pub mod cgroup;
mod clock;
pub mod cpu;
pub mod disk;
pub mod doctor;
pub mod error;
pub mod files;
pub mod journal;
pub mod memory;
pub mod mounts;
pub mod process;
pub mod roots;
pub mod sealed;

pub use error::KernelError;
pub use roots::Roots;
