//! Where forecasts come from in the daemon: all tasks are read from time to time, and what they have and may have is
//! put beside it when somebody asks (CPU Futures, section 3).
//!
//! While somebody has asked a moment ago, tasks are read every 100 ms, and while somebody watches as often as they want
//! to be told, 100 ms to 1 s. At rest they are read once a second, so that whoever asks first finds a window; where
//! that would cost too much (procfs with hundreds of tasks, thousands of tasks in a reply) it is less often. What
//! domains have is looked at anew for an answer, unless that was done within the last 50 ms and nothing was changed or
//! read since; the tree of cgroups behind it when something has changed in it, at most once a second, or when a task
//! turns up in a cgroup that is not known, or when something was changed through the daemon.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use libsteward::api::WatchForecasts;
use steward_core::cpu::forecast::{DomainSample, GAP_MAX_NS, Herald, Model, Report, Stalls};
use steward_core::cpu::mechanism::DomainRecord;
use steward_core::resource::Resource;
use steward_kernel::cpu::idle::IdleClock;
use steward_tasks::Source;

use crate::cpu::real_time::RealTimeUse;
use crate::domains::reading::Groups;
use crate::server::turns::Payer;

mod sampling;

/// Least time between two reads, in nanoseconds.
const FAST_NS: u64 = 100_000_000;
/// For how long after a question somebody wants to know, in nanoseconds.
const ASKED_FOR_NS: u64 = 5_000_000_000;
/// Time between two reads at rest, in nanoseconds.
const REST_NS: u64 = 1_000_000_000;
/// Reads, with the replies about what was read, cost at most this part of a CPU's time while somebody wants to know.
const FAST_COST_MAX: f64 = 0.1;
/// The same at rest.
const REST_COST_MAX: f64 = 0.001;
/// What of the cost of replies counts, in nanoseconds: for half a second at most what was read serves on their account,
/// whoever asks for how many different ones.
const REPLIES_NS_MAX: u64 = 50_000_000;
/// What was read so lately is as good as new, in nanoseconds.
const FRESH_NS: u64 = 50_000_000;

/// How many different replies about one outlook are kept, and how long they may be together, in bytes.
const TEXTS_MAX: usize = 32;
const TEXTS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// When to read tasks.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// What a read costs: a moving average, in nanoseconds.
    cost_ns: f64,
    /// What the replies cost that were made since the last read, in nanoseconds.
    replies_ns: u64,
    read_at_ns: Option<u64>,
    asked_until_ns: u64,
    /// How often the most eager of those who watch want to be told, in nanoseconds.
    watched_every_ns: Option<u64>,
    /// What was read last will not do for an answer, however new it is.
    stale: bool,
}

impl Pace {
    fn note(&mut self, at_ns: u64, cost_ns: u64) {
        let cost_ns = cost_ns as f64;
        self.cost_ns = if self.read_at_ns.is_none() { cost_ns } else { 0.8 * self.cost_ns + 0.2 * cost_ns };
        self.read_at_ns = Some(at_ns);
        self.replies_ns = 0;
        self.stale = false;
    }

    fn note_reply(&mut self, cost_ns: u64) {
        self.replies_ns = self.replies_ns.saturating_add(cost_ns);
    }

    fn fast_ns(&self) -> u64 {
        let cost_ns = self.cost_ns + self.replies_ns.min(REPLIES_NS_MAX) as f64;
        FAST_NS.max((cost_ns / FAST_COST_MAX) as u64)
    }

    /// For how long what was read, and what was said of it, will do for an answer.
    fn fresh_ns(&self) -> u64 {
        FRESH_NS.max(self.fast_ns() - FRESH_NS)
    }

    /// When tasks are to be read next.
    fn due_ns(&self, now_ns: u64) -> u64 {
        let Some(read_at_ns) = self.read_at_ns else { return now_ns };
        if now_ns < self.asked_until_ns {
            return read_at_ns + self.fast_ns();
        }
        if let Some(every_ns) = self.watched_every_ns {
            // Whoever watches has tasks read for each reply: this is for the time between two that are far apart.
            return read_at_ns + every_ns.clamp(self.fast_ns(), REST_NS.max(self.fast_ns())) + FRESH_NS;
        }
        let rest_ns = REST_NS.max((self.cost_ns / REST_COST_MAX) as u64);
        // A window does not reach over a longer gap, so that reads would be for nothing.
        if rest_ns <= GAP_MAX_NS { read_at_ns + rest_ns } else { u64::MAX }
    }

    /// Whether what was read last will do for an answer.
    fn is_fresh(&self, now_ns: u64) -> bool {
        let is_new = |at| now_ns.saturating_sub(at) < self.fresh_ns() && at <= now_ns;
        !self.stale && self.read_at_ns.is_some_and(is_new)
    }
}

/// What the daemon knows of all tasks.
#[derive(Default)]
pub(crate) struct Sampler {
    source: Option<Box<dyn Source>>,
    idle: Option<IdleClock>,
    pub(crate) herald: Herald,
    pub(crate) groups: Groups,
    pace: Pace,
    pub(crate) real_time: RealTimeUse,
    /// For how long cgroups have stood still, by their id; read only while somebody asks who is slowed.
    pub(crate) stalls: Stalls<(u64, Resource)>,
    /// How many CPUs are online, and the generation of groups with which they were counted.
    cpus: u32,
    cpus_of: Option<u64>,
    /// What the scheduler said of domains when tasks were read last, until it is used or something changes.
    records: Option<Vec<DomainRecord>>,
    /// The last one, and when it was made: for who asks at the same time.
    outlook: Option<(u64, Arc<Outlook>)>,
    /// What was said of it.
    texts: OutlookTexts,
    /// For whom a reply is being made in pieces, by who pays for it.
    making: HashMap<Payer, Weak<()>>,
}

/// The texts of replies about one outlook.
#[derive(Default)]
struct OutlookTexts {
    /// When it was made, in nanoseconds of `CLOCK_MONOTONIC`.
    of_ns: u64,
    texts: Vec<(OutlookAsked, Arc<str>)>,
}

/// Whatever decides what a reply about an outlook says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutlookAsked {
    /// What was asked for.
    pub(crate) request: WatchForecasts,
    /// The user who sees only what is theirs; `None` for those who see all of it.
    pub(crate) only_of: Option<u32>,
}

/// The forecasts of everything, with what they were made from.
pub(crate) struct Outlook {
    pub(crate) report: Report,
    pub(crate) model: Model,
    pub(crate) cpus: u32,
    pub(crate) samples: Vec<DomainSample>,
    /// That of the groups.
    generation: u64,
}

impl Sampler {
    /// Where the figures come from.
    pub(crate) fn source_name(&self) -> &'static str {
        self.source.as_ref().map_or("none", |source| source.name())
    }

    /// Something was changed that forecasts depend on.
    pub(crate) fn invalidate(&mut self) {
        self.groups.invalidate();
        self.pace.stale = true;
        self.records = None;
        self.outlook = None;
        self.texts = OutlookTexts::default();
    }

    /// How often the most eager of those who watch want to be told from now on, in nanoseconds; `None` if nobody
    /// watches.
    pub(crate) fn set_watched(&mut self, every_ns: Option<u64>) {
        self.pace.watched_every_ns = every_ns;
    }

    /// The text of a reply about the outlook that was made last, if there is one.
    pub(crate) fn text(&self, asked: &OutlookAsked) -> Option<Arc<str>> {
        let (made_at_ns, _) = self.outlook.as_ref()?;
        let texts = self.texts.texts.iter().filter(|_| self.texts.of_ns == *made_at_ns);
        texts.into_iter().find(|(of, _)| of == asked).map(|(_, text)| Arc::clone(text))
    }

    /// Notes what CPU time was taken to make some of a reply, in nanoseconds.
    pub(crate) fn note_reply(&mut self, cost_ns: u64) {
        self.pace.note_reply(cost_ns);
    }

    /// Keeps the text of a reply about an outlook, if that is still the one that was made last.
    pub(crate) fn keep_text(&mut self, outlook: &Arc<Outlook>, asked: OutlookAsked, text: &Arc<str>) {
        let latest = self.outlook.as_ref().filter(|(_, latest)| Arc::ptr_eq(latest, outlook));
        let Some((made_at_ns, _)) = latest.map(|(at_ns, latest)| (*at_ns, latest)) else { return };
        if self.texts.of_ns != made_at_ns {
            self.texts = OutlookTexts { of_ns: made_at_ns, texts: Vec::new() };
        }
        let bytes: usize = self.texts.texts.iter().map(|(_, text)| text.len()).sum();
        if self.texts.texts.len() < TEXTS_MAX && bytes + text.len() <= TEXTS_BYTES_MAX {
            self.texts.texts.push((asked, Arc::clone(text)));
        }
    }

    /// Leave to make a long reply for this user, for as long as it is held: each has one made at a time, or whoever
    /// asks on many connections would have as many half-made ones kept. `None` while another one is made.
    pub(crate) fn may_make(&mut self, payer: Payer) -> Option<Arc<()>> {
        self.making.retain(|_, made| made.strong_count() > 0);
        if self.making.contains_key(&payer) {
            return None;
        }
        let leave = Arc::new(());
        self.making.insert(payer, Arc::downgrade(&leave));
        Some(leave)
    }

    /// When [`Daemon::sample_if_due`] has something to do.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> u64 {
        let groups_at_ns = self.groups.wake_at_ns().unwrap_or(u64::MAX);
        self.pace.due_ns(now_ns).min(groups_at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    fn pace(cost_ns: u64) -> Pace {
        let mut pace = Pace::default();
        pace.note(SECOND, cost_ns);
        pace
    }

    #[test]
    fn tasks_are_read_at_once_then_every_second_and_every_100_ms_while_somebody_wants_to_know() {
        assert_eq!(Pace::default().due_ns(7), 7);
        let mut pace = pace(MS / 2);
        assert_eq!(pace.due_ns(SECOND), 2 * SECOND);
        pace.asked_until_ns = 3 * SECOND;
        assert_eq!(pace.due_ns(SECOND), SECOND + 100 * MS);
        assert_eq!(pace.due_ns(3 * SECOND), 2 * SECOND);
        for (every_ns, due_ns) in
            [(0, 150 * MS), (100 * MS, 150 * MS), (400 * MS, 450 * MS), (60 * SECOND, SECOND + 50 * MS)]
        {
            pace.watched_every_ns = Some(every_ns);
            assert_eq!(pace.due_ns(3 * SECOND), SECOND + due_ns);
        }
        assert_eq!(pace.due_ns(2 * SECOND), SECOND + 100 * MS, "somebody has asked, too");
    }

    #[test]
    fn a_costly_reply_serves_for_ten_times_what_it_cost_and_half_a_second_at_most() {
        let mut pace = pace(MS);
        pace.asked_until_ns = 100 * SECOND;
        pace.note_reply(24 * MS);
        assert_eq!(pace.due_ns(SECOND), SECOND + 250 * MS);
        assert!(pace.is_fresh(SECOND + 199 * MS) && !pace.is_fresh(SECOND + 200 * MS));
        (0..1000).for_each(|_| pace.note_reply(24 * MS));
        assert!(
            !pace.is_fresh(SECOND + 2 * SECOND),
            "whoever asks for many different ones holds up nobody's figures"
        );
        pace.note(2 * SECOND, MS);
        assert_eq!(pace.due_ns(SECOND), 2 * SECOND + 100 * MS, "those of the next read are not made yet");
    }

    #[test]
    fn a_costly_source_is_read_less_often_and_as_often_again_when_it_is_cheap() {
        let mut costly = pace(30 * MS);
        assert_eq!(costly.due_ns(SECOND), u64::MAX, "at rest not at all: no window reaches so far");
        assert_eq!(pace(5 * MS).due_ns(SECOND), 6 * SECOND);
        costly.watched_every_ns = Some(100 * MS);
        assert_eq!(costly.due_ns(SECOND), SECOND + 350 * MS);
        assert!(costly.is_fresh(SECOND + 249 * MS) && !costly.is_fresh(SECOND + 250 * MS));
        (0..50).for_each(|_| costly.note(SECOND, MS));
        assert_eq!(costly.due_ns(SECOND), SECOND + 150 * MS);
    }

    #[test]
    fn a_read_of_a_moment_ago_will_do_and_one_from_the_future_will_not() {
        let mut pace = pace(MS);
        assert!(pace.is_fresh(SECOND + 49 * MS) && !pace.is_fresh(SECOND + 50 * MS));
        assert!(!pace.is_fresh(SECOND - 1) && !Pace::default().is_fresh(0));
        // A change makes it old for who asks, and is no reason to read when nobody does.
        pace.stale = true;
        assert_eq!((pace.is_fresh(SECOND), pace.due_ns(SECOND)), (false, 2 * SECOND));
    }
}
