//! What is kept: the last minute by seconds, the last hour by minutes, the last day by quarters of an hour.
//!
//! The store knows time as whole seconds on a line of its own ([`Timeline`]) that never goes back, whatever happens to
//! the clock of the wall.

use std::collections::{BTreeMap, VecDeque};

use super::counted::Counted;

/// How many domains are kept at most. Of those of the user who has most, the one that was counted for longest ago goes
/// first: nobody loses a record because another one made many domains.
pub const DOMAINS_MAX: usize = 1_000;

/// The seconds of the store: those since boot, sleep included, put behind what an earlier boot has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Which boot, as the kernel calls it.
    pub boot_id: String,
    /// What is added to the seconds since boot.
    pub offset_s: u64,
}

impl Timeline {
    /// The line that goes on where `kept` ends: the same within a boot; in a new one it follows the clock of the wall,
    /// but not back behind `newest_s`, the newest second that is kept. Times are in seconds.
    pub fn continued(kept: &Timeline, newest_s: u64, boot_id: &str, wall_s: u64, since_boot_s: u64) -> Self {
        if !boot_id.is_empty() && kept.boot_id == boot_id {
            return kept.clone();
        }
        let offset_s = wall_s.max(newest_s.saturating_add(1)).saturating_sub(since_boot_s);
        Timeline { boot_id: boot_id.to_owned(), offset_s }
    }

    /// The second that it is.
    pub fn at_s(&self, since_boot_s: u64) -> u64 {
        self.offset_s.saturating_add(since_boot_s)
    }
}

/// One of the times that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The last minute.
    Minute,
    /// The last hour, to the minute.
    Hour,
    /// The last day, to the quarter of an hour.
    Day,
}

impl Span {
    /// All of them, shortest first.
    pub const ALL: [Span; 3] = [Span::Minute, Span::Hour, Span::Day];

    /// Its name: `minute`, `hour`, `day`.
    pub fn name(self) -> &'static str {
        match self {
            Span::Minute => "minute",
            Span::Hour => "hour",
            Span::Day => "day",
        }
    }

    /// Its length in seconds.
    pub fn length_s(self) -> u64 {
        self.width_s() * self.slots()
    }

    /// The length of one of its slots, in seconds.
    pub fn width_s(self) -> u64 {
        match self {
            Span::Minute => 1,
            Span::Hour => 60,
            Span::Day => 900,
        }
    }

    /// How many slots it has.
    pub fn slots(self) -> u64 {
        match self {
            Span::Minute | Span::Hour => 60,
            Span::Day => 96,
        }
    }
}

/// Slots of time, those without anything left out; numbers grow.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ring<T> {
    pub(super) slots: VecDeque<(u64, T)>,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Ring { slots: VecDeque::new() }
    }
}

impl<T: Counted> Ring<T> {
    fn add(&mut self, span: Span, at_s: u64, counted: &T) {
        let number = at_s / span.width_s();
        match self.slots.back_mut() {
            // Time does not go back; if it seems to, nothing is lost.
            Some((last, sum)) if *last >= number => sum.add(counted),
            _ => self.slots.push_back((number, *counted)),
        }
        while self.slots.front().is_some_and(|(first, _)| is_over(span, *first, number)) {
            self.slots.pop_front();
        }
    }

    fn sum(&self, span: Span, at_s: u64) -> T {
        let mut sum = T::default();
        let number = at_s / span.width_s();
        let current = self.slots.iter().filter(|(slot, _)| !is_over(span, *slot, number));
        current.for_each(|(_, counted)| sum.add(counted));
        sum
    }
}

fn is_over(span: Span, slot: u64, now: u64) -> bool {
    slot.saturating_add(span.slots()) <= now
}

/// What is kept of one domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<T> {
    /// The user that it belongs to: another user's domain of the same name is another one.
    pub user: u32,
    /// The second in which it was counted for last.
    pub last_s: u64,
    pub(super) seconds: Ring<T>,
    pub(super) minutes: Ring<T>,
    pub(super) quarters: Ring<T>,
}

impl<T> Default for Record<T> {
    fn default() -> Self {
        let (seconds, minutes, quarters) = (Ring::default(), Ring::default(), Ring::default());
        Record { user: 0, last_s: 0, seconds, minutes, quarters }
    }
}

impl<T: Counted> Record<T> {
    fn ring(&self, span: Span) -> &Ring<T> {
        match span {
            Span::Minute => &self.seconds,
            Span::Hour => &self.minutes,
            Span::Day => &self.quarters,
        }
    }

    /// What happened in the span that ends with the second `at_s`.
    pub fn sum(&self, span: Span, at_s: u64) -> T {
        self.ring(span).sum(span, at_s)
    }
}

/// What is kept of all domains, by path.
#[derive(Clone, Debug, PartialEq)]
pub struct Records<T> {
    pub(super) by_path: BTreeMap<String, Record<T>>,
}

impl<T> Default for Records<T> {
    fn default() -> Self {
        Records { by_path: BTreeMap::new() }
    }
}

impl<T: Counted> Records<T> {
    /// Takes in what was found about a domain in the second `at_s`.
    pub fn add(&mut self, path: &str, user: u32, at_s: u64, counted: &T) {
        if !self.by_path.contains_key(path) {
            self.make_room(user);
            self.by_path.insert(path.to_owned(), Record::default());
        }
        let Some(record) = self.by_path.get_mut(path) else { return };
        if record.user != user {
            *record = Record { user, ..Record::default() };
        }
        record.last_s = record.last_s.max(at_s);
        record.seconds.add(Span::Minute, at_s, counted);
        record.minutes.add(Span::Hour, at_s, counted);
        record.quarters.add(Span::Day, at_s, counted);
    }

    /// Makes room for one more of this user.
    fn make_room(&mut self, user: u32) {
        while self.by_path.len() >= DOMAINS_MAX {
            let mut counts = BTreeMap::from([(user, 1_usize)]);
            self.by_path.values().for_each(|record| *counts.entry(record.user).or_default() += 1);
            let most = counts.values().max().copied().unwrap_or_default();
            let of_most = self.by_path.iter().filter(|(_, record)| counts[&record.user] == most);
            let oldest = of_most.min_by_key(|(_, record)| record.last_s);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else { return };
            self.by_path.remove(&path);
        }
    }

    /// Forgets domains of which nothing is left within the last day.
    pub fn expire(&mut self, at_s: u64) {
        self.by_path.retain(|_, record| record.last_s.saturating_add(Span::Day.length_s()) > at_s);
    }

    /// What is kept of a domain, if it still belongs to this user.
    pub fn get(&self, path: &str, user: u32) -> Option<&Record<T>> {
        self.by_path.get(path).filter(|record| record.user == user)
    }

    /// All domains that something is kept of, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Record<T>)> {
        self.by_path.iter().map(|(path, record)| (path.as_str(), record))
    }

    /// The newest second that anything is kept of; 0 when nothing is.
    pub fn newest_s(&self) -> u64 {
        self.by_path.values().map(|record| record.last_s).max().unwrap_or(0)
    }
}
