//! Rules that several CPUs follow at once, without a lock: whoever comes first, nothing is counted twice and nothing is
//! forgotten.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::thread;

use steward_sched::decide::*;

const MS: u64 = 1_000_000;

/// Slots of tasks, with what the CPU has reserved for them and which of them are free, as admission.bpf.h keeps them.
struct Slots {
    standing: Vec<SlotStanding>,
    /// What is reserved for each slot, 1 or 0; it may be wrong by one for a moment.
    reserved: Vec<AtomicI64>,
    taken: Places,
}

impl Slots {
    fn new(count: usize) -> Self {
        Slots {
            standing: (0..count).map(|_| SlotStanding::default()).collect(),
            reserved: (0..count).map(|_| AtomicI64::new(0)).collect(),
            taken: Places::default(),
        }
    }

    fn reserve(&self, slot: usize, change: i64) {
        self.reserved[slot].fetch_add(change, Ordering::SeqCst);
    }

    fn settle(&self, slot: usize, to: u32) {
        if self.standing[slot].settle(to) {
            return;
        }
        if to == STANDING_ADMITTED {
            self.reserve(slot, -1);
        }
        self.taken.give(slot as u32);
    }

    /// A task comes, is admitted, and ends.
    fn come_and_go(&self, pause: impl Fn()) {
        let slot = self.taken.take().expect("there are thousands") as usize;
        self.standing[slot].begin();
        self.reserve(slot, 1);
        self.settle(slot, STANDING_ADMITTED);
        pause();
        let was = self.standing[slot].end();
        if was == STANDING_ADMITTED {
            self.reserve(slot, -1);
        }
        if was != STANDING_CHANGING {
            self.taken.give(slot as u32);
        }
    }

    /// Load control takes one out.
    fn revoke(&self, slot: usize) {
        if self.standing[slot].take(STANDING_ADMITTED) {
            self.reserve(slot, -1);
            self.settle(slot, STANDING_REVOKED);
        }
    }

    /// Load control takes one back.
    fn reactivate(&self, slot: usize) {
        if self.standing[slot].take(STANDING_REVOKED) {
            self.reserve(slot, 1);
            self.settle(slot, STANDING_ADMITTED);
        }
    }
}

/// Slots from the end on are neither sampled nor revoked.
#[test]
fn of_several_who_take_places_at_once_each_has_its_own_the_first_ones_and_before_the_end() {
    const LANES: u32 = 4;
    let places = Places::default();
    let owners: Vec<AtomicU32> = (0..PLACES_MAX).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for lane in 1..=LANES {
            let (places, owners) = (&places, &owners);
            scope.spawn(move || {
                for round in 0..20_000 {
                    // Some keep two, across the border of a word where others have the rest of it.
                    let taken: Vec<u32> = (0..1 + (lane + round) % 40).flat_map(|_| places.take()).collect();
                    for &place in &taken {
                        let before = owners[place as usize].swap(lane, Ordering::SeqCst);
                        assert_eq!(before, 0, "{place} was somebody's");
                        assert!(place < places.end(), "{place}, and the end is {}", places.end());
                        // A look at the words takes a while, in which some before it are given back.
                        assert!(place < 2 * LANES * 40, "{place}, and {} are taken at most", LANES * 40);
                    }
                    for place in taken {
                        owners[place as usize].store(0, Ordering::SeqCst);
                        places.give(place);
                    }
                }
            });
        }
    });
    assert_eq!(places.end(), 0);
}

#[test]
fn after_a_crowd_no_more_places_are_gone_through_than_are_taken() {
    let places = Places::default();
    let crowd: Vec<u32> = std::iter::from_fn(|| places.take()).collect();
    assert_eq!(crowd, Vec::from_iter(0..PLACES_MAX));
    // Who came first leaves first, as threads of a program that is ended do.
    for &place in &crowd[..crowd.len() - 1] {
        places.give(place);
        assert_eq!(places.end(), PLACES_MAX, "the last one is taken");
    }
    assert_eq!(places.take(), Some(0));
    places.give(PLACES_MAX - 1);
    assert_eq!(places.end(), 64);
    let more: Vec<u32> = (0..64).flat_map(|_| places.take()).collect();
    assert_eq!((more[0], more[63], places.end()), (1, 64, 128));
    places.give(7);
    assert_eq!(places.take(), Some(7));
}

#[test]
fn reservations_that_are_revoked_taken_back_and_given_up_at_once_are_counted_once() {
    // Those of three tasks, and of two that are yet to be given back.
    let slots = Slots::new(8);
    let rounds = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2usize {
            let (slots, over) = (&slots, &over);
            scope.spawn(move || {
                let mut place = seed;
                while !over.load(Ordering::SeqCst) {
                    slots.revoke(place % 3);
                    slots.reactivate(place % 3);
                    place += 1;
                }
            });
        }
        let comers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..30_000 {
                        slots.come_and_go(std::hint::spin_loop);
                        rounds.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        comers.into_iter().for_each(|comer| comer.join().unwrap());
        over.store(true, Ordering::SeqCst);
    });
    assert_eq!(rounds.into_inner(), 90_000);
    assert_eq!(slots.taken.end(), 0, "each slot is free again");
    for (slot, reserved) in slots.reserved.iter().enumerate() {
        assert_eq!(reserved.load(Ordering::SeqCst), 0, "slot {slot}");
        assert_eq!(slots.standing[slot].get(), STANDING_NONE);
    }
}

/// A quota that several CPUs charge while one refills it.
#[test]
fn no_charge_of_a_quota_is_lost_and_nobody_stays_throttled_who_has_some_left() {
    const CHARGES: u64 = 200_000;
    const REFILLS: u64 = 2_000;

    struct Shared(*mut Domain);
    // SAFETY: what is charged and refilled at once is changed atomically.
    unsafe impl Sync for Shared {}

    let mut table = DomainTable::new();
    table.begin(ROOT_DOMAIN, 0, domain_weight(100, false));
    table.set_quota(ROOT_DOMAIN, MS, MS, 0, 0);
    // So far in debt that nothing of a refill is cut off.
    table.at_mut(ROOT_DOMAIN).quota_charge((2 + REFILLS) * MS);
    let shared = Shared(table.at_mut(ROOT_DOMAIN));
    thread::scope(|scope| {
        for _ in 0..2 {
            let shared = &shared;
            scope.spawn(move || {
                (0..CHARGES).for_each(|_| unsafe { &mut *shared.0 }.quota_charge(MS));
            });
        }
        let shared = &shared;
        scope.spawn(move || {
            for period in 1..=REFILLS {
                unsafe { &mut *shared.0 }.quota_refill(period * MS);
            }
        });
    });
    let domain = table.at_mut(ROOT_DOMAIN);
    assert_eq!(domain.quota_left_ns, (MS + REFILLS * MS) as i64 - ((2 + REFILLS + 2 * CHARGES) * MS) as i64);
    assert_eq!(domain.throttled, 1);

    // One that was charged the last of a period and is found throttled after the refill goes on at the next look.
    (domain.quota_left_ns, domain.throttled) = (MS as i64, 1);
    assert!(domain.quota_refill(REFILLS * MS + 1));
    assert_eq!(domain.throttled, 0);
}

/// All orders in which the steps of two CPUs can come, as who takes each.
fn interleavings(first: usize, second: usize) -> Vec<Vec<bool>> {
    if first == 0 || second == 0 {
        return vec![vec![first > 0; first + second]];
    }
    let led_by = |is_first: bool| {
        let rest = if is_first { (first - 1, second) } else { (first, second - 1) };
        interleavings(rest.0, rest.1).into_iter().map(move |rest| [vec![is_first], rest].concat())
    };
    led_by(true).chain(led_by(false)).collect()
}

/// The last task of a CPU is put back into the queue of its domain, whose quota was used up when the CPU chose, while
/// another CPU refills it. Whatever comes first, the CPU is told to look: it finds the task when it becomes idle, or
/// the refill finds the CPU idle. Nobody would tell it before the next refill otherwise.
#[test]
fn a_quota_that_comes_while_its_last_task_is_put_back_leaves_no_cpu_idle() {
    const DOMAIN: u16 = 2;
    for steps in interleavings(4, 3) {
        let mut table = DomainTable::new();
        table.begin(ROOT_DOMAIN, 0, domain_weight(100, false));
        table.begin(DOMAIN, ROOT_DOMAIN, domain_weight(100, false));
        table.set_quota(DOMAIN, MS, MS, 0, 0);
        table.at_mut(DOMAIN).quota_charge(MS);
        let (mut holder, mut idle, mut told, mut released) = (None, false, false, false);
        let (mut enqueues, mut refills) = (0, 0);
        for &is_enqueue in &steps {
            match (is_enqueue, if is_enqueue { enqueues } else { refills }) {
                // steward_enqueue(), wait_for_release() and steward_update_idle().
                (true, 0) => table.enqueue(DOMAIN, MS),
                (true, 1) => holder = table.held_by(DOMAIN),
                (true, 2) => holder.into_iter().for_each(|holder| table.park_if_held(holder)),
                (true, _) => (idle, told) = (true, table.first().is_some()),
                // refill_quotas().
                (false, 0) => released = table.at_mut(DOMAIN).quota_refill(MS),
                (false, 1) => {
                    if table.at(DOMAIN).parked == 1 && !table.held(DOMAIN) {
                        table.unpark(DOMAIN, MS);
                        released = true;
                    }
                }
                (false, _) => told |= idle && released,
            }
            if is_enqueue { enqueues += 1 } else { refills += 1 }
        }
        assert!(told, "{steps:?}");
        assert_eq!(table.first(), Some(DOMAIN), "{steps:?}");
    }
}

/// A task is put into a CPU's interactive queue a moment after the CPU was told to expect it. A look of that CPU may be
/// under way all the time, from before it was told until after the task stands there: it does not make the CPU forget.
#[test]
fn a_look_that_comes_too_early_makes_no_cpu_forget_an_interactive_task() {
    // What the CPU expects from before: nothing, or one that another look has not found.
    for before in 0..=2 {
        for steps in interleavings(2, 3) {
            let expected = std::sync::atomic::AtomicU32::new(before);
            let (mut stands, mut found, mut seen, mut is_empty) = (false, false, 0, false);
            let (mut enqueues, mut looks) = (0, 0);
            for &is_enqueue in &steps {
                match (is_enqueue, if is_enqueue { enqueues } else { looks }) {
                    (true, 0) => interactive_expect(&expected),
                    (true, _) => stands = true,
                    (false, 0) => seen = expected.load(Ordering::SeqCst),
                    (false, 1) => (found, is_empty) = (seen > 0 && stands, seen > 0 && !stands),
                    (false, _) if is_empty => interactive_in_vain(&expected, seen),
                    (false, _) => {}
                }
                if is_enqueue { enqueues += 1 } else { looks += 1 }
            }
            assert!(found || expected.load(Ordering::SeqCst) > 0, "{before} before, {steps:?}");
        }
    }
}
