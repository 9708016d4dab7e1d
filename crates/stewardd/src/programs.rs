//! Programs: what specifications give them, and what they complain of.

pub(crate) mod complaints;
pub mod table;
