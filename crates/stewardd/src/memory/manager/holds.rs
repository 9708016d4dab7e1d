//! Carries out who is held back for a moment (`steward_core::memory::bumps`): within milliseconds of seeing that memory
//! goes faster than it can be taken, and without the daemon.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::cpu::mechanism::{Bumper, MechanismError};
use steward_core::memory::bumps::{Bump, Bumps, Reserve, Why};

use super::gone::forget_gone;
use super::orders::Orders;
use super::sight::{Reclaimed, Sight};
use crate::turn::clock;

/// Looks at who took how much take at most this part of a CPU while somebody has to be held.
const COST_PART: u64 = 10;
/// Between two looks at who has changed files, in nanoseconds.
const DIRTY_LOOK_NS: u64 = 100_000_000;

/// How often one was held back, and why, since the loop began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// The cgroup's id.
    pub(crate) id: u64,
    /// How often because it took memory too fast.
    pub(crate) for_taking: u64,
    /// How often because it changed files faster than they are written back.
    pub(crate) for_dirtying: u64,
    /// For how long in all at most, in nanoseconds: who is let go earlier was not held so long.
    pub(crate) held_ns: u64,
    /// What it took, or had changed, before it was held the last time, in bytes.
    pub(crate) last_bytes: u64,
    /// When that was, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) last_at_ns: u64,
}

impl HeldBack {
    fn add(&mut self, now_ns: u64, bump: &Bump) {
        match bump.why {
            Why::Takes => self.for_taking += 1,
            Why::Dirties => self.for_dirtying += 1,
        }
        *self = HeldBack {
            id: bump.id,
            held_ns: self.held_ns.saturating_add(bump.for_ns),
            last_bytes: bump.bytes,
            last_at_ns: now_ns,
            ..*self
        };
    }
}

/// What the loop keeps for that.
#[derive(Default)]
pub(super) struct Holds {
    bumps: Bumps,
    /// Who is looked at again no earlier, in nanoseconds of `CLOCK_MONOTONIC`; and for changed files.
    look_at_ns: u64,
    dirty_at_ns: u64,
    /// Since when memory is being taken, or when the last of it was.
    taking_since_ns: Option<u64>,
    /// When the next check of what is free is due, in nanoseconds from the last one; `None` before anybody could be
    /// held back.
    check_ns: Option<u64>,
    /// Who was held back since the loop began, by path.
    held_back: BTreeMap<String, HeldBack>,
    /// Why nobody is held back, in a sentence.
    problem: Option<String>,
}

impl Holds {
    /// How soon what is free has to be looked at again, in nanoseconds; `None` where nobody can be held back.
    pub(super) fn check_ns(&self) -> Option<u64> {
        self.check_ns
    }

    /// Why nobody is held back although it is due, in a sentence.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// So much was taken since the last call, and whether more is in hand.
    pub(super) fn took(&mut self, now_ns: u64, bytes: u64, goes_on: bool) {
        if bytes > 0
            && let Some(since_ns) = self.taking_since_ns
        {
            self.bumps.took(bytes, now_ns.saturating_sub(since_ns));
            self.taking_since_ns = Some(now_ns);
        }
        self.taking_since_ns = goes_on.then(|| self.taking_since_ns.unwrap_or(now_ns));
    }

    /// Nobody is protected any more: what was counted stays.
    pub(super) fn rest(&mut self) {
        *self = Holds { held_back: std::mem::take(&mut self.held_back), ..Holds::default() };
    }

    /// Who was held back since the loop began, by path.
    pub(super) fn held_back(&self) -> &BTreeMap<String, HeldBack> {
        &self.held_back
    }

    /// Forgets those that are not there any more, when they are many.
    pub(super) fn forget_gone(&mut self, there: &BTreeSet<String>) {
        forget_gone(&mut self.held_back, there);
    }

    /// Holds back who takes memory faster than there can be more, while there is little.
    pub(super) fn hold_back(
        &mut self,
        now_ns: u64,
        high_watermark_bytes: u64,
        sight: &mut Sight,
        orders: &Orders,
        reclaimed: Reclaimed<'_>,
        bumper: &dyn Bumper,
    ) {
        let reserve = Reserve::above(sight.free_bytes(), high_watermark_bytes, orders.settings.reserve_bytes);
        self.check_ns = Some(self.bumps.check_ns(now_ns, &reserve));
        if !self.bumps.is_due(now_ns, &reserve) || now_ns < self.look_at_ns {
            return;
        }
        self.problem = None;
        let begun_ns = clock::cpu_time_ns();
        // Those that are known first: it takes longer to list others, and meanwhile whoever takes memory would go on.
        let takers = sight.takers(orders, reclaimed, true, false);
        let bumps = self.bumps.decide(now_ns, &reserve, &takers);
        self.carry_out(now_ns, &bumps, sight, bumper);
        let with_dirty = reserve.free_bytes < reserve.least_bytes && now_ns >= self.dirty_at_ns;
        if with_dirty {
            self.dirty_at_ns = now_ns + DIRTY_LOOK_NS;
        }
        // Where it cannot be listed, the list that there is says who takes.
        let listed = sight.list_if_old(now_ns, orders);
        if with_dirty || matches!(listed, Ok(true)) {
            let now_ns = clock::now_ns();
            let reserve = Reserve { free_bytes: sight.free_bytes(), ..reserve };
            let takers = sight.takers(orders, reclaimed, true, with_dirty);
            let bumps = self.bumps.decide(now_ns, &reserve, &takers);
            self.carry_out(now_ns, &bumps, sight, bumper);
        }
        self.problem = self.problem.take().or(listed.err().map(|error| error.to_string()));
        // What it took by itself: while it stood behind others, these went on taking.
        let cost_ns = clock::cpu_time_ns().saturating_sub(begun_ns);
        self.look_at_ns = clock::now_ns().saturating_add(COST_PART.saturating_mul(cost_ns));
    }

    /// Holds these, and lets go those that are held no longer.
    fn carry_out(&mut self, now_ns: u64, bumps: &[Bump], sight: &Sight, bumper: &dyn Bumper) {
        for bump in bumps {
            match bumper.bump(bump.id, bump.for_ns) {
                Ok(()) => note(&mut self.held_back, sight.path_of(bump.id), now_ns, bump),
                // The daemon loads it again, or says why not.
                Err(MechanismError::Gone { .. }) => return,
                Err(error) => {
                    self.problem = Some(format!("who takes memory too fast is not held back: {error}"));
                    return;
                }
            }
        }
    }

    /// Takes note of what everybody has, so that it is known who grew when little is left.
    pub(super) fn see(&mut self, now_ns: u64, sight: &mut Sight, orders: &Orders, reclaimed: Reclaimed<'_>) {
        let takers = sight.takers(orders, reclaimed, false, false);
        self.bumps.see(now_ns, &takers);
    }
}

fn note(held_back: &mut BTreeMap<String, HeldBack>, path: Option<&str>, now_ns: u64, bump: &Bump) {
    let Some(path) = path.filter(|_| bump.for_ns > 0) else { return };
    held_back.entry(path.to_owned()).or_default().add(now_ns, bump);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_can_be_held_back_nothing_is_checked_more_often_for_that() {
        let mut holds = Holds::default();
        assert_eq!(holds.check_ns(), None, "a check without a pause between would take a CPU");
        holds.rest();
        assert_eq!(holds.check_ns(), None);
    }
}
