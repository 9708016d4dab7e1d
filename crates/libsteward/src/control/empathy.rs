//! Background work that runs on what is idle, and only while that disturbs nobody (CPU Futures, section 5.2, first policy).
//!
//! There are two settings, suspended and running, and the [search](super::search) chooses between them. The others'
//! slowdown is what tells: as long as it stays below a threshold, the work runs. When it passes the threshold, the work
//! is suspended at once, and one of two things is seen a window later:
//!
//! - The others are better off without it. It stays suspended, and is tried again after 0.1, 0.2, 0.4, ... s, at most a
//!   second (minimal interference).
//! - The others are as slow without it: they slow each other. Then it is *acquitted*, and goes on for ten seconds
//!   whatever the threshold says, unless the others become much slower. Without this, work that yields to everybody anyway
//!   (priority 0 under Steward's scheduler) would be suspended most of the time on a machine with bursts of other work.
//!
//! While the others leave nothing idle there is nothing to gain, so suspended work is not even tried.

use super::search::{Search, Seen, Settings as SearchSettings, Verdict};
use crate::api::{Forecast, Forecasts};

/// Where suspension begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The others' slowdown (desired over actual) above which the work is under suspicion; and by which factor they
    /// must be slower with it than without for it to be guilty. Above 1.
    pub threshold: f64,
    /// What the others must leave of the machine, as a fraction, for a try to be worth it.
    pub idle_least: f64,
    /// Over how long the figures are, in nanoseconds: until then after a change they are of both settings.
    pub window_ns: u64,
    /// How long an acquittal lasts, in nanoseconds.
    pub acquittal_ns: u64,
}

impl Default for Settings {
    /// 5 % slower, 5 % idle, a second, ten seconds.
    fn default() -> Self {
        Settings { threshold: 1.05, idle_least: 0.05, window_ns: 1_000_000_000, acquittal_ns: 10_000_000_000 }
    }
}

/// What is seen of the machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// The others' slowdown over the last window; `None` when they wanted nothing.
    pub others_slowdown: Option<f64>,
    /// The CPU time that the others got, as a fraction of the machine.
    pub others_used: f64,
    /// The CPU time that the work itself got, as a fraction of the machine.
    pub own_used: f64,
}

impl Look {
    /// What a reply to [`crate::api::WatchForecasts`] about the work's domain says.
    pub fn of(forecasts: &Forecasts) -> Self {
        let machine_ms = f64::from(forecasts.cpus.max(1)) * 1000.0;
        let own = forecasts.machine.actual_ms_per_s - forecasts.others.actual_ms_per_s;
        Look {
            others_slowdown: slowdown(&forecasts.others),
            others_used: forecasts.others.actual_ms_per_s / machine_ms,
            own_used: (own / machine_ms).max(0.0),
        }
    }
}

/// Desired over actual; `None` where nothing was wanted or the figures are none.
fn slowdown(forecast: &Forecast) -> Option<f64> {
    let ratio = forecast.slowdown.unwrap_or(forecast.desired_ms_per_s / forecast.actual_ms_per_s);
    ratio.is_finite().then_some(ratio.max(1.0))
}

/// What is to be done with the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop it.
    Suspend,
    /// Let it go on.
    Resume,
}

const SUSPENDED: i64 = 0;
const RUNNING: i64 = 1;
/// Below this fraction of the machine the work cannot be what slows the others.
const NEGLIGIBLE: f64 = 0.002;

/// The controller. See the [module](self).
#[derive(Clone, Debug)]
pub struct Empathy {
    settings: Settings,
    search: Search,
    changed_at_ns: Option<u64>,
    /// The others' slowdown without the work, when it was seen last and the time before. The larger counts, because
    /// they are not always equally slow by themselves.
    without: [f64; 2],
    /// The others' slowdown when the work went on after a time in which nothing was idle: what is left of that time
    /// is in the figures for a window, and is not the work's doing.
    carried: Option<f64>,
    acquitted_until_ns: u64,
}

impl Empathy {
    /// A controller of work that runs now.
    pub fn new(settings: Settings) -> Self {
        Empathy {
            settings,
            search: Search::new(SearchSettings::default(), RUNNING),
            changed_at_ns: None,
            without: [1.0; 2],
            carried: None,
            acquitted_until_ns: 0,
        }
    }

    /// Whether the work is to be suspended now.
    pub fn is_suspended(&self) -> bool {
        self.search.setting() == SUSPENDED
    }

    /// Takes in what is seen at `now_ns`, in nanoseconds of any clock that does not run backwards; about every 100 ms.
    pub fn observe(&mut self, now_ns: u64, look: Look) -> Option<Action> {
        let changed_at_ns = *self.changed_at_ns.get_or_insert(now_ns);
        let is_pure = now_ns.saturating_sub(changed_at_ns) >= self.settings.window_ns;
        let slowdown = look.others_slowdown.unwrap_or(1.0);
        let seen = if self.is_suspended() {
            self.see_suspended(look, slowdown, is_pure)
        } else {
            self.see_running(now_ns, look, slowdown, is_pure)
        };
        let next = self.search.observe(now_ns, seen?)?;
        self.changed_at_ns = Some(now_ns);
        if next == SUSPENDED {
            return Some(Action::Suspend);
        }
        if self.baseline() > self.settings.threshold && self.search.held() == RUNNING {
            self.acquitted_until_ns = now_ns.saturating_add(self.settings.acquittal_ns);
        }
        Some(Action::Resume)
    }

    /// How slow the others are without the work.
    fn baseline(&self) -> f64 {
        self.without[0].max(self.without[1]).max(self.carried.unwrap_or(1.0))
    }

    fn see_suspended(&mut self, look: Look, slowdown: f64, is_pure: bool) -> Option<Seen> {
        if look.others_used > 1.0 - self.settings.idle_least {
            // Nothing to gain.
            self.carried = Some(slowdown);
            return Some(Seen { verdict: Verdict::Right, cost: 0.0 });
        }
        if !is_pure && slowdown > self.settings.threshold {
            return None;
        }
        self.without = [slowdown, self.without[0]];
        Some(Seen { verdict: Verdict::TooLow, cost: self.baseline() * self.settings.threshold })
    }

    fn see_running(&mut self, now_ns: u64, look: Look, slowdown: f64, is_pure: bool) -> Option<Seen> {
        let threshold = self.settings.threshold;
        if is_pure {
            self.carried = None;
        }
        let baseline = self.baseline();
        if slowdown <= threshold || look.own_used < NEGLIGIBLE {
            let is_over = is_pure && now_ns >= self.acquitted_until_ns;
            return is_over.then_some(Seen { verdict: Verdict::Right, cost: slowdown });
        }
        if now_ns < self.acquitted_until_ns {
            let is_much_slower = slowdown - 1.0 > 2.0 * (baseline - 1.0) + (threshold - 1.0);
            if !is_much_slower {
                return None;
            }
            self.acquitted_until_ns = 0;
            self.search.begin_again();
        } else if slowdown <= baseline * threshold && !is_pure {
            // What is seen so soon is mostly of the time before.
            return None;
        } else if is_pure {
            // What the others did without the work was long ago.
            self.search.begin_again();
        }
        Some(Seen { verdict: Verdict::TooHigh, cost: slowdown })
    }
}

#[cfg(test)]
#[path = "empathy_tests.rs"]
mod tests;
