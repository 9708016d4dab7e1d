//! Whether what was promised is kept, and if not, why: in a word and in a sentence. Pure.

use std::collections::HashMap;

use libsteward::api::{self, Domain, DomainForecast, EventKind, Standing};
use serde::{Deserialize, Serialize};
use steward_core::cpu::reservation::Reservation;
use steward_core::quantity::approximate_duration;
use steward_core::quantity::percent;

use crate::top::text::{NOTHING_MS_PER_S, allocation, clean};

/// How much less than promised a domain may get within a second before its promise counts as broken. A second holds
/// only two service cycles of the best-effort layer, so what was wanted at its end may be given after it.
const TOLERANCE: f64 = 0.1;

/// How a promise stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeping {
    /// It got less than was promised and wanted, or the promise is not in force.
    Broken,
    /// It got what it wanted of what was promised.
    Kept,
    /// It wanted nothing.
    Idle,
}

impl Keeping {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Keeping::Broken => "BROKEN",
            Keeping::Kept => "kept",
            Keeping::Idle => "idle",
        }
    }
}

/// What was promised to a task or a domain, and whether it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// As people write it: `5ms/30ms`, or `20 %` of what the parent has.
    pub reserved: String,
    /// The same in milliseconds of CPU time per second.
    pub promised_ms_per_s: f64,
    /// How it stands.
    pub state: Keeping,
    /// Why, in a sentence.
    pub why: String,
}

/// What a task's deadlines were like over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Over how long, in nanoseconds; 0 stands for since its admission.
    pub within_ns: u64,
    /// Periods begun.
    pub periods: u64,
    /// Periods that ended with budget still owed.
    pub missed: u64,
    /// Periods whose budget was used up before they ended.
    pub exhausted: u64,
}

/// How the promise to a task stands. `decision` is the latest that put it out or refused it.
pub fn of_task(
    task: &api::Task,
    deadlines: Deadlines,
    decision: Option<&api::Event>,
    suspended: bool,
) -> Promise {
    let api::Reservation { budget_ns, period_ns } = task.grant.reservation;
    let (state, why) = match task.standing {
        Standing::Refused => (Keeping::Broken, decided(decision, "refused: there was no room for it")),
        Standing::Revoked => (Keeping::Broken, decided(decision, "revoked under overload")),
        Standing::Admitted if deadlines.missed > 0 && deadlines.within_ns > 0 => (
            Keeping::Broken,
            missed_text(deadlines) + if suspended { "; its domain is suspended" } else { "" },
        ),
        Standing::Admitted if deadlines.periods == 0 => {
            (Keeping::Idle, format!("no period began{}", within(deadlines.within_ns)))
        }
        Standing::Admitted => (Keeping::Kept, kept_text(deadlines)),
    };
    Promise {
        reserved: Reservation { budget_ns, period_ns }.to_string(),
        promised_ms_per_s: budget_ns as f64 / period_ns.max(1) as f64 * 1e3,
        state,
        why,
    }
}

/// The decision's own words, where they are known.
fn decided(decision: Option<&api::Event>, otherwise: &str) -> String {
    decision.map_or_else(|| otherwise.to_owned(), |event| clean(&event.text))
}

/// Whether a decision leaves a task without its reservation.
pub fn puts_out(kind: EventKind) -> bool {
    use EventKind::{Refused, RevokedDisplaced, RevokedExhausted, RevokedHungriest, TableFull};
    matches!(kind, Refused | TableFull | RevokedExhausted | RevokedHungriest | RevokedDisplaced)
}

fn within(time_ns: u64) -> String {
    if time_ns == 0 { String::new() } else { format!(" in the last {}", approximate_duration(time_ns)) }
}

fn missed_text(deadlines: Deadlines) -> String {
    let Deadlines { within_ns, periods, missed, .. } = deadlines;
    format!("missed {missed} of {} deadlines{}", periods.max(missed), within(within_ns))
}

fn kept_text(deadlines: Deadlines) -> String {
    let Deadlines { within_ns, periods, missed, exhausted } = deadlines;
    if missed > 0 {
        return format!(
            "missed {missed} of {} deadlines since it was admitted, by now none more",
            periods.max(missed)
        );
    }
    let hungry = if exhausted * 2 > periods {
        format!("; it used up its budget in {exhausted} of them and may need more")
    } else {
        String::new()
    };
    format!("no deadline missed in {periods} periods{}{hungry}", within(within_ns))
}

/// How the promise to a domain stands; `None` when nothing is reserved for it. `domains` are all, by name;
/// `promised_ms_per_s` is what its reservation comes to;
/// `nothing_in_force` is the reason why nothing is, where that is so; `measured` says whether there are figures.
pub fn of_domain(
    forecast: &DomainForecast,
    domains: &HashMap<&str, &Domain>,
    promised_ms_per_s: f64,
    nothing_in_force: Option<&str>,
    measured: bool,
) -> Option<Promise> {
    let domain = domains.get(forecast.name.as_str())?;
    let reserved = domain.cpu?;
    let (actual, desired) = (forecast.forecast.actual_ms_per_s, forecast.forecast.desired_ms_per_s);
    let due = promised_ms_per_s.min(desired);
    let (state, why) = if let Some(problem) = domain.problem.as_deref().or(nothing_in_force) {
        (Keeping::Broken, format!("not in force: {}", clean(problem)))
    } else if forecast.suspended {
        (Keeping::Idle, "it is suspended or frozen, and gets nothing meanwhile".to_owned())
    } else if !measured {
        (Keeping::Idle, "there are no figures yet".to_owned())
    } else if due < NOTHING_MS_PER_S {
        (Keeping::Idle, "it wanted nothing".to_owned())
    } else if actual >= due * (1.0 - TOLERANCE) {
        (
            Keeping::Kept,
            format!(
                "got {} of the {} ms/s that it was promised and wanted",
                short(actual, due),
                short(due, due)
            ),
        )
    } else {
        let why = format!(
            "got {} of the {} ms/s that it was promised and wanted",
            allocation(actual),
            allocation(due)
        );
        (Keeping::Broken, why + &cause(forecast, domains))
    };
    Some(Promise { reserved: percent(reserved), promised_ms_per_s, state, why })
}

/// What it got of what was due: all of it when it got more.
fn short(actual: f64, due: f64) -> String {
    allocation(actual.min(due))
}

/// Who held a domain back, if that can be told: a `cpu.max` of its own or above it.
fn cause(forecast: &DomainForecast, domains: &HashMap<&str, &Domain>) -> String {
    let mut name = Some(forecast.name.as_str());
    // No tree is deeper than it has domains, even one that somebody wrote wrong.
    for _ in 0..=domains.len() {
        let Some(domain) = name.and_then(|name| domains.get(name)) else { break };
        if domain.usage.is_some_and(|usage| usage.throttled) {
            return format!(": cpu.max of {} holds it back", clean(&domain.name));
        }
        name = domain.parent.as_deref();
    }
    String::new()
}
