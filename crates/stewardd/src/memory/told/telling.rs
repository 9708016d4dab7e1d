//! Tells of memory what there is to tell.

use std::collections::BTreeSet;

use libsteward::api::{self, EventKind};
use steward_core::domain::name::{domain_of, is_at_or_below};
use steward_core::memory::audit::Culprit;
use steward_core::memory::protection::Change;
use steward_core::quantity::{approximate_duration, approximate_size};

use super::Since;
use crate::daemon::Daemon;
use crate::domains::Told;
use crate::memory::audit::Broken;
use crate::memory::cared::Cared;
use crate::memory::manager::News;
use crate::server::sight::{About, Whose};
use crate::turn::clock::now_ns;

/// Less than this is not worth a word, in bytes.
const TAKEN_MIN_BYTES: u64 = 1 << 20;

/// Of which others something is told, by their paths, and the sentence without their names.
struct Others<'a> {
    paths: Vec<&'a str>,
    bare: String,
}

impl Daemon {
    /// Tells what the memory loop has decided and done.
    pub(crate) fn tell_news(&mut self, news: &News, cared: &Cared) {
        let now_ns = now_ns();
        for (path, change) in &news.changes {
            self.tell_change(path, change, cared);
        }
        if news.is_short != std::mem::replace(&mut self.memory.voice.is_short, news.is_short) {
            self.tell_short(news.is_short, cared);
        }
        let before = std::mem::replace(&mut self.memory.voice.short_below, news.short_below.clone());
        for path in before.symmetric_difference(&news.short_below) {
            self.tell_short_below(path, news.short_below.contains(path), cared);
        }
        for (path, bytes) in &news.taken_bytes {
            let seen_bytes = self.memory.voice.seen_bytes.insert(path.clone(), *bytes).unwrap_or(0);
            if let Some(bytes) = bytes.checked_sub(seen_bytes).filter(|bytes| *bytes > 0) {
                self.memory.voice.taken.entry(domain_of(path).to_owned()).or_default().bytes += bytes;
            }
        }
        self.memory.voice.seen_bytes.retain(|path, _| news.taken_bytes.contains_key(path));
        // Of those that the loop has forgotten, what is too little to be told never becomes more.
        let known: BTreeSet<&str> = news.taken_bytes.keys().map(|path| domain_of(path)).collect();
        self.memory.voice.taken.retain(|path, _| known.contains(path.as_str()));
        self.tell_taken(now_ns, cared);
    }

    fn tell_change(&mut self, path: &str, change: &Change, cared: &Cared) {
        let domain = self.domains.names().name_of(path);
        let (needed, room) = (approximate_size(change.needed_bytes), approximate_size(change.room_bytes));
        let (kind, text) = if change.is_demoted {
            let text = format!(
                "The memory of {domain} is not protected for now: what protected domains use does not fit into {room} together, \
                 and it uses most of all that may be revoked, {needed}."
            );
            (EventKind::MemoryDemoted, text)
        } else {
            (
                EventKind::MemoryProtected,
                format!("The memory of {domain} is protected again: its {needed} fit."),
            )
        };
        let others = cared.kept_bytes.iter().filter(|(other, _)| domain_of(other) != domain_of(path));
        let figures = api::MemoryFigures {
            beside: others.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add),
            asked: change.needed_bytes,
            limit: change.room_bytes,
            stalled_ns: None,
        };
        self.tell_of_memory(kind, (domain_of(path), None), figures, text, None);
    }

    /// Concerns all whose domains are protected, or were until now.
    fn tell_short(&mut self, is_short: bool, cared: &Cared) {
        let (kind, text) = if is_short {
            let text = "So little memory is left that could be taken from others that no domain is protected for now.";
            (EventKind::MemoryShort, text)
        } else {
            (
                EventKind::MemoryEnough,
                "There is enough memory to take from others: domains are protected again.",
            )
        };
        self.tell_protected(kind, text.to_owned(), cared, &|_| true);
    }

    /// Concerns those below one, by path, within whose limit too little is left, or is enough again.
    fn tell_short_below(&mut self, path: &str, is_short: bool, cared: &Cared) {
        let domain = self.domains.names().name_of(path);
        let (kind, text) = if is_short {
            let text = format!(
                "So little of what {domain} may use is left that could be taken from others in it that no domain below it is \
                 protected for now."
            );
            (EventKind::MemoryShort, text)
        } else {
            let text = format!(
                "There is enough to take from others within what {domain} may use: domains below it are protected again."
            );
            (EventKind::MemoryEnough, text)
        };
        self.tell_protected(kind, text, cared, &|below| is_at_or_below(below, path));
    }

    /// Tells those of whom something is or was protected, and whom it concerns.
    fn tell_protected(
        &mut self,
        kind: EventKind,
        text: String,
        cared: &Cared,
        concerns: &dyn Fn(&str) -> bool,
    ) {
        let promised = self.domains.memory_promises();
        let promised = promised.iter().map(|promise| promise.path.as_str());
        let paths = promised.chain(cared.kept_bytes.keys().map(String::as_str)).filter(|path| concerns(path));
        let mut whose: Vec<Whose> = paths.map(|path| self.domains.whose(domain_of(path))).collect();
        whose.sort_unstable();
        whose.dedup();
        let event = decision(kind, None, None, text);
        self.domains.push(Told { event, domain: None, about: About { whose, naming: None } });
    }

    fn tell_taken(&mut self, now_ns: u64, cared: &Cared) {
        let is_due = |since: &&mut Since| since.bytes >= TAKEN_MIN_BYTES && since.is_due(now_ns);
        let due = self.memory.voice.taken.iter_mut().filter(|(_, since)| is_due(since));
        let due: Vec<(String, Since)> = due.map(|(path, since)| (path.clone(), since.take(now_ns))).collect();
        let protected = self.domains.names_of(cared.kept_bytes.keys().map(String::as_str));
        for (path, Since { bytes, .. }) in due {
            let cgroups = self.domains.cgroups().ok();
            let used = cgroups.and_then(|cgroups| cgroups.memory_use(&path)).unwrap_or_default().used_bytes;
            let taken = approximate_size(bytes);
            let domain = self.domains.names().name_of(&path);
            let sentence = |protected: &str| {
                format!(
                    "{taken} of memory were taken from {domain}, which has {} left, so that some is free for {protected} at any moment.",
                    approximate_size(used)
                )
            };
            let figures = api::MemoryFigures { beside: used, asked: bytes, limit: 0, stalled_ns: None };
            let paths = cared.kept_bytes.keys().map(|path| domain_of(path)).collect();
            let others = Others { paths, bare: sentence("what is protected") };
            let text = sentence(&protected);
            self.tell_of_memory(EventKind::MemoryTaken, (&path, None), figures, text, Some(others));
        }
        self.memory.voice.taken.retain(|_, since| since.bytes > 0 || !since.is_due(now_ns));
    }

    /// Tells whose promise was broken; of one whose is broken again and again, the sum, but who did it at once.
    pub(crate) fn tell_broken(&mut self, now_ns: u64, broken: &[Broken]) {
        for Broken { path, stalled_ns, culprit } in broken {
            let since = self.memory.voice.broken.entry(path.clone()).or_default();
            since.stalled_ns += stalled_ns;
            since.seconds += 1;
            if let Some(Culprit { path, taken_bytes }) = culprit {
                *since.by.entry(domain_of(path).to_owned()).or_default() += taken_bytes;
            }
            if !since.is_due(now_ns) {
                continue;
            }
            let Since { stalled_ns, seconds, by, .. } = since.take(now_ns);
            since.wants_name = by.is_empty();
            let domain = self.domains.names().name_of(path);
            let most = by.into_iter().max_by_key(|(_, taken_bytes)| *taken_bytes);
            let taken_bytes = most.as_ref().map_or(0, |(_, taken_bytes)| *taken_bytes);
            let culprit = most.map(|(path, _)| path);
            let by = culprit.as_deref().map(|path| self.domains.names().name_of(path));
            let within = if seconds == 1 { "a second".to_owned() } else { format!("{seconds} seconds") };
            let sentence = |who: Option<&str>| {
                let who = match who {
                    Some(who) => {
                        format!("{who} took the most memory then, {}", approximate_size(taken_bytes))
                    }
                    None => "nobody was seen to take memory then".to_owned(),
                };
                let stalled = approximate_duration(stalled_ns);
                format!(
                    "The promise of memory to {domain} was broken: it stood still for {stalled} within {within}; {who}."
                )
            };
            let text = sentence(by.as_deref());
            let others = culprit.as_deref().map(|culprit| Others {
                paths: vec![culprit],
                bare: sentence(Some("a domain that you may not see")),
            });
            let figures =
                api::MemoryFigures { beside: 0, asked: taken_bytes, limit: 0, stalled_ns: Some(stalled_ns) };
            self.tell_of_memory(EventKind::MemoryStalled, (path, by), figures, text, others);
        }
        self.memory.voice.broken.retain(|_, since| since.seconds > 0 || !since.is_due(now_ns));
    }

    /// Has something be told about a domain, by its path, with who it was done by.
    fn tell_of_memory(
        &mut self,
        kind: EventKind,
        (path, by): (&str, Option<String>),
        figures: api::MemoryFigures,
        text: String,
        others: Option<Others<'_>>,
    ) {
        let domain = self.domains.view(path, None);
        let name = self.domains.names().name_of(path);
        let event = |by, text| {
            let about = api::EventDomain { name: name.clone(), asked_by: 0, by };
            decision(kind, Some(about), Some(figures), text)
        };
        let mut about = About::of(self.domains.whose(path));
        if let Some(Others { paths, bare }) = others {
            let named = paths.into_iter().map(|path| self.domains.whose(path)).collect();
            about = about.naming(named, event(None, bare));
        }
        self.domains.push(Told { event: event(by, text), domain, about });
    }
}

fn decision(
    kind: EventKind,
    domain: Option<api::EventDomain>,
    memory: Option<api::MemoryFigures>,
    text: String,
) -> api::Event {
    api::Event { at_ns: now_ns(), kind, task: None, domain, cpu: None, memory, reason: None, text }
}
