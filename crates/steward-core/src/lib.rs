//! Steward's decisions: pure, with no I/O, no clock and no randomness.
//!
//! Observations and times come in as arguments; decisions go out with their reasons. The daemon carries them out.

pub mod accounts;
pub mod authority;
pub mod config;
pub mod cpu;
pub mod disk;
pub mod domain;
pub mod last_good;
pub mod memory;
pub mod printable;
pub mod problem;
pub mod process;
pub mod quantity;
pub mod record;
pub mod resource;
pub mod spec;
mod toml_reader;
