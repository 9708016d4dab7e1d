//! The search for a setting that is neither too low nor too high, shared by all controllers (CPU Futures, section 5.1).
//!
//! Nothing is known in advance but that the setting in force is too low or too high. The step doubles while it
//! stays wrong in one direction. Once one setting was too low and another too high, the distance between
//! them is halved, until they are neighbours: the search has *settled*, and the better of the two is kept. From then
//! on the other one is looked at again now and then, because the work may have changed; each look that finds it no
//! better doubles the time to the next one, up to a bound (the paper's minimal interference mode: 1 s). A setting that
//! turns out wrong in the other direction than before begins a new search at once.
//!
//! Who has a model of what the setting does says where the right one should be ([`Search::observe_toward`]): the search
//! goes there at once where that is further than its own step, or where it lies between what was too low and what was
//! too high.
//!
//! ```
//! use libsteward::control::search::{Search, Seen, Settings, Verdict};
//!
//! let mut search = Search::new(Settings { lowest: 1, highest: 64, ..Settings::default() }, 1);
//! for turn in 0..20 {
//!     // The right setting lies between 10 and 11, and to be above it is better than to be below.
//!     let setting = search.setting();
//!     let seen = match setting {
//!         ..=10 => Seen { verdict: Verdict::TooLow, cost: 100.0 },
//!         _ => Seen { verdict: Verdict::TooHigh, cost: (setting - 10) as f64 },
//!     };
//!     search.observe(turn * 100_000_000, seen);
//! }
//! assert_eq!(search.held(), 11);
//! ```

/// Within which bounds to search, and how patiently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The lowest setting there is.
    pub lowest: i64,
    /// The highest setting there is, not below `lowest`.
    pub highest: i64,
    /// How long a new setting is in force before what is seen counts for it, in nanoseconds.
    pub patience_ns: u64,
    /// Once settled: from then to the first look at the other candidate, in nanoseconds.
    pub recheck_first_ns: u64,
    /// The longest time that the lower candidate goes without a look while the higher one is kept, in nanoseconds.
    pub recheck_lower_ns: u64,
    /// The longest time that the higher candidate goes without a look while the lower one is kept, in nanoseconds.
    pub recheck_higher_ns: u64,
}

impl Default for Settings {
    /// 0 or 1, no patience, and looks after 100 ms at first and 1 s at most (CPU Futures, section 5.1).
    fn default() -> Self {
        Settings {
            lowest: 0,
            highest: 1,
            patience_ns: 0,
            recheck_first_ns: 100_000_000,
            recheck_lower_ns: 1_000_000_000,
            recheck_higher_ns: 1_000_000_000,
        }
    }
}

/// What is wrong with the setting in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A higher one is needed.
    TooLow,
    /// A lower one is needed.
    TooHigh,
    /// Nothing: it is kept, and no other is looked at, until that changes.
    Right,
}

/// What was seen of the setting in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// In which direction it is wrong.
    pub verdict: Verdict,
    /// How bad it is, on any scale; of two settings the one with the smaller cost is better. A cost that is not a
    /// number counts as the worst.
    pub cost: f64,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On its way.
    Searching,
    /// It has found the best setting, or stands at a bound and can go no further.
    Settled,
    /// It has settled, and looks at the other candidate for a moment.
    Rechecking,
}

/// A setting that was tried, and how bad it was.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    setting: i64,
    cost: f64,
}

/// A search under way. See the [module](self).
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    setting: i64,
    phase: Phase,
    step: i64,
    /// The highest setting known to be too low.
    low: Option<Candidate>,
    /// The lowest setting known to be too high.
    high: Option<Candidate>,
    /// What is seen before this moment does not count.
    counts_from_ns: u64,
    /// Whether the lower or the higher candidate is kept.
    holds_high: bool,
    interval_ns: u64,
    recheck_at_ns: u64,
}

impl Search {
    /// A search that begins at `start`, which is brought within the bounds.
    pub fn new(settings: Settings, start: i64) -> Self {
        let settings = Settings { highest: settings.highest.max(settings.lowest), ..settings };
        Search {
            settings,
            setting: start.clamp(settings.lowest, settings.highest),
            phase: Phase::Searching,
            step: 1,
            low: None,
            high: None,
            counts_from_ns: 0,
            holds_high: false,
            interval_ns: settings.recheck_first_ns,
            recheck_at_ns: 0,
        }
    }

    /// The setting that is to be in force now.
    pub fn setting(&self) -> i64 {
        self.setting
    }

    /// The setting that the search holds to be the best so far; differs from [`Search::setting`] only while the other
    /// candidate is looked at.
    pub fn held(&self) -> i64 {
        match (self.phase, self.low, self.high) {
            (Phase::Rechecking, Some(low), Some(high)) => {
                if self.holds_high {
                    high.setting
                } else {
                    low.setting
                }
            }
            _ => self.setting,
        }
    }

    /// How far it has come.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether what is seen at this moment counts, as the setting has been in force for long enough.
    pub fn counts(&self, now_ns: u64) -> bool {
        now_ns >= self.counts_from_ns
    }

    /// Takes in what was seen of the setting in force at `now_ns`, in nanoseconds of any clock that does not run
    /// backwards. Returns the setting to put in force next, if it is another one.
    pub fn observe(&mut self, now_ns: u64, seen: Seen) -> Option<i64> {
        self.observe_toward(now_ns, seen, self.setting)
    }

    /// As [`Search::observe`], with the setting that would be right as far as the caller can tell.
    pub fn observe_toward(&mut self, now_ns: u64, seen: Seen, toward: i64) -> Option<i64> {
        if !self.counts(now_ns) {
            return None;
        }
        let cost = if seen.cost.is_nan() { f64::INFINITY } else { seen.cost };
        let here = Candidate { setting: self.setting, cost };
        let next = match seen.verdict {
            Verdict::Right => self.stay(),
            Verdict::TooLow => self.too_low(now_ns, here, toward),
            Verdict::TooHigh => self.too_high(now_ns, here, toward),
        };
        self.go(now_ns, next)
    }

    /// Forgets what was seen of other settings, because the work has changed; the one in force stays for now.
    pub fn begin_again(&mut self) {
        (self.low, self.high) = (None, None);
        self.restart();
    }

    /// Takes note of a setting that could not be put in force: the one before it is in force still, and the search
    /// goes no further in that direction than it (`lowest` or `highest` becomes that one).
    pub fn refused(&mut self, in_force: i64) {
        let in_force = in_force.clamp(self.settings.lowest, self.settings.highest);
        if self.setting > in_force {
            self.settings.highest = in_force;
        } else if self.setting < in_force {
            self.settings.lowest = in_force;
        }
        self.setting = in_force;
        self.phase = Phase::Searching;
        self.step = 1;
        (self.low, self.high) = (None, None);
    }

    fn stay(&mut self) -> i64 {
        self.phase = Phase::Settled;
        self.step = 1;
        (self.low, self.high) = (None, None);
        self.interval_ns = self.settings.recheck_first_ns;
        self.setting
    }

    fn too_low(&mut self, now_ns: u64, here: Candidate, toward: i64) -> i64 {
        // What was too high before is not any more: the work has changed.
        if self.high.is_some_and(|high| high.setting <= here.setting) {
            self.high = None;
            self.restart();
        }
        self.low = Some(here);
        if let Some(high) = self.high {
            return self.between(now_ns, [here, high], here, toward);
        }
        let next = here.setting.saturating_add(self.step).max(toward).min(self.settings.highest);
        self.advance(next)
    }

    fn too_high(&mut self, now_ns: u64, here: Candidate, toward: i64) -> i64 {
        if self.low.is_some_and(|low| low.setting >= here.setting) {
            self.low = None;
            self.restart();
        }
        self.high = Some(here);
        if let Some(low) = self.low {
            return self.between(now_ns, [low, here], here, toward);
        }
        let next = here.setting.saturating_sub(self.step).min(toward).max(self.settings.lowest);
        self.advance(next)
    }

    fn restart(&mut self) {
        self.phase = Phase::Searching;
        self.step = 1;
        self.interval_ns = self.settings.recheck_first_ns;
    }

    /// No bound on this side is known yet.
    fn advance(&mut self, next: i64) -> i64 {
        if next == self.setting {
            self.phase = Phase::Settled;
            self.step = 1;
        } else {
            self.phase = Phase::Searching;
            self.step = self.step.saturating_mul(2);
        }
        next
    }

    /// Both sides are known: go where the right one should be, halve the distance, or choose between neighbours.
    fn between(&mut self, now_ns: u64, [low, high]: [Candidate; 2], here: Candidate, toward: i64) -> i64 {
        if high.setting - low.setting > 1 {
            self.phase = Phase::Searching;
            self.step = 1;
            let is_between = low.setting < toward && toward < high.setting;
            return if is_between { toward } else { low.setting + (high.setting - low.setting) / 2 };
        }
        match self.phase {
            Phase::Searching => self.settle(now_ns, low, high),
            Phase::Settled if now_ns >= self.recheck_at_ns => {
                self.phase = Phase::Rechecking;
                if here.setting == low.setting { high.setting } else { low.setting }
            }
            Phase::Settled => here.setting,
            Phase::Rechecking => self.compare(now_ns, low, high),
        }
    }

    /// The search is over: the better of two neighbours is kept.
    fn settle(&mut self, now_ns: u64, low: Candidate, high: Candidate) -> i64 {
        self.interval_ns = self.settings.recheck_first_ns;
        self.hold(now_ns, low, high, high.cost <= low.cost)
    }

    /// The other candidate has been looked at again.
    fn compare(&mut self, now_ns: u64, low: Candidate, high: Candidate) -> i64 {
        let is_high_better = if self.holds_high { high.cost <= low.cost } else { high.cost < low.cost };
        if is_high_better != self.holds_high {
            return self.settle(now_ns, low, high);
        }
        let most_ns = match self.holds_high {
            true => self.settings.recheck_lower_ns,
            false => self.settings.recheck_higher_ns,
        };
        self.interval_ns = self.interval_ns.saturating_mul(2).min(most_ns);
        self.hold(now_ns, low, high, is_high_better)
    }

    fn hold(&mut self, now_ns: u64, low: Candidate, high: Candidate, holds_high: bool) -> i64 {
        self.phase = Phase::Settled;
        self.holds_high = holds_high;
        self.recheck_at_ns = now_ns.saturating_add(self.interval_ns);
        if holds_high { high.setting } else { low.setting }
    }

    fn go(&mut self, now_ns: u64, next: i64) -> Option<i64> {
        if next == self.setting {
            return None;
        }
        self.setting = next;
        self.counts_from_ns = now_ns.saturating_add(self.settings.patience_ns);
        Some(next)
    }
}

#[cfg(test)]
mod tests;
