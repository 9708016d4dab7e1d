//! The decisions that are remembered, for `explain`, for who lists them and for who starts to monitor.
//!
//! Each is kept as the text that it is sent as, too: thousands are asked for at once.

use std::collections::VecDeque;
use std::sync::Arc;

use libsteward::{api, wire};

/// How many decisions are remembered.
const HISTORY_MAX: usize = 4096;

struct Remembered {
    event: api::Event,
    /// It, as JSON.
    json: Box<str>,
}

/// The latest decisions, oldest first.
#[derive(Default)]
pub(crate) struct History {
    events: VecDeque<Remembered>,
    /// The texts of all of them, until there is another.
    list: Option<(u64, Arc<str>)>,
    stream: Option<Arc<str>>,
}

impl History {
    /// Remembers one more, and forgets the oldest when there are too many.
    pub(crate) fn note(&mut self, event: api::Event) {
        // A struct with named fields and finite numbers.
        let Ok(json) = serde_json::to_string(&event) else { return };
        if self.events.len() == HISTORY_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Remembered { event, json: json.into() });
        (self.list, self.stream) = (None, None);
    }

    /// All of them.
    pub(crate) fn events(&self) -> impl Iterator<Item = &api::Event> {
        self.events.iter().map(|remembered| &remembered.event)
    }

    /// The text of an [`api::EventList`] of all of them. `lost` is how many were never known.
    pub(crate) fn list(&mut self, lost: u64) -> Arc<str> {
        if let Some((_, text)) = self.list.as_ref().filter(|(of_lost, _)| *of_lost == lost) {
            return Arc::clone(text);
        }
        let events: Vec<&str> = self.events.iter().map(|remembered| &*remembered.json).collect();
        let text: Arc<str> = format!(r#"{{"events":[{}],"lost":{lost}}}"#, events.join(",")).into();
        self.list = Some((lost, Arc::clone(&text)));
        text
    }

    /// All of them as replies to one who monitors ([`api::Monitored`]), as they travel.
    pub(crate) fn stream(&mut self) -> Arc<str> {
        if let Some(text) = &self.stream {
            return Arc::clone(text);
        }
        let (before, after) = wire::around_reply(true);
        let mut text = String::new();
        for remembered in &self.events {
            text.extend([before, r#"{"event":"#, &*remembered.json, r#","lost":0}"#, after]);
        }
        let text: Arc<str> = text.into();
        self.stream = Some(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let list: api::EventList = serde_json::from_str(&history.list(3)).expect("JSON");
            let stream = history.stream();
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
            history.note(event(pid));
            if pid % 1000 == 0 {
                assert_eq!(read(&mut history).last(), Some(&event(pid)));
            }
        }
        assert_eq!(read(&mut history), (10..count).map(event).collect::<Vec<_>>());
        assert!(Arc::ptr_eq(&history.list(3), &history.list(3)), "made once");
        assert!(history.list(4).ends_with("\"lost\":4}"));
    }
}
