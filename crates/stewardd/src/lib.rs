//! Steward's daemon: asks steward-core and carries its decisions out.
//!
//! One thread, one loop ([`turn`]), over:
//!
//! - [`server`]: the socket, the control files and the metrics; who asks, whether they may, and who answers.
//! - [`daemon`]: the state.
//! - [`files`]: what people write, and what must survive a restart.
//! - [`programs`]: what specifications give to programs.
//! - [`domains`]: the domains that are kept.
//! - [`cpu`]: the CPU's room: mechanisms, forecasts, the record of promises; [`memory`]: the memory's, minima and
//!   maxima; [`disk`]: the disk's.
//! - [`health`]: what goes wrong; [`watchdog`]: resumes domains after `kill -9`.
//!
//! Tests put a [`fake`] in the place of the mechanism, of the cgroup tree and of the machine's tasks.

pub mod cpu;
pub mod daemon;
pub mod disk;
pub mod domains;
pub mod fake;
pub mod files;
pub mod health;
pub mod memory;
pub mod programs;
pub mod server;
pub mod turn;
pub mod watchdog;
