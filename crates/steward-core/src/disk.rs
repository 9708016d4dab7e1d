//! The disk's room: its time, and who is served first.

mod class;

pub use class::Class;
