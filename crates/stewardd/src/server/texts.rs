//! Replies that were costly to make, for whoever asks the same a moment later.
//!
//! Only such that took long are kept: on a small machine everything is made anew. Most say the same to everybody who
//! may have them at all; of one that does not, it is kept with the text for whom it is. What is changed through the
//! daemon ends them all.

use std::sync::Arc;

use super::sight::AvailabilitySight;

/// What took less than this to make is made anew each time, in nanoseconds.
const COSTLY_NS: u64 = 2_000_000;
/// A text serves for so many times what it took to make, so that making it takes a tenth of the time at most.
const SERVES_TIMES: u64 = 10;
/// But no longer than this, in nanoseconds.
const SERVES_NS_MAX: u64 = 500_000_000;
/// How many texts are kept that are for some only: each may be megabytes.
const FOR_SOME_MAX: usize = 2;

/// What a text answers, and whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    method: &'static str,
    /// What it tells of how much memory domains may use, where it does.
    sight: AvailabilitySight,
}

impl Key {
    /// The text for who sees this; [`AvailabilitySight::ALL`] where it says the same to everybody.
    pub(crate) fn new(method: &'static str, sight: &AvailabilitySight) -> Self {
        Key { method, sight: sight.clone() }
    }

    fn is_for_some(&self) -> bool {
        self.sight != AvailabilitySight::ALL
    }
}

impl From<&'static str> for Key {
    /// A text that says the same to everybody.
    fn from(method: &'static str) -> Self {
        Key::new(method, &AvailabilitySight::ALL)
    }
}

struct Kept {
    key: Key,
    until_ns: u64,
    text: Arc<str>,
}

/// Texts by what they answer, oldest first.
#[derive(Default)]
pub(crate) struct Texts {
    kept: Vec<Kept>,
}

impl Texts {
    /// The text that was made for this a moment ago.
    pub(crate) fn recent(&mut self, key: impl Into<Key>, now_ns: u64) -> Option<Arc<str>> {
        let key = key.into();
        self.kept.retain(|kept| kept.until_ns > now_ns);
        self.kept.iter().find(|kept| kept.key == key).map(|kept| Arc::clone(&kept.text))
    }

    /// Keeps a text that was begun and done at these moments, if it was costly.
    pub(crate) fn keep(&mut self, key: impl Into<Key>, text: &Arc<str>, begun_ns: u64, done_ns: u64) {
        let cost_ns = done_ns.saturating_sub(begun_ns);
        if cost_ns < COSTLY_NS {
            return;
        }
        let (key, until_ns) = (key.into(), done_ns + (cost_ns * SERVES_TIMES).min(SERVES_NS_MAX));
        self.kept.retain(|kept| kept.key != key);
        let for_some = || self.kept.iter().filter(|kept| kept.key.is_for_some());
        if key.is_for_some() && for_some().count() >= FOR_SOME_MAX {
            let oldest = self.kept.iter().position(|kept| kept.key.is_for_some()).expect("there are some");
            self.kept.remove(oldest);
        }
        self.kept.push(Kept { key, until_ns, text: Arc::clone(text) });
    }

    /// Something was changed.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sight::Sight;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_what_was_costly_is_kept_and_for_as_long_as_that() {
        let mut texts = Texts::default();
        let text: Arc<str> = "{}".into();
        texts.keep("cheap", &text, 0, MS);
        assert_eq!(texts.recent("cheap", MS), None);
        texts.keep("list", &text, 0, 5 * MS);
        assert_eq!(texts.recent("list", 54 * MS).as_deref(), Some("{}"));
        assert_eq!(texts.recent("other", 54 * MS), None);
        assert_eq!(texts.recent("list", 55 * MS), None);
        texts.keep("list", &text, 0, 1000 * MS);
        assert_eq!(texts.recent("list", 1500 * MS), None, "no longer than half a second");
        texts.keep("list", &text, 0, 5 * MS);
        texts.forget();
        assert_eq!(texts.recent("list", 6 * MS), None);
    }

    #[test]
    fn a_text_for_some_is_given_to_nobody_else_and_a_bounded_number_of_them_is_kept() {
        let mut texts = Texts::default();
        let of = |uid| Key::new("list", &AvailabilitySight::of(Sight::none_of(uid), Some("a".into())));
        let text = |words: &str| Arc::from(words);
        texts.keep("list", &text("all"), 0, 5 * MS);
        texts.keep(of(1), &text("some"), 0, 5 * MS);
        let mut recent = |key: Key| texts.recent(key, 6 * MS).as_deref().map(str::to_owned);
        assert_eq!((recent("list".into()), recent(of(1))), (Some("all".into()), Some("some".into())));
        let elsewhere = AvailabilitySight::of(Sight::none_of(1), Some("b".into()));
        assert_eq!((recent(of(2)), recent(Key::new("list", &elsewhere))), (None, None));
        for uid in 2..10 {
            texts.keep(of(uid), &text("some"), 0, 5 * MS);
        }
        assert_eq!(texts.kept.len(), 1 + FOR_SOME_MAX, "what is for all stays");
        assert!(texts.recent("list", 6 * MS).is_some() && texts.recent(of(9), 6 * MS).is_some());
    }
}
