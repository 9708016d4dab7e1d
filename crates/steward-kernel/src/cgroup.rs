//! The tree of cgroups (unified hierarchy).
//!
//! - [`place`]: where a process stands in it; [`reading`]: what a cgroup was given and uses; [`directory`]: one cgroup
//!   held open.
//! - [`tree`]: the tree itself, listed, changed and watched; [`changes`]: whether what others do to it matters.
//! - [`pressure`]: for how long tasks of a cgroup stood still.

pub mod changes;
pub mod directory;
pub mod place;
pub mod pressure;
pub mod processes;
pub mod reading;
pub mod tree;
