//! A discrete-event machine that runs Steward's own decision code: CPUs, timer interrupts, a disk, tasks that follow
//! programs, and the scheduler's rules as they are compiled into the kernel's program
//! ([`steward_sched::decide`]). A run depends on its scenario and seed alone.
//!
//! ```
//! use std::path::Path;
//! use steward_sim::{Machine, ScenarioFile};
//!
//! let text = r#"
//! duration = "1s"
//! [[task]]
//! name = "loop"
//! program = [{ run = "forever" }]
//! "#;
//! let file = ScenarioFile::parse(Path::new("example.toml"), text)?;
//! let outcome = Machine::new(&file.scenario(&[])?).run();
//! assert_eq!(outcome.busy, 1.0);
//! # Ok::<(), steward_core::problem::Problem>(())
//! ```
//!
//! docs/simulator.md says what is modelled and what is not.

mod event;
mod forecast;
mod kernel;
mod machine;
mod measure;
mod program;
mod random;
pub mod recording;
mod report;
pub mod scenario;
mod scheduler;
pub mod timesharing;

pub use machine::Machine;
pub use program::{Phase, Program};
pub use random::Amount;
pub use report::{Decisions, DomainOutcome, Frames, Outcome, ReservationOutcome, SCHEMA, TaskOutcome};
pub use scenario::Scenario;
pub use scenario::file::ScenarioFile;
