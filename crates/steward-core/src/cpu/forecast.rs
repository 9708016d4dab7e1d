//! Forecasts of CPU allocation: what each task and domain got, wanted, will get and could get (CPU Futures, section
//! 3.1).
//!
//! The herald is told what the kernel counts (`TaskSample`, `DomainSample`), about every 100 ms. From the last second
//! of that it computes, for each task and domain, four allocations in milliseconds of CPU time per second. What a task
//! wanted does not depend on the scheduler; what it will get does, so there is one model per kind of scheduler
//! ([`Model`]).

mod divide;
mod herald;
mod history;
mod stall;
mod tasks;
mod terms;
pub mod timesharing;
mod tree;

pub use herald::{DomainFigures, Herald, Report};
pub use history::GAP_MAX_NS;
pub use stall::Stalls;
pub use terms::{
    Changed, DomainCounters, DomainSample, Forecast, Model, SLOWDOWN_MAX, SchedulingClass, TaskReading,
    TaskSample,
};

#[cfg(test)]
mod tests;
