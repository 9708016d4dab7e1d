//! Steward's sched_ext program and its loader.
