//! The memory's room: who is promised how much of it, and who may use how much.
//!
//! - [`availability`]: how much each domain may use now; `fill` divides by weight.
//! - [`config`]: what is set for the whole machine.
//! - [`settings`]: what a domain can be given; [`limits`]: what the kernel is told of it.

pub mod availability;
pub mod config;
mod fill;
pub mod limits;
pub mod settings;

pub use settings::Settings;
