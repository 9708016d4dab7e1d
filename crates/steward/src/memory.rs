//! The memory's room: the commands that are about memory alone.

pub mod activity;
pub mod arguments;
pub mod available;
pub mod program;
pub mod sim;
pub mod status;
