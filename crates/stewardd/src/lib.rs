//! Steward's daemon: asks steward-core and carries its decisions out.
//!
//! One thread, one loop ([`event_loop`]), over:
//!
//! - [`server`]: the socket. Knows bytes and users, no meaning.
//! - [`daemon`] and [`requests`]: the state and what may be asked of it.
//! - [`permission`] and [`polkit`]: may this caller have that?
//! - [`plan`] and [`retry`]: decisions about running tasks and about reloading, without I/O.
//! - [`waiting`]: who waits for room, so that free memory is read only while someone does.
//! - [`specs`], [`rules`], [`settings`], [`state`], [`watch`]: files.
//! - [`mechanisms`]: puts sched_ext or SCHED_DEADLINE in force. Tests put a [`fake`] in their place.

pub mod daemon;
pub mod event_loop;
pub mod fake;
pub mod log;
pub mod mechanisms;
pub mod peer;
pub mod permission;
pub mod plan;
pub mod polkit;
pub mod report;
pub mod requests;
pub mod retry;
pub mod rules;
pub mod server;
pub mod settings;
pub mod specs;
pub mod state;
pub mod troubles;
pub mod waiting;
pub mod watch;
