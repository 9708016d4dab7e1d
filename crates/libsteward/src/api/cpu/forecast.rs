//! Forecasts of CPU allocation, suspension of domains, and the record of kept promises, as the interface gives them.

use serde::{Deserialize, Serialize};

use crate::api::memory::AuditedMemory;
use crate::api::method::Method;

/// Four allocations, in milliseconds of CPU time per second, and what they mean for speed (CPU Futures, section 3.1).
///
/// A slowdown is how many times slower the CPU seems than an idle one: 1 is undisturbed; `None` where nothing was
/// wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// What it got in the last second.
    pub actual_ms_per_s: f64,
    /// What it would have got in the last second on an idle machine.
    pub desired_ms_per_s: f64,
    /// What it will get in the next second if all go on as they do.
    pub predicted_ms_per_s: f64,
    /// The most that it could get in the next second.
    pub potential_ms_per_s: f64,
    /// Desired over actual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
    /// Desired over predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub future_slowdown: Option<f64>,
    /// Desired over potential; below 1 there is room for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub potential_slowdown: Option<f64>,
}

/// One task's forecast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskForecast {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The kernel's name of the task.
    pub name: String,
    /// Its real user.
    pub user: u32,
    /// The name of its domain.
    pub domain: String,
    /// Its weight; 100 at nice 0.
    pub weight: f64,
    /// The fraction of one CPU that is promised to the task itself and in force; left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<f64>,
    /// Whether it runs or waits for a CPU now.
    pub runnable: bool,
    /// The allocations.
    pub forecast: Forecast,
}

/// One domain's forecast: all its tasks and those below it together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainForecast {
    /// The domain's name, as in [`crate::api::Domain`].
    pub name: String,
    /// The name of its parent; left out for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How many tasks are in it and below it.
    pub tasks: u32,
    /// How many of them run or wait for a CPU now.
    pub runnable: u32,
    /// The fraction of the machine that it is guaranteed with all below it; 0 when nothing is.
    pub guaranteed: f64,
    /// Whether it is suspended or frozen.
    pub suspended: bool,
    /// The allocations.
    pub forecast: Forecast,
}

/// The forecasts of all tasks and domains that the caller may read, or of a part of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListForecasts {
    /// Only this domain and what is below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Only this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Leave the tasks out, and give domains only; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains_only: Option<bool>,
}
method!(ListForecasts, "io.steward.ListForecasts", Forecasts);

/// What [`ListForecasts`] returns, and one reply to [`WatchForecasts`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecasts {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Over how long the figures of the past are, in nanoseconds: a second, or less just after the start.
    pub window_ns: u64,
    /// Which model predicts: `steward` or `proportional-share`.
    pub model: String,
    /// Where the figures come from: `bpf` or `procfs`.
    pub source: String,
    /// How many CPUs are online.
    pub cpus: u32,
    /// How many tasks there are that the caller may not see.
    pub hidden: u64,
    /// All tasks of the machine together, seen or not.
    pub machine: Forecast,
    /// All tasks outside of what was asked for (`domain` or `pid`), seen or not, together; the same as `machine` when
    /// neither was given. With `slowed`, without those of domains that are lowered ([`LowerDomain`]).
    pub others: Forecast,
    /// The domains, parents before children.
    pub domains: Vec<DomainForecast>,
    /// Who of the others is slowed, by what, slowest first; empty unless it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowed: Vec<Slowed>,
    /// The tasks, by thread id.
    pub tasks: Vec<TaskForecast>,
}

/// How many of those who lack the same are told at most, the slowest.
pub const SLOWED_MAX: usize = 32;

/// What somebody can lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lack {
    /// CPU time: it waits while it could run.
    #[default]
    Cpu,
    /// Memory: it waits for pages that were taken from it, or for others' to be taken.
    Memory,
    /// The disk: it waits for a read or a write.
    Disk,
}

/// Somebody outside of what was asked for who is slowed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slowed {
    /// By the lack of what.
    pub by: Lack,
    /// Tells it from the others that lack the same: of the CPU, a thread id; of memory and disk, a cgroup's id. 0: the
    /// slowest of those that the caller may not see.
    pub id: u64,
    /// The name of the task, or of the domain; left out for those that the caller may not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many times slower it was than without that lack, over the last second; above 1.
    pub slowdown: f64,
}

/// How often [`WatchForecasts`] can tell, in milliseconds.
pub const FORECAST_EVERY_MS: std::ops::RangeInclusive<u64> = 100..=60_000;

/// A stream of forecasts; call it with "more".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchForecasts {
    /// As for [`ListForecasts`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// As for [`ListForecasts`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// As for [`ListForecasts`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains_only: Option<bool>,
    /// Time between two replies, in milliseconds, 100 to 60,000; 100 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// Say which of the others are slowed, and by what; needs `domain`. Domains that are lowered ([`LowerDomain`]) and
    /// what is below them are none of the others then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowed: Option<bool>,
}
method!(WatchForecasts, "io.steward.WatchForecasts", Forecasts);

/// Suspends a domain with all below it, or resumes it. A suspension belongs to the connection that asked for it:
/// when that one is closed, for whatever reason, the domain goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SuspendDomain {
    /// Its name.
    pub domain: String,
    /// Whether it is to be suspended.
    pub suspended: bool,
}
method!(SuspendDomain, "io.steward.SuspendDomain", DomainSuspended);

/// What [`SuspendDomain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainSuspended {
    /// Whether the domain is suspended now, by this connection or another.
    pub suspended: bool,
}

/// Lowers a domain behind all its siblings, or no longer, whatever priority it was given: by priority under Steward's
/// own scheduler, elsewhere by the least weight. It belongs to the connection that asked for it: when that one is
/// closed, for whatever reason, the domain has its own place again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LowerDomain {
    /// Its name.
    pub domain: String,
    /// Whether it is to be lowered.
    pub lowered: bool,
}
method!(LowerDomain, "io.steward.LowerDomain", DomainLowered);

/// What [`LowerDomain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainLowered {
    /// Whether the domain is lowered now, by this connection or another.
    pub lowered: bool,
}

/// Whether a domain got what it was promised (CPU Futures, section 3.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditDomain {
    /// Its name; the caller's own domain unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}
method!(AuditDomain, "io.steward.AuditDomain", DomainAudit);

/// What [`AuditDomain`] returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainAudit {
    /// The domain's name.
    pub domain: String,
    /// The last minute, hour and day, in this order.
    pub spans: Vec<AuditedSpan>,
    /// The same of the memory that it was promised; nothing where none was, and for who may not see that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Vec<AuditedMemory>>,
    /// The same in sentences.
    pub text: String,
}

/// What was promised and given within a span of time that ends now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditedSpan {
    /// `minute`, `hour` or `day`.
    pub span: String,
    /// How much of the span was seen, in nanoseconds: less when the daemon or the domain is younger.
    pub seen_ns: u64,
    /// CPU time that it was promised, in nanoseconds.
    pub promised_ns: u64,
    /// CPU time that it wanted of what was promised, in nanoseconds.
    pub wanted_ns: u64,
    /// CPU time that it got, promised or not, in nanoseconds.
    pub received_ns: u64,
    /// Time for which tasks of it waited, summed over tasks, in nanoseconds.
    pub waited_ns: u64,
    /// How many seconds had something promised and wanted.
    pub seconds: u64,
    /// In how many of these it got less than was promised and wanted.
    pub broken: u64,
    /// What was missing in the worst of them, in nanoseconds.
    pub worst_missing_ns: u64,
}
