//! Calls that are answered again and again, from time to time, as long as there is something new.

use std::sync::Arc;

use libsteward::ApiError;
use libsteward::api::WatchForecasts;

use super::pieces::Unfinished;
use crate::memory::looks::Amounts;

/// What somebody who watches is told next.
pub type NextReply = Result<Next, ApiError>;

/// What somebody who watches is told next, unless it is an error.
#[derive(Debug)]
pub enum Next {
    /// This: the JSON text of the parameters.
    Reply(Arc<str>),
    /// There is nothing new.
    Nothing,
    /// Nothing yet: more of the reply is to be made, in the next turn.
    Again,
}

/// A call that is answered again and again.
#[derive(Debug)]
pub struct Watch {
    /// What about.
    pub about: Watched,
    /// Time between two looks whether there is something new, in nanoseconds, above 0.
    pub every_ns: u64,
}

impl Watch {
    /// Whether something of the next reply is made.
    pub fn is_begun(&self) -> bool {
        matches!(&self.about, Watched::Forecasts(ForecastWatch { made: Some(made), .. }) if made.is_begun())
    }

    /// What takes memory of the next reply, in bytes.
    pub fn held_bytes(&self) -> usize {
        match &self.about {
            Watched::Forecasts(watch) => watch.made.as_ref().map_or(0, Unfinished::held_bytes),
            Watched::Availability(_) => 0,
        }
    }
}

/// What somebody watches.
#[derive(Debug)]
pub enum Watched {
    /// What tasks and domains get of the CPU.
    Forecasts(ForecastWatch),
    /// How much memory a domain may use.
    Availability(AvailabilityWatch),
}

/// Who watches forecasts.
#[derive(Debug)]
pub struct ForecastWatch {
    /// What was asked for.
    pub request: WatchForecasts,
    /// Whether the caller may see all of what was asked for.
    pub granted: bool,
    /// When what was told last was seen, in nanoseconds of `CLOCK_MONOTONIC`; 0 before the first reply.
    pub told_at_ns: u64,
    /// What is made of the next reply.
    pub made: Option<Unfinished>,
}

impl ForecastWatch {
    /// Somebody who asks for this, `granted` all of it or not.
    pub fn new(request: WatchForecasts, granted: bool) -> Self {
        ForecastWatch { request, granted, told_at_ns: 0, made: None }
    }
}

/// Who watches how much memory a domain may use.
#[derive(Clone, Debug)]
pub struct AvailabilityWatch {
    /// The domain; `None` for that of the caller.
    pub named: Option<NamedDomain>,
    /// Whom it was told about last, and how much that may use; `None` before the first reply.
    pub(crate) told: Option<(String, Amounts)>,
}

/// A domain that somebody asked about by its name.
#[derive(Clone, Debug)]
pub struct NamedDomain {
    /// Its name.
    pub name: String,
    /// Its cgroup's id: another of that name later is not what was asked about.
    pub cgroup_id: u64,
    /// Whether the rules let the caller know, so that it need not be the caller's own.
    pub granted: bool,
}
