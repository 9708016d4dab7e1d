//! The lab: boots a machine, runs a scenario under each contender, reports.
//!
//! A [`scenario`] file says what runs; [`plan`] turns it into what the agent in the machine does for each contender;
//! [`run`] boots and listens; [`metrics`] turns what the programs printed into numbers; [`outcome`] holds medians and
//! worsts as JSON; [`report`] and [`figure`] show them; [`cli`] is the command line. Only [`run`] and [`cli`] do I/O.

pub mod cli;
pub mod figure;
pub mod machine;
pub mod metrics;
pub mod outcome;
pub mod plan;
pub mod report;
pub mod run;
pub mod scenario;

pub use outcome::Outcome;
pub use run::{RunOptions, run_scenario};
pub use scenario::{Contender, Scenario};
