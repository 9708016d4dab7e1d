//! Random machines: CPUs, a tree of domains with weights, reservations, priorities and limits, and tasks in it with
//! nice values, reservations of their own and some CPUs that they may use, all at once.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use steward_core::cpu::reservation::Reservation;
use steward_sim::cpu::scenario::{CpuSet, DomainSpec, MachineSettings, TaskSpec, weight_of_nice};
use steward_sim::{Amount, Phase, Program, Scenario};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000 * US;
pub const SECOND: u64 = 1_000 * MS;
/// How long every machine runs.
pub const DURATION_NS: u64 = 60 * SECOND;
pub const CYCLE_NS: u64 = 500 * MS;
/// A slice of best-effort work.
pub const SLICE_NS: u64 = 3 * MS;
/// The longest that a task runs at a time: a slice of 3 ms ends at the tick after it, and ticks are 4 ms apart.
pub const QUANTUM_NS: u64 = 7 * MS;
/// The same while nothing else waits: its slice is 20 ms then.
pub const QUANTUM_ALONE_NS: u64 = 24 * MS;
/// What a domain may owe for what it used on a CPU before that.
pub const UNPAID_NS: u64 = MS / 2;

pub const ONOFF: [Phase; 2] = [Phase::Run(Amount::Fixed(11 * MS)), Phase::Sleep(Amount::Fixed(5 * MS))];
pub const BUSY: [Phase; 1] = [Phase::Run(Amount::Forever)];

/// Tasks of one kind, from now on, or from the first tenth of a second.
pub fn task(name: &str, domain: Option<usize>, count: u32, phases: &[Phase]) -> TaskSpec {
    TaskSpec {
        name: name.to_owned(),
        count,
        domains: vec![domain],
        weight: 100,
        starts: vec![Amount::Uniform(0, 100 * MS)],
        pinned: None,
        reservation: None,
        user: 0,
        programs: vec![Program { phases: phases.into(), repeat: None }],
    }
}

/// Weights from a tenth to ten times the usual.
fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![Just(100u32), 10u32..100, 100u32..1000]
}

/// A domain: where it hangs, and its policy.
fn domain() -> impl Strategy<Value = (Index, bool, DomainSpec)> {
    let reserved = prop_oneof![3 => Just(0.0), 1 => 0.03..0.3f64];
    let priority = || prop_oneof![4 => Just(4u8), 1 => 2u8..7];
    let quota = prop_oneof![
        4 => Just(None),
        1 => (5u64..200, prop_oneof![Just(100u64), 10u64..400]).prop_map(|(part, ms)| Some((ms * part * MS / 100, ms * MS))),
    ];
    let own_weight = prop_oneof![3 => Just(None), 1 => weight().prop_map(Some)];
    (any::<Index>(), any::<bool>(), weight(), reserved, priority(), priority(), quota, own_weight).prop_map(
        |(above, top, weight, reserved, priority, own_priority, quota, own_weight)| {
            let spec = DomainSpec {
                weight,
                reserved,
                priority,
                own_priority,
                own_weight,
                quota,
                ..DomainSpec::new("", None)
            };
            (above, top, spec)
        },
    )
}

/// A tree of domains, `most` at most; the reservations of a level are 0.8 of it together at most.
pub fn domains(most: usize) -> impl Strategy<Value = Vec<DomainSpec>> {
    vec(domain(), 1..=most).prop_map(|all| {
        let mut specs: Vec<DomainSpec> = Vec::new();
        for (place, (above, top, spec)) in all.into_iter().enumerate() {
            let parent = if top || specs.is_empty() { None } else { Some(above.index(specs.len())) };
            let beside: f64 =
                specs.iter().filter(|other| other.parent == parent).map(|other| other.reserved).sum();
            let reserved = if beside + spec.reserved <= 0.8 { spec.reserved } else { 0.0 };
            specs.push(DomainSpec { name: format!("d{place}"), parent, reserved, ..spec });
        }
        specs
    })
}

/// What a task does that nobody promised anything.
fn habit() -> impl Strategy<Value = Vec<Phase>> {
    let some_us = || prop_oneof![1 => 100u64..1000, 4 => 1000u64..60_000];
    prop_oneof![
        3 => Just(BUSY.to_vec()),
        3 => (some_us(), some_us()).prop_map(|(run, away)| vec![
            Phase::Run(Amount::Fixed(run * US)), Phase::Sleep(Amount::Fixed(away * US)),
        ]),
        2 => (some_us(), some_us()).prop_map(|(run, away)| vec![
            Phase::Run(Amount::Exponential(run * US)), Phase::Sleep(Amount::Exponential(away * US)),
        ]),
        1 => (some_us(), some_us()).prop_map(|(run, away)| vec![
            Phase::Run(Amount::Exponential(run * US)), Phase::Wait(Amount::Exponential(away * US)),
        ]),
        1 => (100u64..3000, 500u64..4000).prop_map(|(run, away)| vec![
            Phase::Run(Amount::Uniform(MS, run * MS)), Phase::Sleep(Amount::Uniform(MS, away * MS)),
        ]),
    ]
}

/// Some CPUs, by bit; `None`: all of them.
fn pins(cpus: u32) -> impl Strategy<Value = Option<CpuSet>> {
    prop_oneof![
        2 => Just(None),
        1 => (0..cpus).prop_map(|cpu| CpuSet::of([cpu])),
        1 => (1u32..1 << cpus).prop_map(move |mask| CpuSet::of((0..cpus).filter(|cpu| mask >> cpu & 1 == 1))),
    ]
}

/// Where a task is: in the root, or in some domain.
fn place(domains: usize, at: Index) -> Option<usize> {
    at.index(domains + 1).checked_sub(1)
}

/// Best-effort tasks.
fn others(cpus: u32, domains: usize) -> impl Strategy<Value = Vec<TaskSpec>> {
    let nice = prop_oneof![3 => Just(0i32), 1 => -20i32..20];
    vec((any::<Index>(), 1u32..4, nice, pins(cpus), habit()), 0..10).prop_map(move |all| {
        all.into_iter()
            .enumerate()
            .map(|(number, (at, count, nice, pinned, phases))| TaskSpec {
                weight: weight_of_nice(nice),
                pinned,
                ..task(&format!("other{number}"), place(domains, at), count, &phases)
            })
            .collect()
    })
}

/// Tasks with a reservation. Honest ones never ask for more than that; their names begin with "honest". The others
/// compute without end, or at random.
fn reserving(cpus: u32, domains: usize) -> impl Strategy<Value = Vec<TaskSpec>> {
    let period_us = prop_oneof![1_000u64..20_000, 5_000u64..150_000];
    let one = (any::<Index>(), period_us, 0.02..0.5f64, 0u8..5, pins(cpus), any::<bool>());
    vec(one, 0..8).prop_map(move |all| {
        all.into_iter()
            .enumerate()
            .map(|(number, (at, period_us, part, kind, pinned, irrevocable))| {
                let period_ns = period_us * US;
                let budget_ns = ((period_ns as f64 * part) as u64).max(100 * US);
                let (name, phases) = match kind {
                    0 => ("honest", vec![Phase::Run(Amount::Fixed(budget_ns)), Phase::Until(period_ns)]),
                    1 => (
                        "honest",
                        vec![Phase::Run(Amount::Uniform(budget_ns / 4, budget_ns)), Phase::Until(period_ns)],
                    ),
                    // It asks for nothing for at least a period after each time.
                    2 => (
                        "honest",
                        vec![
                            Phase::Run(Amount::Uniform(1, budget_ns)),
                            Phase::Sleep(Amount::Uniform(period_ns, 3 * period_ns)),
                        ],
                    ),
                    3 => ("greedy", BUSY.to_vec()),
                    _ => (
                        "mixed",
                        vec![
                            Phase::Run(Amount::Exponential(2 * budget_ns)),
                            Phase::Wait(Amount::Exponential(period_ns)),
                        ],
                    ),
                };
                TaskSpec {
                    pinned,
                    reservation: Some((Reservation { budget_ns, period_ns }, !irrevocable)),
                    ..task(&format!("{name}{number}"), place(domains, at), 1, &phases)
                }
            })
            .collect()
    })
}

/// A machine, which is printed in a few lines.
#[derive(Clone)]
pub struct Case(pub Scenario);

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} CPUs", self.0.seed, self.0.machine.cpus)?;
        for domain in &self.0.domains {
            writeln!(f, "  {domain:?}")?;
        }
        for task in &self.0.tasks {
            let pins: Option<Vec<u32>> = task.pinned.map(|cpus| cpus.iter().collect());
            let reservation = task.reservation.map(|(reservation, _)| reservation.to_string());
            writeln!(
                f,
                "  {} x {} in {:?}, weight {}, on {pins:?}, {reservation:?}: {:?}",
                task.count, task.name, task.domains[0], task.weight, task.programs[0].phases
            )?;
        }
        Ok(())
    }
}

/// A random machine of up to this many CPUs.
pub fn machine(cpus_most: u32) -> impl Strategy<Value = Case> {
    (1..=cpus_most, domains(8), any::<u16>()).prop_flat_map(|(cpus, domains, seed)| {
        let count = domains.len();
        (others(cpus, count), reserving(cpus, count)).prop_map(move |(others, reserving)| {
            Case(Scenario {
                seed: seed.into(),
                duration_ns: DURATION_NS,
                warmup_ns: 0,
                machine: MachineSettings { cpus, ..MachineSettings::default() },
                domains: domains.clone(),
                tasks: others.into_iter().chain(reserving).collect(),
                ..Scenario::default()
            })
        })
    })
}
