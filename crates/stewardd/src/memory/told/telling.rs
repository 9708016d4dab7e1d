//! Tells of memory what there is to tell.

use std::collections::BTreeSet;

use libsteward::api::{self, EventKind};
use steward_core::domain::name::domain_of;
use steward_core::memory::audit::Culprit;
use steward_core::memory::protection::Change;
use steward_core::quantity::{approximate_duration, approximate_size};

use super::Since;
use crate::daemon::Daemon;
use crate::domains::Told;
use crate::memory::audit::Broken;
use crate::memory::cared::Cared;
use crate::memory::manager::News;
use crate::turn::clock::now_ns;

/// Less than this is not worth a word, in bytes.
const TAKEN_MIN_BYTES: u64 = 1 << 20;

impl Daemon {
    /// Tells what the memory loop has decided and done.
    pub(crate) fn tell_news(&mut self, news: &News, cared: &Cared) {
        let now_ns = now_ns();
        for (path, change) in &news.changes {
            self.tell_change(path, change, cared);
        }
        if news.is_short != std::mem::replace(&mut self.voice.is_short, news.is_short) {
            self.tell_short(news.is_short);
        }
        for (path, bytes) in &news.taken_bytes {
            let seen_bytes = self.voice.seen_bytes.insert(path.clone(), *bytes).unwrap_or(0);
            if let Some(bytes) = bytes.checked_sub(seen_bytes).filter(|bytes| *bytes > 0) {
                self.voice.taken.entry(domain_of(path).to_owned()).or_default().bytes += bytes;
            }
        }
        self.voice.seen_bytes.retain(|path, _| news.taken_bytes.contains_key(path));
        // Of those that the loop has forgotten, what is too little to be told never becomes more.
        let known: BTreeSet<&str> = news.taken_bytes.keys().map(|path| domain_of(path)).collect();
        self.voice.taken.retain(|path, _| known.contains(path.as_str()));
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
        self.tell_of_memory(kind, Some((domain_of(path), None)), Some(figures), text);
    }

    fn tell_short(&mut self, is_short: bool) {
        let (kind, text) = if is_short {
            let text = "So little memory is left that could be taken from others that no domain is protected for now.";
            (EventKind::MemoryShort, text)
        } else {
            (
                EventKind::MemoryEnough,
                "There is enough memory to take from others: domains are protected again.",
            )
        };
        self.tell_of_memory(kind, None, None, text.to_owned());
    }

    fn tell_taken(&mut self, now_ns: u64, cared: &Cared) {
        let is_due = |since: &&mut Since| since.bytes >= TAKEN_MIN_BYTES && since.is_due(now_ns);
        let due = self.voice.taken.iter_mut().filter(|(_, since)| is_due(since));
        let due: Vec<(String, Since)> = due.map(|(path, since)| (path.clone(), since.take(now_ns))).collect();
        let protected = self.domains.names_of(cared.kept_bytes.keys().map(String::as_str));
        for (path, Since { bytes, .. }) in due {
            let cgroups = self.domains.cgroups().ok();
            let used = cgroups.and_then(|cgroups| cgroups.memory_use(&path)).unwrap_or_default().used_bytes;
            let taken = approximate_size(bytes);
            let domain = self.domains.names().name_of(&path);
            let text = format!(
                "{taken} of memory were taken from {domain}, which has {} left, so that some is free for {protected} at any moment.",
                approximate_size(used)
            );
            let figures = api::MemoryFigures { beside: used, asked: bytes, limit: 0, stalled_ns: None };
            self.tell_of_memory(EventKind::MemoryTaken, Some((&path, None)), Some(figures), text);
        }
        self.voice.taken.retain(|_, since| since.bytes > 0 || !since.is_due(now_ns));
    }

    /// Tells whose promise was broken; of one whose is broken again and again, the sum.
    pub(crate) fn tell_broken(&mut self, now_ns: u64, broken: &[Broken]) {
        for Broken { path, stalled_ns, culprit } in broken {
            let since = self.voice.broken.entry(path.clone()).or_default();
            since.stalled_ns += stalled_ns;
            since.seconds += 1;
            if let Some(Culprit { path, taken_bytes }) = culprit {
                *since.by.entry(domain_of(path).to_owned()).or_default() += taken_bytes;
            }
            if !since.is_due(now_ns) {
                continue;
            }
            let Since { stalled_ns, seconds, by, .. } = since.take(now_ns);
            let domain = self.domains.names().name_of(path);
            let most = by.into_iter().max_by_key(|(_, taken_bytes)| *taken_bytes);
            let taken_bytes = most.as_ref().map_or(0, |(_, taken_bytes)| *taken_bytes);
            let by = most.map(|(path, _)| self.domains.names().name_of(&path));
            let within = if seconds == 1 { "a second".to_owned() } else { format!("{seconds} seconds") };
            let who = match &by {
                Some(by) => format!("{by} took the most memory then, {}", approximate_size(taken_bytes)),
                None => "nobody was seen to take memory then".to_owned(),
            };
            let text = format!(
                "The promise of memory to {domain} was broken: it stood still for {} within {within}; {who}.",
                approximate_duration(stalled_ns)
            );
            let figures =
                api::MemoryFigures { beside: 0, asked: taken_bytes, limit: 0, stalled_ns: Some(stalled_ns) };
            self.tell_of_memory(EventKind::MemoryStalled, Some((path, by)), Some(figures), text);
        }
        self.voice.broken.retain(|_, since| since.seconds > 0 || !since.is_due(now_ns));
    }

    /// Has something be told about a domain, by its path, with who it was done by.
    fn tell_of_memory(
        &mut self,
        kind: EventKind,
        about: Option<(&str, Option<String>)>,
        memory: Option<api::MemoryFigures>,
        text: String,
    ) {
        let domain = about.as_ref().and_then(|(path, _)| self.domains.view(path, None));
        let about = about.map(|(path, by)| {
            let name = self.domains.names().name_of(path);
            api::EventDomain { name, asked_by: 0, by }
        });
        let event = api::Event {
            at_ns: now_ns(),
            kind,
            task: None,
            domain: about,
            cpu: None,
            memory,
            reason: None,
            text,
        };
        self.domains.push(Told { event, domain });
    }
}
