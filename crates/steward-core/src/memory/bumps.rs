//! Who is held back for a moment, and for how long, because memory goes faster than it can be taken from others
//! (Redline: the controlled rate of section 9.3, the speed bumps of section 9.4).
//!
//! While less is free than the reserve allows, each domain that is not protected has a budget, which fills at its part
//! of the rate at which memory can be taken. Whoever takes more than its budget holds is kept from running until that
//! is full again, but not for longer than [`HOLD_MAX_NS`]; then it runs at least until the next look finds that it took
//! more. As soon as the reserve is whole, everybody goes on, and nothing is owed. Nobody is held who takes nothing.
//!
//! What changes files faster than they can be written back keeps memory from being taken without taking any: while
//! hardly anything of the reserve is left, it is held for [`DIRTY_HOLD_NS`] as often as that has not become less.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What a domain may take at once while little is free, in bytes: 256 pages (Yang 2009, section 9.3).
pub const BUDGET_BYTES: u64 = 256 * PAGE_BYTES;
/// The same while hardly anything of the reserve is left. The kernel counts what is charged in steps as large.
const BUDGET_LEAST_BYTES: u64 = 64 * PAGE_BYTES;
/// A page, as the paper and the kernel's steps count it; on machines with larger ones both are larger.
const PAGE_BYTES: u64 = 4096;
/// How long it takes to take a page while that has not been measured, in nanoseconds (Yang 2009, section 9.3).
const PAGE_COST_NS: u64 = 5_000_000;
/// Nobody is held for longer at once, in nanoseconds (Yang 2009, section 9.4).
pub const HOLD_MAX_NS: u64 = 100_000_000;
/// Nor for less: the scheduler lets nobody go sooner.
pub const HOLD_MIN_NS: u64 = 5_000_000;
/// For how long one is held that changes files, in nanoseconds: for a part of the time between two looks at them, so
/// that one whose pages nobody writes back goes on all the same.
pub const DIRTY_HOLD_NS: u64 = 75_000_000;
/// What of changed files is in nobody's way, in bytes (Yang 2009, section 10.1.1).
const DIRTY_MIN_BYTES: u64 = 2 << 20;
/// Who took nothing for so long is not counted among those who share the rate, in nanoseconds.
const SHARES_NS: u64 = 1_000_000_000;
/// Between two looks at what is free, in nanoseconds: at most while the reserve is not whole; at least, however fast
/// it goes; and at most otherwise.
const CHECK_LITTLE_NS: u64 = 5_000_000;
const CHECK_MIN_NS: u64 = 1_000_000;
const CHECK_MAX_NS: u64 = 20_000_000;
/// What the newest measurement counts for in the rate: one part of so many.
const RATE_PART: u64 = 8;

/// The reserve as it was seen. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// What is free.
    pub free_bytes: u64,
    /// With so much free it is whole.
    pub target_bytes: u64,
    /// With less than this free, domains are held to their budgets.
    pub low_bytes: u64,
    /// With less than this free, hardly anything of it is left.
    pub least_bytes: u64,
}

impl Reserve {
    /// A reserve on top of the kernel's high watermark. With half of it gone domains are held to their budgets, with
    /// three quarters to small ones: below the watermark the kernel itself has as much again before anybody has to
    /// take memory from others.
    pub fn above(free_bytes: u64, high_watermark_bytes: u64, reserve_bytes: u64) -> Self {
        Reserve {
            free_bytes,
            target_bytes: high_watermark_bytes.saturating_add(reserve_bytes),
            low_bytes: high_watermark_bytes.saturating_add(reserve_bytes / 2),
            least_bytes: high_watermark_bytes.saturating_add(reserve_bytes / 4),
        }
    }
}

/// A domain as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taker {
    /// The cgroup's id.
    pub id: u64,
    /// What is charged to it, in bytes.
    pub charged_bytes: u64,
    /// What was taken from it since it is known, in bytes: it grew by that much more than it seems to have.
    pub taken_bytes: u64,
    /// What is being taken from it, in bytes: up to that much may have gone already, and is not counted as taken yet.
    #[serde(default)]
    pub being_taken_bytes: u64,
    /// What of it is changed pages of files, in bytes; `None` where nobody looked.
    pub dirty_bytes: Option<u64>,
    /// Whether it may be held: it is neither protected, nor the manager's own.
    pub may_be_held: bool,
}

/// Why one is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// It took memory faster than there can be more.
    Takes,
    /// It changed files faster than they can be written back.
    Dirties,
}

/// One is held, or let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bump {
    /// The cgroup's id.
    pub id: u64,
    /// For how long from now, in nanoseconds; 0: it goes on now.
    pub for_ns: u64,
    /// What it took since the last look, in bytes, or has changed.
    pub bytes: u64,
    /// Why.
    pub why: Why,
}

/// What is remembered of a domain.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// What it had in all at the last look: what was charged to it and what was taken from it.
    had_bytes: u64,
    /// What it has taken of its budget.
    used_bytes: u64,
    /// What of it was changed, when that was looked at last.
    dirty_bytes: Option<u64>,
    seen_at_ns: u64,
    took_at_ns: Option<u64>,
    held_until_ns: u64,
}

impl Account {
    /// What has stayed changed since that was looked at last, if it has not become less, in bytes.
    fn note_dirty(&mut self, dirty_bytes: Option<u64>) -> u64 {
        let Some(now_bytes) = dirty_bytes else { return 0 };
        let before_bytes = self.dirty_bytes.replace(now_bytes);
        if before_bytes.is_some_and(|before_bytes| now_bytes >= before_bytes) { now_bytes } else { 0 }
    }
}

/// All that is remembered.
#[derive(Clone, Debug, Default)]
pub struct Bumps {
    accounts: BTreeMap<u64, Account>,
    rate: Rate,
    /// The newest that was ever seen, by id, which are given out in order; `None` before the first look.
    newest_id: Option<u64>,
    /// When what is free was looked at last, and how much it was, in bytes.
    last_check: Option<(u64, u64)>,
}

/// How fast memory can be taken, as it was measured.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    bytes_per_s: Option<u64>,
}

impl Bumps {
    /// Memory was taken: so much of it, while somebody was at it for so long.
    pub fn took(&mut self, bytes: u64, over_ns: u64) {
        let Some(bytes_per_s) = per_s(bytes, over_ns) else { return };
        let rate = &mut self.rate.bytes_per_s;
        *rate = Some(rate.map_or(bytes_per_s, |rate| rate - rate / RATE_PART + bytes_per_s / RATE_PART));
    }

    /// How fast memory can be taken, in bytes a second: as measured, or what the paper takes for it.
    pub fn rate_bytes_per_s(&self) -> u64 {
        let assumed = PAGE_BYTES * 1_000_000_000 / PAGE_COST_NS;
        self.rate.bytes_per_s.unwrap_or(assumed).max(assumed)
    }

    /// Whether domains have to be looked at now: there is little, or somebody is held.
    pub fn is_due(&self, now_ns: u64, reserve: &Reserve) -> bool {
        reserve.free_bytes < reserve.low_bytes || self.is_anybody_held(now_ns)
    }

    fn is_anybody_held(&self, now_ns: u64) -> bool {
        self.accounts.values().any(|account| account.held_until_ns > now_ns)
    }

    /// How soon what is free has to be looked at again, in nanoseconds: sooner the nearer it is to running low, as fast
    /// as it goes.
    pub fn check_ns(&mut self, now_ns: u64, reserve: &Reserve) -> u64 {
        let (last_ns, last_bytes) = self.last_check.replace((now_ns, reserve.free_bytes)).unwrap_or_default();
        let is_whole = reserve.free_bytes >= reserve.target_bytes;
        let most_ns = if is_whole { CHECK_MAX_NS } else { CHECK_LITTLE_NS };
        let left_bytes = u128::from(reserve.free_bytes.saturating_sub(reserve.low_bytes));
        if left_bytes == 0 && !is_whole {
            return CHECK_LITTLE_NS;
        }
        let fell_bytes = u128::from(last_bytes.saturating_sub(reserve.free_bytes));
        let over_ns = u128::from(now_ns.saturating_sub(last_ns));
        // Half of the time until it would be low.
        let until_ns = (left_bytes * over_ns).checked_div(2 * fell_bytes);
        let until_ns = until_ns.map_or(most_ns, |ns| u64::try_from(ns).unwrap_or(u64::MAX));
        until_ns.clamp(CHECK_MIN_NS, most_ns)
    }

    /// Takes note of what everybody has while nobody needs to be held.
    pub fn see(&mut self, now_ns: u64, takers: &[Taker]) {
        self.note_all(now_ns, takers);
    }

    /// Who is held from now on, and who is let go before the time that was said. All domains are seen each time; one
    /// that is not is gone.
    pub fn decide(&mut self, now_ns: u64, reserve: &Reserve, takers: &[Taker]) -> Vec<Bump> {
        let took = self.note_all(now_ns, takers);
        if reserve.free_bytes >= reserve.target_bytes {
            return self.let_all_go(now_ns);
        }
        self.drain(now_ns);
        if reserve.free_bytes >= reserve.low_bytes {
            return Vec::new();
        }
        let is_least = reserve.free_bytes < reserve.least_bytes;
        let budget_bytes = if is_least { BUDGET_LEAST_BYTES } else { BUDGET_BYTES };
        // With hardly anything left, the rate was too high.
        let part_bytes_per_s = self.part_bytes_per_s(now_ns) / if is_least { 2 } else { 1 };
        let takers = takers.iter().zip(took).filter(|(taker, _)| taker.may_be_held);
        let bumps = takers.filter_map(|(taker, took_bytes)| {
            let account = self.accounts.get_mut(&taker.id)?;
            let stays_dirty_bytes = account.note_dirty(taker.dirty_bytes);
            if account.held_until_ns > now_ns {
                return None;
            }
            let (for_ns, bytes, why) = if took_bytes > 0 && account.used_bytes > budget_bytes {
                (time_ns(account.used_bytes, part_bytes_per_s), took_bytes, Why::Takes)
            } else if is_least && stays_dirty_bytes >= DIRTY_MIN_BYTES {
                (DIRTY_HOLD_NS, stays_dirty_bytes, Why::Dirties)
            } else {
                return None;
            };
            let for_ns = for_ns.clamp(HOLD_MIN_NS, HOLD_MAX_NS);
            account.held_until_ns = now_ns.saturating_add(for_ns);
            // More than that pays for is not owed.
            let most_bytes = bytes_in(HOLD_MAX_NS, part_bytes_per_s).saturating_add(BUDGET_LEAST_BYTES);
            account.used_bytes = account.used_bytes.min(most_bytes);
            Some(Bump { id: taker.id, for_ns, bytes, why })
        });
        bumps.collect()
    }

    /// Notes what all have, those that are gone left out; returns what each took since it was seen last, in bytes.
    fn note_all(&mut self, now_ns: u64, takers: &[Taker]) -> Vec<u64> {
        self.forget_gone(takers);
        let took = takers.iter().map(|taker| self.note(now_ns, taker)).collect();
        self.newest_id = takers.iter().map(|taker| taker.id).chain(self.newest_id).max().or(Some(0));
        took
    }

    fn forget_gone(&mut self, takers: &[Taker]) {
        // Of thousands that somebody made, each is looked up, not compared with all.
        let there: BTreeSet<u64> = takers.iter().map(|taker| taker.id).collect();
        self.accounts.retain(|id, _| there.contains(id));
    }

    /// Notes what one has; returns what it took since it was seen last, in bytes.
    fn note(&mut self, now_ns: u64, taker: &Taker) -> u64 {
        let has_bytes = taker.charged_bytes.saturating_add(taker.taken_bytes);
        // One that was made since the last look took all that it has. Others were not looked at before.
        let is_new = self.newest_id.is_some_and(|newest_id| taker.id > newest_id);
        let account = self.accounts.entry(taker.id).or_insert(Account {
            had_bytes: if is_new { taker.taken_bytes } else { has_bytes },
            used_bytes: 0,
            dirty_bytes: None,
            seen_at_ns: now_ns,
            took_at_ns: None,
            held_until_ns: 0,
        });
        let took_bytes = has_bytes.saturating_sub(account.had_bytes);
        // What goes while memory is being taken from it comes back as taken: that is no growth.
        account.had_bytes =
            account.had_bytes.min(has_bytes.saturating_add(taker.being_taken_bytes)).max(has_bytes);
        account.used_bytes = account.used_bytes.saturating_add(took_bytes);
        if took_bytes > 0 {
            account.took_at_ns = Some(now_ns);
        }
        took_bytes
    }

    fn let_all_go(&mut self, now_ns: u64) -> Vec<Bump> {
        let mut bumps = Vec::new();
        for (id, account) in &mut self.accounts {
            account.used_bytes = 0;
            account.seen_at_ns = now_ns;
            if account.held_until_ns > now_ns {
                account.held_until_ns = now_ns;
                bumps.push(Bump { id: *id, for_ns: 0, bytes: 0, why: Why::Takes });
            }
        }
        bumps
    }

    /// Budgets fill.
    fn drain(&mut self, now_ns: u64) {
        let part_bytes_per_s = self.part_bytes_per_s(now_ns);
        for account in self.accounts.values_mut() {
            let paid_bytes = bytes_in(now_ns.saturating_sub(account.seen_at_ns), part_bytes_per_s);
            account.used_bytes = account.used_bytes.saturating_sub(paid_bytes);
            account.seen_at_ns = now_ns;
        }
    }

    /// Each one's part of the rate, in bytes a second: those who take share it.
    fn part_bytes_per_s(&self, now_ns: u64) -> u64 {
        let takes = |account: &&Account| {
            account.took_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) <= SHARES_NS)
        };
        let count = self.accounts.values().filter(takes).count() as u64;
        (self.rate_bytes_per_s() / count.max(1)).max(1)
    }
}

fn per_s(bytes: u64, over_ns: u64) -> Option<u64> {
    let per_s = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(over_ns))?;
    Some(u64::try_from(per_s).unwrap_or(u64::MAX / 2))
}

fn bytes_in(time_ns: u64, bytes_per_s: u64) -> u64 {
    u64::try_from(u128::from(time_ns) * u128::from(bytes_per_s) / 1_000_000_000).unwrap_or(u64::MAX)
}

fn time_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    per_s(bytes, bytes_per_s).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
