//! The memory's room: who is promised how much of it, and who may use how much.
//!
//! - [`manager`]: what is done about one observation of the machine, by [`protection`] (what protected domains keep)
//!   and [`victims`] (from whom memory is taken); [`ageing`]: whose pages are aged when. [`principal`]: the tree that
//!   they all see.
//! - [`availability`]: how much each domain may use now; `fill` divides by weight.
//! - [`config`]: what is set for the whole machine.
//! - [`settings`]: what a domain can be given; [`limits`]: what the kernel is told of it.

pub mod ageing;
pub mod availability;
pub mod config;
mod fill;
pub mod limits;
pub mod manager;
pub mod principal;
pub mod protection;
pub mod settings;
pub mod victims;

pub use settings::Settings;
