//! The decisions that are remembered, for `explain`, for who lists them and for who starts to monitor.
//!
//! They are kept in blocks, each with the texts that it is sent as: thousands are asked for at once, and one decision
//! more makes none but the last block's anew. A block's text is made by whoever asks for it first, a block in each of
//! his turns. Beside each decision is whose it is, by which those are found that somebody may see.

use std::collections::VecDeque;
use std::sync::Arc;

use libsteward::{api, wire};

use super::pieces::Unfinished;
use super::sight::{About, Sight, View};

/// How many decisions are remembered at least; at most a block more.
const HISTORY_MAX: usize = 4096;
/// How many of them are in a block: what is made in one turn, too.
const BLOCK: usize = 256;
/// How many blocks there are at most: the last one is being filled.
const BLOCKS_MAX: usize = HISTORY_MAX / BLOCK + 1;
/// For how many who may not see everything the texts of what they see are kept, in each form.
const PART_TEXTS_MAX: usize = 8;
/// In how many turns a text is whole at the latest, however many decisions are taken meanwhile.
const TURNS_MAX: usize = 2 * BLOCKS_MAX;

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

/// What decisions are told as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The elements of the list of an [`api::EventList`], with commas between them.
    List,
    /// Replies to one who monitors ([`api::Monitored`]), as they travel.
    Stream,
}

impl Form {
    fn text<'a>(self, parts: impl Iterator<Item = &'a str>) -> Arc<str> {
        let (before, after) = match self {
            Form::List => ("", ","),
            Form::Stream => wire::around_reply(true),
        };
        let (open, close) = match self {
            Form::List => ("", ""),
            Form::Stream => (r#"{"event":"#, r#","lost":0}"#),
        };
        let mut text = String::new();
        parts.for_each(|json| text.extend([before, open, json, close, after]));
        if self == Form::List {
            text.pop();
        }
        text.into()
    }
}

/// Some decisions that follow each other, and what was told of them.
#[derive(Default)]
struct Block {
    events: Vec<Remembered>,
    /// Those who asked last, until there is another decision in it.
    texts: VecDeque<(Sight, Form, Arc<str>)>,
}

impl Block {
    fn kept_text(&self, sight: Sight, form: Form) -> Option<Arc<str>> {
        let kept = self.texts.iter().find(|(of_sight, of_form, _)| (*of_sight, *of_form) == (sight, form));
        kept.map(|(_, _, text)| Arc::clone(text))
    }

    /// Makes a text. Whoever asked longest ago makes room, but not who sees everything: that text is the longest, and
    /// for most the one.
    fn make_text(&mut self, sight: Sight, form: Form) -> Arc<str> {
        let text = form.text(self.events.iter().filter_map(|remembered| remembered.json_for(sight)));
        let is_part =
            |(of_sight, of_form, _): &(Sight, Form, Arc<str>)| *of_sight != Sight::ALL && *of_form == form;
        if sight != Sight::ALL && self.texts.iter().filter(|kept| is_part(kept)).count() >= PART_TEXTS_MAX {
            let oldest = self.texts.iter().position(is_part).expect("there are some");
            self.texts.remove(oldest);
        }
        self.texts.push_back((sight, form, Arc::clone(&text)));
        text
    }
}

/// What is being told somebody of all decisions, in pieces: whose turn it is has a block's text made in each.
pub(crate) struct Telling {
    sight: Sight,
    form: Form,
    /// The number of the block that is next.
    next: u64,
    /// In how many turns something was made.
    turns: usize,
    /// What is told so far, in its order.
    texts: Vec<Arc<str>>,
}

impl Telling {
    /// To somebody who sees this much.
    pub(crate) fn new(form: Form, sight: Sight) -> Self {
        Telling { sight, form, next: 0, turns: 0, texts: Vec::new() }
    }

    /// Who is told.
    pub(crate) fn sight(&self) -> Sight {
        self.sight
    }

    /// What is told as.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// The reply, once all is told; `lost` is how many decisions were never known.
    pub(crate) fn into_reply(self, lost: u64) -> Vec<Arc<str>> {
        match self.form {
            Form::Stream => self.texts,
            Form::List => {
                let mut reply = vec![r#"{"events":["#.into()];
                for text in self.texts {
                    if reply.len() > 1 {
                        reply.push(",".into());
                    }
                    reply.push(text);
                }
                reply.push(format!(r#"],"lost":{lost}}}"#).into());
                reply
            }
        }
    }
}

impl From<Telling> for Unfinished {
    fn from(telling: Telling) -> Self {
        let held = telling.texts.iter().map(|text| text.len() / Arc::strong_count(text)).sum();
        let is_begun = !telling.texts.is_empty();
        Unfinished::new(telling, held, is_begun)
    }
}

/// The latest decisions, oldest first.
#[derive(Default)]
pub(crate) struct History {
    blocks: VecDeque<Block>,
    /// How many blocks are forgotten: the number of the first that is not.
    forgotten: u64,
    /// How many there were so far.
    noted: u64,
}

impl History {
    /// Remembers one more, and forgets the oldest when there are too many.
    pub(crate) fn note(&mut self, event: api::Event, about: About) {
        // A struct with named fields and finite numbers.
        let Ok(json) = serde_json::to_string(&event) else { return };
        let bare = about.naming.as_ref().map(|naming| serde_json::to_string(&*naming.bare));
        let bare_json = bare.and_then(Result::ok).map(String::into_boxed_str);
        if self.blocks.back().is_none_or(|block| block.events.len() == BLOCK) {
            if self.blocks.len() == BLOCKS_MAX {
                self.blocks.pop_front();
                self.forgotten += 1;
            }
            self.blocks.push_back(Block::default());
        }
        let block = self.blocks.back_mut().expect("there is one that is not full");
        self.noted += 1;
        block.events.push(Remembered { event, json: json.into(), about, bare_json });
        block.texts.clear();
    }

    fn remembered(&self) -> impl DoubleEndedIterator<Item = &Remembered> {
        self.blocks.iter().flat_map(|block| &block.events)
    }

    /// All of them.
    pub(crate) fn events(&self) -> impl Iterator<Item = &api::Event> {
        self.remembered().map(|remembered| &remembered.event)
    }

    /// How many there were so far.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }

    /// Those after so many that are remembered, as somebody may see them.
    pub(crate) fn since(&self, noted: u64, sight: Sight) -> Vec<api::Event> {
        let new = usize::try_from(self.noted.saturating_sub(noted)).unwrap_or(usize::MAX);
        let told = self.remembered().rev().take(new).filter_map(|remembered| {
            match (sight.view(&remembered.about), &remembered.about.naming) {
                (View::Nothing, _) => None,
                (View::Bare, Some(naming)) => Some((*naming.bare).clone()),
                _ => Some(remembered.event.clone()),
            }
        });
        let mut told: Vec<api::Event> = told.collect();
        told.reverse();
        told
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
        self.remembered().filter(is_about).map(told).collect()
    }

    /// Tells more of them: what is kept as text, and one block that is not. Returns whether that was all; then
    /// decisions that are taken from now on are missing, and no others but those that were forgotten meanwhile.
    pub(crate) fn tell(&mut self, telling: &mut Telling) -> bool {
        telling.turns += 1;
        let made_max = if telling.turns < TURNS_MAX { 1 } else { BLOCKS_MAX };
        let mut made = 0;
        telling.next = telling.next.max(self.forgotten);
        while let Some(block) = self.blocks.get_mut((telling.next - self.forgotten) as usize) {
            let text = match block.kept_text(telling.sight, telling.form) {
                Some(text) => text,
                None if made == made_max => return false,
                None => {
                    made += 1;
                    block.make_text(telling.sight, telling.form)
                }
            };
            if !text.is_empty() {
                telling.texts.push(text);
            }
            telling.next += 1;
        }
        true
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

    /// What somebody is told of all, and in how many turns.
    fn told(history: &mut History, form: Form, sight: Sight) -> (Vec<Arc<str>>, usize) {
        let mut telling = Telling::new(form, sight);
        let turns = 1 + (0..).take_while(|_| !history.tell(&mut telling)).count();
        (telling.into_reply(3), turns)
    }

    fn list(history: &mut History, sight: Sight) -> Vec<api::Event> {
        let text = told(history, Form::List, sight).0.concat();
        let list: api::EventList = serde_json::from_str(&text).expect("JSON");
        assert_eq!(list.lost, 3);
        list.events
    }

    #[test]
    fn the_texts_say_what_is_remembered_and_that_is_the_latest() {
        let mut history = History::default();
        let read = |history: &mut History| {
            let stream = told(history, Form::Stream, Sight::ALL).0.concat();
            let replies: Vec<api::Event> = stream
                .split_terminator('\0')
                .map(|reply| {
                    let reply: wire::ReplyOf<api::Monitored> = serde_json::from_str(reply).expect("JSON");
                    assert_eq!((reply.continues, reply.error.is_none()), (Some(true), true));
                    reply.parameters.expect("it has some").event
                })
                .collect();
            assert_eq!(list(history, Sight::ALL), replies);
            replies
        };
        assert_eq!(read(&mut history), []);
        let count = HISTORY_MAX as i32 + 2 * BLOCK as i32 + 10;
        for pid in 0..count {
            history.note(event(pid), About::default());
            if pid % 1000 == 0 {
                assert_eq!(read(&mut history).last(), Some(&event(pid)));
            }
        }
        let first = 2 * BLOCK as i32;
        assert_eq!(read(&mut history), (first..count).map(event).collect::<Vec<_>>());
    }

    #[test]
    fn a_turn_makes_one_blocks_text_and_one_decision_more_makes_no_other_anew() {
        let mut history = History::default();
        (0..HISTORY_MAX as i32).for_each(|pid| history.note(event(pid), About::default()));
        for form in [Form::List, Form::Stream] {
            let (whole, turns) = told(&mut history, form, Sight::ALL);
            assert_eq!(turns, HISTORY_MAX / BLOCK, "{form:?}");
            let (again, turns) = told(&mut history, form, Sight::ALL);
            assert_eq!(turns, 1, "{form:?}: what is made is kept");
            let same = |(one, other): &(&Arc<str>, &Arc<str>)| one.len() < 20 || Arc::ptr_eq(one, other);
            assert_eq!(whole.len(), again.len());
            assert!(whole.iter().zip(&again).all(|pair| same(&pair)), "{form:?}");
        }
        history.note(event(-1), About::default());
        assert_eq!(told(&mut history, Form::List, Sight::ALL).1, 1);
        // Who sees nothing of most of them does not have all looked through at once either.
        let own = Sight::of(7, |target| target == Target::Own).expect("something");
        assert_eq!(told(&mut history, Form::List, own).1, HISTORY_MAX / BLOCK + 1);
    }

    #[test]
    fn what_is_decided_while_it_is_told_is_told_once_and_does_not_keep_it_from_ending() {
        let mut history = History::default();
        (0..HISTORY_MAX as i32).for_each(|pid| history.note(event(pid), About::default()));
        let mut next = HISTORY_MAX as i32;
        let mut telling = Telling::new(Form::List, Sight::ALL);
        let mut turns = 1;
        while !history.tell(&mut telling) {
            turns += 1;
            // As much as is told, so that it would go on for ever.
            for _ in 0..BLOCK {
                history.note(event(next), About::default());
                next += 1;
            }
        }
        assert_eq!(turns, TURNS_MAX);
        let text = telling.into_reply(0).concat();
        let list: api::EventList = serde_json::from_str(&text).expect("JSON");
        let pids: Vec<i32> = list.events.iter().filter_map(api::Event::pid).collect();
        assert!(pids.is_sorted_by(|one, other| one < other), "each once, in their order");
        assert_eq!(pids.last(), Some(&(next - 1)), "up to the last that was known when it ended");
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
        let more = 2 * HISTORY_MAX;
        (0..more as i32).for_each(|pid| history.note(event(pid), About::default()));
        let known = history.since(before, Sight::ALL).len();
        assert!((HISTORY_MAX..HISTORY_MAX + BLOCK).contains(&known), "the rest is forgotten: {known}");
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
            let seen = list(&mut history, sight);
            let [seen] = &seen[..] else { panic!("{seen:?}") };
            let text = if uid == 0 { "Sentence." } else { "Somebody." };
            assert_eq!((seen.pid(), seen.text.as_str()), (Some(uid as i32), text));
            assert_eq!(told(&mut history, Form::Stream, sight).0.concat().matches('\0').count(), 1);
            assert_eq!(list(&mut history, Sight::ALL).len(), 100);
        }
        // Of those who see a part in both forms, and the list of who sees everything.
        assert_eq!(history.blocks[0].texts.len(), 2 * PART_TEXTS_MAX + 1);
    }
}
