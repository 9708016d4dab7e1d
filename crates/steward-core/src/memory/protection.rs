//! What protected domains keep (Redline, chapter 9): every page that they used within their protection period, as far
//! as all of it fits; what becomes of those that do not fit.
//!
//! Where the protected working sets do not fit together, the largest that may be revoked is demoted as a whole, of the
//! user whose all together are largest: half a working set is of use to nobody, and whoever has the largest is the
//! cause. So nobody who has no more than its fair part, the room divided by the number of users, is demoted because
//! another user protects more, be it in one domain or in many. To fit is to have some room to grow, too:
//! who grows by a page without it loses another one. It comes back once all that it had in memory or in the swap fits
//! again. What may not be revoked keeps what is left, in the order in which it came.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// For how long one that was demoted stays so at least, in nanoseconds: its pages are being taken meanwhile, and what
/// is measured is not yet what it will need.
const DEMOTED_MIN_NS: u64 = 5_000_000_000;
/// One that is demoted again soon after it came back stays so for twice as long, and so on up to this, in nanoseconds:
/// what was taken of its files is in no swap, so it seems to need less than it does, and would come and go for ever.
const DEMOTED_MAX_NS: u64 = 300_000_000_000;
/// What must be left beside one that comes back, as a part of the room: with less it would be demoted again at once.
const SPARE_PART: u64 = 16;
/// What is kept for growth until the next look, as a part of what is used; and at least this much.
const HEADROOM_PART: u64 = 8;
const HEADROOM_MIN_BYTES: u64 = 8 << 20;

/// What is kept for growth of one that uses this much, in bytes.
fn headroom_bytes(used_bytes: u64) -> u64 {
    (used_bytes / HEADROOM_PART).max(HEADROOM_MIN_BYTES)
}

/// The least that protects one that uses this much, in bytes: with half of that. One that has hardly begun counts for
/// no more than twice what it uses, so that many such leave the others their room.
pub fn least_bytes(used_bytes: u64) -> u64 {
    used_bytes.saturating_add((headroom_bytes(used_bytes) / 2).min(used_bytes))
}

/// A domain that is to be protected, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanting {
    /// The cgroup's id.
    pub id: u64,
    /// The user that it belongs to.
    pub user: u32,
    /// What it used within its protection period, in bytes: what is charged to it, without what has been idle for
    /// longer.
    pub used_bytes: u64,
    /// What it would use if nothing had been taken from it, in bytes: with what of it is in the swap.
    pub full_bytes: u64,
    /// Whether it may be demoted.
    pub is_revocable: bool,
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The cgroup's id.
    pub id: u64,
    /// What it keeps, in bytes, with room to grow until the next look; 0 where it is demoted.
    pub bytes: u64,
    /// Whether it is demoted: as a whole, it is best-effort for now.
    pub is_demoted: bool,
}

/// A change of who is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The cgroup's id.
    pub id: u64,
    /// Whether it was demoted; otherwise it came back.
    pub is_demoted: bool,
    /// What it needs, in bytes.
    pub needed_bytes: u64,
    /// What all that are protected may keep together, in bytes.
    pub room_bytes: u64,
}

/// A change, and for how long one that is demoted stays so at least.
#[derive(Clone, Copy, Debug)]
struct Turn {
    at_ns: u64,
    demoted_ns: u64,
}

/// Who is demoted, and what the others were told last.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// By id: who is demoted.
    demoted: BTreeMap<u64, Turn>,
    /// By id: who came back, and for how long it had been demoted at least.
    returned: BTreeMap<u64, Turn>,
    /// By id: what it keeps, in bytes.
    kept: BTreeMap<u64, u64>,
}

impl Protection {
    /// What each keeps, in the order given, which is that in which they came; and what has changed. `room_bytes` is
    /// what they may keep together, `now_ns` the time.
    pub fn decide(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> (Vec<Kept>, Vec<Change>) {
        let is_there = |id: &u64| wanting.iter().any(|one| one.id == *id);
        self.demoted.retain(|id, _| is_there(id));
        self.returned.retain(|id, _| is_there(id));
        self.kept.retain(|id, _| is_there(id));
        let mut changes = self.demote(now_ns, room_bytes, wanting);
        if changes.is_empty() {
            changes = self.take_back(now_ns, room_bytes, wanting).into_iter().collect();
        }
        let mut left_bytes = room_bytes;
        let mut kept = Vec::with_capacity(wanting.len());
        // Where not even all of what may not be revoked fits, none of it has room to grow before all is kept.
        let all_fits = self.least_of_protected(wanting) <= room_bytes;
        let sure_bytes = |used_bytes| if all_fits { least_bytes(used_bytes) } else { used_bytes };
        let sure = self.protected(wanting).map(|one| sure_bytes(one.used_bytes));
        let mut spare_bytes = room_bytes.saturating_sub(sure.fold(0, u64::saturating_add));
        for one in wanting {
            let is_demoted = self.demoted.contains_key(&one.id);
            let used_bytes = if is_demoted { 0 } else { one.used_bytes };
            let sure_bytes = sure_bytes(used_bytes).min(left_bytes);
            left_bytes -= sure_bytes;
            let bytes = if is_demoted {
                0
            } else {
                sure_bytes + self.more_bytes(one.id, used_bytes, sure_bytes, &mut spare_bytes)
            };
            self.kept.insert(one.id, bytes);
            kept.push(Kept { id: one.id, bytes, is_demoted });
        }
        (kept, changes)
    }

    /// More room to grow, out of what nobody needs. What was told stays as long as it is about right, so that it is not
    /// written into the kernel anew at each look.
    fn more_bytes(&self, id: u64, used_bytes: u64, sure_bytes: u64, spare_bytes: &mut u64) -> u64 {
        let wanted_bytes = headroom_bytes(used_bytes);
        let told_bytes = self.kept.get(&id).copied().unwrap_or(0);
        let is_right =
            told_bytes >= used_bytes + wanted_bytes / 2 && told_bytes <= used_bytes + 2 * wanted_bytes;
        let bytes = if is_right { told_bytes } else { used_bytes + wanted_bytes };
        let more_bytes = bytes.saturating_sub(sure_bytes).min(*spare_bytes);
        *spare_bytes -= more_bytes;
        more_bytes
    }

    fn least_of_protected(&self, wanting: &[Wanting]) -> u64 {
        self.protected(wanting).map(|one| least_bytes(one.used_bytes)).fold(0, u64::saturating_add)
    }

    fn protected<'all>(&'all self, wanting: &'all [Wanting]) -> impl Iterator<Item = &'all Wanting> {
        wanting.iter().filter(|one| !self.demoted.contains_key(&one.id))
    }

    fn demote(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            if self.least_of_protected(wanting) <= room_bytes {
                return changes;
            }
            let mut of_user: BTreeMap<u32, u64> = BTreeMap::new();
            for one in self.protected(wanting) {
                let sum_bytes = of_user.entry(one.user).or_default();
                *sum_bytes = sum_bytes.saturating_add(least_bytes(one.used_bytes));
            }
            let revocable = self.protected(wanting).filter(|one| one.is_revocable && one.used_bytes > 0);
            // Of equals the one that came last.
            let largest = revocable.max_by_key(|one| (of_user.get(&one.user), one.used_bytes)).copied();
            let Some(largest) = largest else { return changes };
            let demoted_ns = self.demoted_ns(largest.id, now_ns);
            self.demoted.insert(largest.id, Turn { at_ns: now_ns, demoted_ns });
            let needed_bytes = least_bytes(largest.used_bytes);
            changes.push(Change { id: largest.id, is_demoted: true, needed_bytes, room_bytes });
        }
    }

    /// For how long one that is demoted now stays so at least.
    fn demoted_ns(&self, id: u64, now_ns: u64) -> u64 {
        let again =
            self.returned.get(&id).filter(|last| now_ns.saturating_sub(last.at_ns) < 2 * last.demoted_ns);
        again.map_or(DEMOTED_MIN_NS, |last| (2 * last.demoted_ns).min(DEMOTED_MAX_NS))
    }

    /// One at a time: the next look shows what it needs now.
    fn take_back(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> Option<Change> {
        let left_bytes = room_bytes.saturating_sub(self.least_of_protected(wanting));
        let fits_bytes = left_bytes.saturating_sub(room_bytes / SPARE_PART);
        let waited = |one: &&Wanting| {
            let turn = self.demoted.get(&one.id);
            turn.is_some_and(|turn| now_ns.saturating_sub(turn.at_ns) >= turn.demoted_ns)
        };
        let fits = |one: &&Wanting| one.full_bytes <= fits_bytes && least_bytes(one.full_bytes) <= left_bytes;
        let fitting = wanting.iter().filter(waited).filter(fits);
        let smallest = fitting.min_by_key(|one| one.full_bytes)?;
        if let Some(turn) = self.demoted.remove(&smallest.id) {
            self.returned.insert(smallest.id, Turn { at_ns: now_ns, ..turn });
        }
        Some(Change {
            id: smallest.id,
            is_demoted: false,
            needed_bytes: least_bytes(smallest.full_bytes),
            room_bytes,
        })
    }
}

#[cfg(test)]
mod tests;
