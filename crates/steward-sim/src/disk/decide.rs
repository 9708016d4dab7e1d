//! Who decides: Steward's own rules, or what a test puts in place of one.

use std::collections::BTreeMap;

use steward_core::disk::guard::{Disks, Taken};
use steward_core::disk::plan::{Decision, Plan, Seen};
use steward_core::disk::shares;
use steward_core::domain::Tree;

/// Decides what is to be done about one look.
pub trait Decide {
    /// As [`Plan::decide`].
    fn decide(&mut self, now_ns: u64, seen: Seen, taken: Option<(&Disks, &BTreeMap<i32, Taken>)>)
    -> Decision;

    /// As [`Plan::guard_is_due`].
    fn guard_is_due(&self, now_ns: u64) -> bool;

    /// As [`shares::all_weights`].
    fn weights(&self, tree: &Tree, is_made: &dyn Fn(&str) -> bool) -> BTreeMap<String, u16>;
}

impl Decide for Plan {
    fn decide(
        &mut self,
        now_ns: u64,
        seen: Seen,
        taken: Option<(&Disks, &BTreeMap<i32, Taken>)>,
    ) -> Decision {
        Plan::decide(self, now_ns, seen, taken)
    }

    fn guard_is_due(&self, now_ns: u64) -> bool {
        Plan::guard_is_due(self, now_ns)
    }

    fn weights(&self, tree: &Tree, is_made: &dyn Fn(&str) -> bool) -> BTreeMap<String, u16> {
        shares::all_weights(tree, is_made)
    }
}
