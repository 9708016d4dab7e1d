//! The synthetic programs of the lab.
