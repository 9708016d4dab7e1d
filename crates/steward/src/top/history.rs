//! What a row was like over the last minutes: a ring of points, and the counters that deadlines are told from.

use std::collections::VecDeque;

use libsteward::api::Forecast;

use super::cpu::promise::{Deadlines, Keeping};
use super::text::{Slowdown, slowdown_value};

/// How many readings are remembered: three minutes at one a second.
pub const POINTS_MAX: usize = 180;
/// Over how long missed deadlines count as recent.
pub const RECENT_NS: u64 = 60_000_000_000;

/// One reading of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What it got.
    pub actual_ms_per_s: f32,
    /// How slow its CPU was; `None` when it wanted nothing, infinity when it got nothing.
    pub slowdown: Option<f32>,
    /// How its promise stood, if it had one.
    pub promise: Option<Keeping>,
}

/// The last readings of one row, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
    /// `(at_ns, periods, missed, exhausted)` of a task with a reservation, no older than [`RECENT_NS`] but for the
    /// first.
    counters: VecDeque<(u64, u64, u64, u64)>,
}

impl History {
    /// Adds a reading.
    pub fn add(&mut self, at_ns: u64, forecast: &Forecast, promise: Option<Keeping>) {
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(Point {
            at_ns,
            actual_ms_per_s: forecast.actual_ms_per_s as f32,
            slowdown: slowdown_value(forecast, Slowdown::Now).map(|value| value as f32),
            promise,
        });
    }

    /// The readings, oldest first.
    pub fn points(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.points.iter()
    }

    /// Over how long they are, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        match (self.points.front(), self.points.back()) {
            (Some(first), Some(last)) => last.at_ns.saturating_sub(first.at_ns),
            _ => 0,
        }
    }

    /// In how many readings there was a promise, and in how many of these it was broken.
    pub fn promises(&self) -> (usize, usize) {
        let promised = self.points.iter().filter_map(|point| point.promise);
        let broken = promised.clone().filter(|state| *state == Keeping::Broken).count();
        (promised.count(), broken)
    }

    /// Takes a task's counters, and tells its deadlines over the last minute, or since its admission when this is the
    /// first reading. Counters that fall belong to a new admission, and start anew.
    pub fn deadlines(&mut self, at_ns: u64, periods: u64, missed: u64, exhausted: u64) -> Deadlines {
        let fell = |(_, before, missed_before, _): &(u64, u64, u64, u64)| {
            *before > periods || *missed_before > missed
        };
        if self.counters.back().is_some_and(fell) {
            // All that was counted since then is of the new admission.
            let since_ns = self.counters.back().map_or(at_ns, |(at_ns, ..)| *at_ns);
            self.counters.clear();
            self.counters.push_back((since_ns, 0, 0, 0));
        }
        self.counters.push_back((at_ns, periods, missed, exhausted));
        while self
            .counters
            .get(1)
            .is_some_and(|(second_ns, ..)| at_ns.saturating_sub(*second_ns) >= RECENT_NS)
        {
            self.counters.pop_front();
        }
        let (from_ns, periods_before, missed_before, exhausted_before) = match self.counters.front() {
            Some(first) if self.counters.len() > 1 => *first,
            _ => (at_ns, 0, 0, 0),
        };
        Deadlines {
            within_ns: at_ns.saturating_sub(from_ns),
            periods: periods.saturating_sub(periods_before),
            missed: missed.saturating_sub(missed_before),
            exhausted: exhausted.saturating_sub(exhausted_before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn the_ring_forgets_the_oldest_reading() {
        let mut history = History::default();
        for second in 0..POINTS_MAX as u64 + 5 {
            let state = if second % 2 == 0 { Keeping::Broken } else { Keeping::Kept };
            history.add(second * SECOND_NS, &Forecast::default(), Some(state));
        }
        assert_eq!(history.points().len(), POINTS_MAX);
        assert_eq!(history.span_ns(), (POINTS_MAX as u64 - 1) * SECOND_NS);
        assert_eq!(history.promises(), (POINTS_MAX, POINTS_MAX / 2));
    }

    #[test]
    fn deadlines_count_for_a_minute_and_start_anew_with_a_new_admission() {
        let mut history = History::default();
        let first = history.deadlines(SECOND_NS, 100, 3, 0);
        assert_eq!(first, Deadlines { within_ns: 0, periods: 100, missed: 3, exhausted: 0 });
        let next = history.deadlines(2 * SECOND_NS, 133, 4, 1);
        assert_eq!(next, Deadlines { within_ns: SECOND_NS, periods: 33, missed: 1, exhausted: 1 });
        for second in 3..=70 {
            history.deadlines(second * SECOND_NS, 100 + 33 * second, 4, 1);
        }
        let later = history.deadlines(71 * SECOND_NS, 100 + 33 * 71, 4, 1);
        assert_eq!((later.within_ns, later.missed), (RECENT_NS, 0), "the miss is more than a minute ago");
        let anew = history.deadlines(72 * SECOND_NS, 5, 1, 0);
        assert_eq!(anew, Deadlines { within_ns: SECOND_NS, periods: 5, missed: 1, exhausted: 0 });
    }
}
