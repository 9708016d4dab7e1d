//! By what the memory loop knows what protected domains use, and what it offers of those of which it does not know.

use steward_core::memory::source::{Choice, Source};
use steward_core::memory::trials::{Signs, Trials};
use steward_kernel::Roots;
use steward_kernel::memory::ages;
use steward_kernel::memory::slow;

/// What the machine has is looked at so often, in nanoseconds: page ages can be turned off, and disks come.
const ASKED_NS: u64 = 5_000_000_000;

/// What is known of what protected domains use.
#[derive(Default)]
pub(super) struct Uses {
    source: Source,
    /// When the machine was asked last what there is, and for which choice.
    asked: Option<(u64, Choice)>,
    trials: Trials,
}

impl Uses {
    /// By what it is known now.
    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// Finds out by what it can be known, where that may have changed.
    pub(super) fn find_out(&mut self, now_ns: u64, choice: Choice, roots: &Roots) {
        let is_known = |(at_ns, of): (u64, Choice)| of == choice && now_ns.saturating_sub(at_ns) < ASKED_NS;
        if self.asked.is_some_and(is_known) {
            return;
        }
        self.asked = Some((now_ns, choice));
        let has_ages = ages::obstacle(roots).is_none();
        // Where the disks cannot be seen, one of them may be slow.
        let is_slow = !has_ages && slow::disk(roots).map_or(true, |disk| disk.is_some());
        let source = choice.source(has_ages, is_slow);
        if source != self.source {
            // What was tried, and what that cost, was on another machine as it were.
            self.trials = Trials::default();
            self.source = source;
        }
    }

    /// Forgets those that are not protected any more, by cgroup id.
    pub(super) fn retain(&mut self, is_protected: impl Fn(u64) -> bool) {
        self.trials.retain(is_protected);
    }

    /// How much of one is offered, in bytes; nothing unless that is how its use is found out.
    pub(super) fn offer(&mut self, now_ns: u64, id: u64, signs: Signs) -> u64 {
        if self.source != Source::RefaultsAndPressure {
            return 0;
        }
        self.trials.see(now_ns, id, signs)
    }

    /// How much may be taken from one of what is offered, in bytes.
    pub(super) fn offered_bytes(&self, id: u64) -> u64 {
        self.trials.offered_bytes(id)
    }

    /// So much of one is being taken, in bytes.
    pub(super) fn ask(&mut self, now_ns: u64, id: u64, bytes: u64) {
        self.trials.ask(now_ns, id, bytes);
    }
}
