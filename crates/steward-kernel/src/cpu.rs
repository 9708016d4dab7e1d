//! The CPU: which ones there are, how tasks are scheduled, and reservations without sched_ext.
//!
//! - [`cpus`]: which CPUs there are; [`idle`]: for how long they had nothing to do.
//! - [`scheduling`]: the scheduling state of one task, read and written.
//! - [`deadline`]: reservations through SCHED_DEADLINE, for kernels without sched_ext.

pub mod cpus;
pub mod deadline;
pub mod idle;
pub(crate) mod rescheduling;
pub mod scheduling;
