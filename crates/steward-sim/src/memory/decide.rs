//! Who decides: Steward's own manager, or what a test puts around or in place of it.

use steward_core::memory::manager::{Decision, Manager, Settings};
use steward_core::memory::seen::{Machine, Seen};

/// Decides what is to be done about one observation.
pub trait Decide {
    /// As [`Manager::decide`].
    fn decide(&mut self, now_ns: u64, machine: &Machine, domains: &[Seen], settings: &Settings) -> Decision;
}

impl Decide for Manager {
    fn decide(&mut self, now_ns: u64, machine: &Machine, domains: &[Seen], settings: &Settings) -> Decision {
        Manager::decide(self, now_ns, machine, domains, settings)
    }
}
