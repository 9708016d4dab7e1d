//! What programs of the memory machine do, one step after the other.

use super::kernel::Kernel;
use super::lru::{GROUP_BYTES, Kind};
use super::scenario::{Behaviour, Interactive, ProgramSpec};
use crate::random::Random;

/// How long it takes to touch all of a group that is in memory.
const TOUCH_NS: u64 = 25_000;
/// How long it takes to have a new one: 256 MiB a second, which is for a machine of half a gibibyte what 8 GiB are for
/// one of 16.
pub(super) const FILL_NS: u64 = 1_000_000;
/// How often one that adapts looks what is available.
const ADAPT_NS: u64 = 100_000_000;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It uses a group, and works on it for so long.
    Use { id: u32, is_mapped: bool, work_ns: u64 },
    /// It sleeps until then.
    Sleep { until_ns: u64 },
}

/// A program that runs.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) domain: usize,
    behaviour: Behaviour,
    start_ns: u64,
    random: Random,
    /// Its own memory.
    pub(super) groups: Vec<u32>,
    /// Where it is among those that it uses now.
    position: usize,
    /// A collector: how many groups it may have.
    most: usize,
    /// What it could not do yet.
    pending: Option<Next>,
    /// An interactive one: since when it has been using its memory.
    round_ns: Option<u64>,
    rounds: u64,
    grown_at_ns: u64,
    /// An interactive one: how long the last round took, until somebody asks.
    pub(super) latency_ns: Option<u64>,
    /// One that adapts: when it looked what is available.
    looked_at_ns: Option<u64>,
    pub(super) has_ended: bool,
}

/// What a program can see.
pub(super) struct View<'a> {
    /// The groups of each file.
    pub(super) files: &'a [Vec<u32>],
    /// What is available to its domain, in bytes, without what others of the domain use.
    pub(super) available_bytes: u64,
}

impl Program {
    pub(super) fn new(spec: &ProgramSpec, random: Random) -> Self {
        Program {
            domain: spec.domain,
            behaviour: spec.behaviour.clone(),
            start_ns: spec.start_ns,
            random,
            groups: Vec::new(),
            position: 0,
            most: 1,
            pending: None,
            round_ns: None,
            rounds: 0,
            grown_at_ns: spec.start_ns,
            latency_ns: None,
            looked_at_ns: None,
            has_ended: false,
        }
    }

    /// What it does next: first what it could not do before.
    pub(super) fn next(&mut self, now_ns: u64, view: &View, kernel: &mut Kernel) -> Next {
        if let Some(pending) = self.pending.take() {
            return pending;
        }
        match self.behaviour.clone() {
            Behaviour::Hog { bytes, group_ns } => {
                self.resize(kernel, groups_of(bytes));
                self.use_in_turn(group_ns)
            }
            Behaviour::Grower { bytes_per_second, bytes } => {
                let have_bytes = self.groups.len() as u64 * GROUP_BYTES;
                let due_ns = u128::from(have_bytes + GROUP_BYTES) * 1_000_000_000;
                let due_ns = self.start_ns + (due_ns / u128::from(bytes_per_second.max(1))) as u64;
                if have_bytes + GROUP_BYTES > bytes {
                    return Next::Sleep { until_ns: u64::MAX };
                }
                if due_ns > now_ns {
                    return Next::Sleep { until_ns: due_ns };
                }
                self.groups.push(kernel.make(Kind::Anonymous, self.domain));
                self.use_own(self.groups.len() - 1, TOUCH_NS)
            }
            Behaviour::Interactive(interactive) => self.next_interactive(now_ns, &interactive, view, kernel),
            Behaviour::Reader { file, bytes_per_second } => {
                let groups = &view.files[file];
                let Some(id) = groups.get(self.position % groups.len().max(1)) else {
                    return Next::Sleep { until_ns: u64::MAX };
                };
                self.position += 1;
                let work_ns = GROUP_BYTES * 1_000_000_000 / bytes_per_second.max(1);
                Next::Use { id: *id, is_mapped: false, work_ns }
            }
            Behaviour::Adaptive { bytes } => {
                if self.looked_at_ns.is_none_or(|looked_at_ns| now_ns >= looked_at_ns + ADAPT_NS) {
                    self.looked_at_ns = Some(now_ns);
                    self.resize(kernel, groups_of(view.available_bytes.min(bytes)));
                }
                if self.groups.is_empty() {
                    return Next::Sleep { until_ns: now_ns + ADAPT_NS };
                }
                self.use_in_turn(8 * TOUCH_NS)
            }
            Behaviour::Collector { bytes_per_second, kept_bytes } => {
                self.next_of_collector(now_ns, bytes_per_second, kept_bytes, view, kernel)
            }
        }
    }

    /// A step of a collector of garbage: it allocates a group, new or used before.
    fn next_of_collector(
        &mut self,
        now_ns: u64,
        bytes_per_second: u64,
        kept_bytes: u64,
        view: &View,
        kernel: &mut Kernel,
    ) -> Next {
        if self.looked_at_ns.is_none_or(|looked_at_ns| now_ns >= looked_at_ns + ADAPT_NS) {
            self.looked_at_ns = Some(now_ns);
            let least = groups_of(kept_bytes).max(1);
            let [high, low] = [view.available_bytes / 16 * 15, view.available_bytes / 8 * 7]
                .map(|bytes| groups_of(bytes).max(least));
            if self.groups.len() > high {
                self.resize(kernel, low);
            }
            self.most = high;
        }
        if self.position + 1 < self.groups.len() {
            self.position += 1;
        } else if self.groups.len() < self.most {
            self.groups.push(kernel.make(Kind::Anonymous, self.domain));
            self.position = self.groups.len() - 1;
        } else {
            // It is collected: what it keeps is gone through, and the rest is used anew.
            self.position = 0;
        }
        self.use_own(self.position, GROUP_BYTES * 1_000_000_000 / bytes_per_second.max(1))
    }

    /// It could not be done now.
    pub(super) fn put_off(&mut self, next: Next) {
        self.pending = Some(next);
    }

    /// Gives all of its memory back.
    pub(super) fn end(&mut self, kernel: &mut Kernel) {
        self.has_ended = true;
        self.resize(kernel, 0);
    }

    fn use_own(&self, place: usize, work_ns: u64) -> Next {
        Next::Use { id: self.groups[place], is_mapped: true, work_ns }
    }

    fn use_in_turn(&mut self, work_ns: u64) -> Next {
        if self.groups.is_empty() {
            return Next::Sleep { until_ns: u64::MAX };
        }
        self.position = (self.position + 1) % self.groups.len();
        self.use_own(self.position, work_ns)
    }

    /// Has so many groups of its own: new ones are given memory when they are first used.
    fn resize(&mut self, kernel: &mut Kernel, count: usize) {
        while self.groups.len() > count {
            let id = self.groups.pop().expect("it is longer");
            kernel.discard(id);
        }
        while self.groups.len() < count {
            self.groups.push(kernel.make(Kind::Anonymous, self.domain));
        }
    }

    fn next_interactive(
        &mut self,
        now_ns: u64,
        interactive: &Interactive,
        view: &View,
        kernel: &mut Kernel,
    ) -> Next {
        let Some(since_ns) = self.round_ns else {
            self.begin_round(now_ns, interactive, kernel);
            return self.next_interactive(now_ns, interactive, view, kernel);
        };
        let mapped = interactive.file.map_or(&[][..], |file| &view.files[file]);
        if self.position < self.groups.len() {
            self.position += 1;
            return self.use_own(self.position - 1, TOUCH_NS);
        }
        if let Some(id) = mapped.get(self.position - self.groups.len()) {
            self.position += 1;
            return Next::Use { id: *id, is_mapped: true, work_ns: TOUCH_NS };
        }
        // The first round fills its memory.
        if self.rounds > 1 {
            self.latency_ns = Some(now_ns - since_ns);
        }
        self.round_ns = None;
        Next::Sleep { until_ns: now_ns.saturating_add(interactive.pause.draw(&mut self.random)) }
    }

    fn begin_round(&mut self, now_ns: u64, interactive: &Interactive, kernel: &mut Kernel) {
        self.round_ns = Some(now_ns);
        let is_rare = self.rounds.is_multiple_of(u64::from(interactive.rare_every.max(1)));
        self.rounds += 1;
        if self.rounds == 1 {
            self.resize(kernel, groups_of(interactive.bytes));
        } else if interactive.burst_bytes > 0 && now_ns >= self.grown_at_ns + interactive.burst_every_ns {
            self.grown_at_ns = now_ns;
            let count = self.groups.len() + groups_of(interactive.burst_bytes);
            let half = self.groups.len() / 2;
            self.resize(kernel, if count <= groups_of(interactive.most_bytes) { count } else { half });
        }
        let rare = groups_of(interactive.rare_bytes).min(self.groups.len());
        self.position = if is_rare { 0 } else { rare };
    }
}

fn groups_of(bytes: u64) -> usize {
    usize::try_from(bytes / GROUP_BYTES).unwrap_or(usize::MAX)
}
