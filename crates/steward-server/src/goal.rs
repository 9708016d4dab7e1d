//! What a service wants of a route: how soon, with how much of the CPU, and what becomes of requests beyond that.

use std::time::Duration;

/// The shortest response time that can be asked for: the shortest period of a reservation.
pub const RESPONSE_TIME_MIN: Duration = Duration::from_millis(1);
/// The longest one. Who can wait longer needs no goal.
pub const RESPONSE_TIME_MAX: Duration = Duration::from_secs(3_600);

/// What becomes of a request that cannot be accepted, because all that can be served in time have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// It is served when nothing better is to be done, by a small pool of best-effort workers (Yang 2009, 12.2.1).
    #[default]
    BestEffort,
    /// It is refused at once, and told when to try again.
    Refuse,
    /// It waits, first come first served, until it can be accepted. Its response time counts from its arrival.
    Queue,
}

/// What is wanted of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Within which time a request is to be answered, from its arrival (RT).
    pub response_time: Duration,
    /// The part of the machine's CPU time that the requests of this route may be promised, above 0 and below 1 (P).
    pub cpu: f64,
    /// What becomes of those that are not accepted.
    pub otherwise: Otherwise,
    /// What a request costs, as far as known before the first one was served: CPU time. Without, a few requests are
    /// accepted at first, until their costs are known.
    pub cost: Option<Duration>,
}

impl Goal {
    /// Answers within `response_time`, with the part `cpu` of the machine's CPU time; requests beyond that are
    /// best-effort.
    pub fn new(response_time: Duration, cpu: f64) -> Self {
        Goal { response_time, cpu, otherwise: Otherwise::default(), cost: None }
    }

    /// The same, with something else for requests beyond.
    #[must_use]
    pub fn otherwise(self, otherwise: Otherwise) -> Self {
        Goal { otherwise, ..self }
    }

    /// The same, where a request is known to cost so much CPU time.
    #[must_use]
    pub fn costing(self, cost: Duration) -> Self {
        Goal { cost: Some(cost), ..self }
    }

    /// The response time in nanoseconds.
    pub(crate) fn response_time_ns(&self) -> u64 {
        nanoseconds(self.response_time)
    }

    /// Whether it can be followed at all, whatever other routes want.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), GoalError> {
        if !(RESPONSE_TIME_MIN..=RESPONSE_TIME_MAX).contains(&self.response_time) {
            return Err(GoalError::ResponseTime(self.response_time));
        }
        if !(self.cpu > 0.0 && self.cpu < 1.0) {
            return Err(GoalError::Cpu(self.cpu));
        }
        if self.cost == Some(Duration::ZERO) {
            return Err(GoalError::Cost);
        }
        Ok(())
    }
}

/// A time in nanoseconds; those that do not fit are as long as can be.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Why a goal cannot be followed.
#[derive(Clone, Debug, PartialEq)]
pub enum GoalError {
    /// The response time is none, or none that makes sense.
    ResponseTime(Duration),
    /// The part of the CPU is none.
    Cpu(f64),
    /// A request that costs nothing needs no goal.
    Cost,
    /// Together with the other routes it is more than may be promised.
    TooMuch {
        /// What was asked for.
        asked: f64,
        /// What the other routes have.
        others: f64,
        /// The most that all may have together.
        limit: f64,
    },
    /// There is a route of that name.
    Twice(String),
    /// There is no route of that name.
    Unknown(String),
}

impl std::fmt::Display for GoalError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GoalError::ResponseTime(time) => write!(
                formatter,
                "a response time of {time:?} cannot be held: write one between {RESPONSE_TIME_MIN:?} and \
                 {RESPONSE_TIME_MAX:?}"
            ),
            GoalError::Cpu(cpu) => write!(
                formatter,
                "{cpu} is no part of the CPU: write a number above 0 and below 1, such as 0.5"
            ),
            GoalError::Cost => {
                write!(formatter, "a cost of 0 says nothing: leave it out, and it is measured")
            }
            GoalError::TooMuch { asked, others, limit } => write!(
                formatter,
                "{} of the CPU for this route and {} for the others are more than the {} that may be promised: the rest \
                 is for everything else on the machine. Lower one of them, or raise admit_below in steward.toml",
                rounded(*asked),
                rounded(*others),
                rounded(*limit)
            ),
            GoalError::Twice(name) => {
                write!(formatter, "the route {name} has a goal already: change that one with set_goal")
            }
            GoalError::Unknown(name) => write!(formatter, "there is no route {name}: give it a goal first"),
        }
    }
}

impl std::error::Error for GoalError {}

/// To three digits behind the point, for people.
fn rounded(part: f64) -> f64 {
    (part * 1e3).round() / 1e3
}
