//! Rules that are wrong, to see that the properties fail with them; and one that looks on.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;

use steward_core::memory::manager::{Decision, Manager, Settings};
use steward_core::memory::seen::{Machine, Seen};
use steward_sim::memory::decide::Decide;

/// A manager with something wrong before it decides and after.
pub struct Wrong<Before, After> {
    manager: Manager,
    before: Before,
    after: After,
}

impl<Before, After> Decide for Wrong<Before, After>
where
    Before: Fn(&mut Machine, &mut [Seen]),
    After: Fn(&[Seen], &mut Decision),
{
    fn decide(&mut self, now_ns: u64, machine: &Machine, domains: &[Seen], settings: &Settings) -> Decision {
        let (mut machine, mut domains) = (*machine, domains.to_vec());
        (self.before)(&mut machine, &mut domains);
        let mut decision = Manager::decide(&mut self.manager, now_ns, &machine, &domains, settings);
        (self.after)(&domains, &mut decision);
        decision
    }
}

fn sees_wrong(before: impl Fn(&mut Machine, &mut [Seen]) + 'static) -> Box<dyn Decide> {
    Box::new(Wrong { manager: Manager::default(), before, after: |_: &[Seen], _: &mut Decision| {} })
}

fn does_wrong(after: impl Fn(&[Seen], &mut Decision) + 'static) -> Box<dyn Decide> {
    Box::new(Wrong { manager: Manager::default(), before: |_: &mut Machine, _: &mut [Seen]| {}, after })
}

/// Nobody keeps anything.
pub fn keeps_nothing() -> Box<dyn Decide> {
    does_wrong(|_, decision| {
        decision.kept.iter_mut().for_each(|kept| (kept.bytes, kept.minimum_bytes) = (0, 0))
    })
}

/// Everybody keeps what it used and has no room to grow.
pub fn leaves_no_headroom() -> Box<dyn Decide> {
    does_wrong(|seen, decision| {
        for kept in &mut decision.kept {
            let one = &seen[kept.id as usize];
            let idle_bytes = one.protected.map_or(0, |protected| protected.idle_bytes);
            kept.bytes = kept.bytes.min(one.principal.claimed_bytes - idle_bytes);
            kept.minimum_bytes = kept.bytes;
        }
    })
}

/// It believes that there is always something left to take.
pub fn sees_no_shortage() -> Box<dyn Decide> {
    sees_wrong(|machine, _| machine.free_bytes = machine.total_bytes)
}

/// It looks no sooner than in its turn, and not ahead.
pub fn looks_in_its_turn() -> Box<dyn Decide> {
    does_wrong(|_, decision| decision.look_below_bytes = 0)
}

/// All weigh alike.
pub fn ignores_weights() -> Box<dyn Decide> {
    sees_wrong(|_, domains| domains.iter_mut().for_each(|one| one.principal.weight = NonZeroU32::MIN))
}

/// Minima and what is kept count for nothing when memory is taken.
pub fn takes_below_floors() -> Box<dyn Decide> {
    sees_wrong(|_, domains| {
        for one in domains.iter_mut() {
            one.protected = None;
        }
    })
}

/// Takes everybody's word for the smallest.
pub fn demotes_the_smallest() -> Box<dyn Decide> {
    sees_wrong(|_, domains| {
        for one in domains.iter_mut().filter(|one| one.protected.is_some()) {
            one.principal.claimed_bytes = (400_u64 << 20).saturating_sub(one.principal.claimed_bytes);
        }
    })
}

/// What was seen and decided at each look.
pub type Looks = Rc<RefCell<Vec<(u64, Vec<Seen>, Decision)>>>;

/// Looks on while another decides.
pub struct Onlooker {
    pub decides: Box<dyn Decide>,
    pub looks: Looks,
}

impl Decide for Onlooker {
    fn decide(&mut self, now_ns: u64, machine: &Machine, domains: &[Seen], settings: &Settings) -> Decision {
        let decision = self.decides.decide(now_ns, machine, domains, settings);
        self.looks.borrow_mut().push((now_ns, domains.to_vec(), decision.clone()));
        decision
    }
}
