//! Steward's control files: the tree of domains as files, so that a shell is all that is needed to look at
//! reservations and to change them (Eclipse 1998, section 6 and table 1).
//!
//! ```text
//! echo 50 >/run/steward/self/cpu          reserve half of the parent's CPU for the domain of this shell
//! cat /run/steward/domains/batch/status   look at another domain
//! mkdir /run/steward/domains/batch        make one
//! ```
//!
//! The tree is served with FUSE. The kernel says who touches a file; every read and every write becomes a call of the
//! interface `io.steward` made with the rights of that user, answered by a [`Backend`]. So the files can do nothing
//! that the API cannot, and everything is checked in one place.
//!
//! - [`names`]: which files there are.
//! - [`value`]: what can be written into them.
//! - [`tree`]: what reading and writing them means.
//! - `service`, `mount`: FUSE.

mod caller;
mod errno;
mod mount;
pub mod names;
mod nice;
mod page;
mod polls;
mod refusals;
mod requests;
mod service;
#[cfg(test)]
mod stand_in;
pub mod tree;
mod turns;
pub mod value;

pub use caller::{Asker, Credentials};
pub use errno::Failure;
pub use mount::{MountError, Mounted, mount};
pub use requests::Backend;
