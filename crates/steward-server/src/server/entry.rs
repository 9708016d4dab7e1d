//! A request with what is to be done for it, from its arrival to a worker.

#[cfg(feature = "tower")]
use crate::controller::End;
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

/// What a worker has of a job that it did.
pub(crate) enum Came {
    /// Its end.
    Ended(Outcome),
    /// It waits for something, for longer than it may keep a worker: this has it go on elsewhere.
    #[cfg(feature = "tower")]
    GoesOn(Box<dyn FnOnce(Afterwards) + Send>),
}

impl From<Outcome> for Came {
    fn from(outcome: Outcome) -> Self {
        Came::Ended(outcome)
    }
}

/// Tells how a request ended that had left its worker, at the latest when it is dropped.
#[cfg(feature = "tower")]
pub(crate) struct Afterwards(Option<Box<dyn FnOnce(End) + Send>>);

#[cfg(feature = "tower")]
impl Afterwards {
    pub(super) fn new(tell: impl FnOnce(End) + Send + 'static) -> Self {
        Afterwards(Some(Box::new(tell)))
    }

    /// It has ended like that.
    pub(crate) fn end(mut self, end: End) {
        self.tell(end);
    }

    fn tell(&mut self, end: End) {
        if let Some(tell) = self.0.take() {
            tell(end);
        }
    }
}

#[cfg(feature = "tower")]
impl Drop for Afterwards {
    fn drop(&mut self) {
        self.tell(if std::thread::panicking() { End::Panicked } else { End::Abandoned });
    }
}

/// The work of a request.
pub(crate) type Job = Box<dyn FnOnce() -> Came + Send>;

/// A request that was let in or waits to be.
pub(super) struct Entry<J = Job> {
    /// What it was let in with; `None` for one that waits for its turn.
    pub(super) ticket: Option<Ticket>,
    pub(super) arrived_ns: u64,
    pub(super) job: J,
}
