//! The CPU's room: the commands that are about CPU time alone, and what is said of it by others.

pub mod api;
pub mod forecast;
pub mod pool;
pub mod record;
pub mod set;
pub mod sim;
pub mod status;
pub mod tune;
