//! What was told of memory as decisions: who is protected no longer or again, from whom memory was taken, and whose
//! promise was broken by whom. What goes on for long is told as a sum, now and then.

use std::collections::{BTreeMap, BTreeSet};

mod telling;

/// Of one domain the same is told again no sooner than after this, in nanoseconds: what is remembered is for all.
const AGAIN_NS: u64 = 10_000_000_000;
/// What has happened to one domain since it was told last.
#[derive(Clone, Debug, Default)]
struct Since {
    told_at_ns: Option<u64>,
    bytes: u64,
    stalled_ns: u64,
    seconds: u64,
    /// What was taken by whom, by path, in bytes.
    by: BTreeMap<String, u64>,
    /// Whether it was told last without a name: then a name is told as soon as there is one.
    wants_name: bool,
}

impl Since {
    fn is_due(&self, now_ns: u64) -> bool {
        self.told_at_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= AGAIN_NS)
            || (self.wants_name && !self.by.is_empty())
    }

    /// What there is to tell, after which there is nothing.
    fn take(&mut self, now_ns: u64) -> Since {
        std::mem::replace(self, Since { told_at_ns: Some(now_ns), ..Since::default() })
    }
}

/// What was told, and what is still to be.
#[derive(Debug, Default)]
pub(crate) struct Voice {
    /// What was taken as of the last news, by path, in bytes.
    seen_bytes: BTreeMap<String, u64>,
    taken: BTreeMap<String, Since>,
    broken: BTreeMap<String, Since>,
    is_short: bool,
    /// Within whose limit too little was left then, by path.
    short_below: BTreeSet<String>,
}
