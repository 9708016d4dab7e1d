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

pub mod cpu;
pub mod disk;
mod events;
pub mod memory;
mod random;

pub use cpu::machine::Machine;
pub use cpu::program::{Phase, Program};
pub use cpu::report::{Decisions, DomainOutcome, Frames, Outcome, ReservationOutcome, SCHEMA, TaskOutcome};
pub use cpu::scenario::Scenario;
pub use cpu::scenario::file::ScenarioFile;
pub use random::Amount;
