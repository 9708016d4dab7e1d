//! The decisions that are remembered, for `explain`, for who lists them and for who starts to monitor.
//!
//! Each is kept as the text that it is sent as, too: thousands are asked for at once. Beside it is whose it is, by
//! which those are found that somebody may see.

use std::collections::VecDeque;
use std::sync::Arc;

use libsteward::{api, wire};

use super::sight::{About, Sight, View};

/// How many decisions are remembered.
const HISTORY_MAX: usize = 4096;
/// For how many who may not see everything the texts of what they see are kept until there is another decision.
const PART_TEXTS_MAX: usize = 8;

struct Remembered {
    event: api::Event,
    /// It, as JSON.
    json: Box<str>,
    about: About,
    /// It without the names of others, as JSON, where it has some.
    bare_json: Option<Box<str>>,
}

impl Remembered {
    /// The text that is for somebody, if one is.
    fn json_for(&self, sight: Sight) -> Option<&str> {
        match sight.view(&self.about) {
            View::Whole => Some(&self.json),
            View::Bare => self.bare_json.as_deref(),
            View::Nothing => None,
        }
    }
}

/// What somebody sees of it, as texts.
struct Texts {
    sight: Sight,
    list: Option<(u64, Arc<str>)>,
    stream: Option<Arc<str>>,
}

/// The latest decisions, oldest first.
#[derive(Default)]
pub(crate) struct History {
    events: VecDeque<Remembered>,
    /// How many there were so far.
    noted: u64,
    /// Those who asked last, until there is another decision.
    texts: VecDeque<Texts>,
}

impl History {
    /// Remembers one more, and forgets the oldest when there are too many.
    pub(crate) fn note(&mut self, event: api::Event, about: About) {
        // A struct with named fields and finite numbers.
        let Ok(json) = serde_json::to_string(&event) else { return };
        let bare = about.naming.as_ref().map(|naming| serde_json::to_string(&*naming.bare));
        let bare_json = bare.and_then(Result::ok).map(String::into_boxed_str);
        if self.events.len() == HISTORY_MAX {
            self.events.pop_front();
        }
        self.noted += 1;
        self.events.push_back(Remembered { event, json: json.into(), about, bare_json });
        self.texts.clear();
    }

    /// All of them.
    pub(crate) fn events(&self) -> impl Iterator<Item = &api::Event> {
        self.events.iter().map(|remembered| &remembered.event)
    }

    /// How many there were so far.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }

    /// Those after so many that are remembered, as somebody may see them.
    pub(crate) fn since(&self, noted: u64, sight: Sight) -> Vec<api::Event> {
        let new = usize::try_from(self.noted.saturating_sub(noted)).unwrap_or(usize::MAX);
        let known = self.events.iter().skip(self.events.len().saturating_sub(new));
        let told =
            known.filter_map(|remembered| match (sight.view(&remembered.about), &remembered.about.naming) {
                (View::Nothing, _) => None,
                (View::Bare, Some(naming)) => Some((*naming.bare).clone()),
                _ => Some(remembered.event.clone()),
            });
        told.collect()
    }

    /// Those about the domain of this name, for somebody who may see what becomes of it, with the names of others as
    /// far as these may be seen too.
    pub(crate) fn of_domain(&self, name: &str, sight: Sight) -> Vec<api::Event> {
        let is_about = |remembered: &&Remembered| {
            remembered.event.domain.as_ref().is_some_and(|domain| domain.name == name)
        };
        let told = |remembered: &Remembered| match (sight.naming(&remembered.about), &remembered.about.naming)
        {
            (View::Bare, Some(naming)) => (*naming.bare).clone(),
            _ => remembered.event.clone(),
        };
        self.events.iter().filter(is_about).map(told).collect()
    }

    /// The text of an [`api::EventList`] of what somebody may see of them. `lost` is how many were never known.
    pub(crate) fn list(&mut self, lost: u64, sight: Sight) -> Arc<str> {
        let place = self.texts_of(sight);
        if let Some((_, text)) = self.texts[place].list.as_ref().filter(|(of_lost, _)| *of_lost == lost) {
            return Arc::clone(text);
        }
        let events: Vec<&str> =
            self.events.iter().filter_map(|remembered| remembered.json_for(sight)).collect();
        let text: Arc<str> = format!(r#"{{"events":[{}],"lost":{lost}}}"#, events.join(",")).into();
        self.texts[place].list = Some((lost, Arc::clone(&text)));
        text
    }

    /// The same as replies to one who monitors ([`api::Monitored`]), as they travel.
    pub(crate) fn stream(&mut self, sight: Sight) -> Arc<str> {
        let place = self.texts_of(sight);
        if let Some(text) = &self.texts[place].stream {
            return Arc::clone(text);
        }
        let (before, after) = wire::around_reply(true);
        let mut text = String::new();
        for json in self.events.iter().filter_map(|remembered| remembered.json_for(sight)) {
            text.extend([before, r#"{"event":"#, json, r#","lost":0}"#, after]);
        }
        let text: Arc<str> = text.into();
        self.texts[place].stream = Some(Arc::clone(&text));
        text
    }

    /// Where the texts of those are kept who see the same. Whoever asked longest ago makes room, but not who sees
    /// everything: that text is the longest, and for most the one.
    fn texts_of(&mut self, sight: Sight) -> usize {
        if let Some(place) = self.texts.iter().position(|texts| texts.sight == sight) {
            return place;
        }
        if self.texts.len() > PART_TEXTS_MAX
            && let Some(place) = self.texts.iter().position(|texts| texts.sight != Sight::ALL)
        {
            self.texts.remove(place);
        }
        self.texts.push_back(Texts { sight, list: None, stream: None });
        self.texts.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use steward_core::authority::Target;

    use super::*;
    use crate::server::sight::Whose;

    fn event(pid: i32) -> api::Event {
        let (name, text) = ("a \"b\"\n".to_owned(), "Sentence.".to_owned());
        let figures = api::CpuFigures { cpu: Some(1), load: 0.5, bandwidth: 0.25, threshold: 0.0 };
        api::Event {
            at_ns: 7,
            kind: api::EventKind::Admitted,
            task: Some(api::EventTask { tid: pid, pid, name }),
            domain: None,
            cpu: Some(figures),
            memory: None,
            reason: None,
            text,
        }
    }

    #[test]
    fn the_texts_say_what_is_remembered_and_that_is_the_latest() {
        let mut history = History::default();
        let read = |history: &mut History| {
            let list: api::EventList = serde_json::from_str(&history.list(3, Sight::ALL)).expect("JSON");
            let stream = history.stream(Sight::ALL);
            let replies: Vec<api::Event> = stream
                .split_terminator('\0')
                .map(|reply| {
                    let reply: wire::ReplyOf<api::Monitored> = serde_json::from_str(reply).expect("JSON");
                    assert_eq!((reply.continues, reply.error.is_none()), (Some(true), true));
                    reply.parameters.expect("it has some").event
                })
                .collect();
            assert_eq!((&list.events, list.lost), (&replies, 3));
            replies
        };
        assert_eq!(read(&mut history), []);
        let count = HISTORY_MAX as i32 + 10;
        for pid in 0..count {
            history.note(event(pid), About::default());
            if pid % 1000 == 0 {
                assert_eq!(read(&mut history).last(), Some(&event(pid)));
            }
        }
        assert_eq!(read(&mut history), (10..count).map(event).collect::<Vec<_>>());
        assert!(Arc::ptr_eq(&history.list(3, Sight::ALL), &history.list(3, Sight::ALL)), "made once");
        assert!(history.list(4, Sight::ALL).ends_with("\"lost\":4}"));
    }

    #[test]
    fn what_came_after_a_moment_is_told_as_far_as_it_is_remembered_and_may_be_seen() {
        let mut history = History::default();
        let pids = |events: Vec<api::Event>| events.iter().filter_map(api::Event::pid).collect::<Vec<_>>();
        for pid in 0..3 {
            history.note(event(pid), About::of(Whose::of_user(Some(pid as u32))));
        }
        let before = history.noted();
        assert_eq!(pids(history.since(before, Sight::ALL)), [0; 0]);
        for pid in 3..6 {
            history.note(event(pid), About::of(Whose::of_user(Some(pid as u32))));
        }
        assert_eq!(pids(history.since(before, Sight::ALL)), [3, 4, 5]);
        let own = Sight::of(4, |target| target == Target::Own).expect("something");
        assert_eq!(pids(history.since(before, own)), [4]);
        (0..HISTORY_MAX as i32).for_each(|pid| history.note(event(pid), About::default()));
        assert_eq!(history.since(before, Sight::ALL).len(), HISTORY_MAX, "the rest is forgotten");
    }

    #[test]
    fn of_many_who_see_a_part_each_gets_that_and_a_bounded_number_of_texts_is_kept() {
        let mut history = History::default();
        for uid in 0..100 {
            let bare = api::Event { text: "Somebody.".to_owned(), ..event(uid) };
            let about = About::of(Whose::of_user(Some(uid as u32)));
            history.note(event(uid), about.naming(vec![Whose::of_user(Some(uid as u32 / 2))], bare));
        }
        for uid in 0..100 {
            let sight = Sight::of(uid, |target| target == Target::Own).expect("something");
            let list: api::EventList = serde_json::from_str(&history.list(0, sight)).expect("JSON");
            let [seen] = &list.events[..] else { panic!("{list:?}") };
            let text = if uid == 0 { "Sentence." } else { "Somebody." };
            assert_eq!((seen.pid(), seen.text.as_str()), (Some(uid as i32), text));
            assert_eq!(history.stream(sight).matches('\0').count(), 1);
            assert!(Arc::ptr_eq(&history.list(0, sight), &history.list(0, sight)), "made once");
            assert!(Arc::ptr_eq(&history.list(0, Sight::ALL), &history.list(0, Sight::ALL)), "made once");
        }
        assert_eq!(history.texts.len(), PART_TEXTS_MAX + 1);
    }
}
