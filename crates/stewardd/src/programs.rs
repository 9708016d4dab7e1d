//! Programs: what specifications give them, which of them run, and what they complain of.

pub(crate) mod complaints;
pub mod running;
pub mod table;
mod told;
