//! How far it is to having nothing left that could be taken, and when that is so near that protection is dropped: of
//! the machine ([`super::manager`]), and of a cgroup with a maximum ([`super::beneath`]).

/// Nearer than this part of what programs have to having nothing left that could be taken, protection is dropped;
/// further than twice that, it is there again.
const SHORT_PART: u64 = 16;
/// So far ahead it is seen whether that comes, in nanoseconds, if it goes on as since the last look
/// ([`Distance::falls`]): until the next check of what is left, until what that decides is in the kernel, and half as
/// much again.
pub(super) const AHEAD_NS: u64 = 200_000_000;
/// For so long protection stays dropped at least, in nanoseconds: what is written to and fro is there too late. Where
/// it is dropped again before twice that time is over, it stays so for twice as long, up to this: protection that
/// comes and goes keeps nothing for anybody.
const SHORT_MIN_NS: u64 = 1_000_000_000;
const SHORT_MAX_NS: u64 = 60_000_000_000;

/// With less than this left, of so much in all, protection is dropped, in bytes.
pub(super) fn near_bytes(of_bytes: u64) -> u64 {
    of_bytes / SHORT_PART
}

/// What is kept together below one with this maximum leaves that much to everybody there: so much at most, in bytes.
pub(super) fn kept_at_most(max_bytes: u64) -> u64 {
    max_bytes - near_bytes(max_bytes)
}

/// How much can still be allocated before the kernel finds nothing to take from those who are not protected, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distance {
    /// Of what is had at once: what is free above the kernel's high watermark, and pages of files.
    pub quick_bytes: u64,
    /// Of what has to be written to the swap first: programs' own pages for which there is room there.
    pub slow_bytes: u64,
}

impl Distance {
    /// Both together.
    pub fn bytes(&self) -> u64 {
        self.quick_bytes.saturating_add(self.slow_bytes)
    }

    /// By how much less there is `ahead_ns` later if it goes on as since an `earlier` moment, `took_ns` before, in
    /// bytes. What is had at once can go as fast as it does, and then it is used up: what has to be written first goes
    /// no faster for that than it went in the same time, since it is a disk (or, where the swap is in memory, a
    /// compression) that it waits for. So a program that fills what is free at the memory's own pace has protection
    /// dropped no sooner than others who come as near to having nothing left.
    pub fn falls(&self, earlier: &Distance, took_ns: u64, ahead_ns: u64) -> u64 {
        let goes_on = |earlier_bytes: u64, bytes: u64| {
            let fell_bytes = u128::from(earlier_bytes.saturating_sub(bytes));
            let falls_bytes = fell_bytes * u128::from(ahead_ns) / u128::from(took_ns.max(1));
            u64::try_from(falls_bytes).unwrap_or(u64::MAX)
        };
        let slow_bytes = goes_on(earlier.slow_bytes, self.slow_bytes);
        goes_on(earlier.bytes(), self.bytes()).min(self.quick_bytes.saturating_add(slow_bytes))
    }
}

/// Whether so little is left that protection is dropped, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shortage {
    /// Since when.
    since_ns: Option<u64>,
    /// When the last one ended.
    ended_at_ns: Option<u64>,
    /// For how long this one or the last one stays at least, in nanoseconds.
    least_ns: u64,
}

impl Shortage {
    /// Whether it is one, with so much left ahead, and so much being too little, in bytes.
    pub(super) fn becomes(&mut self, now_ns: u64, near_bytes: u64, ahead_bytes: u64) -> bool {
        let is_short = match self.since_ns {
            Some(since_ns) => ahead_bytes < 2 * near_bytes || now_ns.saturating_sub(since_ns) < self.least_ns,
            None => ahead_bytes < near_bytes,
        };
        match (self.since_ns, is_short) {
            (None, true) => {
                let again_ns = self.least_ns.saturating_mul(2);
                let is_again =
                    self.ended_at_ns.is_some_and(|ended_ns| now_ns.saturating_sub(ended_ns) < again_ns);
                self.least_ns = if is_again { again_ns.min(SHORT_MAX_NS) } else { SHORT_MIN_NS };
                self.since_ns = Some(now_ns);
            }
            (Some(_), false) => (self.since_ns, self.ended_at_ns) = (None, Some(now_ns)),
            (None, false) | (Some(_), true) => {}
        }
        is_short
    }
}
