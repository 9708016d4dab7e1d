//! What protected domains keep (Redline, chapter 9): every page that they used within their protection period, as far as
//! all of it fits; what becomes of those that do not fit.
//!
//! Where the protected working sets do not fit together, the largest that may be revoked is demoted as a whole: half a
//! working set is of use to nobody, and whoever has the largest is the cause. It comes back once all that it had in
//! memory or in the swap fits again. What may not be revoked keeps what is left, in the order in which it came.

use std::collections::BTreeMap;

/// For how long one that was demoted stays so at least, in nanoseconds: its pages are being taken meanwhile, and what is
/// measured is not yet what it will need.
const DEMOTED_MIN_NS: u64 = 5_000_000_000;
/// What must be left beside one that comes back, as a part of the room: with less it would be demoted again at once.
const SPARE_PART: u64 = 16;
/// What is kept for growth until the next look, as a part of what is used; and at least this much.
const HEADROOM_PART: u64 = 8;
const HEADROOM_MIN_BYTES: u64 = 8 << 20;

/// A domain that is to be protected, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanting {
    /// The cgroup's id.
    pub id: u64,
    /// What it used within its protection period, in bytes: what is charged to it, without what has been idle for longer.
    pub used_bytes: u64,
    /// What it would use if nothing had been taken from it, in bytes: with what of it is in the swap.
    pub full_bytes: u64,
    /// Whether it may be demoted.
    pub is_revocable: bool,
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The cgroup's id.
    pub id: u64,
    /// What it keeps, in bytes, with room to grow until the next look; 0 where it is demoted.
    pub bytes: u64,
    /// Whether it is demoted: as a whole, it is best-effort for now.
    pub is_demoted: bool,
}

/// A change of who is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Who is demoted, and what the others were told last.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// By id: when it was demoted.
    demoted: BTreeMap<u64, u64>,
    /// By id: what it keeps, in bytes.
    kept: BTreeMap<u64, u64>,
}

impl Protection {
    /// What each keeps, in the order given, which is that in which they came; and what has changed. `room_bytes` is what
    /// they may keep together, `now_ns` the time.
    pub fn decide(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> (Vec<Kept>, Vec<Change>) {
        let is_there = |id: &u64| wanting.iter().any(|one| one.id == *id);
        self.demoted.retain(|id, _| is_there(id));
        self.kept.retain(|id, _| is_there(id));
        let mut changes = self.demote(now_ns, room_bytes, wanting);
        if changes.is_empty() {
            changes = self.take_back(now_ns, room_bytes, wanting).into_iter().collect();
        }
        let mut left_bytes = room_bytes;
        let mut kept = Vec::with_capacity(wanting.len());
        let used: u64 = self.protected(wanting).map(|one| one.used_bytes).fold(0, u64::saturating_add);
        let mut spare_bytes = room_bytes.saturating_sub(used);
        for one in wanting {
            let is_demoted = self.demoted.contains_key(&one.id);
            let used_bytes = if is_demoted { 0 } else { one.used_bytes.min(left_bytes) };
            left_bytes -= used_bytes;
            let bytes =
                if is_demoted { 0 } else { used_bytes + self.headroom(one, used_bytes, &mut spare_bytes) };
            self.kept.insert(one.id, bytes);
            kept.push(Kept { id: one.id, bytes, is_demoted });
        }
        (kept, changes)
    }

    /// Room to grow, out of what nobody uses. What was told stays as long as it is about right, so that it is not written
    /// into the kernel anew at each look.
    fn headroom(&self, one: &Wanting, used_bytes: u64, spare_bytes: &mut u64) -> u64 {
        let wanted_bytes = (used_bytes / HEADROOM_PART).max(HEADROOM_MIN_BYTES);
        let told_bytes = self.kept.get(&one.id).copied().unwrap_or(0);
        let is_right =
            told_bytes >= used_bytes + wanted_bytes / 2 && told_bytes <= used_bytes + 2 * wanted_bytes;
        let headroom_bytes = if is_right { told_bytes - used_bytes } else { wanted_bytes };
        let headroom_bytes = headroom_bytes.min(*spare_bytes);
        *spare_bytes -= headroom_bytes;
        headroom_bytes
    }

    fn protected<'all>(&'all self, wanting: &'all [Wanting]) -> impl Iterator<Item = &'all Wanting> {
        wanting.iter().filter(|one| !self.demoted.contains_key(&one.id))
    }

    fn demote(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let used = self.protected(wanting).map(|one| one.used_bytes).fold(0, u64::saturating_add);
            if used <= room_bytes {
                return changes;
            }
            let revocable = self.protected(wanting).filter(|one| one.is_revocable && one.used_bytes > 0);
            // Of equals the one that came last.
            let Some(largest) = revocable.max_by_key(|one| one.used_bytes).copied() else { return changes };
            self.demoted.insert(largest.id, now_ns);
            let needed_bytes = largest.used_bytes;
            changes.push(Change { id: largest.id, is_demoted: true, needed_bytes, room_bytes });
        }
    }

    /// One at a time: the next look shows what it needs now.
    fn take_back(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> Option<Change> {
        let used = self.protected(wanting).map(|one| one.used_bytes).fold(0, u64::saturating_add);
        let left_bytes = room_bytes.saturating_sub(used).saturating_sub(room_bytes / SPARE_PART);
        let since = |one: &Wanting| self.demoted.get(&one.id).copied();
        let waited =
            |one: &&Wanting| since(one).is_some_and(|since| now_ns.saturating_sub(since) >= DEMOTED_MIN_NS);
        let fitting = wanting.iter().filter(waited).filter(|one| one.full_bytes <= left_bytes);
        let smallest = fitting.min_by_key(|one| one.full_bytes)?;
        self.demoted.remove(&smallest.id);
        Some(Change { id: smallest.id, is_demoted: false, needed_bytes: smallest.full_bytes, room_bytes })
    }
}

#[cfg(test)]
mod tests;
