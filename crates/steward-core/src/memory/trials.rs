//! What protected domains can do without, where nobody knows the ages of pages: it is tried, a little at a time.
//!
//! All that a domain has counts as used but pages of files that it read once. After a protection period in which it
//! fetched nothing back, so little of it is **offered** that to have it back costs no more than people notice;
//! whoever needs memory may take that. What was taken is **watched** for a whole period: so whoever comes back within
//! its period has lost one such piece, however long it was away. When nothing was fetched back, the next is offered.
//! When something was, or tasks stood still for want of memory, it was too much: nothing is offered for twice as long
//! as the last time. So it comes to rest above what is used, and shrinks slowly; it grows with whatever the domain
//! takes, at once, since that counts as used.
//!
//! How much people notice is known ([`super::audit::STALL_MAX_NS`]), and what a page costs is measured when one is
//! fetched back. That it costs less than it seemed is believed of programs' own memory alone: pages of files are read
//! many at a time, and others have a part in it, who were charged for the same file and had it taken from themselves.
//! Where that takes as long as on a disk that rotates, nothing is tried any more: what was taken there is
//! lost for seconds. Refaults and pressure say that it is too little just now, and not by how much.
//!
//! The kernel is told to leave what is offered, too: Steward alone takes it, with `memory.reclaim`, so that it is no
//! more than that.

use std::collections::BTreeMap;

use super::audit::STALL_MAX_NS;
use super::victims::PIECE_MIN_BYTES;

/// No more is offered at a time than 1 of so many parts of what is charged.
const PART: u64 = 16;
/// What costs are counted in, in bytes.
const PAGE_BYTES: u64 = 4096;
/// What it takes to have a page back before that was measured, in nanoseconds: as on a fast disk.
const COST_NS: u64 = 200_000;
/// From this on, in nanoseconds a page, a disk counts as one that rotates.
const SLOW_NS: u64 = 2_000_000;
/// Less than this that comes back is no sign, in bytes: a page now and then does of any program.
const BACK_MIN_BYTES: u64 = 64 << 10;
/// Nor is less time for which tasks stood still since the last look, in nanoseconds.
const STALL_MIN_NS: u64 = 10_000_000;
/// What was too much doubles the time until the next offer, so often at most.
const DOUBLED_MAX: u32 = 5;

/// What was seen of a domain. What is counted only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Its protection period, in nanoseconds.
    pub period_ns: u64,
    /// What is charged to it, in bytes.
    pub charged_bytes: u64,
    /// What it fetched back soon after it had been taken, so far, in bytes.
    pub refaulted_bytes: u64,
    /// Of this, pages of files.
    pub refaulted_file_bytes: u64,
    /// For how long tasks of it stood still for want of memory so far, in nanoseconds.
    pub stalled_ns: u64,
    /// For how long tasks of it waited for the disk so far, in nanoseconds.
    pub disk_ns: u64,
}

/// What is being tried with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing until then.
    Rests { until_ns: u64 },
    /// So much may still be taken.
    Offers { left_bytes: u64 },
    /// What was taken may come back until then.
    Watches { until_ns: u64 },
}

/// One domain's trials.
#[derive(Clone, Copy, Debug)]
struct Trial {
    stage: Stage,
    last: Signs,
    /// What came back since the last offer, in bytes.
    back_bytes: u64,
    /// How often the time between offers is doubled.
    doubled: u32,
    /// What it takes to have a page back, in nanoseconds.
    cost_ns: u64,
}

/// The trials of all protected domains.
#[derive(Clone, Debug, Default)]
pub struct Trials {
    /// By cgroup id.
    of: BTreeMap<u64, Trial>,
}

impl Trials {
    /// Takes in what was seen of one at a look; returns how much of what it has may be taken now, in bytes.
    pub fn see(&mut self, now_ns: u64, id: u64, signs: Signs) -> u64 {
        self.of.entry(id).or_insert_with(|| Trial::new(now_ns, signs)).see(now_ns, signs);
        self.offered_bytes(id)
    }

    /// How much may be taken from this one now, in bytes.
    pub fn offered_bytes(&self, id: u64) -> u64 {
        match self.of.get(&id).map(|trial| trial.stage) {
            Some(Stage::Offers { left_bytes }) => left_bytes,
            _ => 0,
        }
    }

    /// The kernel is asked to take so much of what is offered of one, in bytes. It counts whether or not it can be had:
    /// what is used while it is written to the swap stays, and would be written again and again.
    pub fn ask(&mut self, now_ns: u64, id: u64, bytes: u64) {
        if let Some(trial) = self.of.get_mut(&id) {
            trial.ask(now_ns, bytes);
        }
    }

    /// Forgets those that are not among these, by cgroup id.
    pub fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.of.retain(|id, _| is_there(*id));
    }
}

impl Trial {
    fn new(now_ns: u64, signs: Signs) -> Self {
        let stage = Stage::Rests { until_ns: now_ns.saturating_add(signs.period_ns) };
        Trial { stage, last: signs, back_bytes: 0, doubled: 0, cost_ns: COST_NS }
    }

    fn see(&mut self, now_ns: u64, signs: Signs) {
        let last = std::mem::replace(&mut self.last, signs);
        let back_bytes = signs.refaulted_bytes.saturating_sub(last.refaulted_bytes);
        let stalled_ns = signs.stalled_ns.saturating_sub(last.stalled_ns);
        let of_files_bytes = signs.refaulted_file_bytes.saturating_sub(last.refaulted_file_bytes);
        let is_own = of_files_bytes <= back_bytes / 2;
        self.measure(
            back_bytes,
            is_own,
            stalled_ns.saturating_add(signs.disk_ns.saturating_sub(last.disk_ns)),
        );
        self.back_bytes = self.back_bytes.saturating_add(back_bytes);
        if self.back_bytes >= BACK_MIN_BYTES || stalled_ns >= STALL_MIN_NS {
            self.was_too_much(now_ns, signs.period_ns);
            return;
        }
        match &mut self.stage {
            Stage::Rests { until_ns } | Stage::Watches { until_ns } if now_ns < *until_ns => {}
            // It may have become less meanwhile.
            Stage::Offers { left_bytes } => match (*left_bytes).min(most_bytes(signs.charged_bytes)) {
                0 => self.stage = Stage::Rests { until_ns: now_ns.saturating_add(signs.period_ns) },
                bytes => *left_bytes = bytes,
            },
            Stage::Rests { .. } => self.offer(signs.charged_bytes),
            Stage::Watches { .. } => {
                self.doubled = self.doubled.saturating_sub(1);
                self.offer(signs.charged_bytes);
            }
        }
    }

    fn ask(&mut self, now_ns: u64, bytes: u64) {
        let Stage::Offers { left_bytes } = &mut self.stage else { return };
        *left_bytes = left_bytes.saturating_sub(bytes);
        if *left_bytes < PIECE_MIN_BYTES {
            self.stage = Stage::Watches { until_ns: now_ns.saturating_add(self.last.period_ns) };
        }
    }

    /// Notes what it took to have so much back, most of it programs' own or not.
    fn measure(&mut self, back_bytes: u64, is_own: bool, waited_ns: u64) {
        if back_bytes >= BACK_MIN_BYTES {
            // Several tasks may wait at once, and a faster disk is believed after a while.
            let least_ns = if is_own { self.cost_ns / 2 } else { self.cost_ns };
            let cost_ns = waited_ns / (back_bytes / PAGE_BYTES);
            self.cost_ns = cost_ns.max(least_ns).max(1);
        }
    }

    /// It had use for what was taken, or needs more than it has.
    fn was_too_much(&mut self, now_ns: u64, period_ns: u64) {
        if !matches!(self.stage, Stage::Rests { .. }) {
            self.doubled = (self.doubled + 1).min(DOUBLED_MAX);
        }
        self.back_bytes = 0;
        let wait_ns = period_ns.saturating_mul(1 << self.doubled);
        self.stage = Stage::Rests { until_ns: now_ns.saturating_add(wait_ns) };
    }

    fn offer(&mut self, charged_bytes: u64) {
        let bytes = if self.cost_ns >= SLOW_NS { 0 } else { STALL_MAX_NS / self.cost_ns * PAGE_BYTES };
        let left_bytes = bytes / PIECE_MIN_BYTES * PIECE_MIN_BYTES;
        let left_bytes = left_bytes.min(most_bytes(charged_bytes));
        self.back_bytes = 0;
        if left_bytes > 0 {
            self.stage = Stage::Offers { left_bytes };
        }
    }
}

/// The most that may be offered of one to which so much is charged, in whole pieces, in bytes.
fn most_bytes(charged_bytes: u64) -> u64 {
    charged_bytes / PART / PIECE_MIN_BYTES * PIECE_MIN_BYTES
}

#[cfg(test)]
mod tests;
