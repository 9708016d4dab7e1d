//! What there may be beside a domain whose service or delay is bounded: domains that are busy or come and go, some of a
//! lower priority, some pinned; domains with reservations that come and go, and tasks that have reservations.

use proptest::collection::vec;
use proptest::prelude::*;
use steward_core::cpu::reservation::Reservation;
use steward_sim::cpu::scenario::{CpuSet, DomainSpec, TaskSpec};
use steward_sim::{Amount, Phase};

use crate::random::{BUSY, CYCLE_NS, MS, ONOFF, QUANTUM_NS, SLICE_NS, US, task};

/// A domain with one kind of tasks, one for each CPU.
#[derive(Debug, Clone)]
pub struct Other {
    weight: u32,
    comes_and_goes: bool,
    /// It has a lower priority than the others.
    lower: bool,
    /// Its tasks may use one CPU only: this one, modulo their number.
    pin: Option<u32>,
}

/// All that is beside.
#[derive(Debug, Clone)]
pub struct Beside {
    pub others: Vec<Other>,
    /// Fraction, and for how many milliseconds it computes and sleeps at most.
    reserved: Vec<(f64, u64, u64)>,
    /// Honest tasks with reservations, each in a domain of its own: period in microseconds and part of a CPU.
    reserving: Vec<(u64, f64)>,
    /// The weight of a domain of a higher priority that is always there: who stands below it gets what is reserved.
    above: Option<u32>,
}

/// Up to 19 others, of which two in three come and go; up to three domains that have 0.6 of the CPUs reserved together
/// at most, and up to four tasks that have 0.4 of one CPU.
pub fn beside() -> impl Strategy<Value = Beside> {
    let other = (20u32..500, 0u8..3, any::<bool>(), prop::option::weighted(0.3, 0u32..8))
        .prop_map(|(weight, kind, lower, pin)| Other { weight, comes_and_goes: kind > 0, lower, pin });
    let reserved = vec((0.03..0.2f64, 100u64..3000, 100u64..3000), 0..4);
    let reserving = vec((2_000u64..40_000, 0.02..0.1f64), 0..5);
    (vec(other, 0..20), reserved, reserving).prop_map(|(others, reserved, reserving)| Beside {
        others,
        reserved,
        reserving,
        above: None,
    })
}

/// The same, or nothing, so that somebody may have all CPUs.
pub fn beside_or_nothing() -> impl Strategy<Value = Beside> {
    let nothing = Beside { others: vec![], reserved: vec![], reserving: vec![], above: None };
    prop_oneof![1 => Just(nothing), 3 => beside()]
}

/// The same without anybody who comes and goes but tasks with reservations; of those that are always there one may have
/// a higher priority.
pub fn beside_busy() -> impl Strategy<Value = Beside> {
    (beside(), prop::option::weighted(0.3, 20u32..500)).prop_map(|(mut all, above)| {
        all.above = above;
        all.others.iter_mut().for_each(|other| other.comes_and_goes = false);
        all.reserved.clear();
        all
    })
}

impl Beside {
    /// Adds all of it to a machine with these CPUs.
    pub fn add(&self, cpus: u32, domains: &mut Vec<DomainSpec>, tasks: &mut Vec<TaskSpec>) {
        for other in &self.others {
            let place = domains.len();
            let priority = 4 - u8::from(other.lower);
            domains.push(DomainSpec {
                weight: other.weight,
                priority,
                ..DomainSpec::new(format!("d{place}"), None)
            });
            let phases = if other.comes_and_goes { &ONOFF[..] } else { &BUSY[..] };
            let pinned = other.pin.and_then(|pin| CpuSet::of([pin % cpus]));
            tasks.push(TaskSpec { pinned, ..task(&format!("t{place}"), Some(place), cpus, phases) });
        }
        for (fraction, run_ms, away_ms) in &self.reserved {
            let place = domains.len();
            domains.push(DomainSpec { reserved: *fraction, ..DomainSpec::new(format!("r{place}"), None) });
            let phases = [
                Phase::Run(Amount::Uniform(MS, run_ms * MS)),
                Phase::Sleep(Amount::Uniform(MS, away_ms * MS)),
            ];
            tasks.push(task(&format!("r{place}"), Some(place), cpus, &phases));
        }
        if let Some(weight) = self.above {
            let place = domains.len();
            domains.push(DomainSpec { weight, priority: 5, ..DomainSpec::new("above", None) });
            tasks.push(task("above", Some(place), cpus, &BUSY));
        }
        for (number, reservation) in self.reservations().enumerate() {
            let place = domains.len();
            domains.push(DomainSpec::new(format!("i{place}"), None));
            let phases =
                [Phase::Run(Amount::Fixed(reservation.budget_ns)), Phase::Until(reservation.period_ns)];
            tasks.push(TaskSpec {
                reservation: Some((reservation, false)),
                ..task(&format!("honest{number}"), Some(place), 1, &phases)
            });
        }
    }

    fn reservations(&self) -> impl Iterator<Item = Reservation> {
        self.reserving.iter().map(|(period_us, part)| Reservation {
            budget_ns: ((*period_us as f64 * part) as u64 * US).max(100 * US),
            period_ns: period_us * US,
        })
    }

    /// The sum of what is reserved for domains, a fraction of the machine.
    pub fn fractions(&self) -> f64 {
        self.reserved.iter().map(|(fraction, ..)| fraction).sum()
    }

    /// The sum of C/T of tasks, in CPUs.
    pub fn class(&self) -> f64 {
        self.reservations().map(|reservation| reservation.bandwidth()).sum()
    }

    /// What tasks with a reservation may take at once, one after the other.
    pub fn budgets_ns(&self) -> f64 {
        self.reservations().map(|reservation| reservation.budget_ns as f64).sum()
    }

    /// How many contenders there are.
    pub fn count(&self) -> usize {
        self.others.len() + self.reserved.len() + self.reserving.len() + usize::from(self.above.is_some())
    }

    /// The weights of all that are as high as a domain of the usual priority.
    pub fn weights(&self) -> u32 {
        let others: u32 = self.others.iter().filter(|other| !other.lower).map(|other| other.weight).sum();
        others + 100 * (self.reserved.len() + self.reserving.len()) as u32
    }

    /// The weights of all, those of a lower priority too.
    pub fn weights_of_all(&self) -> u32 {
        self.others.iter().map(|other| other.weight).sum::<u32>()
            + 100 * (self.reserved.len() + self.reserving.len()) as u32
    }

    /// The weights of those of the usual priority that are always there.
    pub fn weights_always_there(&self) -> u32 {
        let always = self.others.iter().filter(|other| !other.lower && !other.comes_and_goes);
        always.map(|other| other.weight).sum()
    }

    /// The part of all CPU time that a domain of this weight is due, with so much reserved for it.
    pub fn share(&self, weight: u32, reserved: f64) -> f64 {
        if self.above.is_some() {
            return reserved;
        }
        let by_weight = f64::from(weight) / f64::from(weight + self.weights());
        reserved + (1.0 - reserved - self.fractions()) * by_weight
    }

    /// The part of each CPU that those take who have waited for very long, as who stands behind a priority has: half a
    /// millisecond at a time.
    fn rescues(&self) -> f64 {
        if self.above.is_some() || self.others.iter().any(|other| other.lower) { 1.0 / 20.0 } else { 0.0 }
    }

    /// What `cpus` leave in so much time, in nanoseconds of CPU time, to work that is neither interactive nor rescued;
    /// one rescue each, which was not due yet, comes on top. Of an interactive task two budgets may come one after the
    /// other: one at the end of a period and one at the beginning of the next.
    pub fn leaves_ns(&self, cpus: u32, time_ns: f64) -> f64 {
        let cpus = f64::from(cpus);
        (cpus * (1.0 - self.rescues()) - self.class()) * time_ns - 2.0 * self.budgets_ns() - cpus * MS as f64
    }

    /// By how much those beside may be ahead of what they have paid: each by a quantum, who has something reserved by
    /// another one, and by two slices on each CPU.
    pub fn ahead_ns(&self, cpus: u32) -> f64 {
        let (count, reserved) = (self.count() as u64, self.reserved.len() as u64);
        ((count + reserved) * QUANTUM_NS + reserved * u64::from(cpus) * 2 * SLICE_NS) as f64
    }

    /// What those beside a domain of this weight may have to their credit together: of a cycle their weights' part, and
    /// what is reserved for them.
    pub fn credit_ns(&self, cpus: u32, weight: u32) -> f64 {
        let by_weight = f64::from(self.weights()) / f64::from(weight + self.weights());
        f64::from(cpus) * (by_weight + self.fractions()) * CYCLE_NS as f64
    }

    /// How long a domain that has not used half of its share waits: until what is reserved has used its credit, for
    /// what runs and for the interactive class, and what it may take in addition.
    pub fn delay_ns(&self, more_ns: f64) -> f64 {
        let credit_ns = CYCLE_NS as f64 * self.fractions() / (1.0 - self.fractions());
        let wait_ns = credit_ns + QUANTUM_NS as f64 + self.budgets_ns() + MS as f64 + more_ns;
        wait_ns / (1.0 - self.class() - self.rescues())
    }
}
