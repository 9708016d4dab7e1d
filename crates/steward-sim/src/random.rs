//! Amounts of time that programs ask for: fixed, or drawn at random from a seed.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A source of random numbers of one task. It depends on the seed and the task alone, so a task asks for the same
/// amounts under every scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Random(Pcg64Mcg::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A number from 0 up to, and without, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A length of time in nanoseconds, and how it varies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Always the same.
    Fixed(u64),
    /// Between the two, each as likely as any other.
    Uniform(u64, u64),
    /// Exponentially distributed with this mean, at most twenty times it.
    Exponential(u64),
    /// Without an end.
    Forever,
}

impl Amount {
    /// One length of time, in nanoseconds.
    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        match self {
            Amount::Fixed(ns) => ns,
            Amount::Uniform(least_ns, most_ns) => {
                least_ns + (random.fraction() * (most_ns - least_ns) as f64) as u64
            }
            Amount::Exponential(mean_ns) => {
                let drawn_ns = -(1.0 - random.fraction()).ln() * mean_ns as f64;
                (drawn_ns.min(20.0 * mean_ns as f64) as u64).max(1)
            }
            Amount::Forever => u64::MAX,
        }
    }

    /// Whether it is always 0.
    pub(crate) fn is_zero(self) -> bool {
        matches!(self, Amount::Fixed(0) | Amount::Uniform(_, 0) | Amount::Exponential(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_task_draw_the_same_amounts() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..10).map(|_| Amount::Exponential(1_000_000).draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn amounts_have_the_mean_that_was_asked_for() {
        let mut random = Random::new(7, 0);
        for amount in [Amount::Exponential(1_000_000), Amount::Uniform(500_000, 1_500_000)] {
            let sum: u64 = (0..100_000).map(|_| amount.draw(&mut random)).sum();
            let mean = sum as f64 / 100_000.0;
            assert!((mean - 1e6).abs() < 2e4, "{amount:?}: {mean}");
        }
    }
}
