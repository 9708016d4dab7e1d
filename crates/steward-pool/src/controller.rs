//! How many requests a server should work on at once (CPU Futures, section 5.3: SheepDog). Pure: no clock, no I/O.
//!
//! Too many workers share the CPU so thinly that each request takes for ever; too few leave it idle while requests
//! wait. What lies between depends on the requests and changes with them. The controller needs no knowledge of either:
//! it looks at how many workers run or wait for a CPU, at how much of the CPU is idle, and at whether requests wait.
//!
//! How many workers share each CPU is how many times slower it is for each of them than if it were alone: their
//! *slowdown*. It is taken from all of them together. That of the slowest says little where workers live for one
//! request: one that has begun a moment ago, and waits for its first turn, seems infinitely slow.
//!
//! - Requests wait, and some of the CPU is idle, or so few workers want it that it would be soon: the pool is too
//!   small. If a crowd and idle CPU come by turns, because requests that wait for something else do so at the same
//!   time, a crowd of three times the limit is borne.
//! - Else, more workers to a CPU than the limit: it is too large.
//! - Else it is right.
//!
//! Workers that wait for something else are as many as it takes, whatever the size of the pool; a size is found from
//! their number in few steps. The search that all controllers share ([`libsteward::control::search`]) keeps to what was
//! too small and too large.

use libsteward::api;
use libsteward::control::search::{Search, Seen, Settings as Bounds, Verdict};

/// The slowdown that workers may have, unless said otherwise: ten busy ones share each CPU.
///
/// That keeps it busy while others wait for a disk or a peer. The paper's 50 was set for eight CPUs and another
/// scheduler, whose slowdowns differed widely among equal workers.
pub const SLOWDOWN_LIMIT: f64 = 10.0;

/// A size is chosen for this part of the limit.
const AIM: f64 = 0.9;
/// Fewer busy workers to a CPU than this part of the limit will leave it idle at times.
const FEW: f64 = 0.25;
/// The CPU is idle beside waiting requests: so many times the limit is borne to change that.
const CROWD: f64 = 3.0;
/// A machine with less than this part of its CPU time left has none idle.
const IDLE_FRACTION: f64 = 0.05;
/// What is plain is judged after this time, in nanoseconds: more of the CPU idle than [`PLAIN_IDLE_FRACTION`], or a
/// crowd that is too large even beside idle CPU.
const PLAIN_NS: u64 = 500_000_000;
const PLAIN_IDLE_FRACTION: f64 = 0.25;
/// What is not is judged by the mean over this time, in nanoseconds, and over twice as much at most: requests come in
/// waves.
const MEAN_NS: u64 = 3_000_000_000;
/// So long, in nanoseconds, requests of a size that was too large are waited for that are still worked on.
const DRAIN_MAX_NS: u64 = 10_000_000_000;
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
    /// The slowdown that workers should not exceed, above 1.
    pub slowdown_limit: f64,
    /// How long a size is in force before what is seen counts for it, in nanoseconds. Forecasts look back over a
    /// second, so less would judge a size by its predecessor.
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
    /// How many workers run or wait for a CPU.
    pub runnable: u32,
    /// How many CPUs there are.
    pub cpus: u32,
    /// The part of the machine's CPU time that nobody used in the last second, 0 to 1.
    pub idle: f64,
    /// How many requests wait for a worker; `None` when the server cannot say.
    pub waiting: Option<u64>,
}

impl Observed {
    /// Reads it from one reply to [`api::WatchForecasts`] that asked for a domain with `domains_only`.
    pub fn of_domain(forecasts: &api::Forecasts, waiting: Option<u64>) -> Observed {
        // The one that was asked for comes before those below it, and its figures are with theirs.
        let runnable = forecasts.domains.first().map_or(0, |domain| domain.runnable);
        Observed { runnable, cpus: forecasts.cpus, idle: idle(forecasts), waiting }
    }

    /// Reads it from one that asked for a process, or for the tasks of a domain. Workers that have vanished are simply
    /// not among them.
    pub fn of_tasks(forecasts: &api::Forecasts, waiting: Option<u64>) -> Observed {
        let runnable = forecasts.tasks.iter().filter(|task| task.runnable).count();
        let runnable = u32::try_from(runnable).unwrap_or(u32::MAX);
        Observed { runnable, cpus: forecasts.cpus, idle: idle(forecasts), waiting }
    }
}

fn idle(forecasts: &api::Forecasts) -> f64 {
    let capacity = f64::from(forecasts.cpus) * MS_PER_S;
    let used = forecasts.machine.actual_ms_per_s;
    if capacity > 0.0 && used.is_finite() { (1.0 - used / capacity).clamp(0.0, 1.0) } else { 0.0 }
}

/// What was seen since a size counts, or lately.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// When the first look was, in nanoseconds.
    since_ns: Option<u64>,
    looks: f64,
    runnable: f64,
    idle: f64,
}

/// The same as means.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    /// Workers that ran or waited for a CPU.
    runnable: f64,
    cpus: f64,
    idle: f64,
    waiting: Option<u64>,
}

impl Means {
    /// How many times slower a CPU is for a worker than if it were alone.
    fn slowdown(&self) -> f64 {
        (self.runnable / self.cpus).max(1.0)
    }
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
/// // 110 of the 150 workers want the one CPU; the others wait for something else, and will when there are fewer.
/// let crowded = Observed { runnable: 110, cpus: 1, ..Observed::default() };
/// let mut sizes = (0..10).filter_map(|look| pool.observe(look * 100_000_000, &crowded));
/// assert_eq!(sizes.next(), Some(49));
/// ```
#[derive(Clone, Debug)]
pub struct WorkerPool {
    settings: Settings,
    search: Search,
    sums: Sums,
    means: Means,
    /// Until when workers of the size before may be more than there are to be, in nanoseconds.
    drains_until_ns: u64,
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
        let (sums, means) = (Sums::default(), Means::default());
        Ok(WorkerPool { settings, search, sums, means, drains_until_ns: 0, refused: None })
    }

    /// How many workers there are to be.
    pub fn size(&self) -> u32 {
        u32::try_from(self.search.setting()).expect("the search keeps within bounds that are u32")
    }

    /// Takes in what was seen at `now_ns`, in nanoseconds of any clock that does not run backwards. Returns the new
    /// size, if it is another one. Wants to be called some times a second.
    pub fn observe(&mut self, now_ns: u64, observed: &Observed) -> Option<u32> {
        match self.refused {
            Some(None) => self.refused = Some(Some(now_ns.saturating_add(RETRY_NS))),
            Some(Some(at_ns)) if now_ns >= at_ns => {
                self.search = search(&self.settings, self.size());
                self.refused = None;
            }
            _ => {}
        }
        if observed.runnable <= self.size() {
            self.drains_until_ns = 0;
        }
        if now_ns < self.drains_until_ns || observed.cpus == 0 || !self.search.counts(now_ns) {
            self.sums = Sums::default();
            return None;
        }
        let passed_ns = self.add(now_ns, observed);
        let seen = self.judge(passed_ns)?;
        let before = self.size();
        let size = self.search.observe_toward(now_ns, seen, self.fitting()).map(|_| self.size());
        if let Some(size) = size {
            self.sums = Sums::default();
            if size < before {
                self.drains_until_ns = now_ns.saturating_add(DRAIN_MAX_NS);
            }
        }
        size
    }

    /// The server could not be given the last size: `workers` is in force still. The controller looks for none beyond
    /// it for a minute, and then tries again: somebody may have mended the server's configuration.
    pub fn refused(&mut self, workers: u32) {
        self.search.refused(i64::from(workers));
        self.sums = Sums::default();
        self.refused = Some(None);
    }

    /// Adds a look to the means, and returns over how long they are, in nanoseconds. Once they are over twice
    /// [`MEAN_NS`], all of it counts half.
    fn add(&mut self, now_ns: u64, observed: &Observed) -> u64 {
        let sums = &mut self.sums;
        // Nobody looked for a while: what was before says nothing of now.
        if sums.since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > 4 * MEAN_NS) {
            *sums = Sums::default();
        }
        let mut passed_ns = now_ns.saturating_sub(*sums.since_ns.get_or_insert(now_ns));
        if passed_ns >= 2 * MEAN_NS {
            for sum in [&mut sums.looks, &mut sums.runnable, &mut sums.idle] {
                *sum /= 2.0;
            }
            passed_ns /= 2;
            sums.since_ns = Some(now_ns - passed_ns);
        }
        sums.looks += 1.0;
        sums.runnable += f64::from(observed.runnable);
        sums.idle += if observed.idle.is_nan() { 0.0 } else { observed.idle.clamp(0.0, 1.0) };
        self.means = Means {
            runnable: sums.runnable / sums.looks,
            cpus: f64::from(observed.cpus),
            idle: sums.idle / sums.looks,
            waiting: observed.waiting,
        };
        passed_ns
    }

    /// What is to be said of the size after so much time; `None` when that is too early.
    fn judge(&self, passed_ns: u64) -> Option<Seen> {
        let Means { idle, waiting, .. } = self.means;
        let crowd = self.means.slowdown() / self.settings.slowdown_limit;
        let is_plain = idle > PLAIN_IDLE_FRACTION || crowd > CROWD;
        if passed_ns < if is_plain { PLAIN_NS } else { MEAN_NS } {
            return None;
        }
        let is_busy = self.means.runnable > 0.0;
        let is_idle = idle > IDLE_FRACTION;
        let is_too_small = match waiting {
            Some(0) => false,
            Some(_) => is_idle || self.means.runnable / self.means.cpus < FEW * self.settings.slowdown_limit,
            None => is_idle && is_busy,
        };
        Some(if is_too_small && crowd < CROWD {
            Seen { verdict: Verdict::TooLow, cost: idle }
        } else if crowd > 1.0 {
            Seen { verdict: Verdict::TooHigh, cost: crowd - 1.0 }
        } else {
            Seen { verdict: Verdict::Right, cost: 0.0 }
        })
    }

    /// The size that would be right as far as can be told: those workers that wait for something else, of which there
    /// are more when no CPU is idle any more, and as many others as there should be. At most twice the size there is,
    /// as the idle part says little when it is large.
    fn fitting(&self) -> i64 {
        let size = f64::from(self.size());
        let elsewhere = (size - self.means.runnable).max(0.0) / (1.0 - self.means.idle).max(0.1);
        let computing = AIM * self.settings.slowdown_limit * self.means.cpus;
        (elsewhere + computing).min(2.0 * size + 2.0).round() as i64
    }

    /// Why the pool has its size, for people: what was seen of the size before, and what follows from it.
    pub fn reason(&self) -> String {
        let Means { runnable, idle, waiting, .. } = self.means;
        let waiting = waiting.map_or(String::new(), |count| format!(", {count} requests wait"));
        let idle = format!("{:.0} % of the CPU idle", idle * 100.0);
        if runnable == 0.0 {
            return format!("no worker is busy, {idle}{waiting}");
        }
        let (slowdown, limit) = (self.means.slowdown(), self.settings.slowdown_limit);
        let side = if slowdown > limit { "above" } else { "within" };
        format!(
            "{runnable:.1} workers were busy, slowed down {slowdown:.1} times, {side} {limit}; {idle}{waiting}"
        )
    }
}

#[cfg(test)]
mod tests;
