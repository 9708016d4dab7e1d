//! The memory's room: who is promised how much of it, and who may use how much.
//!
//! - [`manager`]: what is done about one observation of the machine, by [`protection`] (what protected domains keep)
//!   and [`victims`] (from whom memory is taken); [`ageing`]: whose pages are aged when. [`principal`]: the tree that
//!   they all see.
//! - [`source`]: by what it is known what protected domains use; [`trials`]: how that is found out without page ages.
//! - [`activity`]: which protected domains are in use, by [`signs`] of that, and whose protection has lapsed.
//! - [`audit`]: whether what was promised was kept, and who broke it.
//! - [`recorded`]: what was seen and decided, to be replayed.
//! - [`availability`]: how much each domain may use now; `fill` divides by weight, [`pace`] knows how long it takes.
//! - [`bumps`]: who is held back for a moment, because memory goes faster than it can be taken.
//! - [`config`]: what is set for the whole machine.
//! - [`explain`]: what a domain has and why something was taken from it, in sentences.
//! - [`settings`]: what a domain can be given; [`limits`]: what the kernel is told of it.

pub mod activity;
pub mod ageing;
pub mod audit;
pub mod availability;
pub mod beneath;
pub mod bumps;
pub mod config;
pub mod explain;
mod fill;
pub mod limits;
pub mod manager;
pub mod pace;
pub mod principal;
pub mod protection;
pub mod recorded;
pub mod seen;
pub mod settings;
pub mod shortage;
pub mod signs;
pub mod source;
pub mod swappable;
pub mod trials;
pub mod victims;

pub use settings::Settings;
