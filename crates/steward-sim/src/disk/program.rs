//! What programs of the disk machine do, one step after the other.

use super::measure::Counts;
use super::scenario::{Behaviour, ProgramSpec};
use crate::random::{Amount, Random};

/// A program has so much to do before it hands on what it wants next, in nanoseconds.
const TURN_NS: u64 = 20_000;
/// How much one that writes into the cache writes at a time.
const BUFFERED_BYTES: u64 = 1 << 20;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has so much read or written, and waits for it.
    Submit { bytes: u64 },
    /// It waits until what it wrote is committed.
    Commit,
    /// It writes so much into the cache.
    Write { bytes: u64 },
    /// It sleeps until then.
    Sleep { until_ns: u64 },
}

/// A program that runs.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) behaviour: Behaviour,
    /// The thread that it is by now.
    pub(super) tid: i32,
    /// Whether it is within what brings a file to the disk.
    pub(super) is_in_sync: bool,
    pub(super) has_ended: bool,
    pub(super) has_begun: bool,
    pub(super) counts: Counts,
    start_ns: u64,
    random: Random,
    /// The step of a round that comes next, and since when the round has been.
    step: u8,
    since_ns: u64,
}

impl Program {
    pub(super) fn new(spec: &ProgramSpec, tid: i32, random: Random) -> Self {
        Program {
            behaviour: spec.behaviour,
            tid,
            is_in_sync: false,
            has_ended: false,
            has_begun: false,
            counts: Counts::default(),
            start_ns: spec.start_ns,
            random,
            step: 0,
            since_ns: spec.start_ns,
        }
    }

    /// Whether another thread is to go on now.
    pub(super) fn is_another(&self) -> bool {
        match self.behaviour {
            Behaviour::Direct { pieces: Some(pieces), .. } => {
                self.step == 0
                    && self.counts.rounds > 0
                    && self.counts.rounds.is_multiple_of(u64::from(pieces))
            }
            _ => false,
        }
    }

    /// What it does next, after what it did has been done.
    pub(super) fn next(&mut self, now_ns: u64) -> Next {
        self.has_begun = true;
        let step = self.step;
        self.step += 1;
        match (self.behaviour, step) {
            (Behaviour::Direct { bytes, .. }, 0) => self.submit(bytes, now_ns),
            (Behaviour::Sync { bytes, .. }, 0) => self.sync(bytes, now_ns),
            (Behaviour::Sync { .. }, 1) | (Behaviour::Save { .. }, 2) => Next::Commit,
            (Behaviour::Direct { think, .. } | Behaviour::Sync { think, .. }, _) => self.pause(think, now_ns),
            (Behaviour::Save { every_ns, .. } | Behaviour::Frames { every_ns, .. }, 0) => {
                Next::Sleep { until_ns: self.next_turn(every_ns, now_ns) }
            }
            (Behaviour::Save { bytes, .. }, 1) => self.sync(bytes, now_ns),
            (Behaviour::Save { .. }, _) => self.again(now_ns),
            (Behaviour::Frames { bytes, .. }, 1) => self.submit(bytes, now_ns),
            (Behaviour::Frames { every_ns, .. }, _) => {
                self.counts.late += (now_ns - self.since_ns) / every_ns;
                self.again(now_ns)
            }
            (Behaviour::Buffered { .. }, 0) => {
                self.since_ns = now_ns;
                Next::Write { bytes: BUFFERED_BYTES }
            }
            (Behaviour::Buffered { bytes_per_second }, _) => {
                self.counts.buffered_bytes += BUFFERED_BYTES;
                let rest_ns = BUFFERED_BYTES * 1_000_000_000 / bytes_per_second.max(1);
                self.step = 0;
                Next::Sleep { until_ns: (self.since_ns + rest_ns).max(now_ns + TURN_NS) }
            }
        }
    }

    fn submit(&mut self, bytes: u64, now_ns: u64) -> Next {
        self.since_ns = now_ns;
        Next::Submit { bytes }
    }

    fn sync(&mut self, bytes: u64, now_ns: u64) -> Next {
        self.is_in_sync = true;
        self.submit(bytes, now_ns)
    }

    /// The round is over, and the next one begins after a while.
    fn pause(&mut self, think: Amount, now_ns: u64) -> Next {
        self.end_round(now_ns);
        let think_ns = think.draw(&mut self.random);
        Next::Sleep { until_ns: now_ns.saturating_add(think_ns) + TURN_NS }
    }

    fn again(&mut self, now_ns: u64) -> Next {
        self.end_round(now_ns);
        Next::Sleep { until_ns: now_ns + TURN_NS }
    }

    fn end_round(&mut self, now_ns: u64) {
        self.is_in_sync = false;
        self.step = 0;
        let took_ns = now_ns - self.since_ns;
        self.counts.rounds += 1;
        self.counts.rounds_ns += took_ns;
        self.counts.round_max_ns = self.counts.round_max_ns.max(took_ns);
    }

    /// The next moment of those that come every so often from the start on.
    fn next_turn(&self, every_ns: u64, now_ns: u64) -> u64 {
        let turns = (now_ns - self.start_ns) / every_ns + 1;
        self.start_ns + turns * every_ns
    }
}
