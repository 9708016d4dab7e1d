//! How many newcomers are taken in at a time, and how many of one user.
//!
//! They wait in one queue of the kernel, whoever they are, and it takes a dozen questions to know of one who that is.
//! So of a user who has all the connections that one may have, and connects again and again, most are turned away after
//! one question. While somebody is, few may wait in that queue: whoever connects meanwhile stands behind those few.
//! Where it is full, each that is taken out of it wakes one who waits to get in, who may run at once: that makes it ten
//! times as long.
//!
//! Who waits to get in is woken in the order in which they came, but takes a place only when it runs, and may take more
//! than one. If several places were free by then, a crowd's program that is woken first would take all of them and wait
//! again, as the first again: somebody behind it would never get in. So each that is woken is let run before the next.

use std::collections::HashMap;
use std::os::unix::net::UnixListener;

/// How many clients the kernel lets wait until they are accepted.
pub(super) const BACKLOG: u16 = 128;
/// The same while somebody is turned away.
const BACKLOG_CROWDED: u16 = 8;
/// How long after somebody was turned away few may wait, in nanoseconds.
const CROWDED_NS: u64 = 1_000_000_000;
/// How long newcomers are taken in while one whose user has no other waits to be heard, in nanoseconds.
const ROUND_NS: u64 = 2_000_000;
/// How many connections of one user, who has all that one may have, are closed for newer ones of that user in one turn.
/// Others that wait in that turn are turned away.
pub(super) const REPLACED_PER_TURN: usize = 8;

/// Whether somebody is turned away.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// When somebody was last, in nanoseconds of `CLOCK_MONOTONIC`; `None` while as many may wait as ever.
    crowded_at_ns: Option<u64>,
}

impl Newcomers {
    /// Those of one turn: all that wait and, where few may, as many again, because others come in their places.
    pub(super) fn round(&self, now_ns: u64) -> Round {
        // The kernel lets one more wait than it was told.
        let most = match self.crowded_at_ns {
            None => usize::from(BACKLOG) + 1,
            Some(_) => 2 * usize::from(BACKLOG_CROWDED),
        };
        Round { begun_ns: now_ns, left: most, has_let_in_first: false, replaced: HashMap::new() }
    }

    /// Somebody was turned away: few may wait at the listener from now on.
    pub(super) fn turned_away(&mut self, now_ns: u64, listener: &UnixListener) {
        if self.crowded_at_ns.replace(now_ns).is_none() {
            set_backlog(listener, BACKLOG_CROWDED);
        }
    }

    /// While few may wait, lets whoever waits to get in run, who was woken when a place became free, before the next
    /// place is.
    pub(super) fn let_next_come(&self) {
        if self.crowded_at_ns.is_some() {
            rustix::thread::sched_yield();
        }
    }

    /// When the last time is long enough ago, as many may wait as ever.
    pub(super) fn calm_down(&mut self, now_ns: u64, listener: &UnixListener) {
        let is_over = |at_ns: &mut u64| now_ns.saturating_sub(*at_ns) >= CROWDED_NS;
        if self.crowded_at_ns.take_if(is_over).is_some() {
            set_backlog(listener, BACKLOG);
        }
    }
}

fn set_backlog(listener: &UnixListener, backlog: u16) {
    if let Err(error) = rustix::net::listen(listener, backlog.into()) {
        tracing::debug!(%error, "cannot change how many clients may wait");
    }
}

/// The newcomers of one turn.
#[derive(Debug)]
pub(super) struct Round {
    begun_ns: u64,
    /// How many more may be taken in.
    left: usize,
    has_let_in_first: bool,
    /// For how many of a user's newcomers another connection of that user's was to go.
    replaced: HashMap<u32, usize>,
}

impl Round {
    /// Whether one more is taken in.
    pub(super) fn goes_on(&mut self, now_ns: u64) -> bool {
        let is_late = self.has_let_in_first && now_ns.saturating_sub(self.begun_ns) >= ROUND_NS;
        let goes_on = self.left > 0 && !is_late;
        self.left = self.left.saturating_sub(1);
        goes_on
    }

    /// One was let in whose user has no other.
    pub(super) fn let_in_first(&mut self) {
        self.has_let_in_first = true;
    }

    /// Whether one more of this user's connections may go for a newcomer.
    pub(super) fn may_replace(&mut self, uid: u32) -> bool {
        let replaced = self.replaced.entry(uid).or_default();
        *replaced += 1;
        *replaced <= REPLACED_PER_TURN
    }
}
