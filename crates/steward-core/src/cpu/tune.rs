//! The automatic monitor: finds the reservation that a program needs by trying (Eclipse 1998, section 7; Yang 2009,
//! 7.2.3 names such a tool and leaves it open). Pure: time and complaints come in, reservations go out.
//!
//! A complaint raises the reservation at once and by much; quiet lowers it, slowly. A level that complained is
//! remembered, and so is the lowest that was quiet for a whole window; the search ends when these two are close.
//! Between them a complaint goes back to the quiet one, so that a program suffers for a moment only.
//!
//! ```
//! use steward_core::cpu::tune::{Settings, Step, Tuner, Observation};
//! let mut tuner = Tuner::new(Settings::default(), 0.4, 0);
//! let mut level = tuner.level();
//! for second in 1..60 {
//!     // A program that works with 15 % and above.
//!     let seen = Observation { complaints: u64::from(level < 0.15), used: None, idle: false };
//!     match tuner.observe(second * 1_000_000_000, seen) {
//!         Step::Hold => {}
//!         Step::Set { level: next, .. } => level = next,
//!         Step::Settled { level, .. } => assert!((0.15..0.15 * 1.25).contains(&level)),
//!         Step::Insufficient { .. } => unreachable!(),
//!     }
//! }
//! assert!(tuner.settled());
//! ```

use std::fmt;

/// How a [`Tuner`] searches. Levels are fractions: of one CPU for a program, of its parent for a domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The lowest level that is tried, above 0.
    pub lowest: f64,
    /// The highest level that may be asked for, at most 1.
    pub highest: f64,
    /// A complaint multiplies the level by this, above 1.
    pub raise: f64,
    /// A quiet window multiplies it by one less this, 0 to 1; each further one by one less twice as much.
    pub lower: f64,
    /// The most that a quiet window takes off, 0 to 1.
    pub lower_most: f64,
    /// How long a level must be quiet before it counts as good, in nanoseconds.
    pub window_ns: u64,
    /// After a raise, how long complaints still belong to what was before, in nanoseconds.
    pub aftermath_ns: u64,
    /// How long a level that complained is not tried again, in nanoseconds.
    pub memory_ns: u64,
    /// The search is over when the lowest quiet level is at most this many times the highest that complained.
    pub close: f64,
    /// Quiet windows at the level found before the search counts as over.
    pub confirmations: u32,
    /// With the program's own use known, the first step down goes to this many times it, at least 1.
    pub headroom: f64,
    /// At levels below its own use, which it then has from elsewhere, a quiet window takes off at least this part of
    /// that use, 0 to 1.
    pub lower_of_use: f64,
    /// There the search is also over when the lowest quiet level is at most this part of its use above the highest
    /// that complained, 0 to 1.
    pub close_of_use: f64,
}

impl Default for Settings {
    /// Up by a half, down by a twentieth and then at most 15 % (so that the last quiet level is close), quiet for a
    /// second; 5 minutes of memory. What a program has from elsewhere, as its equal share beside others, is not told in
    /// ratios of what is reserved: below its use a quarter of that at a time, to a twentieth.
    fn default() -> Self {
        Settings {
            lowest: 0.005,
            highest: 0.95,
            raise: 1.5,
            lower: 0.05,
            lower_most: 0.15,
            window_ns: 1_000_000_000,
            aftermath_ns: 1_000_000_000,
            memory_ns: 300_000_000_000,
            close: 1.12,
            confirmations: 3,
            headroom: 1.5,
            lower_of_use: 0.25,
            close_of_use: 0.05,
        }
    }
}

/// What was seen since the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Frames and deadlines missed, and whatever else means that the reservation was too small.
    pub complaints: u64,
    /// What the program used, as a fraction of what a level of 1 is, where that is known.
    pub used: Option<f64>,
    /// Nothing was wanted: an editor or a shell that nobody types into. That says nothing of the level.
    pub idle: bool,
}

/// What is counted about a program or a domain, as sums since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Frames, deadlines, requests that it says it missed.
    pub complaints: u64,
    /// Periods at whose end the scheduler still owed it something.
    pub deadlines_missed: u64,
    /// Periods whose budget it used up.
    pub budgets_exhausted: u64,
    /// Periods begun.
    pub periods: u64,
    /// CPU time that it got, in nanoseconds, where that is known.
    pub cpu_ns: Option<u64>,
}

impl Evidence {
    /// One in so many periods may use up its budget: an unusual frame is no complaint.
    const PERIODS_PER_EXHAUSTION: u64 = 20;

    /// What was seen between `before` and now, `elapsed_ns` later. `cpus` is what a level of 1 is, in CPUs.
    ///
    /// A program that complains at all is believed alone. Of another, missed deadlines count, and used up budgets when
    /// they are more than one in twenty: it then wants more in a period than it has reserved.
    pub fn since(&self, before: &Evidence, elapsed_ns: u64, cpus: f64) -> Observation {
        let complaints = if self.complaints > 0 {
            self.complaints.saturating_sub(before.complaints)
        } else {
            let exhausted = self.budgets_exhausted.saturating_sub(before.budgets_exhausted);
            let periods = self.periods.saturating_sub(before.periods);
            let is_usual = exhausted * Self::PERIODS_PER_EXHAUSTION > periods;
            self.deadlines_missed.saturating_sub(before.deadlines_missed)
                + if is_usual { exhausted } else { 0 }
        };
        let used_ns = self.cpu_ns.zip(before.cpu_ns).map(|(now, before)| now.saturating_sub(before) as f64);
        let used = used_ns.filter(|_| elapsed_ns > 0 && cpus > 0.0);
        let used = used.map(|used_ns| used_ns / elapsed_ns as f64 / cpus);
        // Where periods are counted, none has begun for who wanted nothing.
        let idle = complaints == 0 && self.periods > 0 && self.periods == before.periods;
        Observation { complaints, used, idle }
    }
}

/// Why a level was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The level complained, and none is known that does not.
    Complaint {
        /// How often.
        complaints: u64,
        /// The level that complained.
        at: f64,
    },
    /// The level complained: back to the lowest that was quiet.
    BackToQuiet {
        /// How often it complained.
        complaints: u64,
        /// The level that complained.
        at: f64,
    },
    /// The level was quiet for a window: a little less may do.
    Quiet {
        /// The level that was quiet.
        at: f64,
    },
    /// It was quiet, and far above what the program used.
    FarAboveUse {
        /// What it used at most in a window.
        used: f64,
    },
    /// It was quiet; half the way (in ratio) to the highest level that complained.
    Between {
        /// The highest level that complained.
        complained: f64,
        /// The lowest that was quiet.
        quiet: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |level: &f64| format!("{:.1} %", level * 100.0);
        match self {
            Reason::Complaint { complaints, at } => {
                write!(formatter, "{} at {}", counted(*complaints), percent(at))
            }
            Reason::BackToQuiet { complaints, at } => {
                write!(formatter, "{} at {}: back to what was quiet", counted(*complaints), percent(at))
            }
            Reason::Quiet { at } => write!(formatter, "quiet at {}", percent(at)),
            Reason::FarAboveUse { used } => write!(formatter, "quiet, and only {} was used", percent(used)),
            Reason::Between { complained, quiet } => {
                write!(formatter, "quiet at {}, complaints at {}", percent(quiet), percent(complained))
            }
        }
    }
}

fn counted(complaints: u64) -> String {
    format!("{complaints} complaint{}", if complaints == 1 { "" } else { "s" })
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Nothing yet.
    Hold,
    /// Reserve this much.
    Set {
        /// The new level.
        level: f64,
        /// Why.
        reason: Reason,
    },
    /// The search is over: this level is in force, and was quiet for all confirmations.
    Settled {
        /// The level found.
        level: f64,
        /// The highest level known to complain, if any did.
        complained: Option<f64>,
    },
    /// The highest level that may be asked for complains too.
    Insufficient {
        /// That level.
        level: f64,
        /// How often it complained.
        complaints: u64,
    },
}

/// A search for the smallest level that does not complain.
#[derive(Clone, Debug)]
pub struct Tuner {
    settings: Settings,
    level: f64,
    /// When the level came into force, or its last complaint, or its last quiet window ended.
    since_ns: u64,
    /// When it was observed last.
    seen_ns: u64,
    /// Until when complaints belong to what was before.
    aftermath_until_ns: u64,
    /// The highest level that complained, and when.
    complained: Option<(f64, u64)>,
    /// The lowest level that was quiet for a window.
    quiet: Option<f64>,
    /// The most that was used between two observations of this window.
    used: Option<f64>,
    /// Whether the level was raised by a complaint and has not been quiet for a window since.
    raised: bool,
    /// Whether that was to a level that had been quiet before.
    went_back: bool,
    /// Quiet windows that lowered the level, since the last complaint.
    lowered: u32,
    confirmations: u32,
    settled: bool,
}

impl Tuner {
    /// Starts at `start` (kept within the limits) at the moment `now_ns`.
    pub fn new(settings: Settings, start: f64, now_ns: u64) -> Self {
        Tuner {
            settings,
            level: start.clamp(settings.lowest, settings.highest),
            since_ns: now_ns,
            seen_ns: now_ns,
            aftermath_until_ns: now_ns.saturating_add(settings.aftermath_ns),
            complained: None,
            quiet: None,
            used: None,
            raised: false,
            went_back: false,
            lowered: 0,
            confirmations: 0,
            settled: false,
        }
    }

    /// The level that is to be in force now.
    pub fn level(&self) -> f64 {
        self.level
    }

    /// Whether a level was found. A complaint makes this false again.
    pub fn settled(&self) -> bool {
        self.settled
    }

    /// The lowest level that was quiet for a whole window so far.
    pub fn quiet(&self) -> Option<f64> {
        self.quiet
    }

    /// The level could not be given: `most` is in force, and more is not to be had.
    pub fn refused(&mut self, most: f64) {
        self.settings.highest = most.max(self.settings.lowest);
        self.level = self.level.min(self.settings.highest);
    }

    /// Takes what was seen since the last call; `now_ns` does not go back.
    pub fn observe(&mut self, now_ns: u64, seen: Observation) -> Step {
        if let Some((_, at_ns)) = self.complained
            && now_ns.saturating_sub(at_ns) > self.settings.memory_ns
        {
            self.complained = None;
        }
        let elapsed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.seen_ns, now_ns));
        if seen.idle {
            // Quiet counts while something is wanted.
            self.since_ns = self.since_ns.saturating_add(elapsed_ns).min(now_ns);
            return Step::Hold;
        }
        if seen.complaints > 0 {
            // What was missed before a raise is told after it.
            return if now_ns < self.aftermath_until_ns { Step::Hold } else { self.complain(now_ns, seen) };
        }
        if now_ns < self.aftermath_until_ns {
            return Step::Hold;
        }
        self.used = [self.used, seen.used].into_iter().flatten().reduce(f64::max);
        if now_ns.saturating_sub(self.since_ns.max(self.aftermath_until_ns)) < self.settings.window_ns {
            return Step::Hold;
        }
        self.after_quiet(now_ns)
    }

    fn complain(&mut self, now_ns: u64, seen: Observation) -> Step {
        let at = self.level;
        let complaints = seen.complaints;
        // After a raise, a program that has fallen behind may complain until it has caught up: that says little about
        // the new level. So only those are remembered at which the trouble began, and which had seemed to be enough.
        let before = self.complained.map_or(0.0, |(level, _)| level);
        let counts = !self.raised || self.went_back;
        self.complained = Some((if counts { before.max(at) } else { before }, now_ns));
        // A level that was quiet once and complains now says that the program wants more than it did.
        self.quiet = self.quiet.filter(|quiet| *quiet > at);
        (self.lowered, self.confirmations, self.settled) = (self.lowered.min(1), 0, false);
        if at >= self.settings.highest {
            (self.since_ns, self.used) = (now_ns, None);
            return Step::Insufficient { level: at, complaints };
        }
        let (level, reason) = match self.quiet {
            Some(quiet) => (quiet, Reason::BackToQuiet { complaints, at }),
            None => (at * self.settings.raise, Reason::Complaint { complaints, at }),
        };
        (self.raised, self.went_back) = (true, self.quiet.is_some());
        self.aftermath_until_ns = now_ns.saturating_add(self.settings.aftermath_ns);
        self.set(level, now_ns, reason)
    }

    fn after_quiet(&mut self, now_ns: u64) -> Step {
        let at = self.level;
        self.raised = false;
        self.quiet = Some(self.quiet.map_or(at, |quiet| quiet.min(at)));
        let used = self.used.take();
        let complained = self.complained.map(|(level, _)| level);
        // What it uses where others' shares carry some of it, so that the level is not all that it has.
        let carried = used.filter(|used| at <= *used);
        let apart = self.settings.close_of_use * carried.unwrap_or_default();
        let is_close = complained
            .is_some_and(|complained| at <= (complained * self.settings.close).max(complained + apart));
        if is_close || at <= self.settings.lowest {
            return self.confirm(now_ns, complained);
        }
        let step = self.settings.lower * f64::from(1 << self.lowered.min(8));
        let off = (at * step.min(self.settings.lower_most))
            .max(self.settings.lower_of_use * carried.unwrap_or_default());
        let down = (at - off).max(self.settings.lowest);
        self.lowered += 1;
        let (level, reason) = match (complained, used) {
            // Not more than half the way to what complained.
            (Some(complained), _) if down < (complained * at).sqrt() => {
                ((complained * at).sqrt(), Reason::Between { complained, quiet: at })
            }
            (None, Some(used)) if used * self.settings.headroom < down => {
                (used * self.settings.headroom, Reason::FarAboveUse { used })
            }
            _ => (down, Reason::Quiet { at }),
        };
        self.set(level, now_ns, reason)
    }

    fn confirm(&mut self, now_ns: u64, complained: Option<f64>) -> Step {
        self.since_ns = now_ns;
        self.confirmations += 1;
        if self.confirmations < self.settings.confirmations || self.settled {
            return Step::Hold;
        }
        self.settled = true;
        Step::Settled { level: self.level, complained }
    }

    fn set(&mut self, level: f64, now_ns: u64, reason: Reason) -> Step {
        self.level = level.clamp(self.settings.lowest, self.settings.highest);
        (self.since_ns, self.used, self.confirmations) = (now_ns, None, 0);
        Step::Set { level: self.level, reason }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLL_NS: u64 = 250_000_000;

    /// What a search did in a minute with a program that works with `needed` and above.
    struct Trace {
        levels: Vec<f64>,
        settled_after_ns: Option<u64>,
        /// The first observation after which a level had been quiet for a window.
        first_quiet: Option<usize>,
    }

    fn search(settings: Settings, start: f64, needed: f64, used: Option<f64>) -> Trace {
        let mut tuner = Tuner::new(settings, start, 0);
        let mut trace = Trace { levels: Vec::new(), settled_after_ns: None, first_quiet: None };
        for poll in 1..=240 {
            let complaints = u64::from(tuner.level() < needed);
            let step = tuner.observe(poll * POLL_NS, Observation { complaints, used, idle: false });
            trace.levels.push(tuner.level());
            if matches!(step, Step::Settled { .. }) {
                trace.settled_after_ns.get_or_insert(poll * POLL_NS);
            }
            if tuner.quiet.is_some() && trace.first_quiet.is_none() {
                trace.first_quiet = Some(trace.levels.len());
            }
        }
        trace
    }

    proptest! {
        #[test]
        fn it_settles_within_a_quarter_of_what_is_needed_in_a_minute(
            needed in 0.006..0.94f64, start in 0.001..1.0f64, knows_use in any::<bool>(), bursts in 0.5..1.0f64,
        ) {
            // What is used on the whole lies below what is needed when it is needed in bursts.
            let used = knows_use.then_some(needed * bursts);
            let trace = search(Settings::default(), start, needed, used);
            prop_assert!(trace.settled_after_ns.is_some(), "{:?}", trace.levels);
            let level = *trace.levels.last().unwrap();
            prop_assert!(level >= needed && level <= needed * 1.25, "{level} for {needed}: {:?}", trace.levels);
        }

        /// It has the rest from elsewhere: what the others leave it.
        #[test]
        fn a_program_that_uses_more_than_it_needs_reserved_is_settled_sooner_and_within_a_twentieth_of_its_use(
            used in 0.02..0.6f64, part in 0.0..0.95f64, start in 0.001..1.0f64,
        ) {
            let needed = used * part;
            let trace = search(Settings::default(), start, needed, Some(used));
            prop_assert!(trace.settled_after_ns.is_some_and(|ns| ns <= 30_000_000_000), "{:?}", trace.levels);
            let level = *trace.levels.last().unwrap();
            let most = (needed * 1.25).max(needed + 0.06 * used).max(Settings::default().lowest);
            prop_assert!(level >= needed && level <= most, "{level} for {needed} of {used}: {:?}", trace.levels);
        }

        #[test]
        fn every_level_keeps_the_limits(needed in 0.0..1.5f64, start in 0.0..2.0f64, highest in 0.1..1.0f64) {
            let settings = Settings { highest, ..Settings::default() };
            let trace = search(settings, start, needed, None);
            let within = |level: &f64| (settings.lowest..=highest).contains(level);
            prop_assert!(trace.levels.iter().all(within), "{:?}", trace.levels);
        }

        #[test]
        fn once_something_works_the_program_is_disturbed_seldom_and_for_one_look_only(
            needed in 0.006..0.94f64, start in 0.001..1.0f64,
        ) {
            let trace = search(Settings::default(), start, needed, None);
            let after = &trace.levels[trace.first_quiet.unwrap()..];
            let below: Vec<bool> = after.iter().map(|level| *level < needed).collect();
            prop_assert!(below.windows(6).all(|six| six.iter().filter(|is_below| **is_below).count() <= 1));
            let times = below.iter().filter(|is_below| **is_below).count();
            prop_assert!(times <= 5, "{times} times: {:?}", trace.levels);
        }

        #[test]
        fn a_level_that_complained_is_not_tried_again_while_it_is_remembered(
            needed in 0.006..0.94f64, start in 0.001..1.0f64,
        ) {
            let trace = search(Settings::default(), start, needed, None);
            let mut complained: f64 = 0.0;
            let mut before = f64::INFINITY;
            for pair in trace.levels.windows(2) {
                prop_assert!(pair[1] > complained || pair[1] == pair[0], "{:?}", trace.levels);
                // Of a chain of raises, only the first level is held to be too little.
                if pair[0] < needed && pair[0] < before {
                    complained = complained.max(pair[0]);
                }
                before = pair[0];
            }
        }
    }

    #[test]
    fn a_program_that_is_idle_most_of_the_time_is_searched_for_while_it_is_not() {
        // A shell that wants 9 % for an answer every two seconds, and has 5 %.
        let (needed, polls_per_answer) = (0.09, 8);
        let mut tuner = Tuner::new(Settings::default(), 0.05, 0);
        let mut disturbed = 0;
        for poll in 1..=140 * polls_per_answer {
            let idle = poll % polls_per_answer != 0;
            let complaints = u64::from(!idle && tuner.level() < needed);
            disturbed += complaints;
            tuner.observe(poll * POLL_NS, Observation { complaints, used: Some(0.036), idle });
        }
        assert!(tuner.settled() && (needed..needed * 1.25).contains(&tuner.level()), "{}", tuner.level());
        assert!(disturbed <= 8, "{disturbed} answers were late");
        let slept = Evidence { periods: 9, budgets_exhausted: 3, ..Evidence::default() };
        assert!(slept.since(&slept, 1, 1.0).idle && !slept.since(&Evidence::default(), 1, 1.0).idle);
        let of_domain = Evidence::default();
        assert!(!of_domain.since(&of_domain, 1, 1.0).idle, "nobody counts its periods");
    }

    #[test]
    fn a_program_that_wants_more_than_it_did_is_followed() {
        let mut tuner = Tuner::new(Settings::default(), 0.3, 0);
        let mut now_ns = 0;
        let mut live = |tuner: &mut Tuner, needed: f64, polls: u32| {
            for _ in 0..polls {
                now_ns += POLL_NS;
                let complaints = u64::from(tuner.level() < needed);
                tuner.observe(now_ns, Observation { complaints, used: None, idle: false });
            }
        };
        live(&mut tuner, 0.1, 240);
        assert!(tuner.settled() && tuner.level() < 0.125, "{}", tuner.level());
        live(&mut tuner, 0.4, 240);
        assert!(tuner.settled() && (0.4..0.5).contains(&tuner.level()), "{}", tuner.level());
    }

    #[test]
    fn what_is_missed_just_before_a_raise_is_not_held_against_it() {
        let mut tuner = Tuner::new(Settings::default(), 0.1, 0);
        let complaint = Observation { complaints: 3, used: None, idle: false };
        let raised = tuner.observe(1_000_000_000, complaint);
        let reason = Reason::Complaint { complaints: 3, at: 0.1 };
        assert_eq!(raised, Step::Set { level: 0.1 * 1.5, reason });
        assert_eq!(tuner.observe(1_750_000_000, complaint), Step::Hold);
        assert!(matches!(tuner.observe(2_000_000_000, complaint), Step::Set { .. }));
    }

    #[test]
    fn complaints_at_the_highest_level_say_that_it_is_not_enough() {
        let mut tuner = Tuner::new(Settings::default(), 0.95, 0);
        let complaint = Observation { complaints: 1, used: None, idle: false };
        let step = tuner.observe(1_000_000_000, complaint);
        assert_eq!(step, Step::Insufficient { level: 0.95, complaints: 1 });
    }

    #[test]
    fn a_level_that_is_refused_is_the_limit_from_then_on() {
        let mut tuner = Tuner::new(Settings::default(), 0.5, 0);
        let complaint = Observation { complaints: 1, used: None, idle: false };
        assert!(matches!(tuner.observe(1_000_000_000, complaint), Step::Set { level: 0.75, .. }));
        tuner.refused(0.5);
        assert_eq!(tuner.level(), 0.5);
        let step = tuner.observe(2_000_000_000, complaint);
        assert_eq!(step, Step::Insufficient { level: 0.5, complaints: 1 });
    }

    #[test]
    fn a_program_that_complains_is_believed_alone_and_of_others_the_scheduler_s_evidence_counts() {
        let before =
            Evidence { periods: 100, budgets_exhausted: 10, deadlines_missed: 1, ..Evidence::default() };
        let now = Evidence { periods: 140, budgets_exhausted: 12, deadlines_missed: 2, ..before };
        assert_eq!(now.since(&before, 0, 1.0).complaints, 1);
        let exhausted = Evidence { budgets_exhausted: 20, ..now };
        assert_eq!(exhausted.since(&before, 0, 1.0).complaints, 11);
        let heard = Evidence { complaints: 3, ..exhausted };
        assert_eq!(heard.since(&before, 0, 1.0).complaints, 3);
        assert_eq!(heard.since(&heard, 0, 1.0).complaints, 0);
    }

    #[test]
    fn use_is_a_fraction_of_what_a_level_of_one_is() {
        let [before, now] = [0, 250_000_000].map(|ns| Evidence { cpu_ns: Some(ns), ..Evidence::default() });
        assert_eq!(now.since(&before, 500_000_000, 2.0).used, Some(0.25));
        assert_eq!(now.since(&Evidence::default(), 500_000_000, 2.0).used, None);
    }

    #[test]
    fn a_reason_is_a_sentence_with_its_numbers() {
        let reason = Reason::BackToQuiet { complaints: 2, at: 0.123 };
        assert_eq!(reason.to_string(), "2 complaints at 12.3 %: back to what was quiet");
    }
}
