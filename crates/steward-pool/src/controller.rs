//! How many requests a server should work on at once (CPU Futures, section 5.3: SheepDog). Pure: no clock, no I/O.
//!
//! Too many workers share the CPU so thinly that each request takes for ever; too few leave it idle while requests wait. What
//! lies between depends on the requests and changes with them. The controller needs no knowledge of either: it looks at
//! the slowdown of the workers, and at whether requests wait.
//!
//! - Requests wait, and much of the CPU is idle: the pool is too small. That workers are slow at times then is because some compute
//!   at once by chance, after they all waited for something else.
//! - Else, a worker above the limit: it is too large.
//! - All below it, and requests wait (or, where the server cannot say whether they do, the CPU is partly idle): it is too small.
//! - All below it, and nothing waits: it is right. So it is when no worker is busy.
//!
//! The search between too small and too large is the one that all controllers share ([`libsteward::control::search`]).

use libsteward::api;
use libsteward::control::search::{Search, Seen, Settings as Bounds, Verdict};

/// The slowdown that workers may have, unless said otherwise.
///
/// Up to 10, the wait of a task that always wants to run is at most 900 ms in a second, and its desired allocation is a
/// measurement of that second (CPU Futures, section 4.2); above, it rests on older figures. It lets ten busy workers share each
/// CPU, enough to keep it busy while some of them wait for a disk or a peer. The paper's 50 was set for eight CPUs and another
/// scheduler, whose slowdowns differed widely among equal workers.
pub const SLOWDOWN_LIMIT: f64 = 10.0;

/// A task that wanted less CPU time than this was not busy: too little of it is seen for its slowdown to mean much.
const BUSY_MS_PER_S: f64 = 10.0;
/// A machine with less than this part of its CPU time left has none idle.
const IDLE_FRACTION: f64 = 0.05;
/// With more than this part left, beside requests that wait, a pool is too small however slow its workers are at times.
const WASTED_FRACTION: f64 = 0.15;
const MS_PER_S: f64 = 1_000.0;
/// How long after a refused size the next try is, in nanoseconds.
const RETRY_NS: u64 = 60_000_000_000;

/// The bounds of a pool, and when it is too large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The fewest workers, at least 1.
    pub smallest: u32,
    /// The most workers, not below `smallest`.
    pub largest: u32,
    /// The slowdown that no worker should exceed, above 1.
    pub slowdown_limit: f64,
    /// How long a size is in force before what is seen counts for it, in nanoseconds. Forecasts look back over a second, so less
    /// would judge a size by its predecessor.
    pub patience_ns: u64,
}

impl Default for Settings {
    /// 1 to 256 workers (256 is what Apache httpd starts at most unless told otherwise), a slowdown of at most
    /// [`SLOWDOWN_LIMIT`], a second of patience.
    fn default() -> Self {
        Settings { smallest: 1, largest: 256, slowdown_limit: SLOWDOWN_LIMIT, patience_ns: 1_000_000_000 }
    }
}

/// What is wrong with settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingsError {
    /// No pool has less than one worker.
    NoWorkers,
    /// The bounds are the wrong way round.
    Reversed {
        /// The fewest workers.
        smallest: u32,
        /// The most workers.
        largest: u32,
    },
    /// A limit that every worker is above, or none, or that is not a number.
    Limit(f64),
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingsError::NoWorkers => write!(formatter, "a pool needs at least one worker"),
            SettingsError::Reversed { smallest, largest } => {
                write!(formatter, "at least {smallest} workers and at most {largest} leave none to choose")
            }
            SettingsError::Limit(limit) => {
                write!(
                    formatter,
                    "a slowdown of {limit} cannot be held: 1 is an idle machine, so write a number above 1"
                )
            }
        }
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Whether they can be followed.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.smallest == 0 {
            return Err(SettingsError::NoWorkers);
        }
        if self.largest < self.smallest {
            return Err(SettingsError::Reversed { smallest: self.smallest, largest: self.largest });
        }
        if !self.slowdown_limit.is_finite() || self.slowdown_limit <= 1.0 {
            return Err(SettingsError::Limit(self.slowdown_limit));
        }
        Ok(())
    }
}

/// What is seen of a pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// The largest slowdown among the workers that are busy; `None` when none is.
    pub worst_slowdown: Option<f64>,
    /// How many workers are busy.
    pub busy: u32,
    /// The part of the machine's CPU time that nobody used, 0 to 1.
    pub idle: f64,
    /// How many requests wait for a worker; `None` when the server cannot say.
    pub waiting: Option<u64>,
}

impl Observed {
    /// Reads it from the forecasts of the pool's tasks (one reply to [`api::WatchForecasts`] that asked for a process or a
    /// domain). Workers that have vanished are simply not among them.
    pub fn from_forecasts(forecasts: &api::Forecasts, waiting: Option<u64>) -> Observed {
        let mut observed = Observed { idle: idle(forecasts), waiting, ..Observed::default() };
        for task in &forecasts.tasks {
            let Some(slowdown) = busy_slowdown(&task.forecast) else { continue };
            observed.busy += 1;
            observed.worst_slowdown =
                Some(observed.worst_slowdown.map_or(slowdown, |worst| worst.max(slowdown)));
        }
        observed
    }
}

/// Desired over actual, of a task that wanted enough. One that got nothing of what it wanted is infinitely slow.
fn busy_slowdown(forecast: &api::Forecast) -> Option<f64> {
    let (desired, actual) = (forecast.desired_ms_per_s, forecast.actual_ms_per_s);
    if !desired.is_finite() || desired < BUSY_MS_PER_S {
        return None;
    }
    let own = if actual > 0.0 { desired / actual } else { f64::INFINITY };
    Some(forecast.slowdown.filter(|slowdown| !slowdown.is_nan()).unwrap_or(own).max(1.0))
}

fn idle(forecasts: &api::Forecasts) -> f64 {
    let capacity = f64::from(forecasts.cpus) * MS_PER_S;
    let used = forecasts.machine.actual_ms_per_s;
    if capacity > 0.0 && used.is_finite() { (1.0 - used / capacity).clamp(0.0, 1.0) } else { 0.0 }
}

fn search(settings: &Settings, workers: u32) -> Search {
    let bounds = Bounds {
        lowest: i64::from(settings.smallest),
        highest: i64::from(settings.largest),
        patience_ns: settings.patience_ns,
        ..Bounds::default()
    };
    Search::new(bounds, i64::from(workers))
}

/// The controller of one pool.
///
/// ```
/// use steward_pool::{Observed, Settings, WorkerPool};
///
/// let mut pool = WorkerPool::new(Settings { patience_ns: 0, ..Settings::default() }, 150).expect("valid settings");
/// let crowded = Observed { worst_slowdown: Some(70.0), busy: 70, waiting: Some(0), ..Observed::default() };
/// assert_eq!(pool.observe(0, &crowded), Some(149));
/// assert_eq!(pool.observe(1, &crowded), Some(147));
/// ```
#[derive(Clone, Debug)]
pub struct WorkerPool {
    settings: Settings,
    search: Search,
    seen: Observed,
    /// A size was refused: from when on larger or smaller ones are tried again, once a moment is known to count from.
    refused: Option<Option<u64>>,
}

impl WorkerPool {
    /// A pool of `workers`, brought within the bounds.
    ///
    /// # Errors
    /// What is wrong with `settings`.
    pub fn new(settings: Settings, workers: u32) -> Result<Self, SettingsError> {
        settings.validate()?;
        let search = search(&settings, workers);
        Ok(WorkerPool { settings, search, seen: Observed::default(), refused: None })
    }

    /// How many workers there are to be.
    pub fn size(&self) -> u32 {
        u32::try_from(self.search.setting()).expect("the search keeps within bounds that are u32")
    }

    /// Takes in what was seen at `now_ns`, in nanoseconds of any clock that does not run backwards. Returns the new size, if it
    /// is another one.
    pub fn observe(&mut self, now_ns: u64, observed: &Observed) -> Option<u32> {
        self.seen = *observed;
        match self.refused {
            Some(None) => self.refused = Some(Some(now_ns.saturating_add(RETRY_NS))),
            Some(Some(at_ns)) if now_ns >= at_ns => {
                self.search = search(&self.settings, self.size());
                self.refused = None;
            }
            _ => {}
        }
        let seen = self.judge(observed);
        self.search.observe(now_ns, seen).map(|_| self.size())
    }

    /// The server could not be given the last size: `workers` is in force still. The controller looks for none beyond it
    /// for a minute, and then tries again: somebody may have mended the server's configuration.
    pub fn refused(&mut self, workers: u32) {
        self.search.refused(i64::from(workers));
        self.refused = Some(None);
    }

    fn judge(&self, observed: &Observed) -> Seen {
        let Some(worst) = observed.worst_slowdown else {
            return match observed.waiting {
                // Nobody computes, and yet requests wait: all workers wait for something else.
                Some(1..) => Seen { verdict: Verdict::TooLow, cost: 1.0 },
                _ => Seen { verdict: Verdict::Right, cost: 0.0 },
            };
        };
        let limit = self.settings.slowdown_limit;
        let wastes = observed.idle > WASTED_FRACTION && matches!(observed.waiting, Some(1..));
        if worst > limit && !wastes {
            return Seen { verdict: Verdict::TooHigh, cost: worst / limit - 1.0 };
        }
        let is_idle = observed.idle > IDLE_FRACTION;
        match (observed.waiting, is_idle) {
            // Idle CPU beside waiting requests is the worse, the more of it there is.
            (Some(1..), _) | (None, true) => {
                Seen { verdict: Verdict::TooLow, cost: if is_idle { observed.idle } else { 0.0 } }
            }
            (Some(0), _) | (None, false) => Seen { verdict: Verdict::Right, cost: 0.0 },
        }
    }

    /// Why the pool has its size, for people: what was last seen, and what follows from it.
    pub fn reason(&self) -> String {
        let Observed { worst_slowdown, busy, idle, waiting } = self.seen;
        let waiting = waiting.map_or(String::new(), |count| format!(", {count} requests wait"));
        let idle = format!("{:.0} % of the CPU idle", idle * 100.0);
        match worst_slowdown {
            None => format!("no worker is busy, {idle}{waiting}"),
            Some(worst) => {
                let limit = self.settings.slowdown_limit;
                let side = if worst > limit { "above" } else { "within" };
                format!(
                    "the slowest of {busy} busy is slowed down {worst:.1} times, {side} {limit}; {idle}{waiting}"
                )
            }
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
