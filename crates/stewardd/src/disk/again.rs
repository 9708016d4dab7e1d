//! When what failed on a disk that is only just coming is tried again: soon, then more and more seldom, and not for
//! ever, since each try writes to the undo journal and may wait for requests that are under way.

/// How long after the first try the second one is made, in nanoseconds; it doubles with each.
const PAUSE_NS: u64 = 1_000_000_000;
/// How many times the same is tried again, the last time a bit more than four minutes after the first.
const TRIES_MAX: u32 = 8;

/// When it is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Again {
    /// How many times anything was, for whoever carries it out to know one from the other.
    number: u64,
    /// How many times what fails now was.
    tries: u32,
    /// When it is, at the soonest.
    at_ns: u64,
}

impl Again {
    /// How many times anything was tried again.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is time to, where something `fails`.
    pub(super) fn is_due(&mut self, now_ns: u64, fails: bool) -> bool {
        if !fails {
            self.start_over();
            return false;
        }
        if self.tries == TRIES_MAX || now_ns < self.at_ns {
            return false;
        }
        self.at_ns = now_ns.saturating_add(PAUSE_NS << (self.tries + 1));
        self.tries += 1;
        self.number += 1;
        true
    }

    /// What fails from now on is something else.
    pub(super) fn start_over(&mut self) {
        (self.tries, self.at_ns) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_fails_is_tried_again_after_pauses_that_double_and_a_few_times_only() {
        let mut again = Again::default();
        assert!(!again.is_due(0, false), "nothing fails");
        let tried: Vec<u64> = (1..1000).filter(|second| again.is_due(second * S, true)).collect();
        assert_eq!(tried, [1, 3, 7, 15, 31, 63, 127, 255]);
        assert_eq!(again.number(), 8);
        // Another disk comes, or this one has come.
        again.start_over();
        assert!(again.is_due(1000 * S, true));
        assert!(!again.is_due(1001 * S, false));
        assert!(again.is_due(1001 * S, true));
        assert_eq!(again.number(), 10);
    }
}
