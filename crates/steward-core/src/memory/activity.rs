//! Which protected domains are in use, and whose protection has lapsed (Edwards & Cao, section 3.2.2).
//!
//! A person leaves a program without ending it. One that has shown no [sign](super::signs) of use for the idle period
//! keeps nothing any more: its protection has lapsed. With the first sign it is protected again, in the same decision,
//! and what it has in memory then counts as used: how long nobody has used it says nothing of what is used next.
//!
//! How long each was in use is counted too ([`Times`]; section 3.1.3).

use std::collections::BTreeMap;

use super::signs::{Evidence, Sign};
use crate::record::{Records, Span};

/// For so long after a sign a domain is in use, in nanoseconds: a person reads, or thinks.
const IN_USE_NS: u64 = 10_000_000_000;
/// What follows within this time on a surer sign is what the program does for it, in nanoseconds, and says nothing new.
const FOLLOWS_NS: u64 = 5_000_000_000;

/// A protected domain, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'path> {
    /// Its cgroup's path.
    pub path: &'path str,
    /// Its cgroup's id.
    pub id: u64,
    /// The user it belongs to.
    pub user: u32,
    /// The newest sign of use since the last decision.
    pub sign: Option<Sign>,
}

/// Stretches of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// For how long it was looked at whether it is in use.
    pub watched_ns: u64,
    /// For how long of that it was.
    pub used_ns: u64,
}

impl crate::record::Counted for Times {
    const NAME: &'static str = "record of use";
    const HEADER: &'static str = "steward use 1: watched_ns used_ns";
    type Numbers = [u64; 2];

    fn add(&mut self, other: &Self) {
        self.watched_ns = self.watched_ns.saturating_add(other.watched_ns);
        self.used_ns = self.used_ns.saturating_add(other.used_ns);
    }

    fn numbers(&self) -> [u64; 2] {
        [self.watched_ns, self.used_ns]
    }

    fn of_numbers([watched_ns, used_ns]: [u64; 2]) -> Self {
        Times { watched_ns, used_ns }
    }
}

/// How a protected domain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The cgroup's id.
    pub id: u64,
    /// The last sign of use.
    pub last: Sign,
    /// Whether its protection has lapsed.
    pub is_lapsed: bool,
    /// When it came back last, in nanoseconds; `None` if it never lapsed.
    pub returned_at_ns: Option<u64>,
    /// For how long it was in use since it was protected.
    pub times: Times,
    counted_to_ns: u64,
}

/// What has become of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path of its cgroup.
    pub path: String,
    /// Its cgroup's id.
    pub id: u64,
    /// Whether its protection has lapsed; otherwise it is protected again.
    pub is_lapsed: bool,
    /// The last sign of use.
    pub last: Sign,
}

/// All that are protected.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    by_path: BTreeMap<String, Standing>,
    record: Records<Times>,
}

impl Activity {
    /// Takes in what was seen of all that are protected, and says whose protection has lapsed or is there again.
    /// `idle_ns` is after how long without a sign it lapses; never where that is `None`. A sign is told at the first
    /// decision after it.
    pub fn decide(&mut self, now_ns: u64, idle_ns: Option<u64>, seen: &[Seen<'_>]) -> Vec<Change> {
        let is_there = |path: &String| seen.iter().any(|seen| seen.path == path);
        self.by_path.retain(|path, _| is_there(path));
        let mut changes = Vec::new();
        for seen in seen {
            let known = self.by_path.get(seen.path).filter(|known| known.id == seen.id);
            let mut standing = known.copied().unwrap_or_else(|| Standing::new(seen.id, now_ns));
            let sign = seen.sign.filter(|sign| standing.is_news(sign));
            let times = standing.count(now_ns, sign);
            self.record.add(seen.path, seen.user, now_ns / 1_000_000_000, &times);
            if standing.judge(now_ns, idle_ns, sign) {
                let (is_lapsed, last) = (standing.is_lapsed, standing.last);
                changes.push(Change { path: seen.path.to_owned(), id: seen.id, is_lapsed, last });
            }
            self.by_path.insert(seen.path.to_owned(), standing);
        }
        changes
    }

    /// How each stands, by the path of its cgroup.
    pub fn standings(&self) -> &BTreeMap<String, Standing> {
        &self.by_path
    }

    /// For how long a domain was in use in the last minute, hour and day, those in which it belonged to another user or
    /// was not protected left out.
    pub fn times(&self, path: &str, user: u32, now_ns: u64) -> [Times; 3] {
        let record = self.record.get(path, user);
        Span::ALL
            .map(|span| record.map(|record| record.sum(span, now_ns / 1_000_000_000)).unwrap_or_default())
    }
}

impl Standing {
    fn new(id: u64, now_ns: u64) -> Self {
        Standing {
            id,
            last: Sign { evidence: Evidence::Protected, at_ns: now_ns },
            is_lapsed: false,
            returned_at_ns: None,
            times: Times::default(),
            counted_to_ns: now_ns,
        }
    }

    fn is_news(&self, sign: &Sign) -> bool {
        let after_ns = sign.at_ns.checked_sub(self.last.at_ns);
        after_ns.is_some_and(|after_ns| sign.evidence >= self.last.evidence || after_ns >= FOLLOWS_NS)
    }

    /// Takes in the sign; whether it lapses or comes back by it, or by the time that has gone.
    fn judge(&mut self, now_ns: u64, idle_ns: Option<u64>, sign: Option<Sign>) -> bool {
        self.last = sign.unwrap_or(self.last);
        let is_idle = idle_ns.is_some_and(|idle_ns| now_ns.saturating_sub(self.last.at_ns) >= idle_ns);
        let was_lapsed = std::mem::replace(&mut self.is_lapsed, is_idle);
        if was_lapsed && !is_idle {
            self.returned_at_ns = Some(now_ns);
        }
        was_lapsed != is_idle
    }

    /// The time since the last decision, and how much of it the domain was in use.
    fn count(&mut self, now_ns: u64, sign: Option<Sign>) -> Times {
        let from_ns = self.counted_to_ns;
        self.counted_to_ns = now_ns.max(from_ns);
        let in_use_until = |sign: &Sign| match sign.evidence {
            Evidence::Protected => sign.at_ns,
            _ => sign.at_ns.saturating_add(IN_USE_NS),
        };
        let before_ns = in_use_until(&self.last).min(now_ns).saturating_sub(from_ns);
        let with_sign_ns = sign.map_or(0, |sign| {
            let begun_ns = sign.at_ns.max(from_ns.saturating_add(before_ns));
            in_use_until(&sign).min(now_ns).saturating_sub(begun_ns)
        });
        let times = Times {
            watched_ns: now_ns.saturating_sub(from_ns),
            used_ns: before_ns.saturating_add(with_sign_ns),
        };
        crate::record::Counted::add(&mut self.times, &times);
        times
    }
}

#[cfg(test)]
mod tests;
