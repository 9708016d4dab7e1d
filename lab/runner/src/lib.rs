//! The lab: boots a machine, runs a scenario under each contender, reports.
//!
//! A [`scenario`] file, which [`read`] reads, says what runs, in which [`domains`], for which values of a
//! [`sweep`]; [`plan`] turns it into what the agent in the machine does for each contender; [`run`] boots and
//! listens; [`measure`] turns what the programs printed into [`metrics`], [`memory`] and [`disk`] have what is
//! about these alone; [`outcome`] holds medians and worsts as JSON; [`report`] and [`figure`] show them;
//! [`published`] brings them into the project's own pages; [`cli`] is the command line. Only [`read`], [`run`],
//! [`report`], [`published`] and [`cli`] do I/O.

pub mod cli;
pub mod contender;
pub mod disk;
mod domains;
pub mod figure;
pub mod forecasts;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod metrics;
pub mod outcome;
pub mod plan;
pub mod published;
pub mod read;
pub mod report;
pub mod run;
pub mod scenario;
pub mod size;
pub mod sweep;
pub mod web;
pub mod wrk;

pub use outcome::Outcome;
pub use run::{RunOptions, run_scenario};
pub use scenario::{Contender, Scenario};
