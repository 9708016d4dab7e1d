//! How long disk requests took, as a histogram with steps of a fifth, so that percentiles can be told of any span
//! without each request being kept.

/// How many steps there are, as the BPF program that counts has them (`crates/steward-waits/src/bpf/ledger.bpf.c`).
pub const STEPS: usize = 96;
/// What is shorter than this is in the first step, in nanoseconds.
const FIRST_NS: u64 = 1 << 12;
/// How many steps there are to a doubling.
const STEPS_OF_DOUBLING: u64 = 4;

/// How many requests took how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram(pub [u64; STEPS]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([0; STEPS])
    }
}

impl Histogram {
    /// The step that a time in nanoseconds belongs to.
    pub fn step_of(ns: u64) -> usize {
        let units = ns / (FIRST_NS / STEPS_OF_DOUBLING);
        if units < STEPS_OF_DOUBLING {
            return 0;
        }
        let doublings = units.ilog2() - STEPS_OF_DOUBLING.ilog2();
        let step = u64::from(doublings) * STEPS_OF_DOUBLING + (units >> doublings) % STEPS_OF_DOUBLING;
        (step as usize).min(STEPS - 1)
    }

    /// Where a step ends, in nanoseconds: what is in it took less.
    pub fn end_ns(step: usize) -> u64 {
        let (doublings, quarter) = (step as u64 / STEPS_OF_DOUBLING, step as u64 % STEPS_OF_DOUBLING);
        (FIRST_NS / STEPS_OF_DOUBLING * (STEPS_OF_DOUBLING + quarter + 1)) << doublings
    }

    /// How many requests there are.
    pub fn requests(&self) -> u64 {
        self.0.iter().sum()
    }

    /// How long all of them took together, in nanoseconds; at most a quarter too long.
    pub fn sum_ns(&self) -> u64 {
        let sum = |sum: u64, (step, count): (usize, &u64)| {
            sum.saturating_add(count.saturating_mul(Self::end_ns(step)))
        };
        self.0.iter().enumerate().fold(0, sum)
    }

    /// Adds those of another one.
    pub fn add(&mut self, other: &Histogram) {
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own = own.saturating_add(*more);
        }
    }

    /// Those that have come since it was `before`.
    pub fn since(&self, before: &Histogram) -> Histogram {
        Histogram(std::array::from_fn(|step| self.0[step].saturating_sub(before.0[step])))
    }

    /// In how many nanoseconds at most so large a part of the requests was done, 0 to 1; at most a fifth too long
    /// (a quarter in the first step of a doubling). `None` without any.
    pub fn percentile_ns(&self, part: f64) -> Option<u64> {
        let requests = self.requests();
        if requests == 0 {
            return None;
        }
        let needed = ((requests as f64 * part).ceil() as u64).clamp(1, requests);
        let mut so_far = 0;
        for (step, count) in self.0.iter().enumerate() {
            so_far += count;
            if so_far >= needed {
                return Some(Self::end_ns(step));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for ns in times {
            histogram.0[Histogram::step_of(*ns)] += 1;
        }
        histogram
    }

    #[test]
    fn without_requests_there_is_no_percentile() {
        assert_eq!(Histogram::default().percentile_ns(0.5), None);
    }

    #[test]
    fn times_from_microseconds_to_a_minute_have_steps_of_their_own() {
        for ns in [6_000, 100_000, 10_000_000, 50_000_000_000_u64] {
            let step = Histogram::step_of(ns);
            assert!(step > 0 && step < STEPS - 1, "{ns} ns is in step {step}");
        }
        assert_eq!(Histogram::step_of(u64::MAX), STEPS - 1);
    }

    proptest! {
        #[test]
        fn a_time_is_within_its_step(ns in 4096_u64..60_000_000_000) {
            let step = Histogram::step_of(ns);
            let begins_ns = if step == 0 { FIRST_NS } else { Histogram::end_ns(step - 1) };
            prop_assert!(begins_ns <= ns && ns < Histogram::end_ns(step), "{begins_ns} to {}", Histogram::end_ns(step));
        }

        #[test]
        fn a_percentile_is_never_too_short_and_a_quarter_too_long_at_most(
            mut times in proptest::collection::vec(4096_u64..60_000_000_000, 1..200),
            part in 0.0_f64..=1.0,
        ) {
            let told_ns = of(&times).percentile_ns(part).expect("there are requests");
            times.sort_unstable();
            let place = ((times.len() as f64 * part).ceil() as usize).clamp(1, times.len()) - 1;
            prop_assert!(times[place] < told_ns && told_ns as f64 <= times[place] as f64 * 1.25 + 1.0);
        }

        #[test]
        fn what_has_come_since_and_what_was_there_before_are_all(
            before in proptest::collection::vec(0_u64..1_000_000_000, 0..50),
            after in proptest::collection::vec(0_u64..1_000_000_000, 0..50),
        ) {
            let (before, new) = (of(&before), of(&after));
            let mut all = before.clone();
            all.add(&new);
            prop_assert_eq!(all.since(&before), new);
        }
    }
}
