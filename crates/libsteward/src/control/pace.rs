//! Background work that is kept at a bearable speed, and no faster (CPU Futures, section 5.2, second policy).
//!
//! The setting is the weight of the work's domain among its siblings, on a ladder whose steps are an eighth apart
//! (those of nice values: a quarter). The [search](super::search) finds one with which the work's own slowdown lies a
//! little below the limit; of two neighbours on either side of it, it keeps the one that keeps the limit.
//!
//! Two things are done differently from the paper, which sums the forecasts of the work's tasks:
//!
//! - **What the work wants** is asked of it as a whole. A thread that sleeps until another thread of the same work
//!   hands it something would seem to want less and less the slower both become. So the work is taken to want the CPU
//!   whenever any task of it can run, and on an idle machine to have done the same with as many CPUs at once as it had
//!   tasks for: `actual / (asleep + actual / parallel)`, equation 1 with the whole work for the task.
//! - **One look says little**: with other work that comes and goes, the forecasts of two looks may differ by half. The
//!   further their mean is from the limit, the fewer looks it takes to change something.

use std::collections::VecDeque;

use super::search::{Search, Seen, Settings as SearchSettings, Verdict};
use crate::api::DomainForecast;

/// Ratio of one weight on the ladder to the one before it.
const STEP: f64 = 1.12;
/// Weights of domains go to 10,000.
const WEIGHT_MAX: i64 = 10_000;
/// Whoever breaks the limit is worse than whoever keeps it, however generously.
const BROKEN: f64 = 1e9;
/// What is aimed at, as a part of the limit: so that what counts as right, a step of the ladder wide, lies below it.
const AIM: f64 = 0.935;
/// How far the mean of the looks must be off: its logarithm times their number to the power of [`GROWTH`]. Four times
/// at one look, by a third at ten, 7 % at [`LOOKS_MAX`]. More than the square root would ask at first, because looks
/// that follow each other share most of their second.
const EVIDENCE: f64 = 1.39;
const GROWTH: f64 = 0.65;
/// So many looks are taken into the mean, the older ones with less and less weight.
const LOOKS_MAX: u32 = 100;
/// Over so many looks it is counted how often the work could have used a CPU: two seconds.
const ACTIVITY_LOOKS: usize = 20;
/// Past and future further apart than this: the machine's load has changed, and the past says nothing.
const CHANGED: f64 = 2.0;
/// ... at so many looks in a row.
const CHANGED_LOOKS: u32 = 3;

/// The controller. See the [module](self).
#[derive(Clone, Debug)]
pub struct Pace {
    limit: f64,
    window_ns: u64,
    ladder: Vec<i64>,
    search: Search,
    changed_at_ns: Option<u64>,
    /// How many tasks of the work could run at each of the last looks.
    activity: VecDeque<u32>,
    /// The mean CPU time that the work got or gets, in CPUs, since the last change, and over how many looks.
    share: f64,
    looks: u32,
    /// At how many looks in a row past and future have been apart.
    apart: u32,
}

impl Pace {
    /// Keeps the slowdown at `limit` (above 1) or below, starting with the weight next to `weight`. Figures of the past
    /// are over `window_ns` nanoseconds.
    pub fn new(limit: f64, weight: i64, window_ns: u64) -> Self {
        let ladder = ladder();
        let settings =
            SearchSettings { lowest: 0, highest: ladder.len() as i64 - 1, ..SearchSettings::default() };
        let search = Search::new(settings, rung(&ladder, weight));
        Pace {
            limit,
            window_ns,
            ladder,
            search,
            changed_at_ns: None,
            activity: VecDeque::with_capacity(ACTIVITY_LOOKS),
            share: 0.0,
            looks: 0,
            apart: 0,
        }
    }

    /// The weight that is to be in force.
    pub fn weight(&self) -> i64 {
        self.ladder[self.search.setting() as usize]
    }

    /// Takes in the forecast of the work's domain at `now_ns`, in nanoseconds of any clock that does not run backwards,
    /// on a machine of `cpus` CPUs. To be called about every 100 ms. Returns the weight to give it next, if it is
    /// another one.
    pub fn observe(&mut self, now_ns: u64, own: &DomainForecast, cpus: u32) -> Option<i64> {
        if self.activity.len() == ACTIVITY_LOOKS {
            self.activity.pop_front();
        }
        self.activity.push_back(own.runnable.min(cpus.max(1)));
        self.take_share(now_ns, own);
        let slowdown = self.slowdown(own)?;
        let off = (slowdown / (self.limit * AIM)).ln();
        let has_evidence = off.abs() * f64::from(self.looks).powf(GROWTH) >= EVIDENCE;
        let seen = match has_evidence {
            true if off > 0.0 => Seen { verdict: Verdict::TooLow, cost: BROKEN + slowdown },
            true => Seen { verdict: Verdict::TooHigh, cost: self.limit / slowdown },
            false if self.looks == LOOKS_MAX => Seen { verdict: Verdict::Right, cost: 0.0 },
            false => return None,
        };
        self.search.observe(now_ns, seen)?;
        self.changed_at_ns = Some(now_ns);
        (self.looks, self.apart) = (0, 0);
        Some(self.weight())
    }

    /// That weight could not be given: the one before it is in force, and no more will be asked for in that direction.
    pub fn refused(&mut self, in_force: i64) {
        self.search.refused(rung(&self.ladder, in_force));
    }

    /// Forgets what was seen, because nobody looked for a while; the weight stays.
    pub fn begin_again(&mut self) {
        self.search.begin_again();
        self.activity.clear();
        (self.changed_at_ns, self.looks, self.apart) = (None, 0, 0);
    }

    /// How many times slower the work is than on an idle machine, going by the mean of the looks since the last change
    /// and by the latest one; `None` while it wants nothing.
    pub fn slowdown(&self, latest: &DomainForecast) -> Option<f64> {
        let active: Vec<u32> = self.activity.iter().copied().filter(|tasks| *tasks > 0).collect();
        if active.is_empty() {
            return None;
        }
        let parallel = f64::from(active.iter().sum::<u32>()) / active.len() as f64;
        let asleep = 1.0 - active.len() as f64 / self.activity.len() as f64;
        let actual = latest.forecast.actual_ms_per_s / 1000.0;
        // One that got nothing told nothing about how long it would have slept.
        let desired =
            if actual > 0.0 { actual / (asleep + actual / parallel) } else { parallel * (1.0 - asleep) };
        let slowdown = desired / self.share;
        Some(if slowdown.is_nan() { 1.0 } else { slowdown.max(1.0) })
    }

    /// Once a whole window has passed since the last change, what the work got counts; before that, and where the load
    /// has changed, what it is to get.
    fn take_share(&mut self, now_ns: u64, own: &DomainForecast) {
        let (past, future) = (own.forecast.actual_ms_per_s, own.forecast.predicted_ms_per_s);
        let is_pure = self.changed_at_ns.is_none_or(|at| now_ns.saturating_sub(at) >= self.window_ns);
        let are_apart = is_pure && (past > CHANGED * future || future > CHANGED * past);
        self.apart = if are_apart { self.apart + 1 } else { 0 };
        if self.apart == CHANGED_LOOKS {
            self.looks = 0;
        }
        let share = if is_pure && self.apart < CHANGED_LOOKS { past } else { future } / 1000.0;
        self.looks = (self.looks + 1).min(LOOKS_MAX);
        let before = if self.looks == 1 { share } else { self.share };
        self.share = before + (share - before) / f64::from(self.looks);
    }
}

/// The place of a weight on the ladder, or of the next one above it.
fn rung(ladder: &[i64], weight: i64) -> i64 {
    ladder.iter().position(|rung| *rung >= weight).unwrap_or(ladder.len() - 1) as i64
}

/// 1, 2, 3, ... 8, 9, 10, 11, 12, 13, 15, ... 10,000.
fn ladder() -> Vec<i64> {
    let mut rungs = vec![1];
    while let Some(last) = rungs.last().copied().filter(|last| *last < WEIGHT_MAX) {
        let next = ((last as f64 * STEP).round() as i64).max(last + 1);
        rungs.push(next.min(WEIGHT_MAX));
    }
    rungs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Forecast;

    const TURN_NS: u64 = 100_000_000;
    const WINDOW_NS: u64 = 1_000_000_000;

    fn forecast(runnable: u32, actual_ms_per_s: f64, predicted_ms_per_s: f64) -> DomainForecast {
        let forecast = Forecast { actual_ms_per_s, predicted_ms_per_s, ..Forecast::default() };
        DomainForecast { runnable, forecast, ..DomainForecast::default() }
    }

    /// One CPU that work which never sleeps shares by weight with `others`. The past is that of the last ten turns, and
    /// both it and the future are off by what `noise` says of a turn.
    struct Machine {
        pace: Pace,
        past: VecDeque<f64>,
        turn: u64,
        changes: u32,
        noise: fn(u64) -> f64,
    }

    impl Machine {
        fn new(noise: fn(u64) -> f64) -> Self {
            Machine {
                pace: Pace::new(5.0, 100, WINDOW_NS),
                past: VecDeque::from([0.0; 10]),
                turn: 0,
                changes: 0,
                noise,
            }
        }

        /// The work's true slowdown at each of so many turns.
        fn run(&mut self, others: f64, turns: u64) -> Vec<f64> {
            let mut slowdowns = Vec::new();
            for _ in 0..turns {
                let weight = self.pace.weight() as f64;
                let share = 1000.0 * weight / (weight + others);
                let past = self.past.iter().sum::<f64>() / 10.0;
                let own = forecast(1, past * (self.noise)(self.turn + 7), share * (self.noise)(self.turn));
                self.past.pop_front();
                self.past.push_back(share);
                self.changes += u32::from(self.pace.observe(self.turn * TURN_NS, &own, 1).is_some());
                self.turn += 1;
                slowdowns.push(1000.0 / share);
            }
            slowdowns
        }
    }

    /// Between 0.6 and 1.4, 1 in the mean, without a pattern that ten turns would show.
    fn rough(turn: u64) -> f64 {
        let hash = (turn + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        0.6 + 0.8 * (hash >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn weights_go_from_one_to_ten_thousand_an_eighth_apart() {
        let rungs = ladder();
        assert_eq!((rungs[0], *rungs.last().expect("some")), (1, 10_000));
        assert!(rungs.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(rungs.windows(2).skip(7).all(|pair| pair[1] as f64 / pair[0] as f64 <= 1.16));
    }

    #[test]
    fn it_holds_the_limit_while_the_load_rises_and_gives_back_when_it_falls() {
        let mut machine = Machine::new(|_| 1.0);
        for others in [20.0, 100.0, 400.0, 2_000.0, 300.0, 50.0] {
            machine.run(others, 150);
            let changes = machine.changes;
            let settled = machine.run(others, 60);
            assert!(settled.iter().all(|slowdown| (4.3..=5.02).contains(slowdown)), "{others}: {settled:?}");
            assert_eq!(machine.changes, changes, "with {others} it has settled");
        }
    }

    #[test]
    fn looks_that_differ_by_half_do_not_make_it_restless() {
        let mut machine = Machine::new(rough);
        for others in [100.0, 1_000.0, 200.0] {
            machine.run(others, 60);
            let changes = machine.changes;
            let settled = machine.run(others, 300);
            let mean = 300.0 / settled.iter().map(|slowdown| 1.0 / slowdown).sum::<f64>();
            assert!((4.2..=5.1).contains(&mean), "{others}: {mean}");
            let restless = machine.changes - changes;
            assert!(restless <= 15, "with {others} it changed {restless} times in 300 looks");
        }
    }

    #[test]
    fn a_load_that_comes_at_once_is_answered_within_two_seconds() {
        let mut machine = Machine::new(rough);
        machine.run(0.001, 60);
        assert_eq!(machine.pace.weight(), 1);
        machine.run(100.0, 20);
        assert!(machine.pace.weight() >= 16, "{}", machine.pace.weight());
    }

    #[test]
    fn threads_that_wait_for_each_other_do_not_make_the_work_want_less() {
        // Each sleeps for most of the time, but one can always run: it gets a quarter of the only CPU and wants all of
        // it.
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        let mut own = forecast(1, 250.0, 250.0);
        own.forecast.desired_ms_per_s = 500.0;
        pace.observe(0, &own, 1);
        assert_eq!(pace.slowdown(&own), Some(4.0));
        // On four CPUs it had only two tasks to run at a time.
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        let own = forecast(2, 500.0, 500.0);
        pace.observe(0, &own, 4);
        assert_eq!(pace.slowdown(&own), Some(4.0));
    }

    #[test]
    fn work_that_sleeps_half_the_time_wants_what_it_would_have_got_in_the_other_half() {
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        let own = |turn: u64| forecast((turn % 2) as u32, 125.0, 125.0);
        for turn in 0..20 {
            pace.observe(turn * TURN_NS, &own(turn), 1);
        }
        // In a second it runs 125 ms, waits 375 and sleeps 500: alone it would run 200 ms of a second.
        let slowdown = pace.slowdown(&own(0)).expect("it wants something");
        assert!((slowdown - 1.6).abs() < 0.01, "{slowdown}");
    }

    #[test]
    fn work_that_wants_nothing_changes_nothing_and_a_refusal_is_the_end_of_the_ladder() {
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        assert_eq!(pace.observe(0, &forecast(0, 0.0, 0.0), 1), None);
        let starved = forecast(1, 0.0, 0.0);
        let before = pace.weight();
        assert!(pace.observe(TURN_NS, &starved, 1).expect("more") > before);
        pace.refused(before);
        assert_eq!((pace.weight(), pace.observe(2 * TURN_NS, &starved, 1)), (before, None));
    }

    #[test]
    fn after_a_pause_it_begins_again_with_the_weight_that_it_had() {
        let mut machine = Machine::new(|_| 1.0);
        machine.run(400.0, 60);
        let weight = machine.pace.weight();
        machine.pace.begin_again();
        assert_eq!(machine.pace.weight(), weight);
        assert_eq!(machine.run(400.0, 60).len(), 60);
        assert_eq!(machine.pace.weight(), weight);
    }
}
