//! Steward's decisions: pure, with no I/O, no clock and no randomness.
//!
//! Observations and times come in as arguments; decisions go out with their reasons. The daemon carries them out.

pub mod audit;
pub mod authority;
pub mod config;
pub mod domain;
pub mod explain;
pub mod forecast;
pub mod last_good;
pub mod mechanism;
pub mod nice;
pub mod printable;
pub mod problem;
pub mod quantity;
pub mod spec;
mod toml_reader;
pub mod tune;
