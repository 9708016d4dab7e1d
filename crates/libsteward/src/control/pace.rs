//! Background work that is kept at a bearable speed, and no faster (CPU Futures, section 5.2, second policy).
//!
//! The setting is the weight of the work's domain among its siblings, on a ladder whose steps are about a quarter
//! apart, as those of nice values are. The [search](super::search) finds the lowest one with which the work's own
//! slowdown does not pass the limit; of two neighbours on either side of the limit it keeps the one that keeps the limit.

use super::search::{Search, Seen, Settings as SearchSettings, Verdict};
use crate::api::Forecast;

/// Ratio of one weight on the ladder to the one before it.
const STEP: f64 = 1.25;
/// Weights of domains go to 10,000.
const WEIGHT_MAX: i64 = 10_000;
/// Whoever breaks the limit is worse than whoever keeps it, however generously.
const BROKEN: f64 = 1e9;

/// The controller. See the [module](self).
#[derive(Clone, Debug)]
pub struct Pace {
    limit: f64,
    window_ns: u64,
    ladder: Vec<i64>,
    search: Search,
    changed_at_ns: Option<u64>,
}

impl Pace {
    /// Keeps the slowdown at `limit` (above 1) or below, starting with the weight next to `weight`. Figures of the past
    /// are over `window_ns` nanoseconds.
    pub fn new(limit: f64, weight: i64, window_ns: u64) -> Self {
        let ladder = ladder();
        let start = ladder.iter().position(|rung| *rung >= weight).unwrap_or(ladder.len() - 1);
        let highest = ladder.len() as i64 - 1;
        let settings = SearchSettings { lowest: 0, highest, ..SearchSettings::default() };
        Pace { limit, window_ns, ladder, search: Search::new(settings, start as i64), changed_at_ns: None }
    }

    /// The weight that is to be in force.
    pub fn weight(&self) -> i64 {
        self.ladder[self.search.setting() as usize]
    }

    /// Takes in the work's own forecast at `now_ns`, in nanoseconds of any clock that does not run backwards. Returns
    /// the weight to give it next, if it is another one.
    pub fn observe(&mut self, now_ns: u64, own: &Forecast) -> Option<i64> {
        let slowdown = self.slowdown(now_ns, own)?;
        let seen = if slowdown > self.limit {
            Seen { verdict: Verdict::TooLow, cost: BROKEN + slowdown }
        } else {
            Seen { verdict: Verdict::TooHigh, cost: self.limit / slowdown }
        };
        self.search.observe(now_ns, seen)?;
        self.changed_at_ns = Some(now_ns);
        Some(self.weight())
    }

    /// That weight could not be given: the one before it is in force, and no more will be asked for in that direction.
    pub fn refused(&mut self, in_force: i64) {
        let rung = self.ladder.iter().position(|rung| *rung >= in_force).unwrap_or(self.ladder.len() - 1);
        self.search.refused(rung as i64);
    }

    /// What the work has to expect; once a whole window has passed since the last change also what it has seen, if
    /// that is worse. `None` when it wants nothing.
    fn slowdown(&self, now_ns: u64, own: &Forecast) -> Option<f64> {
        if own.desired_ms_per_s <= 0.0 {
            return None;
        }
        let expected = own.desired_ms_per_s / own.predicted_ms_per_s;
        let is_pure = self.changed_at_ns.is_none_or(|at| now_ns.saturating_sub(at) >= self.window_ns);
        let seen = if is_pure { own.desired_ms_per_s / own.actual_ms_per_s } else { 0.0 };
        Some(expected.max(seen).max(1.0))
    }
}

/// 1, 2, 3, 4, 5, 6, 8, 10, 13, ... 10,000.
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

    const TURN_NS: u64 = 100_000_000;
    const WINDOW_NS: u64 = 1_000_000_000;

    /// One CPU, shared by weight with `others`; the past is as the future.
    fn forecast(weight: i64, others: f64) -> Forecast {
        let share = 1000.0 * weight as f64 / (weight as f64 + others);
        Forecast {
            desired_ms_per_s: 1000.0,
            predicted_ms_per_s: share,
            actual_ms_per_s: share,
            ..Forecast::default()
        }
    }

    fn run(pace: &mut Pace, others: f64, turns: std::ops::Range<u64>) -> Vec<f64> {
        turns
            .map(|turn| {
                let own = forecast(pace.weight(), others);
                pace.observe(turn * TURN_NS, &own);
                own.desired_ms_per_s / own.predicted_ms_per_s
            })
            .collect()
    }

    #[test]
    fn weights_go_from_one_to_ten_thousand_a_quarter_apart() {
        let rungs = ladder();
        assert_eq!((rungs[0], *rungs.last().expect("some")), (1, 10_000));
        assert!(rungs.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(rungs.windows(2).skip(4).all(|pair| pair[1] as f64 / pair[0] as f64 <= 1.34));
    }

    #[test]
    fn it_holds_the_limit_while_the_load_rises_and_gives_back_when_it_falls() {
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        let mut turn = 0;
        for others in [10.0, 100.0, 400.0, 2_000.0, 300.0, 50.0] {
            run(&mut pace, others, turn..turn + 20);
            let settled = run(&mut pace, others, turn + 20..turn + 100);
            turn += 100;
            let mean = settled.iter().sum::<f64>() / settled.len() as f64;
            assert!((3.5..=5.5).contains(&mean), "with {others}: {mean}");
            let broken = settled.iter().filter(|slowdown| **slowdown > 5.0).count();
            assert!(broken <= settled.len() / 5, "with {others}: {broken} looks above the limit");
        }
    }

    #[test]
    fn with_nobody_else_it_takes_the_lowest_weight() {
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        run(&mut pace, 0.0, 0..60);
        assert_eq!(pace.weight(), 1);
    }

    #[test]
    fn what_was_seen_counts_where_it_is_worse_than_what_was_expected() {
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        let own = Forecast {
            desired_ms_per_s: 1000.0,
            predicted_ms_per_s: 300.0,
            actual_ms_per_s: 100.0,
            ..Forecast::default()
        };
        assert!(pace.observe(0, &own).expect("too little") > 100);
    }

    #[test]
    fn work_that_wants_nothing_changes_nothing_and_a_refusal_is_the_end_of_the_ladder() {
        let mut pace = Pace::new(5.0, 100, WINDOW_NS);
        assert_eq!(pace.observe(0, &Forecast::default()), None);
        let starved = Forecast { desired_ms_per_s: 1000.0, ..Forecast::default() };
        let before = pace.weight();
        assert!(pace.observe(TURN_NS, &starved).expect("more") > before);
        pace.refused(before);
        assert_eq!((pace.weight(), pace.observe(2 * TURN_NS, &starved)), (before, None));
    }
}
