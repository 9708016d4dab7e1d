//! By what the memory loop knows what protected domains use, and what it offers of those of which it does not know.

use steward_core::memory::source::{Choice, Source};
use steward_core::memory::trials::{Signs, Trials};
use steward_core::memory::victims::PIECE_MIN_BYTES;
use steward_kernel::Roots;
use steward_kernel::memory::ages;
use steward_kernel::memory::slow;

use crate::disk::known::Known;

/// What the machine has is looked at so often, in nanoseconds: page ages can be turned off, and disks come.
const ASKED_NS: u64 = 5_000_000_000;

/// What may be taken from a protected domain, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    /// At most so much, in bytes.
    pub(super) bytes: u64,
    /// Only what has been idle for so long, in nanoseconds.
    pub(super) idle_ns: Option<u64>,
    /// Files alone.
    pub(super) of_files: bool,
    /// It is what is offered of it.
    is_offered: bool,
}

impl Permit {
    /// Whatever the kernel chooses: it is not protected.
    pub(super) const ALL: Permit =
        Permit { bytes: u64::MAX, idle_ns: None, of_files: false, is_offered: false };
}

/// What is known of what protected domains use.
#[derive(Default)]
pub(super) struct Uses {
    source: Source,
    /// When the machine was asked last what there is, and for which choice.
    asked: Option<(u64, Choice)>,
    /// When page ages were turned on, where they were not there before.
    ages_since_ns: Option<u64>,
    trials: Trials,
}

impl Uses {
    /// By what it is known now.
    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// Finds out by what it can be known, where that may have changed.
    pub(super) fn find_out(&mut self, now_ns: u64, choice: Choice, disks: &Known, roots: &Roots) {
        let is_known = |(at_ns, of): (u64, Choice)| of == choice && now_ns.saturating_sub(at_ns) < ASKED_NS;
        if self.asked.is_some_and(is_known) {
            return;
        }
        let before = self.asked.replace((now_ns, choice));
        let has_ages = ages::obstacle(roots).is_none();
        // Where the disks cannot be seen, one of them may be slow.
        let is_any_slow = || disks.devices(roots).map_or(true, |disks| slow::disk(&disks).is_some());
        let is_slow = !has_ages && is_any_slow();
        let source = choice.source(has_ages, is_slow);
        if source != self.source {
            // What was tried, and what that cost, was on another machine as it were.
            self.trials = Trials::default();
            self.ages_since_ns = before.map(|_| now_ns);
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

    /// What of one counts as idle, in bytes, by its pages' ages where they were read, and of what it read once, which
    /// the kernel tells by its lists: that says nothing where pages have ages, which say more. Generations are as old
    /// as they were when they were turned off, whatever was used since, so they are believed a period after that.
    pub(super) fn idle_bytes(
        &self,
        now_ns: u64,
        period_ns: u64,
        by_ages: Option<u64>,
        read_once_bytes: u64,
    ) -> u64 {
        let are_true = self.ages_since_ns.is_none_or(|since_ns| now_ns.saturating_sub(since_ns) >= period_ns);
        match self.source {
            Source::Mglru => by_ages.filter(|_| are_true).unwrap_or(0),
            Source::RefaultsAndPressure | Source::None => read_once_bytes,
        }
    }

    /// What may be taken from one with this protection period and so much that it read once and is not being taken yet.
    pub(super) fn may_take(&self, id: u64, period_ns: Option<u64>, read_once_bytes: u64) -> Permit {
        match self.source {
            Source::Mglru => Permit { idle_ns: period_ns, ..Permit::ALL },
            Source::RefaultsAndPressure | Source::None if read_once_bytes >= PIECE_MIN_BYTES => {
                Permit { bytes: read_once_bytes, of_files: true, ..Permit::ALL }
            }
            Source::RefaultsAndPressure => {
                Permit { bytes: self.trials.offered_bytes(id), is_offered: true, ..Permit::ALL }
            }
            // Where nothing is known, nothing else is idle.
            Source::None => Permit { bytes: 0, ..Permit::ALL },
        }
    }

    /// So much of one is being taken as was permitted, in bytes.
    pub(super) fn ask(&mut self, now_ns: u64, id: u64, permit: Permit, bytes: u64) {
        if permit.is_offered {
            self.trials.ask(now_ns, id, bytes);
        }
    }
}
