//! A request with what is to be done for it, from its arrival to a worker.

use crate::controller::Ticket;

/// How a job ended, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// Nobody wanted it any more while it was done, or before it began. One that did not begin uses up nothing.
    Abandoned {
        /// Whether anything of it was done.
        has_begun: bool,
    },
    /// Its code failed in a way that is counted as a panic; for languages whose failures may not pass through Rust.
    Failed,
}

/// The work of a request.
pub(crate) type Job = Box<dyn FnOnce() -> Outcome + Send>;

/// A request that was let in or waits to be.
pub(super) struct Entry<J = Job> {
    /// What it was let in with; `None` for one that waits for its turn.
    pub(super) ticket: Option<Ticket>,
    pub(super) arrived_ns: u64,
    pub(super) job: J,
}
