//! The lab's virtual machine: see the crate `steward-machine`, which stands alone so that a guest can be booted
//! and a mechanism tested in it without the rest of the lab.

pub use steward_machine::*;
