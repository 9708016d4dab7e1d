//! Calls that are answered again and again, from time to time, as long as there is something new.

use std::sync::Arc;

use libsteward::ApiError;
use libsteward::api::WatchForecasts;

use crate::memory::looks::Amounts;

/// The JSON text of the next reply to somebody who watches, `None` when there is nothing new.
pub type NextReply = Result<Option<Arc<str>>, ApiError>;

/// A call that is answered again and again.
#[derive(Clone, Debug)]
pub struct Watch {
    /// What about.
    pub about: Watched,
    /// Time between two looks whether there is something new, in nanoseconds, above 0.
    pub every_ns: u64,
}

/// What somebody watches.
#[derive(Clone, Debug)]
pub enum Watched {
    /// What tasks and domains get of the CPU.
    Forecasts(ForecastWatch),
    /// How much memory a domain may use.
    Availability(AvailabilityWatch),
}

/// Who watches forecasts.
#[derive(Clone, Debug)]
pub struct ForecastWatch {
    /// What was asked for.
    pub request: WatchForecasts,
    /// Whether the caller may see all of what was asked for.
    pub granted: bool,
    /// When what was told last was seen, in nanoseconds of `CLOCK_MONOTONIC`; 0 before the first reply.
    pub told_at_ns: u64,
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
    /// Whether the caller may see it also when it is not the caller's own.
    pub granted: bool,
}
