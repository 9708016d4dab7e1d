//! The moments in which somebody who is served first waits for the disk (`Yang 2009, section 10.1.1`: the journal is
//! interactive while an interactive program waits for it): when one begins, and when it is over. Nobody is kept from
//! the disk for somebody who might come.
//!
//! What watches announces the first wait only. From then on it is asked now and then whether anybody still waits, and
//! the next one is announced again once it has said that nobody does.

/// Nobody has waited for so long, in nanoseconds: the moment is over. Longer than a film's frame takes, so that a
/// player that reads one after the other is one moment and not hundreds.
pub const OVER_AFTER_NS: u64 = 50_000_000;
/// How often it is asked, in nanoseconds.
const ASK_EVERY_NS: u64 = OVER_AFTER_NS / 2;

/// Whether this is such a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// When it is asked whether it is over.
    ask_at_ns: Option<u64>,
}

impl Moments {
    /// Somebody begins to wait. Says whether a moment begins by that.
    pub fn handle_announcement(&mut self, now_ns: u64) -> bool {
        let begins = self.ask_at_ns.is_none();
        self.ask_at_ns = Some(now_ns + ASK_EVERY_NS);
        begins
    }

    /// When it is to be asked whether anybody still waits, in nanoseconds of the caller's clock; `None` while this is
    /// no such moment.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.ask_at_ns
    }

    /// What came of asking. Says whether the moment is over.
    pub fn handle_answer(&mut self, now_ns: u64, are_over: bool) -> bool {
        if self.ask_at_ns.is_none() {
            return false;
        }
        self.ask_at_ns = (!are_over).then_some(now_ns + ASK_EVERY_NS);
        are_over
    }
}

/// Whether nobody waits: so many are bringing files to the disk, and somebody began or ceased to wait then, in
/// nanoseconds of one clock.
pub fn are_over(waiting: usize, last_ns: u64, now_ns: u64) -> bool {
    waiting == 0 && now_ns.saturating_sub(last_ns) >= OVER_AFTER_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_begins_once_and_lasts_until_nobody_waits() {
        let mut moments = Moments::default();
        assert_eq!((moments.poll_timeout(), moments.handle_answer(1, true)), (None, false));
        assert!(moments.handle_announcement(10));
        assert!(!moments.handle_announcement(11));
        let at_ns = moments.poll_timeout().expect("it is such a moment");
        assert!(!moments.handle_answer(at_ns, false));
        assert!(moments.poll_timeout().is_some_and(|next_ns| next_ns > at_ns));
        assert!(moments.handle_answer(2 * at_ns, true));
        assert!(moments.handle_announcement(3 * at_ns));
    }

    #[test]
    fn who_is_bringing_a_file_to_the_disk_waits_however_long_it_takes() {
        assert!(are_over(0, 1, OVER_AFTER_NS + 1) && !are_over(0, 1, OVER_AFTER_NS));
        assert!(!are_over(1, 1, u64::MAX));
    }
}
