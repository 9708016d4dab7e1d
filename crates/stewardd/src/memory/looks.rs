//! Looks at how much memory domains may use, for those who watch it.
//!
//! Nobody looks unless somebody watches. A look is at the children of one domain together, because what one of them may
//! use depends on all of them; whoever watches another of them a moment later is told from the same look. What a user's
//! watches cost is bounded by looking less often: it takes a tenth of the daemon's time at most, and what one user
//! watches makes nobody else's looks rarer.

use std::collections::BTreeMap;

use crate::server::turns::Payer;

/// How long a look serves whoever asks, in nanoseconds. One who watches every 250 ms is told with one that is no older,
/// so that a change is told within 300 ms, whoever else had a look taken just before.
const SERVES_NS: u64 = 40_000_000;
/// It serves for so many times what all looks of that user take, if that is longer.
const SERVES_TIMES: u64 = 10;
/// A look that nobody has renewed is forgotten after this, in nanoseconds.
const FORGOTTEN_AFTER_NS: u64 = 60_000_000_000;

/// What was seen at one look at the children of a domain.
pub(crate) struct Look {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) at_ns: u64,
    /// The CPU time that it took, in nanoseconds.
    pub(crate) cost_ns: u64,
    /// Whose watch it was taken for.
    pub(crate) payer: Payer,
    /// What each uses and may use, by path; only where somebody counts it.
    pub(crate) figures: BTreeMap<String, Amounts>,
}

/// The last look at the children of each domain that somebody watches one of, by that domain's path.
#[derive(Default)]
pub(crate) struct Looks {
    by_parent: BTreeMap<String, Look>,
}

/// How much memory a domain may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    /// The domain, or the nearest one above it whose memory is counted.
    pub(crate) path: String,
    /// When this was seen, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) at_ns: u64,
    /// What it uses and may use.
    pub(crate) amounts: Amounts,
}

/// What a domain uses of the memory and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// What it uses, in bytes.
    pub(crate) used_bytes: u64,
    /// What it may use, in bytes.
    pub(crate) available_bytes: u64,
    /// What of that it can have at once, in bytes.
    pub(crate) at_once_bytes: u64,
    /// How long it takes at most until it can have the rest, in nanoseconds.
    pub(crate) time_to_free_ns: u64,
}

impl Looks {
    /// The last look there, unless this payer has to have a new one.
    pub(crate) fn recent(&self, parent: &str, payer: Payer, now_ns: u64) -> Option<&Look> {
        let own = self.by_parent.values().filter(|look| look.payer == payer);
        let cost_ns = own.map(|look| look.cost_ns).fold(0, u64::saturating_add);
        let serves_ns = cost_ns.saturating_mul(SERVES_TIMES).max(SERVES_NS);
        self.by_parent.get(parent).filter(|look| now_ns.saturating_sub(look.at_ns) < serves_ns)
    }

    /// The last look there, however old.
    pub(crate) fn last(&self, parent: &str) -> Option<&Look> {
        self.by_parent.get(parent)
    }

    /// A look was taken there.
    pub(crate) fn keep(&mut self, parent: &str, look: Look) {
        self.by_parent.retain(|_, old| look.at_ns.saturating_sub(old.at_ns) < FORGOTTEN_AFTER_NS);
        self.by_parent.insert(parent.to_owned(), look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn look(at_ns: u64, cost_ns: u64, payer: Payer) -> Look {
        Look { at_ns, cost_ns, payer, figures: BTreeMap::new() }
    }

    #[test]
    fn a_look_serves_for_a_moment_and_costly_ones_for_longer_but_only_their_own_user() {
        let mut looks = Looks::default();
        looks.keep("a", look(0, MS, 1));
        assert!(looks.recent("a", 1, 39 * MS).is_some() && looks.recent("b", 1, 0).is_none());
        assert!(looks.recent("a", 1, 40 * MS).is_none());
        // All of user 1 take 51 ms together: ten times that is about half a second.
        looks.keep("b", look(0, 50 * MS, 1));
        assert!(looks.recent("a", 1, 500 * MS).is_some() && looks.recent("a", 1, 510 * MS).is_none());
        assert!(looks.recent("b", 2, 100 * MS).is_none(), "another user does not wait for that");
    }

    #[test]
    fn what_nobody_watches_any_more_is_forgotten() {
        let mut looks = Looks::default();
        looks.keep("a", look(0, 1000 * MS, 1));
        looks.keep("b", look(FORGOTTEN_AFTER_NS, MS, 1));
        assert_eq!(looks.by_parent.keys().collect::<Vec<_>>(), ["b"]);
    }
}
