//! The disk's part of the machine: a device that takes some requests at once, what orders those that wait for it, a
//! file system's journal that all share, pages that are written later, programs that want all that, and the looks of
//! the daemon that ask `steward_core::disk` what is to be done.
//!
//! docs/simulator.md says what is modelled and what is not.

mod cache;
pub mod decide;
mod device;
mod elevator;
mod event;
mod journal;
mod kernel;
pub mod machine;
pub mod measure;
mod program;
mod request;
pub mod scenario;
mod steward;
