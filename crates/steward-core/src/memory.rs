//! The memory's room: who is promised how much of it, and who may use how much.
//!
//! - [`config`]: what is set for the whole machine.
//! - [`settings`]: what a domain can be given; [`limits`]: what the kernel is told of it.

pub mod config;
pub mod limits;
pub mod settings;

pub use settings::Settings;
