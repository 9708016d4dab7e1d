//! What is kept of each domain for the last minute, hour and day, whatever is counted: [`rings`], and [`mod@file`], its
//! form on the disk.

mod counted;
pub mod file;
mod rings;

pub use counted::Counted;
pub use rings::{DOMAINS_MAX, Record, Records, Span, Timeline};

#[cfg(test)]
mod tests;
