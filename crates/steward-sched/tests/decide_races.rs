//! Rules that several CPUs follow at once, without a lock: whoever comes first, nothing is counted twice and nothing is
//! forgotten.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;

use steward_sched::decide::*;

const MS: u64 = 1_000_000;

/// Slots of tasks, with what the CPU has reserved for them and which of them are free, as admission.bpf.h keeps them.
struct Slots {
    standing: Vec<SlotStanding>,
    /// What is reserved for each slot, 1 or 0; it may be wrong by one for a moment.
    reserved: Vec<AtomicI64>,
    free: Mutex<VecDeque<usize>>,
}

impl Slots {
    fn new(count: usize) -> Self {
        Slots {
            standing: (0..count).map(|_| SlotStanding::default()).collect(),
            reserved: (0..count).map(|_| AtomicI64::new(0)).collect(),
            free: Mutex::new((0..count).collect()),
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
        self.free.lock().unwrap().push_back(slot);
    }

    /// A task comes, is admitted, and ends.
    fn come_and_go(&self, pause: impl Fn()) {
        let Some(slot) = self.free.lock().unwrap().pop_front() else {
            return;
        };
        self.standing[slot].begin();
        self.reserve(slot, 1);
        self.settle(slot, STANDING_ADMITTED);
        pause();
        let was = self.standing[slot].end();
        if was == STANDING_ADMITTED {
            self.reserve(slot, -1);
        }
        if was != STANDING_CHANGING {
            self.free.lock().unwrap().push_back(slot);
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

#[test]
fn reservations_that_are_revoked_taken_back_and_given_up_at_once_are_counted_once() {
    let slots = Slots::new(3);
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
    let mut free: Vec<usize> = slots.free.into_inner().unwrap().into();
    free.sort_unstable();
    assert_eq!(free, [0, 1, 2], "each slot is free once");
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
