//! The interface `io.steward` as types: what each method takes and returns.
//!
//! These are the daemon's promise to programs in other languages and of other versions, so they are kept apart
//! from the daemon's own types. Times are in nanoseconds, moments are of `CLOCK_MONOTONIC`, loads and
//! bandwidths are fractions of one CPU. A parameter that the daemon does not know is an error, so that a newer
//! client is never half obeyed by an older daemon.

pub use cpu::forecast::*;
pub use cpu::*;
pub use daemon::*;
pub use disk::{CalibratedDisk, DiskHolder, DiskMinute, DiskWait, DiskWaitReason, DomainDisk, IoClass};
pub use domain::*;
pub use error::ApiError;
pub use event::{CpuFigures, Event, EventDomain, EventKind, EventTask, MemoryFigures, Reason, Rule};
pub use memory::*;
pub use method::Method;
pub use run::{Ran, Run};

/// The interface's name.
pub const INTERFACE: &str = "io.steward";

#[macro_use]
mod method;

pub mod cpu;
pub mod daemon;
pub mod disk;
pub mod domain;
mod error;
mod event;
pub mod memory;
pub mod run;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_not_known_is_an_error() {
        assert!(serde_json::from_str::<Run>(r#"{"cpus":{}}"#).is_err());
        assert_eq!(serde_json::from_str::<Run>("{}").unwrap(), Run::default());
    }
}
