//! What a request that was let in has in its hand.

/// A route of a [`Controller`](super::Controller).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId(pub(crate) usize);

/// A request that was let in. It is given back with [`Controller::finish`](super::Controller::finish) when the request
/// ends, however it does.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a specification is held until Controller::finish"]
pub struct Ticket {
    pub(super) route: RouteId,
    pub(super) number: u64,
    /// Whether an answer in time is promised.
    pub(super) is_accepted: bool,
    /// Whether it is best-effort and can be answered in time all the same.
    pub(super) is_hopeful: bool,
    /// By when it is to be answered, in nanoseconds.
    pub(super) deadline_ns: u64,
}

impl Ticket {
    /// The route of the request.
    pub fn route(&self) -> RouteId {
        self.route
    }

    /// Whether it was accepted: it has a specification. Otherwise it is best-effort.
    pub fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Whether it is best-effort and can be answered in time all the same, at the pace at which best-effort requests
    /// are served: such are to be served before other best-effort ones, in the order in which they became so.
    pub fn is_hopeful(&self) -> bool {
        self.is_hopeful
    }

    /// By when it is to be answered, in nanoseconds of the clock of its arrival.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// What tells it apart from all others of its controller.
    pub fn number(&self) -> u64 {
        self.number
    }
}
