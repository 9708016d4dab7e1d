//! Background work that runs on what is idle, and only while that disturbs nobody (CPU Futures, section 5.2, first
//! policy).
//!
//! There are two settings, suspended and running, and the [search](super::search) chooses between them. How much slower
//! each of the others is tells: as long as all stay below a threshold, the work runs. When one passes it, the work is
//! suspended at once, and one of two things is seen a window later:
//!
//! - One of the others is better off without it. It stays suspended, and is tried again after 0.1, 0.2, 0.4, ... s, at
//!   most a second (minimal interference).
//! - All are as slow without it: they slow each other. Then it is *acquitted*, and goes on for ten seconds
//!   whatever the threshold says, unless one becomes much slower. Without this, work that yields to everybody anyway
//!   would be suspended most of the time on a machine with bursts of other work.
//!
//! **Each is looked at alone**, and held against what it was itself without the work: in a sum, one that wants 20 ms of
//! a second and gets 2 is not seen beside one that gets its 1,000, and beside one that is always slow the slowest says
//! nothing. The others are looked at together as well, for those that live too briefly to be looked at alone.
//!
//! **What counts depends on the scheduler.** Under Steward's own, the work is deferred to everybody, at once, and what
//! others wait for a CPU they wait for each other: only who lacks memory or the disk is a reason to suspend it.
//! Elsewhere, waits for a CPU count as well.
//!
//! While the others leave nothing idle there is nothing to gain, so suspended work is not even tried.

use std::collections::BTreeMap;

use super::search::{Search, Seen, Settings as SearchSettings, Verdict};
use crate::api::{Forecast, Forecasts, Lack, SLOWED_MAX};

/// Where suspension begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The slowdown of one of the others above which the work is under suspicion; and by which factor one must be
    /// slower with it than without for it to be guilty. Above 1.
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

/// Who may be slowed, and by the lack of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whom {
    /// What it lacks.
    pub by: Lack,
    /// As in [`crate::api::Slowed`].
    pub id: u64,
}

impl Whom {
    /// All others together, for want of the CPU.
    pub const ALL: Whom = Whom { by: Lack::Cpu, id: u64::MAX };
}

/// What is seen of the machine at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// How many times slower each of the others was over the last window; who is not in it was not slowed.
    pub slowdowns: BTreeMap<Whom, f64>,
    /// The CPU time that the others got, as a fraction of the machine.
    pub others_used: f64,
    /// The CPU time that the work itself got, as a fraction of the machine.
    pub own_used: f64,
    /// Whether the scheduler defers the work to everybody, so that waits for a CPU do not count.
    pub yields_the_cpu: bool,
}

impl Look {
    /// What a reply to [`crate::api::WatchForecasts`] with `slowed` about the work's domain says.
    pub fn of(forecasts: &Forecasts) -> Self {
        let machine_ms = f64::from(forecasts.cpus.max(1)) * 1000.0;
        let own = forecasts.machine.actual_ms_per_s - forecasts.others.actual_ms_per_s;
        let yields_the_cpu = forecasts.model == "steward";
        let each =
            forecasts.slowed.iter().map(|slowed| (Whom { by: slowed.by, id: slowed.id }, slowed.slowdown));
        let all = slowdown(&forecasts.others).map(|slowdown| (Whom::ALL, slowdown));
        let counts = |(whom, slowdown): &(Whom, f64)| {
            slowdown.is_finite() && *slowdown > 1.0 && (whom.by != Lack::Cpu || !yields_the_cpu)
        };
        Look {
            slowdowns: each.chain(all).filter(counts).collect(),
            others_used: forecasts.others.actual_ms_per_s / machine_ms,
            own_used: (own / machine_ms).max(0.0),
            yields_the_cpu,
        }
    }

    /// The slowest.
    fn worst(&self) -> f64 {
        self.slowdowns.values().copied().fold(1.0, f64::max)
    }

    /// How slow somebody was. Of one lack only so many are told: who is not among them was no slower than any of them.
    fn slowdown_of(&self, whom: Whom) -> Option<f64> {
        if let Some(slowdown) = self.slowdowns.get(&whom) {
            return Some(*slowdown);
        }
        let told = self.slowdowns.iter().filter(|(other, _)| other.by == whom.by && **other != Whom::ALL);
        let told: Vec<f64> = told.map(|(_, slowdown)| *slowdown).collect();
        (told.len() >= SLOWED_MAX).then(|| told.into_iter().fold(f64::INFINITY, f64::min))
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

/// Time between two looks, in nanoseconds, while something may have to be decided, and while nothing is likely to be.
const LOOKS_NS: u64 = 100_000_000;
const CALM_LOOKS_NS: u64 = 1_000_000_000;
/// Nobody has been slow for so many windows: all is calm.
const CALM_WINDOWS: u64 = 2;

const SUSPENDED: i64 = 0;
const RUNNING: i64 = 1;
/// Below this fraction of the machine the work cannot be what others wait for when they wait for a CPU.
const NEGLIGIBLE: f64 = 0.002;

/// The controller. See the [module](self).
#[derive(Clone, Debug)]
pub struct Empathy {
    settings: Settings,
    search: Search,
    changed_at_ns: Option<u64>,
    /// The others without the work, when they were seen last and the time before. The larger counts, because they are
    /// not always equally slow by themselves.
    without: [Look; 2],
    /// The others when the work went on after a time in which nothing was idle: what is left of that time is in the
    /// figures for a window, and is not the work's doing.
    carried: Option<Look>,
    /// The others with the work, when it was suspended last because of them, and the cost that the search was told.
    with: Look,
    with_cost: f64,
    /// What the search is told of costs is in this unit, so that what it was told before and tells now can be compared:
    /// how much of the cost told then the work is to blame for, as is known now.
    unit: f64,
    acquitted_until_ns: u64,
    /// Since when the work runs, and nobody has been slow, and waits for a CPU do not count.
    calm_since_ns: Option<u64>,
}

impl Empathy {
    /// A controller of work that runs now.
    pub fn new(settings: Settings) -> Self {
        Empathy {
            settings,
            search: Search::new(SearchSettings::default(), RUNNING),
            changed_at_ns: None,
            without: [Look::default(), Look::default()],
            carried: None,
            with: Look::default(),
            with_cost: 1.0,
            unit: 1.0,
            acquitted_until_ns: 0,
            calm_since_ns: None,
        }
    }

    /// Whether the work is to be suspended now.
    pub fn is_suspended(&self) -> bool {
        self.search.setting() == SUSPENDED
    }

    /// How long after `now_ns` it wants to see something again, in nanoseconds. Each look has all tasks read, on the
    /// CPU of those who are to be spared: so it looks seldom where the scheduler spares them anyway and nobody was slow
    /// for a while, at the price of seeing a second later who wants for memory or the disk.
    pub fn looks_again_in_ns(&self, now_ns: u64) -> u64 {
        let calm_ns = self.settings.window_ns.saturating_mul(CALM_WINDOWS);
        let is_calm = self.calm_since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= calm_ns);
        if is_calm { CALM_LOOKS_NS } else { LOOKS_NS }
    }

    /// Takes in what is seen at `now_ns`, in nanoseconds of any clock that does not run backwards; as often as
    /// [`Empathy::looks_again_in_ns`] says.
    pub fn observe(&mut self, now_ns: u64, look: &Look) -> Option<Action> {
        let is_calm = look.yields_the_cpu && !self.is_suspended() && look.worst() <= self.settings.threshold;
        self.calm_since_ns = is_calm.then(|| self.calm_since_ns.unwrap_or(now_ns));
        let changed_at_ns = *self.changed_at_ns.get_or_insert(now_ns);
        let is_pure = now_ns.saturating_sub(changed_at_ns) >= self.settings.window_ns;
        let seen = if self.is_suspended() {
            self.see_suspended(look, is_pure)
        } else {
            self.see_running(now_ns, look, is_pure)
        };
        let next = self.search.observe(now_ns, seen?)?;
        self.changed_at_ns = Some(now_ns);
        if next == SUSPENDED {
            return Some(Action::Suspend);
        }
        if self.looks_without().any(|look| look.worst() > self.settings.threshold)
            && self.search.held() == RUNNING
        {
            self.acquitted_until_ns = now_ns.saturating_add(self.settings.acquittal_ns);
        }
        Some(Action::Resume)
    }

    /// Who is slowed most by the work, going by what is seen, and by which factor more than without it; `None` where
    /// nobody is.
    pub fn hurt_most(&self, look: &Look) -> Option<(Whom, f64)> {
        let slower = look.slowdowns.iter().map(|(whom, slowdown)| (*whom, slowdown / self.baseline(*whom)));
        slower.filter(|(_, factor)| *factor > 1.0).max_by(|one, other| one.1.total_cmp(&other.1))
    }

    fn looks_without(&self) -> impl Iterator<Item = &Look> {
        self.without.iter().chain(&self.carried)
    }

    /// How slow somebody is without the work. Of one who was not slowed then nothing may be known, for it may not have
    /// been there: it is taken to have been as slow as all together.
    fn baseline(&self, whom: Whom) -> f64 {
        let all = |look: &Look| look.slowdowns.get(&Whom::ALL).copied().filter(|_| whom.by == Lack::Cpu);
        let slowdowns =
            self.looks_without().map(|look| look.slowdown_of(whom).or_else(|| all(look)).unwrap_or(1.0));
        slowdowns.fold(1.0, f64::max)
    }

    /// By which factor whoever is hurt most is slower than without the work.
    fn excess(&self, look: &Look) -> f64 {
        self.hurt_most(look).map_or(1.0, |(_, factor)| factor)
    }

    fn see_suspended(&mut self, look: &Look, is_pure: bool) -> Option<Seen> {
        if look.others_used > 1.0 - self.settings.idle_least {
            // Nothing to gain.
            self.carried = Some(look.clone());
            return Some(Seen { verdict: Verdict::Right, cost: 0.0 });
        }
        if !is_pure && look.worst() > self.settings.threshold {
            return None;
        }
        let [last, _] = std::mem::take(&mut self.without);
        self.without = [look.clone(), last];
        self.unit = self.with_cost / self.excess(&self.with);
        Some(Seen { verdict: Verdict::TooLow, cost: self.settings.threshold * self.unit })
    }

    fn see_running(&mut self, now_ns: u64, look: &Look, is_pure: bool) -> Option<Seen> {
        let threshold = self.settings.threshold;
        if is_pure {
            self.carried = None;
        }
        let mut look = look.clone();
        if look.own_used < NEGLIGIBLE {
            look.slowdowns.retain(|whom, _| whom.by != Lack::Cpu);
        }
        if look.worst() <= threshold {
            let is_over = is_pure && now_ns >= self.acquitted_until_ns;
            return is_over.then_some(Seen { verdict: Verdict::Right, cost: 1.0 });
        }
        let excess = self.excess(&look);
        if now_ns < self.acquitted_until_ns {
            let is_much_slower = look.slowdowns.iter().any(|(whom, slowdown)| {
                slowdown - 1.0 > 2.0 * (self.baseline(*whom) - 1.0) + (threshold - 1.0)
            });
            if !is_much_slower {
                return None;
            }
            self.acquitted_until_ns = 0;
            self.search.begin_again();
        } else if excess <= threshold && !is_pure {
            // What is seen so soon is mostly of the time before.
            return None;
        } else if is_pure {
            // What the others did without the work was long ago.
            self.search.begin_again();
        }
        self.with = look;
        self.with_cost = excess * self.unit;
        Some(Seen { verdict: Verdict::TooHigh, cost: self.with_cost })
    }
}

#[cfg(test)]
mod tests;
