//! The memory loop: what is done about one observation of the machine. It reads nothing and writes nothing.
//!
//! Three things, in this order:
//!
//! 1. **Protection** ([`super::protection`]): what each protected domain keeps, as far as all of it fits into the room
//!    that the machine has for that.
//! 2. **The reserve**: how much must be free, so that nobody who allocates has to take memory from others itself
//!    (Redline's free reserve). Below the kernel's high watermark its own reclaim begins, which knows nobody's rights;
//!    so the reserve lies on top of that.
//! 3. **Victims** ([`super::victims`]): from whom memory is taken when less is free than that, in pieces.
//!
//! Protection must never end a program: the kernel does not take what is protected, and ends programs when it finds
//! nothing else. So all protection is dropped before it comes to that ([`Machine::distance`]), and below one with a
//! limit of its own before it comes to that there ([`super::beneath`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::beneath::{Beneath, Ceiling, Found, Nearing, stuck_bytes};
use super::principal::{Principal, parent_of};
use super::protection::{Change, Kept, Protection, Wanting};
use super::seen::{Machine, Seen};
use super::shortage::{AHEAD_NS, Distance, Shortage, near_bytes};
use super::victims::{Victim, victims_in_turn};

/// How much is planned to be taken from one observation, as a part of the machine's memory, and at most, in bytes. When
/// that is gone the next is made: meanwhile all have grown, and small shares are off by as much.
const PLAN_PART: u64 = 32;
const PLAN_MAX_BYTES: u64 = 128 << 20;
/// What is left to those who are not protected: 1 of so many parts of what programs have.
const OTHERS_PART: u64 = 8;
/// How much of what protected domains may keep together may be pages of files that are held: 1 of so many parts.
const HELD_PART: u64 = 4;
/// The next look is due at once when the machine has this part of the memory less to give than at the last one; not
/// while it is farther from having nothing left than a look takes, three quarters of the memory.
const LOOK_PART: u64 = 32;
/// Whose turn it is to pay is remembered for so long after there was too little, in nanoseconds.
const TURN_KEPT_NS: u64 = 10_000_000_000;
/// For so long it is anybody's turn at most, in nanoseconds: the others may fit without it, and run for hours.
const TURN_MAX_NS: u64 = 30_000_000_000;
/// A minimum that covers what is idle may be too large by 1 of so many parts before it is written anew.
const COVER_PART: u64 = 16;
/// Below so many at most.
const TURNS_MAX: usize = 1024;

/// What is set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What is kept free on top of the kernel's high watermark, in bytes.
    pub reserve_bytes: u64,
    /// What all may be promised of the machine's memory together, above 0 and at most 1.
    pub reservable: f64,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What each protected domain keeps.
    pub kept: Vec<Kept>,
    /// Who was demoted, or came back.
    pub changes: Vec<Change>,
    /// What all protected domains may keep together, in bytes, beside what is held for them.
    pub room_bytes: u64,
    /// How much may be held for them of files, in bytes.
    pub held_max_bytes: u64,
    /// How much is to be free, in bytes.
    pub target_bytes: u64,
    /// From whom memory is taken while less is free, in this order.
    pub victims: Vec<Victim>,
    /// Whether there is so little left that protection is dropped.
    pub is_short: bool,
    /// Those within whose maximum so little is left that it is dropped below them, by id of the cgroup.
    #[serde(default)]
    pub short_below: Vec<u64>,
    /// With less than this left ([`Machine::left_bytes`]) the next look is due at once, in bytes; 0 where nobody has to
    /// check that.
    pub look_below_bytes: u64,
    /// With more than this charged to one of these the next look is due at once, too.
    #[serde(default)]
    pub nearing: Vec<Nearing>,
    /// Who is to be slowed before it reaches its maximum.
    #[serde(default)]
    pub ceilings: Vec<Ceiling>,
}

/// What the last look found.
#[derive(Clone, Copy, Debug)]
struct Look {
    at_ns: u64,
    /// What protected domains might keep then.
    room_bytes: u64,
    /// How far it was to having nothing left.
    distance: Distance,
}

/// What is remembered from one observation to the next.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    protection: Protection,
    short: Shortage,
    beneath: Beneath,
    last: Option<Look>,
    /// Who has its turn to pay, by the one above: ids of cgroups.
    turns: BTreeMap<Option<u64>, PaysSince>,
    /// When there was too little last.
    little_at_ns: u64,
    /// Who was the first to pay when there was too little, and all above it: by id of the cgroup, in which order.
    paid: BTreeMap<u64, u64>,
    paid_last: u64,
    /// By id of the cgroup: the minimum that it was told with what of it is idle, in bytes.
    covered: BTreeMap<u64, u64>,
}

/// Who pays, by its cgroup's id, and since when.
#[derive(Clone, Copy, Debug)]
struct PaysSince {
    id: u64,
    since_ns: u64,
}

impl Manager {
    /// What is to be done about this. The domains stand parents before children, those that came first before the
    /// others.
    pub fn decide(
        &mut self,
        now_ns: u64,
        machine: &Machine,
        domains: &[Seen],
        settings: &Settings,
    ) -> Decision {
        let room_bytes = room_bytes(machine, domains, settings);
        let distance = machine.distance(domains, room_bytes);
        let falls_bytes = self.falls_bytes(now_ns, |room_bytes| machine.distance(domains, room_bytes));
        self.last = Some(Look { at_ns: now_ns, room_bytes, distance });
        let ahead_bytes = distance.bytes().saturating_sub(falls_bytes);
        let near_bytes = near_bytes(machine.programs_bytes());
        let is_short = self.short.becomes(now_ns, near_bytes, ahead_bytes);
        let room_bytes = if is_short { 0 } else { room_bytes };
        let wanting: Vec<Wanting> = domains.iter().filter_map(Seen::wanting).collect();
        let (mut kept, changes) = self.protection.decide(now_ns, room_bytes, &wanting);
        let promised = promised_beside(domains, true, |one| one.min_bytes.min(one.charged_bytes()));
        let beneath = self.beneath.look(now_ns, machine, domains, &promised.below_bytes);
        beneath.lessen(&mut kept);
        self.cover_idle(machine, domains, ahead_bytes, &beneath, &mut kept);
        give_up_offers(domains, &mut kept);
        let principals: Vec<Principal> = domains.iter().map(|seen| seen.keeping(&kept)).collect();
        let target_bytes = machine.high_watermark_bytes.saturating_add(settings.reserve_bytes);
        self.turns.retain(|_, turn| now_ns.saturating_sub(turn.since_ns) < TURN_MAX_NS);
        let above = |place: usize| parent_of(place, &principals[place]).map(|parent| domains[parent].id);
        let turns = &self.turns;
        let has_turn =
            |place: usize| turns.get(&above(place)).is_some_and(|turn| turn.id == domains[place].id);
        let paid_at = |place: usize| self.paid.get(&domains[place].id).copied().unwrap_or(0);
        let victims = victims_in_turn(&principals, has_turn, paid_at, plan_bytes(machine));
        if machine.free_bytes < target_bytes
            && let Some(first) = victims.first()
        {
            self.note_paid(domains, first.place);
        }
        self.take_turns(now_ns, machine.free_bytes < target_bytes, || {
            let place = victims.first()?.place;
            Some((above(place), domains[place].id))
        });
        Decision {
            kept,
            changes,
            room_bytes,
            held_max_bytes: if is_short { 0 } else { (room_bytes + machine.held_bytes) / HELD_PART },
            target_bytes,
            victims,
            is_short,
            short_below: beneath.short(),
            look_below_bytes: self.look_below_bytes(machine),
            nearing: beneath.nearing(),
            ceilings: beneath.ceilings(),
        }
    }

    /// Notes that it was the turn of this one, and with it of all above it.
    fn note_paid(&mut self, domains: &[Seen], place: usize) {
        let ids: BTreeSet<u64> = domains.iter().map(|seen| seen.id).collect();
        self.paid.retain(|id, _| ids.contains(id));
        self.paid_last += 1;
        let up = std::iter::successors(Some(place), |place| parent_of(*place, &domains[*place].principal));
        for place in up {
            self.paid.insert(domains[place].id, self.paid_last);
        }
    }

    /// Notes whose turn it is to pay, while there is too little; it is over once there was enough for a while.
    fn take_turns(
        &mut self,
        now_ns: u64,
        is_little: bool,
        first: impl FnOnce() -> Option<(Option<u64>, u64)>,
    ) {
        if is_little {
            self.little_at_ns = now_ns;
            // Cgroups come and go: those that are not there any more count for nothing.
            if self.turns.len() >= TURNS_MAX {
                self.turns.clear();
            }
            if let Some((above, id)) = first() {
                let turn = self.turns.entry(above).or_insert(PaysSince { id, since_ns: now_ns });
                if turn.id != id {
                    *turn = PaysSince { id, since_ns: now_ns };
                }
            }
        } else if now_ns.saturating_sub(self.little_at_ns) > TURN_KEPT_NS {
            self.turns.clear();
        }
    }

    fn look_below_bytes(&self, machine: &Machine) -> u64 {
        let is_far = self.last.is_some_and(|last| last.distance.bytes() >= machine.total_bytes / 4 * 3);
        let below_bytes = machine.left_bytes().saturating_sub(machine.total_bytes / LOOK_PART);
        if is_far { 0 } else { below_bytes }
    }

    /// By how much less the machine has to give when this decision is in force, in bytes, if it goes on as since the
    /// last look. `distance` is how far it is to having nothing left, with so much room: it is asked with that of the
    /// last look, because more room at once is no memory that goes away.
    fn falls_bytes(&self, now_ns: u64, distance: impl Fn(u64) -> Distance) -> u64 {
        self.last.map_or(0, |last| {
            distance(last.room_bytes).falls(&last.distance, now_ns.saturating_sub(last.at_ns), AHEAD_NS)
        })
    }

    /// Has the kernel told to leave what is idle, too, while there is enough without: what was idle at the last ageing
    /// may be in use again, and the kernel, which finds that out, would take others instead. What is idle is taken by
    /// its generations, which needs no permission.
    fn cover_idle(
        &mut self,
        machine: &Machine,
        domains: &[Seen],
        ahead_bytes: u64,
        beneath: &Found,
        kept: &mut [Kept],
    ) {
        let idle = own_idle_bytes(domains);
        let idle_bytes = idle.values().copied().fold(0, u64::saturating_add);
        let is_enough = ahead_bytes.saturating_sub(idle_bytes) >= 2 * near_bytes(machine.programs_bytes());
        let uncovered = beneath.uncovered(&idle);
        let mut told = BTreeMap::new();
        for kept in kept {
            let idle_bytes = idle.get(&kept.id).copied().unwrap_or(0);
            kept.minimum_bytes = kept.bytes;
            if !is_enough || kept.bytes == 0 || idle_bytes == 0 || uncovered.contains(&kept.id) {
                continue;
            }
            let whole_bytes = kept.bytes.saturating_add(idle_bytes);
            // What was told stays as long as it is about right, so that it is not written anew at each look.
            let is_right = |told_bytes: &u64| {
                (whole_bytes..=whole_bytes.saturating_add(whole_bytes / COVER_PART)).contains(told_bytes)
            };
            let told_bytes = self.covered.get(&kept.id).copied().filter(is_right);
            kept.minimum_bytes = told_bytes.unwrap_or(whole_bytes);
            told.insert(kept.id, kept.minimum_bytes);
        }
        self.covered = told;
    }
}

/// Has less be kept of those of whom something is offered. The kernel is told as if nothing were: so nobody but Steward
/// takes it, and no more than that.
fn give_up_offers(domains: &[Seen], kept: &mut [Kept]) {
    for seen in domains {
        let offered_bytes = seen.protected.map_or(0, |protected| protected.offered_bytes);
        let Some(wanting) = seen.wanting().filter(|_| offered_bytes > 0) else { continue };
        let left_bytes = wanting.used_bytes.saturating_sub(offered_bytes);
        for kept in kept.iter_mut().filter(|kept| kept.id == seen.id) {
            kept.bytes = kept.bytes.min(left_bytes);
        }
    }
}

/// What of each protected domain is idle, without what those below it have, by id, in bytes.
fn own_idle_bytes(domains: &[Seen]) -> BTreeMap<u64, u64> {
    let mut below = vec![0_u64; domains.len()];
    for (place, seen) in domains.iter().enumerate() {
        if let Some(parent) = parent_of(place, &seen.principal) {
            below[parent] = below[parent].saturating_add(seen.principal.charged_bytes());
        }
    }
    let idle = |(seen, below): (&Seen, u64)| {
        let protected = seen.protected?;
        Some((seen.id, protected.idle_bytes.saturating_sub(below)))
    };
    domains.iter().zip(below).filter_map(idle).collect()
}

impl Machine {
    /// How much can still be allocated before the kernel finds nothing to take from those who are not protected, beside
    /// what is promised to them. What protected domains keep together is no more than `room_bytes`: of those that do
    /// not fit, and are demoted, all can be taken.
    pub fn distance(&self, domains: &[Seen], room_bytes: u64) -> Distance {
        let (mut of_files, mut of_own) = (0_u64, 0_u64);
        for (file_bytes, own_bytes) in domains.iter().filter_map(Seen::used_of_files_and_own) {
            of_files = of_files.saturating_add(file_bytes);
            of_own = of_own.saturating_add(own_bytes);
        }
        let all_fit = of_files.saturating_add(of_own) <= room_bytes;
        // As if the files were what is kept: of the rest no more can be taken than there is room for in the swap.
        of_files = of_files.min(room_bytes);
        of_own = of_own.min(room_bytes - of_files);
        let used_of_promise = |one: &Principal| one.min_bytes.min(one.charged_bytes());
        for (place, beside_bytes) in promised_beside(domains, all_fit, used_of_promise).top {
            let file_bytes = domains[place].principal.clean_bytes.min(beside_bytes);
            of_files = of_files.saturating_add(file_bytes);
            of_own = of_own.saturating_add(beside_bytes - file_bytes);
        }
        let file_bytes = self.file_bytes.saturating_sub(of_files);
        let stuck_bytes = stuck_bytes(domains);
        let anonymous_bytes = self.anonymous_bytes.saturating_sub(of_own).saturating_sub(stuck_bytes);
        let free_bytes = self.free_bytes.saturating_sub(self.high_watermark_bytes);
        Distance {
            quick_bytes: free_bytes.saturating_add(file_bytes),
            slow_bytes: anonymous_bytes.min(self.swap_free_bytes),
        }
    }
}

/// What the kernel is told beside what is kept because it is protected, in bytes.
struct Beside {
    /// Of those at the top, with all below them, by place.
    top: Vec<(usize, u64)>,
    /// By place: of all below each.
    below_bytes: Vec<u64>,
}

/// What the kernel is told beside what protected domains keep, where so much of each one's promise counts. A promise
/// covers what is kept of the same domain and of those below it, as far as nobody is demoted.
fn promised_beside(domains: &[Seen], all_fit: bool, promised_bytes: impl Fn(&Principal) -> u64) -> Beside {
    let mut told_bytes: Vec<u64> = Vec::with_capacity(domains.len());
    let mut kept_bytes: Vec<u64> = Vec::with_capacity(domains.len());
    for seen in domains {
        let kept = seen.wanting().filter(|_| all_fit).map_or(0, |wanting| wanting.used_bytes);
        kept_bytes.push(kept);
        told_bytes.push(promised_bytes(&seen.principal));
    }
    let mut below = vec![(0_u64, 0_u64); domains.len()];
    let mut top = Vec::new();
    // Children come after their parents.
    for (place, seen) in domains.iter().enumerate().rev() {
        let (told_below, kept_below) = below[place];
        let told = told_bytes[place].max(kept_bytes[place]).max(told_below);
        let kept = kept_bytes[place].saturating_add(kept_below);
        match parent_of(place, &seen.principal) {
            Some(parent) => {
                let (told_beside, kept_beside) = below[parent];
                below[parent] = (told_beside.saturating_add(told), kept_beside.saturating_add(kept));
            }
            None => top.push((place, told.saturating_sub(kept))),
        }
    }
    let below_bytes = below.into_iter().map(|(told, kept)| told.saturating_sub(kept)).collect();
    Beside { top, below_bytes }
}

/// How much is planned to be taken.
fn plan_bytes(machine: &Machine) -> u64 {
    (machine.total_bytes / PLAN_PART).min(PLAN_MAX_BYTES)
}

/// What protected domains may keep together: what may be promised, without what is promised to others; and no more than
/// what the kernel, the reserve and a part for everybody else leave.
fn room_bytes(machine: &Machine, domains: &[Seen], settings: &Settings) -> u64 {
    let promised = promised_beside(domains, true, |one| one.min_bytes);
    let promised_bytes = promised.top.into_iter().map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
    let reservable_bytes = (machine.total_bytes as f64 * settings.reservable) as u64;
    let left_bytes = machine
        .total_bytes
        .saturating_sub(machine.kernel_bytes)
        .saturating_sub(machine.high_watermark_bytes)
        .saturating_sub(settings.reserve_bytes)
        .saturating_sub(machine.programs_bytes() / OTHERS_PART);
    // What is held and charged to a protected domain counts twice, so on the safe side.
    let promised_bytes = promised_bytes.saturating_add(machine.held_bytes);
    reservable_bytes.min(left_bytes).saturating_sub(promised_bytes)
}

impl Seen {
    /// Its principal, with what it keeps.
    fn keeping(&self, kept: &[Kept]) -> Principal {
        let kept = kept.iter().find(|kept| kept.id == self.id).map_or(0, |kept| kept.bytes);
        let kept_bytes = if self.is_spared { u64::MAX } else { kept };
        Principal { kept_bytes, ..self.principal }
    }
}

#[cfg(test)]
mod tests;
