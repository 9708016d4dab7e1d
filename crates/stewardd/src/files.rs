//! Files that people and the daemon write.
//!
//! - [`specs`], [`rules`], [`settings`]: what people write, by [`directory`] and [`accounts`].
//! - [`state`]: what must survive a restart; [`journal`]: what an earlier daemon has left in the kernel.
//! - `record`: what is kept of each domain over a minute, an hour and a day.
//! - [`watch`]: notices when one changes.

pub mod accounts;
pub mod directory;
pub mod journal;
pub(crate) mod record;
pub mod rules;
pub mod settings;
pub mod specs;
pub mod state;
pub mod watch;
