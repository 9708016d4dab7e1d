//! What protected domains keep (Redline, chapter 9): every page that they used within their protection period, as far
//! as all of it fits; what becomes of those that do not fit.
//!
//! Where the protected working sets do not fit together, the largest that may be revoked is demoted as a whole, of the
//! user whose all together are largest: half a working set is of use to nobody, and whoever has the largest is the
//! cause. So nobody who has no more than its fair part, the room divided by the number of users, is demoted because
//! another user protects more, be it in one domain or in many. To fit is to have some room to grow, too:
//! who grows by a page without it loses another one. Of those that are about as large it is the turn of the user, and
//! of that one's the domain, that has paid longest ago: nobody pays twice before the others have. What may not
//! be revoked
//! keeps what is left, in the order in which it came.
//!
//! One comes back once all that it needs fits again: beside what the others keep, or with what its user keeps into
//! that user's fair part. Then whoever has more than theirs makes room for it. It is known that it fits when what it
//! needed when it was demoted does. What it has in memory and in the swap may be less: it has given memory up, or it
//! only seems so, because what was taken of its files is in no swap. That is found out by trying, each time after
//! twice as long.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// For how long one that was demoted stays so at least, in nanoseconds: its pages are being taken meanwhile, and what
/// is measured is not yet what it will need.
const DEMOTED_MIN_NS: u64 = 5_000_000_000;
/// One that is demoted again soon after it came back, on the word of what it had left, is taken at that word after
/// twice as long, and so on up to this, in nanoseconds: what was taken of its files is in no swap, so it seems to
/// need less
/// than it does, and would come and go for ever.
const DEMOTED_MAX_NS: u64 = 300_000_000_000;
/// What must be left beside one that comes back, as a part of the room: with less it would be demoted again at once.
const SPARE_PART: u64 = 16;
/// What is kept for growth until the next look, as a part of what is used; and at least this much.
const HEADROOM_PART: u64 = 8;
const HEADROOM_MIN_BYTES: u64 = 8 << 20;
/// The same where nobody else needs it. Whoever takes 8 MB at once and gives them back may have done both between two
/// looks: three quarters, with which [what was told stays](Protection::more_bytes), are more than that and what the
/// kernel counts in advance.
const GROWTH_MIN_BYTES: u64 = 12 << 20;

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
    /// What the kernel is to leave to it, in bytes: what it keeps, and what it has beside that and Steward alone takes
    /// ([`super::manager`]).
    #[serde(default)]
    pub minimum_bytes: u64,
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

/// A change, and for how long one that is demoted is not taken at the word of what it has left.
#[derive(Clone, Copy, Debug)]
struct Turn {
    at_ns: u64,
    demoted_ns: u64,
    /// What it used when it was demoted, in bytes.
    needed_bytes: u64,
}

/// Who was demoted when, by an order that grows with each time. Who is not in it never was.
#[derive(Clone, Debug, Default)]
struct Paid {
    last: u64,
    domains: BTreeMap<u64, u64>,
    users: BTreeMap<u32, u64>,
}

impl Paid {
    fn note(&mut self, one: &Wanting) {
        self.last += 1;
        self.domains.insert(one.id, self.last);
        self.users.insert(one.user, self.last);
    }

    /// When it and its user paid last, the user first.
    fn of(&self, one: &Wanting) -> (u64, u64) {
        let user = self.users.get(&one.user).copied().unwrap_or(0);
        (user, self.domains.get(&one.id).copied().unwrap_or(0))
    }
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
    paid: Paid,
}

impl Protection {
    /// What each keeps, in the order given, which is that in which they came; and what has changed. `room_bytes` is
    /// what they may keep together, `now_ns` the time.
    pub fn decide(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> (Vec<Kept>, Vec<Change>) {
        self.forget_gone(wanting);
        let mut changes = self.demote(now_ns, room_bytes, wanting);
        if changes.is_empty()
            && let Some(back) = self.take_back(now_ns, room_bytes, wanting)
        {
            changes.push(back);
            changes.extend(self.demote(now_ns, room_bytes, wanting));
        }
        let mut left_bytes = room_bytes;
        // Where not even all of what may not be revoked fits, none of it has room to grow before all is kept.
        let all_fits = self.least_of_protected(wanting) <= room_bytes;
        let sure_bytes = |one: &Wanting| match (self.demoted.contains_key(&one.id), all_fits) {
            (true, _) => 0,
            (false, true) => least_bytes(one.used_bytes),
            (false, false) => one.used_bytes,
        };
        let sure: Vec<u64> = wanting.iter().map(sure_bytes).collect();
        let mut spare_bytes = room_bytes.saturating_sub(sure.iter().copied().fold(0, u64::saturating_add));
        let mut bytes: Vec<u64> = sure
            .into_iter()
            .map(|sure_bytes| {
                let sure_bytes = sure_bytes.min(left_bytes);
                left_bytes -= sure_bytes;
                sure_bytes
            })
            .collect();
        // What all of them need to grow comes before what is there for bursts.
        for least in [true, false] {
            for (one, bytes) in wanting.iter().zip(&mut bytes) {
                let wanted_bytes = if least { self.least_to_grow(one) } else { self.most_to_grow(one) };
                let more_bytes = wanted_bytes.saturating_sub(*bytes).min(spare_bytes);
                *bytes += more_bytes;
                spare_bytes -= more_bytes;
            }
        }
        let kept = |(one, bytes): (&Wanting, u64)| {
            let is_demoted = self.demoted.contains_key(&one.id);
            Kept { id: one.id, bytes, minimum_bytes: bytes, is_demoted }
        };
        let kept: Vec<Kept> = wanting.iter().zip(bytes).map(kept).collect();
        self.kept.extend(kept.iter().map(|one| (one.id, one.bytes)));
        (kept, changes)
    }

    fn forget_gone(&mut self, wanting: &[Wanting]) {
        let ids: BTreeSet<u64> = wanting.iter().map(|one| one.id).collect();
        let users: BTreeSet<u32> = wanting.iter().map(|one| one.user).collect();
        self.demoted.retain(|id, _| ids.contains(id));
        self.returned.retain(|id, _| ids.contains(id));
        self.kept.retain(|id, _| ids.contains(id));
        self.paid.domains.retain(|id, _| ids.contains(id));
        self.paid.users.retain(|user, _| users.contains(user));
    }

    /// What it keeps with all room to grow that there is for it, in bytes. What was told stays as long as it is about
    /// right, so that it is not written into the kernel anew at each look.
    fn most_to_grow(&self, one: &Wanting) -> u64 {
        if self.demoted.contains_key(&one.id) {
            return 0;
        }
        let used_bytes = one.used_bytes;
        let wanted_bytes = (used_bytes / HEADROOM_PART).max(GROWTH_MIN_BYTES);
        let told_bytes = self.kept.get(&one.id).copied().unwrap_or(0);
        let is_right =
            told_bytes >= used_bytes + wanted_bytes / 4 * 3 && told_bytes <= used_bytes + 2 * wanted_bytes;
        if is_right { told_bytes } else { used_bytes + wanted_bytes }
    }

    /// The same with what it needs until the next look.
    fn least_to_grow(&self, one: &Wanting) -> u64 {
        self.most_to_grow(one).min(one.used_bytes + headroom_bytes(one.used_bytes))
    }

    fn least_of_protected(&self, wanting: &[Wanting]) -> u64 {
        self.protected(wanting).map(|one| least_bytes(one.used_bytes)).fold(0, u64::saturating_add)
    }

    fn protected<'all>(&'all self, wanting: &'all [Wanting]) -> impl Iterator<Item = &'all Wanting> {
        wanting.iter().filter(|one| !self.demoted.contains_key(&one.id))
    }

    /// What the protected domains of each user need together, in bytes.
    fn sums(&self, wanting: &[Wanting]) -> BTreeMap<u32, u64> {
        let mut of_user: BTreeMap<u32, u64> = BTreeMap::new();
        for one in self.protected(wanting) {
            let sum_bytes = of_user.entry(one.user).or_default();
            *sum_bytes = sum_bytes.saturating_add(least_bytes(one.used_bytes));
        }
        of_user
    }

    fn demote(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let needed_bytes = self.least_of_protected(wanting);
            let Some(excess_bytes) = needed_bytes.checked_sub(room_bytes).filter(|excess| *excess > 0) else {
                return changes;
            };
            let Some(one) = self.next_to_pay(room_bytes, excess_bytes, wanting) else { return changes };
            let demoted_ns = self.demoted_ns(one.id, now_ns);
            self.paid.note(&one);
            self.demoted.insert(one.id, Turn { at_ns: now_ns, demoted_ns, needed_bytes: one.used_bytes });
            let needed_bytes = least_bytes(one.used_bytes);
            changes.push(Change { id: one.id, is_demoted: true, needed_bytes, room_bytes });
        }
    }

    /// The largest, or of those that are about as large and do as well the one whose turn it is.
    fn next_to_pay(&self, room_bytes: u64, excess_bytes: u64, wanting: &[Wanting]) -> Option<Wanting> {
        let of_user = self.sums(wanting);
        let sum_bytes = |one: &Wanting| of_user.get(&one.user).copied().unwrap_or(0);
        let revocable = || self.protected(wanting).filter(|one| one.is_revocable && one.used_bytes > 0);
        let largest = revocable().max_by_key(|one| (sum_bytes(one), one.used_bytes))?;
        let fair_bytes = fair_bytes(room_bytes, wanting);
        let apart_bytes = headroom_bytes(largest.used_bytes);
        let enough_bytes = least_bytes(largest.used_bytes).min(excess_bytes);
        let is_equal = |one: &&Wanting| {
            let of_fair_user = one.user == largest.user
                || sum_bytes(largest) - sum_bytes(one) < apart_bytes && sum_bytes(one) > fair_bytes;
            of_fair_user
                && largest.used_bytes.saturating_sub(one.used_bytes) < apart_bytes
                && least_bytes(one.used_bytes) >= enough_bytes
        };
        // Where nobody has paid, of equals the one that came last.
        let equal = revocable().filter(is_equal);
        equal.max_by_key(|one| (Reverse(self.paid.of(one)), sum_bytes(one), one.used_bytes)).copied()
    }

    /// For how long one that is demoted now is not taken at the word of what it has left.
    fn demoted_ns(&self, id: u64, now_ns: u64) -> u64 {
        let again =
            self.returned.get(&id).filter(|last| now_ns.saturating_sub(last.at_ns) < 2 * last.demoted_ns);
        again.map_or(DEMOTED_MIN_NS, |last| (2 * last.demoted_ns).min(DEMOTED_MAX_NS))
    }

    /// One at a time: the next look shows what it needs now. The smallest that fits, of equals the one that waited
    /// longest.
    fn take_back(&mut self, now_ns: u64, room_bytes: u64, wanting: &[Wanting]) -> Option<Change> {
        let mut waiting: Vec<(u64, u64, &Wanting)> =
            wanting.iter().filter_map(|one| self.needed_bytes(now_ns, one)).collect();
        waiting.sort_by_key(|(needed_bytes, since_ns, _)| (*needed_bytes, *since_ns));
        let left_bytes = room_bytes.saturating_sub(self.least_of_protected(wanting));
        let fits_bytes = left_bytes.saturating_sub(room_bytes / SPARE_PART);
        let fits = |needed_bytes: u64| needed_bytes <= fits_bytes && least_bytes(needed_bytes) <= left_bytes;
        let (fair_bytes, of_user) = (fair_bytes(room_bytes, wanting), self.sums(wanting));
        let is_fair = |needed_bytes: u64, one: &Wanting| {
            let beside_bytes = of_user.get(&one.user).copied().unwrap_or(0);
            let sum_bytes = beside_bytes.saturating_add(least_bytes(needed_bytes));
            sum_bytes <= fair_bytes - fair_bytes / SPARE_PART
        };
        let fitting = waiting.iter().find(|(needed_bytes, ..)| fits(*needed_bytes));
        let fair = || {
            waiting.iter().find(|(needed_bytes, _, one)| {
                is_fair(*needed_bytes, one) && self.would_stay(room_bytes, wanting, one, *needed_bytes)
            })
        };
        let (needed_bytes, _, back) = *fitting.or_else(fair)?;
        if let Some(turn) = self.demoted.remove(&back.id) {
            self.returned.insert(back.id, Turn { at_ns: now_ns, ..turn });
        }
        let needed_bytes = least_bytes(needed_bytes);
        Some(Change { id: back.id, is_demoted: false, needed_bytes, room_bytes })
    }

    /// What one that is demoted is to have when it comes back, and since when it waits; `None` where it is not, or was
    /// only just.
    fn needed_bytes<'one>(&self, now_ns: u64, one: &'one Wanting) -> Option<(u64, u64, &'one Wanting)> {
        let turn = self.demoted.get(&one.id)?;
        let waited_ns = now_ns.saturating_sub(turn.at_ns);
        let known_bytes = one.full_bytes.max(turn.needed_bytes);
        let needed_bytes = if waited_ns < turn.demoted_ns { known_bytes } else { one.full_bytes };
        (waited_ns >= DEMOTED_MIN_NS).then_some((needed_bytes, turn.at_ns, one))
    }

    /// Whether one that comes back would not be the next to go, with all that it needs: others may have more than
    /// their part that cannot be revoked.
    fn would_stay(&self, room_bytes: u64, wanting: &[Wanting], one: &Wanting, needed_bytes: u64) -> bool {
        let grown = |other: &Wanting| match other.id == one.id {
            true => Wanting { used_bytes: needed_bytes, ..*other },
            false => *other,
        };
        let grown: Vec<Wanting> = wanting.iter().map(grown).collect();
        let mut after = self.clone();
        after.demoted.remove(&one.id);
        after.demote(0, room_bytes, &grown);
        !after.demoted.contains_key(&one.id)
    }
}

/// What is each user's, of those who want something kept, in bytes.
fn fair_bytes(room_bytes: u64, wanting: &[Wanting]) -> u64 {
    let users: BTreeSet<u32> = wanting.iter().filter(|one| one.full_bytes > 0).map(|one| one.user).collect();
    room_bytes / (users.len() as u64).max(1)
}

#[cfg(test)]
mod tests;
