//! Client library for Steward's daemon.
//!
//! The daemon speaks [varlink](https://varlink.org) over a Unix socket: JSON messages, each ended by a NUL
//! byte. `io.steward.varlink` beside this file describes the interface for every other language; here it is
//! as Rust types ([`api`]), a blocking [`Client`], and the framing ([`wire`]) that the daemon uses too.
//!
//! ```no_run
//! use libsteward::{Client, api};
//!
//! let mut steward = Client::connect(libsteward::SOCKET_PATH)?;
//! let status = steward.call(&api::Status {})?;
//! println!("{} tasks have a specification", status.cpu.tasks.len());
//! # Ok::<(), libsteward::Error>(())
//! ```

pub mod api;
pub mod availability;
mod client;
mod connect;
pub mod control;
pub mod wire;

pub use api::ApiError;
pub use client::{Client, Error, Events};
pub use connect::START_TIMEOUT;

/// Where the daemon listens.
pub const SOCKET_PATH: &str = "/run/steward/io.steward";

/// Where the daemon mounts the control files. Links to what is in it are beside it.
pub const CONTROL_FILES: &str = "/run/steward/fs";

/// Where the daemon keeps what must survive its restart.
pub const STATE_DIRECTORY: &str = "/var/lib/steward";

/// The file in the state directory that records what was changed in the kernel, so that it can be undone.
pub const UNDO_JOURNAL: &str = "undo.journal";

/// The description of the interface `io.steward` in varlink's own language.
pub const INTERFACE_DESCRIPTION: &str = include_str!("io.steward.varlink");

/// The description of the interface that every varlink service has.
pub const SERVICE_DESCRIPTION: &str = include_str!("org.varlink.service.varlink");
