//! How often a scheduler that the kernel ejected is loaded again. Pure: the time comes in.

/// At most this many attempts ...
const ATTEMPTS_MAX: usize = 3;
/// ... within this time, in nanoseconds: a scheduler that is ejected more often than that does more harm than good.
const WINDOW_NS: u64 = 600_000_000_000;
/// From a failed attempt to the next, in nanoseconds.
const PAUSE_NS: u64 = 5_000_000_000;

/// The attempts of the last ten minutes.
#[derive(Clone, Debug, Default)]
pub struct Retries {
    attempts_ns: Vec<u64>,
}

/// Whether to try now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Yes; the attempt is counted.
    Now,
    /// Not before that moment.
    Later(u64),
    /// No more: fall back.
    GiveUp,
}

impl Retries {
    /// Asks for one more attempt at `now_ns`; `failed_before` says that the attempt before did not even load.
    pub fn ask(&mut self, now_ns: u64, failed_before: bool) -> Retry {
        self.attempts_ns.retain(|at| now_ns.saturating_sub(*at) < WINDOW_NS);
        if self.attempts_ns.len() >= ATTEMPTS_MAX {
            return Retry::GiveUp;
        }
        if let Some(last) = self.attempts_ns.last()
            && failed_before
            && now_ns < last + PAUSE_NS
        {
            return Retry::Later(last + PAUSE_NS);
        }
        self.attempts_ns.push(now_ns);
        Retry::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn three_attempts_within_ten_minutes_and_no_more() {
        let mut retries = Retries::default();
        for at in [0, 60, 120] {
            assert_eq!(retries.ask(at * SECOND, false), Retry::Now);
        }
        assert_eq!(retries.ask(180 * SECOND, false), Retry::GiveUp);
    }

    #[test]
    fn an_attempt_older_than_ten_minutes_no_longer_counts() {
        let mut retries = Retries::default();
        for at in [0, 300, 599] {
            assert_eq!(retries.ask(at * SECOND, false), Retry::Now);
        }
        assert_eq!(retries.ask(600 * SECOND, false), Retry::Now);
        assert_eq!(retries.ask(601 * SECOND, false), Retry::GiveUp);
    }

    #[test]
    fn an_attempt_that_failed_is_followed_by_a_pause() {
        let mut retries = Retries::default();
        assert_eq!(retries.ask(0, false), Retry::Now);
        assert_eq!(retries.ask(SECOND, true), Retry::Later(5 * SECOND));
        assert_eq!(retries.ask(5 * SECOND, true), Retry::Now);
    }
}
