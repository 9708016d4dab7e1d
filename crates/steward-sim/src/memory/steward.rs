//! Steward's loop over the memory machine: it observes, has the manager decide, and carries that out with the time that
//! it takes. It has no rules of its own.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use steward_core::memory::ageing::{Ageing, Reading, idle_generations};
use steward_core::memory::availability::{Room, available};
use steward_core::memory::manager::{Decision, Settings};
use steward_core::memory::pace::{Pace, time_to_write_ns};
use steward_core::memory::principal::Principal;
use steward_core::memory::protection::{Kept, least_bytes};
use steward_core::memory::seen::{Limited, Machine, Protected, Seen};
use steward_core::memory::source::Source;
use steward_core::memory::swappable::{Own, swappable};
use steward_core::memory::trials::{Signs, Trials};
use steward_core::memory::victims::Victim;

use super::decide::Decide;
use super::event::Event;
use super::kernel::{FILE_TAKE_NS, Kernel};
use super::lru::{GROUP_BYTES, Kind};
use super::measure::Outcome;
use super::scenario::{DomainSpec, StewardSettings};
use crate::random::Random;

/// How much is taken at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Where the kernel found nothing to take, it is not asked again for so long.
const SPARED_NS: u64 = 2_000_000_000;
/// Between two looks because all that was planned is taken: a look and four times as long.
const MORE_NS: u64 = 5_000_000;

/// A thread that takes memory.
#[derive(Clone, Copy, Debug)]
struct Thread {
    place: usize,
    left_bytes: u64,
    is_idle: bool,
}

/// Steward.
pub(super) struct Steward {
    settings: StewardSettings,
    look_at_ns: u64,
    /// No sooner is looked again because all that was planned is taken.
    more_at_ns: u64,
    manager: Box<dyn Decide>,
    ageing: Ageing,
    decision: Decision,
    plan: VecDeque<Victim>,
    threads: Vec<Thread>,
    /// By domain: the minimum that was written last, or is being written.
    told_bytes: Vec<u64>,
    /// Whose minimum waits to be written, in order; and whether one is being written.
    to_write: VecDeque<usize>,
    is_writing: bool,
    /// By domain: until when nothing is taken from it, since the kernel found nothing there.
    spared_until_ns: Vec<u64>,
    /// By domain: its pages' ages as they were read last.
    read: Vec<Option<Reading>>,
    trials: Trials,
    /// By domain: what it was told last.
    pub(super) told: Vec<Told>,
    pace: Pace,
    random: Random,
}

/// How much a domain was told it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// All of it, in bytes.
    pub available_bytes: u64,
    /// What of it is there at once, in bytes.
    pub at_once_bytes: u64,
    /// How long the rest takes at most, in nanoseconds.
    pub time_to_free_ns: u64,
}

impl Steward {
    pub(super) fn new(
        settings: &StewardSettings,
        domains: &[DomainSpec],
        manager: Box<dyn Decide>,
        random: Random,
    ) -> Self {
        Steward {
            look_at_ns: 0,
            more_at_ns: 0,
            manager,
            ageing: Ageing::default(),
            decision: Decision::default(),
            plan: VecDeque::new(),
            threads: vec![Thread { place: 0, left_bytes: 0, is_idle: true }; settings.threads],
            told_bytes: domains.iter().map(|domain| domain.min_bytes).collect(),
            to_write: VecDeque::new(),
            is_writing: false,
            spared_until_ns: vec![0; domains.len()],
            read: vec![None; domains.len()],
            trials: Trials::default(),
            told: vec![Told::default(); domains.len()],
            pace: Pace::default(),
            settings: settings.clone(),
            random,
        }
    }

    /// Observes, decides, and has it carried out, when that is due.
    pub(super) fn turn(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        domains: &[DomainSpec],
        outcome: &mut Outcome,
    ) {
        if now_ns >= self.look_at_ns {
            self.look(now_ns, kernel, domains, outcome);
        }
    }

    fn look(&mut self, now_ns: u64, kernel: &mut Kernel, domains: &[DomainSpec], outcome: &mut Outcome) {
        // One look is due at a time: an earlier one takes the place of that.
        self.look_at_ns = now_ns + self.settings.look_every_ns;
        kernel.events.push(self.look_at_ns, Event::Look);
        self.read(now_ns, kernel, domains);
        self.try_out(now_ns, kernel, domains);
        let machine = self.machine(kernel);
        let seen = self.seen(now_ns, kernel, domains);
        let settings =
            Settings { reserve_bytes: self.settings.reserve_bytes, reservable: self.settings.reservable };
        let decision = self.manager.decide(now_ns, &machine, &seen, &settings);
        outcome.shortages += u64::from(decision.is_short && !self.decision.is_short);
        outcome.changes.extend(decision.changes.iter().map(|change| (now_ns, *change)));
        self.plan = decision.victims.iter().copied().collect();
        self.decision = decision;
        self.protect(now_ns, kernel, domains, &seen);
        self.publish(kernel, &seen);
        self.age(now_ns, kernel, domains);
        self.wake(now_ns, kernel);
    }

    fn machine(&self, kernel: &Kernel) -> Machine {
        Machine {
            total_bytes: kernel.settings.total_bytes,
            free_bytes: kernel.free_bytes(),
            high_watermark_bytes: kernel.settings.high_watermark_bytes,
            kernel_bytes: kernel.settings.kernel_bytes,
            file_bytes: kernel.resident_bytes(Kind::File),
            anonymous_bytes: kernel.resident_bytes(Kind::Anonymous),
            swap_free_bytes: kernel.swap_free_bytes(),
            held_bytes: 0,
        }
    }

    /// Sees what came of what was offered of protected domains, and offers more.
    fn try_out(&mut self, now_ns: u64, kernel: &Kernel, domains: &[DomainSpec]) {
        let is_parent = |place: usize| domains.iter().any(|domain| domain.parent == Some(place));
        for (place, domain) in domains.iter().enumerate() {
            let (Some(spec), cgroup) = (domain.protected, &kernel.cgroups[place]) else { continue };
            if self.settings.source != Source::RefaultsAndPressure || is_parent(place) {
                continue;
            }
            let signs = Signs {
                period_ns: spec.period_ns,
                charged_bytes: cgroup.charged_bytes() - cgroup.lru.read_once() * GROUP_BYTES,
                refaulted_bytes: cgroup.counts.faults * GROUP_BYTES,
                refaulted_file_bytes: cgroup.counts.faults_of_files * GROUP_BYTES,
                stalled_ns: cgroup.counts.stalled_ns,
                disk_ns: cgroup.counts.disk_ns,
            };
            self.trials.see(now_ns, place as u64, signs);
        }
    }

    fn seen(&self, now_ns: u64, kernel: &Kernel, domains: &[DomainSpec]) -> Vec<Seen> {
        let mut claimed_bytes: Vec<u64> =
            kernel.cgroups.iter().map(|cgroup| cgroup.charged_bytes()).collect();
        for place in (0..domains.len()).rev() {
            if let Some(parent) = domains[place].parent {
                claimed_bytes[parent] += claimed_bytes[place];
            }
        }
        let seen = |(place, domain): (usize, &DomainSpec)| {
            let cgroup = &kernel.cgroups[place];
            let principal = Principal {
                parent: domain.parent,
                priority: domain.priority,
                claimed_bytes: claimed_bytes[place],
                clean_bytes: cgroup.lru.count(Kind::File) * GROUP_BYTES,
                min_bytes: domain.min_bytes,
                adapts: domain.adapts,
                ..Principal::of_weight(NonZeroU32::new(domain.weight).unwrap_or(NonZeroU32::MIN))
            };
            let protected = domain.protected.map(|spec| Protected {
                user: domain.user,
                idle_bytes: match self.settings.source {
                    Source::Mglru => self.read[place]
                        .as_ref()
                        .map_or(0, |read| read.idle_bytes(spec.period_ns, kernel.swap_free_bytes())),
                    Source::RefaultsAndPressure | Source::None => cgroup.lru.read_once() * GROUP_BYTES,
                },
                offered_bytes: self.trials.offered_bytes(place as u64),
                swapped_bytes: cgroup.swapped * GROUP_BYTES,
                file_bytes: cgroup.lru.count(Kind::File) * GROUP_BYTES,
                is_revocable: spec.is_revocable,
            });
            let is_spared = now_ns < self.spared_until_ns[place];
            let limited = kernel.swap_left_bytes(place).map(|swap_left_bytes| Limited {
                file_bytes: cgroup.lru.count(Kind::File) * GROUP_BYTES,
                anonymous_bytes: cgroup.lru.count(Kind::Anonymous) * GROUP_BYTES,
                swap_left_bytes,
            });
            Seen { id: place as u64, principal, protected, is_spared, limited }
        };
        domains.iter().enumerate().map(seen).collect()
    }

    /// Reads the ages of those that are protected, where what was read is too old.
    fn read(&mut self, now_ns: u64, kernel: &Kernel, domains: &[DomainSpec]) {
        if self.settings.source != Source::Mglru {
            return;
        }
        for (place, domain) in domains.iter().enumerate() {
            let Some(spec) = domain.protected else { continue };
            let cgroup = &kernel.cgroups[place];
            let charged_bytes = cgroup.charged_bytes();
            let is_old = |read: &Reading| read.is_old(now_ns, spec.period_ns, charged_bytes);
            if self.read[place].as_ref().is_none_or(is_old) {
                let nodes = vec![cgroup.lru.generations(now_ns)];
                self.read[place] = Some(Reading { nodes, read_at_ns: now_ns, charged_bytes });
            }
        }
    }

    /// Has the kernel told what each keeps, where that is news.
    fn protect(&mut self, now_ns: u64, kernel: &mut Kernel, domains: &[DomainSpec], seen: &[Seen]) {
        let mut lowered = Vec::new();
        for kept in &self.decision.kept {
            let place = kept.id as usize;
            let idle_bytes = seen[place].protected.map_or(0, |protected| protected.idle_bytes);
            let used_bytes = seen[place].principal.claimed_bytes.saturating_sub(idle_bytes);
            let cgroup = &mut kernel.cgroups[place];
            // The kernel leaves it what is offered, too.
            let kept_bytes =
                if self.trials.offered_bytes(kept.id) > 0 { kept.minimum_bytes } else { kept.bytes };
            if kept.is_demoted || kept_bytes < least_bytes(used_bytes) {
                // What happens to it from now on is nobody's fault.
                cgroup.protected = None;
            } else if cgroup.protected.is_none()
                && cgroup.min_bytes == self.told_bytes[place]
                && cgroup.min_bytes >= used_bytes
                && used_bytes > 0
            {
                cgroup.protected = domains[place].protected.map(|spec| (now_ns, spec.period_ns));
            }
            let bytes = kept.minimum_bytes.max(domains[place].min_bytes);
            let told_bytes = std::mem::replace(&mut self.told_bytes[place], bytes);
            // What is written later is what is wanted then. Those of whom more is kept come first.
            if bytes != told_bytes && !self.to_write.contains(&place) {
                if bytes > told_bytes { self.to_write.push_back(place) } else { lowered.push(place) }
            }
        }
        self.to_write.extend(lowered);
        if !self.is_writing {
            self.write_next(now_ns, kernel);
        }
    }

    /// One thread writes one minimum after the other.
    fn write_next(&mut self, now_ns: u64, kernel: &mut Kernel) {
        let next = self.to_write.pop_front();
        self.is_writing = next.is_some();
        if let Some(domain) = next {
            let write_ns = (self.random.fraction() * self.settings.write_ns as f64) as u64;
            let bytes = self.told_bytes[domain];
            kernel.events.push(now_ns + write_ns, Event::Minimum { domain, bytes });
        }
    }

    /// A minimum is in the kernel.
    pub(super) fn written(&mut self, now_ns: u64, kernel: &mut Kernel, domain: usize, bytes: u64) {
        kernel.cgroups[domain].min_bytes = bytes;
        self.write_next(now_ns, kernel);
    }

    fn publish(&mut self, kernel: &Kernel, seen: &[Seen]) {
        let kept = |place: usize| {
            let of = |kept: &&Kept| kept.id == place as u64;
            self.decision.kept.iter().find(of).map_or(0, |kept| kept.bytes)
        };
        let own = |place: usize| Own {
            parent: None,
            anonymous_bytes: kernel.cgroups[place].lru.count(Kind::Anonymous) * GROUP_BYTES,
            swap_left_bytes: kernel.swap_left_bytes(place),
        };
        let own: Vec<Own> = (0..seen.len()).map(own).collect();
        let anonymous_bytes = kernel.resident_bytes(Kind::Anonymous);
        let swappable_bytes = swappable(&own, anonymous_bytes, kernel.swap_free_bytes());
        let principal = |(place, seen): (usize, &Seen)| {
            let stays_bytes = own[place].anonymous_bytes - swappable_bytes[place];
            Principal { kept_bytes: kept(place).max(stays_bytes), ..seen.principal }
        };
        let principals: Vec<Principal> = seen.iter().enumerate().map(principal).collect();
        let room = Room {
            free_bytes: kernel.free_bytes(),
            target_bytes: self.decision.target_bytes,
            total_bytes: kernel.settings.total_bytes - kernel.settings.kernel_bytes,
        };
        let told = available(&principals, &room).into_iter().map(|told| Told {
            available_bytes: told.bytes,
            at_once_bytes: told.at_once_bytes,
            time_to_free_ns: time_to_write_ns(told.to_write_bytes, self.pace.measured()),
        });
        self.told = told.collect();
    }

    fn age(&mut self, now_ns: u64, kernel: &mut Kernel, domains: &[DomainSpec]) {
        if self.settings.source != Source::Mglru {
            return;
        }
        let protected: Vec<(u64, u64)> = domains
            .iter()
            .enumerate()
            .filter_map(|(place, domain)| Some((place as u64, domain.protected?.period_ns)))
            .collect();
        if let Some(id) = self.ageing.due(now_ns, &protected) {
            let looked_at = kernel.age(now_ns, id as usize);
            self.ageing.done(now_ns, id, looked_at * self.settings.age_group_ns);
            self.read[id as usize] = None;
        }
    }

    /// Compares what is free with what is to be, and what is left with what was.
    pub(super) fn check(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        domains: &[DomainSpec],
        outcome: &mut Outcome,
    ) {
        kernel.events.push(now_ns + self.settings.check_every_ns, Event::Check);
        self.look_if_due(now_ns, kernel, domains, outcome);
        self.wake(now_ns, kernel);
    }

    /// Looks out of turn when memory goes fast, or when all that was planned is taken and is not enough.
    pub(super) fn look_if_due(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        domains: &[DomainSpec],
        outcome: &mut Outcome,
    ) {
        let goes_fast = self.machine(kernel).left_bytes() < self.decision.look_below_bytes;
        let is_done = self.plan.is_empty() && !self.decision.victims.is_empty();
        if goes_fast || is_done && now_ns >= self.more_at_ns && self.is_little(kernel) {
            self.more_at_ns = now_ns + MORE_NS;
            self.look(now_ns, kernel, domains, outcome);
        }
    }

    /// Whether less is free than is to be, with what is being taken.
    fn is_little(&self, kernel: &Kernel) -> bool {
        let in_hand_bytes: u64 = self.threads.iter().map(|thread| thread.left_bytes).sum();
        kernel.free_bytes() + in_hand_bytes < self.decision.target_bytes
    }

    fn wake(&mut self, now_ns: u64, kernel: &mut Kernel) {
        if kernel.free_bytes() >= self.decision.target_bytes {
            return;
        }
        let busy = self.threads.iter().filter(|thread| !thread.is_idle).count();
        let count = self.busy_max(kernel).saturating_sub(busy);
        let idle = self.threads.iter_mut().enumerate().filter(|(_, thread)| thread.is_idle);
        for (place, thread) in idle.take(count) {
            thread.is_idle = false;
            kernel.events.push(now_ns, Event::Take { thread: place });
        }
    }

    /// How many threads take memory at once: all of them when half of the reserve is gone.
    fn busy_max(&self, kernel: &Kernel) -> usize {
        let urgent_bytes = kernel.settings.high_watermark_bytes + self.settings.reserve_bytes / 2;
        if kernel.free_bytes() < urgent_bytes { self.threads.len() } else { 1 }
    }

    /// A thread goes on: with the piece that it takes, or the next one if there is still too little.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        domains: &[DomainSpec],
        thread: usize,
        outcome: &mut Outcome,
    ) {
        if !self.takes(now_ns, kernel, domains, thread, outcome) {
            self.look_if_due(now_ns, kernel, domains, outcome);
        }
    }

    /// Whether there was anything to take.
    fn takes(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        domains: &[DomainSpec],
        thread: usize,
        outcome: &mut Outcome,
    ) -> bool {
        loop {
            if self.threads[thread].left_bytes == 0 && !self.next_piece(kernel, thread) {
                self.threads[thread].is_idle = true;
                return false;
            }
            let place = self.threads[thread].place;
            let floor_bytes = self.kept_of(place).max(domains[place].min_bytes);
            let before_bytes = kernel.cgroups[place].charged_bytes();
            let allowed_bytes = self.decision.target_bytes + PIECE_BYTES * self.settings.threads as u64;
            let taken = match self.kept_of(place) {
                0 => kernel.take_from(now_ns, place),
                _ => self.take_from_protected(now_ns, kernel, domains, place),
            };
            let Some(done_ns) = taken else {
                // Those that are in use after all are not idle at the next reading.
                self.read[place] = None;
                // EAGAIN, at once.
                self.spared_until_ns[place] = now_ns + SPARED_NS;
                self.plan.retain(|victim| victim.place != place);
                self.threads[thread].left_bytes = 0;
                continue;
            };
            if done_ns > now_ns + FILE_TAKE_NS {
                self.pace.note(GROUP_BYTES, now_ns, done_ns);
            }
            let counts = &mut kernel.cgroups[place].counts;
            counts.taken += 1;
            counts.taken_below_floor += u64::from(before_bytes < floor_bytes.saturating_add(GROUP_BYTES));
            outcome.taken_unasked += u64::from(kernel.free_bytes() > allowed_bytes + GROUP_BYTES);
            let left_bytes = self.threads[thread].left_bytes;
            self.threads[thread].left_bytes = left_bytes.saturating_sub(GROUP_BYTES);
            kernel.events.push(done_ns, Event::Take { thread });
            return true;
        }
    }

    /// Takes a group of what a protected domain does not use, as far as that is known, or of what is offered of it.
    fn take_from_protected(
        &mut self,
        now_ns: u64,
        kernel: &mut Kernel,
        domains: &[DomainSpec],
        place: usize,
    ) -> Option<u64> {
        let read_once = || kernel.cgroups[place].lru.read_once() > 0;
        match self.settings.source {
            Source::RefaultsAndPressure | Source::None if read_once() => {
                kernel.take_read_once_from(now_ns, place)
            }
            Source::Mglru => {
                let period_ns = domains[place].protected.map_or(0, |spec| spec.period_ns);
                take_idle(now_ns, kernel, place, period_ns)
            }
            Source::RefaultsAndPressure => {
                if self.trials.offered_bytes(place as u64) < GROUP_BYTES {
                    return None;
                }
                self.trials.ask(now_ns, place as u64, GROUP_BYTES);
                kernel.take_from(now_ns, place)
            }
            Source::None => None,
        }
    }

    fn next_piece(&mut self, kernel: &Kernel, thread: usize) -> bool {
        if thread >= self.busy_max(kernel) {
            return false;
        }
        if !self.is_little(kernel) {
            return false;
        }
        while let Some(victim) = self.plan.front().copied() {
            let bytes = victim.bytes.min(PIECE_BYTES).min(self.above_floor_bytes(kernel, victim.place));
            if bytes < victim.bytes.min(GROUP_BYTES) {
                // It has given memory up since the plan was made: what is left of it is kept.
                self.plan.pop_front();
                continue;
            }
            self.threads[thread] = Thread { place: victim.place, left_bytes: bytes, is_idle: false };
            self.plan[0].bytes -= bytes;
            if self.plan[0].bytes == 0 {
                self.plan.pop_front();
            }
            return true;
        }
        false
    }

    /// What one keeps; 0 where it is not protected.
    fn kept_of(&self, place: usize) -> u64 {
        self.decision.kept.iter().find(|kept| kept.id == place as u64).map_or(0, |kept| kept.bytes)
    }

    /// How much can be taken from one before it has no more than it keeps, beside what is being taken. Who keeps
    /// nothing is not asked what it has.
    fn above_floor_bytes(&self, kernel: &Kernel, place: usize) -> u64 {
        let kept_bytes = self.kept_of(place);
        if kept_bytes == 0 {
            return u64::MAX;
        }
        let of_place = self.threads.iter().filter(|thread| thread.place == place);
        let in_hand_bytes: u64 = of_place.map(|thread| thread.left_bytes).sum();
        let has_bytes = kernel.cgroups[place].charged_bytes();
        has_bytes.saturating_sub(kept_bytes).saturating_sub(in_hand_bytes)
    }
}

/// Takes a group of what was not used within the period when it was last looked at.
fn take_idle(now_ns: u64, kernel: &mut Kernel, place: usize, period_ns: u64) -> Option<u64> {
    let lru = &kernel.cgroups[place].lru;
    let generations = lru.generations(now_ns);
    let idle = idle_generations(&generations, period_ns) as u64;
    let oldest = lru.newest() + 1 - generations.len() as u64;
    kernel.evict_from(now_ns, place, (oldest + idle).checked_sub(1).filter(|_| idle > 0)?)
}
