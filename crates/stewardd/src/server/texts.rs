//! Replies that were costly to make, for whoever asks the same a moment later.
//!
//! Only replies that say the same to everybody who may have them at all are kept, and only such that took long: on a
//! small machine everything is made anew. What is changed through the daemon ends them all.

use std::sync::Arc;

/// What took less than this to make is made anew each time, in nanoseconds.
const COSTLY_NS: u64 = 2_000_000;
/// A text serves for so many times what it took to make, so that making it takes a tenth of the time at most.
const SERVES_TIMES: u64 = 10;
/// But no longer than this, in nanoseconds.
const SERVES_NS_MAX: u64 = 500_000_000;

struct Kept {
    method: &'static str,
    until_ns: u64,
    text: Arc<str>,
}

/// Texts by method.
#[derive(Default)]
pub(crate) struct Texts {
    kept: Vec<Kept>,
}

impl Texts {
    /// The text that was made for this method a moment ago.
    pub(crate) fn recent(&mut self, method: &str, now_ns: u64) -> Option<Arc<str>> {
        self.kept.retain(|kept| kept.until_ns > now_ns);
        self.kept.iter().find(|kept| kept.method == method).map(|kept| Arc::clone(&kept.text))
    }

    /// Keeps a text that was begun and done at these moments, if it was costly.
    pub(crate) fn keep(&mut self, method: &'static str, text: &Arc<str>, begun_ns: u64, done_ns: u64) {
        let cost_ns = done_ns.saturating_sub(begun_ns);
        if cost_ns >= COSTLY_NS {
            let until_ns = done_ns + (cost_ns * SERVES_TIMES).min(SERVES_NS_MAX);
            self.kept.retain(|kept| kept.method != method);
            self.kept.push(Kept { method, until_ns, text: Arc::clone(text) });
        }
    }

    /// Something was changed.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
