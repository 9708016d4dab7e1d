//! Sizes a pool of workers by how many of them share each CPU (CPU Futures, section 5.3).
//!
//! [`WorkerPool`] decides how many requests a server should work on at once, from the forecasts that Steward's daemon
//! gives; it does nothing itself, and a program with a pool of its own can follow it. [`WorkerPoolLayer`] (feature
//! `tower`, on unless turned off) does so for any [`tower_service::Service`]. `steward pool` follows it for servers
//! that know nothing of it.

mod controller;
#[cfg(feature = "tower")]
mod gate;
#[cfg(feature = "tower")]
mod layer;
mod watch;

pub use controller::{Observed, SLOWDOWN_LIMIT, Settings, SettingsError, WorkerPool};
#[cfg(feature = "tower")]
pub use layer::{Limited, ResponseFuture, WorkerPoolLayer};
pub use watch::{Watched, forecasts};
