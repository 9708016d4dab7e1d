//! The disk's room: its time, and who is served first.
//!
//! - [`device`]: what is known of a device; [`elevator`]: by what its requests are ordered so that classes count.
//! - [`priority`]: what a program's class means for its requests; [`guard`]: who takes too much for that.
//! - [`plan`]: who is to have which priority, and whether devices are to order requests; [`moments`]: when somebody
//!   waits for whom a device is kept idle.
//! - [`shares`]: what part of the disk's time each domain of a level has, as a weight.
//! - [`cost`]: what a request costs on a disk that needs no elevator; [`calibration`]: how that is found out.
//! - [`limit`]: the most that a domain may read and write.
//! - [`ledger`]: what disks did for whom and who waits, as it is counted; [`latency`]: how long requests took;
//!   [`minute`]: both in the last minute; [`waits`]: who holds up somebody who waits.
//! - [`explain`]: what a domain has of the disk, in sentences.
//! - [`config`]: what is set of all that; [`settings`]: what a domain can be given.

pub mod calibration;
mod class;
pub mod config;
pub mod contention;
pub mod cost;
pub mod device;
pub mod elevator;
pub mod explain;
pub mod guard;
pub mod latency;
pub mod ledger;
pub mod limit;
pub mod minute;
pub mod moments;
pub mod plan;
pub mod priority;
pub mod settings;
pub mod shares;
pub mod waits;

pub use class::Class;
pub use limit::Limit;
pub use settings::Settings;
