//! Steward's daemon: asks steward-core and carries its decisions out.
//!
//! One thread, one loop ([`event_loop`]), over:
//!
//! - [`server`]: the socket. Knows bytes and users, no meaning.
//! - [`control_files`]: the same requests, through a file tree.
//! - [`daemon`] and [`requests`]: the state and what may be asked of it.
//! - [`domains`]: the domains that are kept, on [`cgroups`].
//! - [`audit`]: whether domains got what they were promised.
//! - [`metrics`] and [`metrics_endpoint`]: figures for Prometheus.
//! - [`herald`]: what all tasks use, read from time to time, and what will become of it.
//! - [`suspension`]: who has suspended which domain; [`guard`] lets it go on after `kill -9`.
//! - [`permission`] and [`polkit`]: may this caller have that?
//! - [`plan`] and [`retry`]: decisions about running tasks and about reloading, without I/O.
//! - [`waiting`]: who waits for room, so that free memory is read only while someone does.
//! - [`specs`], [`rules`], [`settings`], [`state`], [`watch`]: files.
//! - [`mechanisms`]: puts sched_ext or SCHED_DEADLINE in force. Tests put a [`fake`] in their place, and
//!   [`fake_cgroups`] in that of the cgroup tree, [`fake_tasks`] in that of the machine's tasks.

pub mod audit;
pub mod cgroups;
mod complaints;
pub mod control_files;
pub mod daemon;
pub mod domains;
pub mod event_loop;
pub mod fake;
pub mod fake_cgroups;
pub mod fake_tasks;
mod groups;
pub mod guard;
pub mod herald;
mod history;
pub mod log;
pub mod mechanisms;
pub mod metrics;
pub mod metrics_endpoint;
pub mod peer;
pub mod permission;
pub mod plan;
pub mod polkit;
mod real_time;
pub mod report;
pub mod requests;
pub mod retry;
pub mod rules;
pub mod server;
pub mod settings;
pub mod specs;
pub mod state;
pub mod suspension;
mod texts;
pub mod troubles;
pub mod waiting;
pub mod watch;
