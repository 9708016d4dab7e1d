//! Rules that are wrong, to see that the properties fail with them.

use std::collections::BTreeMap;

use steward_core::disk::guard::{Disks, Taken};
use steward_core::disk::plan::{Decision, Plan, Seen};
use steward_core::domain::Tree;
use steward_sim::disk::decide::Decide;

/// Steward's rules, with what each look is told and what the weights come to changed.
pub struct Wrong {
    pub plan: Plan,
    pub told: fn(&mut Disks, &mut BTreeMap<i32, Taken>),
    pub weight: fn(u16) -> u16,
}

impl Decide for Wrong {
    fn decide(
        &mut self,
        now_ns: u64,
        seen: Seen,
        taken: Option<(&Disks, &BTreeMap<i32, Taken>)>,
    ) -> Decision {
        let told = taken.map(|(disks, taken)| {
            let (mut disks, mut taken) = (disks.clone(), taken.clone());
            (self.told)(&mut disks, &mut taken);
            (disks, taken)
        });
        let told = told.as_ref().map(|(disks, taken)| (disks, taken));
        Plan::decide(&mut self.plan, now_ns, seen, told)
    }

    fn guard_is_due(&self, now_ns: u64) -> bool {
        self.plan.guard_is_due(now_ns)
    }

    fn weights(&self, tree: &Tree, is_made: &dyn Fn(&str) -> bool) -> BTreeMap<String, u16> {
        let mut weights = Decide::weights(&self.plan, tree, is_made);
        weights.values_mut().for_each(|weight| *weight = (self.weight)(*weight));
        weights
    }
}

fn wrong(told: fn(&mut Disks, &mut BTreeMap<i32, Taken>), weight: fn(u16) -> u16) -> Box<dyn Decide> {
    Box::new(Wrong { plan: Plan::default(), told, weight })
}

/// Nobody loses its place, however much it takes.
pub fn never_sets_back() -> Box<dyn Decide> {
    wrong(|disks, _| disks.clear(), |weight| weight)
}

/// What one takes is told by bytes alone, as if requests cost nothing.
pub fn counts_bytes_alone() -> Box<dyn Decide> {
    wrong(
        |disks, taken| {
            disks.values_mut().for_each(|disk| (disk.requests, disk.had) = (0, None));
            taken.values_mut().for_each(|taken| taken.calls = 0);
        },
        |weight| weight,
    )
}

/// What a process had is forgotten when it ends.
pub fn forgets_who_has_ended() -> Box<dyn Decide> {
    wrong(|disks, _| disks.values_mut().for_each(|disk| disk.ended.clear()), |weight| weight)
}

/// All weigh alike.
pub fn ignores_fractions() -> Box<dyn Decide> {
    wrong(|_, _| {}, |_| 100)
}

/// The background has a hundredth of what a usual domain has, and not a tenth.
pub fn background_is_a_hundredth() -> Box<dyn Decide> {
    wrong(|_, _| {}, |weight| if weight == 10 { 1 } else { weight })
}
