//! The moments in which somebody who is served first waits for the disk beside others who want it (`Yang 2009, section
//! 10.1.1`: the journal is interactive while an interactive program waits for it): when one begins, and when it is
//! over. Nobody is kept from the disk for somebody who might come, and none of those who are served first for another
//! of them: a program of several threads that has the disk for itself would have it kept idle for one while another
//! waits.
//!
//! What watches announces the first such wait only. From then on it is asked now and then whether the moment is over,
//! and the next one is announced again once it has said that it is.

/// Nobody has waited for so long, in nanoseconds: the moment is over. Longer than a film's frame takes, so that a
/// player that reads one after the other is one moment and not hundreds.
pub const OVER_AFTER_NS: u64 = 50_000_000;
/// The same after somebody has brought a file to the disk, where others do nothing that is dear to hold up
/// ([`Seen::dear_at_ns`]): who saves every few seconds then finds the disk as it is to be, and stands behind nothing
/// that was begun before anybody could be told.
pub const OVER_LATER_NS: u64 = 5_000_000_000;
/// Others have handed on nothing for so long, in nanoseconds, and nothing of theirs was given to a disk: they do not
/// want it. For as long a request of theirs may stand behind those of who is served first.
pub const ALONE_AFTER_NS: u64 = 2_000_000_000;
/// Others are inside fsync all the time from when they were there for so long, in nanoseconds, more than one part in
/// [`DEAR_PART`] of the time that has passed. Who has some files brought to the disk now and then does not get there,
/// nor who does so where it takes no time. Steward's own undo journal is not counted at all.
pub const DEAR_FROM_NS: u64 = 500_000_000;
/// See [`DEAR_FROM_NS`].
pub const DEAR_PART: u64 = 4;
/// How often it is asked, in nanoseconds.
const ASK_EVERY_NS: u64 = OVER_AFTER_NS / 2;
/// For how long what watches cannot know of whoever had begun to wait before it was there, in nanoseconds: as long as a
/// save may take that began on a disk full of others' requests.
const UNSEEN_FOR_NS: u64 = 2_000_000_000;

/// Whether this is such a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// When it is asked whether it is over.
    ask_at_ns: Option<u64>,
}

impl Moments {
    /// What watches has just begun to: this is such a moment, for nobody would have announced the one that was there
    /// before it.
    pub fn begun(now_ns: u64) -> Self {
        Moments { ask_at_ns: Some(now_ns + UNSEEN_FOR_NS) }
    }

    /// A moment is announced. Says whether a moment begins by that.
    pub fn handle_announcement(&mut self, now_ns: u64) -> bool {
        let begins = self.ask_at_ns.is_none();
        self.ask_at_ns = self.ask_at_ns.max(Some(now_ns + ASK_EVERY_NS));
        begins
    }

    /// When it is to be asked whether it is over, in nanoseconds of the caller's clock; `None` while this is
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

/// A process that was seen last, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Its number; 0 for the kernel's threads.
    pub pid: i32,
    /// In nanoseconds of one clock.
    pub at_ns: u64,
}

/// What was seen of who wants the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many of those who are served first are bringing files to the disk.
    pub waiting: usize,
    /// Of whom one began or ceased to wait last; `None`: none has.
    pub first: Option<Last>,
    /// Who else handed a request on last, or whose was given to a disk last, however long it had stood in the elevator;
    /// but the journal's threads, which work for whoever waits for them. Threads of
    /// the process that is `first` do not count: one that has lost its place is no other to itself.
    pub others: Option<Last>,
    /// When one of those who are served first was bringing a file to the disk last.
    pub saved_at_ns: Option<u64>,
    /// When others did last what it is dear to keep the disk idle beside: brought something to the disk (fsync) all the
    /// time ([`DEAR_FROM_NS`]), for then the journal is written for fewer of them at a time (docs/disk.md).
    pub dear_at_ns: Option<u64>,
}

impl Seen {
    /// Whether this is such a moment. What watches in the kernel has the same rule
    /// (`crates/steward-waits/src/bpf/first.bpf.h`), for the moment at which one begins.
    pub fn is_moment(&self, now_ns: u64) -> bool {
        let within = |at_ns: u64, for_ns: u64| now_ns.saturating_sub(at_ns) < for_ns;
        let lately = |at_ns: Option<u64>, for_ns: u64| at_ns.is_some_and(|at_ns| within(at_ns, for_ns));
        let (Some(first), Some(others)) = (self.first, self.others) else { return false };
        let waits = self.waiting > 0
            || within(first.at_ns, OVER_AFTER_NS)
            || (lately(self.saved_at_ns, OVER_LATER_NS) && !lately(self.dear_at_ns, ALONE_AFTER_NS));
        waits && within(others.at_ns, ALONE_AFTER_NS) && others.pid != first.pid
    }
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
    fn who_waited_before_anybody_could_tell_has_a_moment_too() {
        let mut moments = Moments::begun(10);
        assert!(!moments.handle_announcement(11), "it is one already");
        assert_eq!(moments.poll_timeout(), Some(10 + UNSEEN_FOR_NS));
        assert!(moments.handle_answer(10 + UNSEEN_FOR_NS, true), "nobody does by now");
        assert!(moments.handle_announcement(11 + UNSEEN_FOR_NS));
    }

    fn last(pid: i32, at_ns: u64) -> Option<Last> {
        Some(Last { pid, at_ns })
    }

    #[test]
    fn who_is_bringing_a_file_to_the_disk_waits_however_long_it_takes() {
        let beside = |waiting, now_ns, dear_at_ns| {
            let saved_at_ns = Some(1);
            Seen { waiting, first: last(7, 1), others: last(0, now_ns), saved_at_ns, dear_at_ns }
                .is_moment(now_ns)
        };
        assert!(beside(0, OVER_AFTER_NS, Some(1)) && !beside(0, OVER_AFTER_NS + 1, Some(1)));
        assert!(beside(1, u64::MAX, Some(u64::MAX)));
        // Where nothing is dear the moment goes on to who saves again.
        assert!(beside(0, OVER_LATER_NS, None) && !beside(0, OVER_LATER_NS + 1, None));
        assert!(beside(0, OVER_LATER_NS, Some(1)), "nothing has been for long");
        // But not to who only reads.
        let reads = Seen { first: last(7, 1), others: last(0, OVER_AFTER_NS + 1), ..Seen::default() };
        assert!(!reads.is_moment(OVER_AFTER_NS + 1));
    }

    #[test]
    fn nobody_is_held_up_for_those_who_have_the_disk_for_themselves() {
        let seen = |others| Seen { waiting: 4, first: last(7, 9), others, ..Seen::default() };
        assert!(!seen(None).is_moment(10));
        let other = seen(last(8, 1));
        assert!(other.is_moment(ALONE_AFTER_NS) && !other.is_moment(ALONE_AFTER_NS + 1));
        // Neither for another of its threads, which has lost its place or has none yet.
        assert!(!seen(last(7, 1)).is_moment(10));
        // And others alone are held up for nobody.
        assert!(!Seen { others: last(8, 10), ..Seen::default() }.is_moment(10));
    }
}
