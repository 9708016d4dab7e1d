//! The interface `io.steward` as types: what each method takes and returns.
//!
//! These are the daemon's promise to programs in other languages and of other versions, so they are kept apart
//! from the daemon's own types. Times are in nanoseconds, moments are of `CLOCK_MONOTONIC`, loads and
//! bandwidths are fractions of one CPU. A parameter that the daemon does not know is an error, so that a newer
//! client is never half obeyed by an older daemon.

use serde::{Serialize, de::DeserializeOwned};

pub use cpu::forecast::*;
pub use cpu::*;
pub use daemon::*;
pub use disk::{DomainDisk, IoClass};
pub use domain::*;
pub use error::ApiError;
pub use event::{CpuFigures, Event, EventDomain, EventKind, EventTask, MemoryFigures, Reason, Rule};
pub use memory::*;
pub use run::{Ran, Run, Standings};

/// The interface's name.
pub const INTERFACE: &str = "io.steward";

/// A method of the interface: a type that holds its parameters, with the type of what it returns.
pub trait Method: Serialize + DeserializeOwned {
    /// The full name, `io.steward.Status`.
    const NAME: &'static str;
    /// What it returns.
    type Reply: Serialize + DeserializeOwned;
}

/// Declares that a type of parameters is a method with that name and reply.
macro_rules! method {
    ($parameters:ty, $name:literal, $reply:ty) => {
        impl Method for $parameters {
            const NAME: &'static str = $name;
            type Reply = $reply;
        }
    };
}

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
