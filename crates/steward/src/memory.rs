//! The memory's room: the commands that are about memory alone.

pub mod available;
