//! What a task can be promised: CPU time in every period, and on which terms.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::quantity::{QuantityError, format_duration, parse_duration};

/// The shortest period that a reservation may have, in nanoseconds.
pub const PERIOD_MIN_NS: u64 = 1_000_000;
/// The longest period that a reservation may have, in nanoseconds.
pub const PERIOD_MAX_NS: u64 = 10_000_000_000;
/// The smallest budget that a reservation may have, in nanoseconds: below it, switching tasks costs more than
/// the task gets.
pub const BUDGET_MIN_NS: u64 = 100_000;

/// CPU time promised to a task: `budget_ns` in every `period_ns` (Yang 2009, section 7.2.1, `C:T`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reservation {
    /// `C`: CPU time per period, in nanoseconds, above 0 and at most `period_ns`.
    pub budget_ns: u64,
    /// `T`: length of a period, in nanoseconds.
    pub period_ns: u64,
}

impl Reservation {
    /// `B = C / T`: the fraction of one CPU that is promised, above 0 and at most 1.
    pub fn bandwidth(&self) -> f64 {
        self.budget_ns as f64 / self.period_ns as f64
    }
}

impl fmt::Display for Reservation {
    /// `C/T` in its shortest exact form, such as `5ms/30ms`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", format_duration(self.budget_ns), format_duration(self.period_ns))
    }
}

impl FromStr for Reservation {
    type Err = QuantityError;

    /// Reads `C/T` such as `5ms/30ms`. Only the form is looked at: see [`Reservation::validate`] for the range.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (budget, period) = text.split_once('/').ok_or_else(|| {
            QuantityError::new(
                format!("\"{text}\" is not a CPU reservation"),
                "write the CPU time, a slash and the period, as in \"5ms/30ms\"",
            )
        })?;
        Ok(Reservation {
            budget_ns: parse_duration(budget.trim())?,
            period_ns: parse_duration(period.trim())?,
        })
    }
}

impl Reservation {
    /// Holds the reservation against what can be promised: `C` from 0.1 ms up to `T`, `T` from 1 ms to 10 s.
    ///
    /// # Errors
    /// The first rule that it breaks, with what to do.
    pub fn validate(&self) -> Result<(), QuantityError> {
        let budget = format_duration(self.budget_ns);
        let period = format_duration(self.period_ns);
        let fault = |what: String, advice: &str| Err(QuantityError::new(what, advice));
        if self.period_ns == 0 {
            fault("the period is zero".into(), "give a period from 1ms to 10s")
        } else if self.budget_ns == 0 {
            fault(
                "the CPU time per period is zero, which promises nothing".into(),
                "give at least 0.1ms, or leave the reservation out to make the program best-effort",
            )
        } else if self.budget_ns > self.period_ns {
            fault(
                format!("{budget} of CPU time do not fit into a period of {period}"),
                "the CPU time comes first and is at most the period, as in \"5ms/30ms\"",
            )
        } else if !(PERIOD_MIN_NS..=PERIOD_MAX_NS).contains(&self.period_ns) {
            fault(
                format!("a period of {period} is outside what is supported"),
                "give a period from 1ms to 10s",
            )
        } else if self.budget_ns < BUDGET_MIN_NS {
            fault(
                format!("{budget} of CPU time per period is less than can be enforced"),
                "give at least 0.1ms; the same share over a longer period is often enough",
            )
        } else {
            Ok(())
        }
    }
}

/// Whose task a grant that is never revoked is for: anybody could start any number of programs that are never revoked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IrrevocableFor {
    /// Anybody's: it was given by hand, by who may.
    #[default]
    Anybody,
    /// Root's only.
    Root,
    /// Root's and this user's.
    User(u32),
}

/// What a specification gives to a task that starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The promised CPU time.
    pub reservation: Reservation,
    /// Flag `I`: children that do not have a specification of their own get this one.
    pub inherit: bool,
    /// Flag `R`: may be revoked under overload.
    pub revocable: bool,
    /// Whose task may be irrevocable, if it is not revocable; anybody else's may be revoked all the same.
    #[serde(default)]
    pub irrevocable_for: IrrevocableFor,
    /// Keep this grant when the task executes a program, whatever that program's specification
    /// says (`steward run --cpu`).
    pub keep_over_exec: bool,
    /// The specification that this comes from: an index that the daemon chose, 0 when there is none.
    pub spec_id: u32,
    /// Where, in the thread's own memory, it changes a number when it begins with another request.
    #[serde(default)]
    pub requests_at: Option<u64>,
}

#[cfg(test)]
mod tests;
