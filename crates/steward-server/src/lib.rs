//! Response times for servers: as many requests as can be answered in time are, whatever else arrives (Yang 2009,
//! chapter 12).
//!
//! [`Server`] has workers, and time reserved for those that serve what it accepted. `Server::layer` (features `tower`
//! and
//! `http`, on unless turned off) has it serve any [tower](https://docs.rs/tower) service; other programs hand it
//! closures. [`Controller`] decides which requests are accepted, and does nothing itself.

mod clock;
mod controller;
mod goal;
#[cfg(all(feature = "tower", feature = "http"))]
mod http;
#[cfg(feature = "tower")]
mod layer;
mod server;
mod snapshot;

pub use controller::{Controller, Costs, Decision, End, RESERVABLE, RouteId, Ticket};
pub use goal::{Goal, GoalError, Otherwise, RESPONSE_TIME_MAX, RESPONSE_TIME_MIN};
#[cfg(all(feature = "tower", feature = "http"))]
pub use http::{ByPath, PageFuture, PageLayer, WithPage};
#[cfg(feature = "tower")]
pub use layer::{Answer, Classify, ResponseFuture, Served, ServerLayer};
#[cfg(feature = "tower")]
pub use server::InHand;
pub use server::{Outcome, PUBLISHED_NAME, Place, Refused, RunError, Server, Settings, StartError, Why};
pub use snapshot::{Counts, RouteSnapshot, Snapshot};

/// The server on CPUs in memory, for the example `loads`: no part of the interface.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::server::{Load, Sums, random_load, stream, sums};
}
