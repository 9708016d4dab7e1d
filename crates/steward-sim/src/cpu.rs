//! The CPU's part of the machine: processors, the scheduler's rules, and the programs that tasks follow.

pub(crate) mod event;
mod forecast;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod program;
pub mod recording;
pub(crate) mod report;
pub mod scenario;
pub(crate) mod scheduler;
pub mod timesharing;
pub mod view;
