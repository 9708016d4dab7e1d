//! Every bound of docs/scheduler.md, over a minute, on random machines of one to eight CPUs with domains' weights,
//! reservations, priorities and limits, tasks' reservations and pinned tasks together.

mod beside;
mod cycles;
mod due;
mod random;
mod watch;

use beside::{Beside, beside};
use proptest::prelude::*;
use random::*;
use steward_core::cpu::reservation::Reservation;
use steward_sim::cpu::scenario::{CpuSet, DomainSpec, MachineSettings, TaskSpec};
use steward_sim::{Amount, Machine, Phase, Scenario};
use watch::Watch;

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_on_it_a_machine_keeps_its_promises(case in machine(8)) {
        let mut watch = Watch::new(&case.0);
        watch.run(DURATION_NS)?;
    }

    /// Eclipse 1998, definition 3, of two siblings somewhere in such a machine.
    #[test]
    fn two_busy_siblings_stay_within_some_slices_whatever_is_beside_them(
        case in machine(8), at in any::<prop::sample::Index>(), weights in prop::array::uniform2(20u32..500),
    ) {
        let (scenario, probes) = with_probes(case.0, at, weights);
        let cpus = scenario.machine.cpus;
        let mut watch = Watch::new(&scenario);
        let smallest = f64::from(weights[0].min(weights[1]));
        let bound_ns = (2 * (u64::from(cpus) + 1) * QUANTUM_NS) as f64;
        let (mut least, mut most) = (f64::MAX, f64::MIN);
        for at_ns in (0..DURATION_NS).step_by(20 * MS as usize) {
            watch.run(at_ns)?;
            let part = |place: usize| watch.served_ns(probes + place) as f64 / f64::from(weights[place]);
            let difference = part(0) - part(1);
            (least, most) = (least.min(difference), most.max(difference));
            let distance_ns = (most - least) * smallest;
            prop_assert!(distance_ns <= bound_ns, "{distance_ns} ns, above {bound_ns}, at {at_ns}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever may use some of the CPUs gets its fair share of them, beside others that may use some, too, or all.
    #[test]
    fn busy_domains_that_may_use_some_cpus_each_get_their_fair_shares(
        cpus in 1u32..=8, all in prop::collection::vec((20u32..500, any::<u32>(), 0u8..3), 1..6),
    ) {
        let every = (1u32 << cpus) - 1;
        let groups: Vec<due::Confined> = all.into_iter().map(|(weight, mask, kind)| {
            let mask = if kind == 0 { every } else if kind == 1 { 1 << (mask % cpus) } else { mask & every };
            (weight, if mask == 0 { every } else { mask })
        }).collect();
        let domains: Vec<DomainSpec> = groups.iter().enumerate()
            .map(|(place, (weight, _))| DomainSpec { weight: *weight, ..DomainSpec::new(format!("d{place}"), None) })
            .collect();
        let tasks = groups.iter().enumerate().map(|(place, (_, mask))| TaskSpec {
            pinned: (*mask != every).then(|| CpuSet::of((0..cpus).filter(|cpu| mask >> cpu & 1 == 1))).flatten(),
            ..task(&format!("t{place}"), Some(place), cpus, &BUSY)
        }).collect();
        let scenario = plain(cpus, 0, domains, tasks);
        let mut watch = Watch::new(&scenario);
        watch.run(10 * SECOND)?;
        let before: Vec<u64> = (0..groups.len()).map(|place| watch.served_ns(place)).collect();
        watch.run(DURATION_NS)?;
        for (place, due) in due::fair_shares(&groups).into_iter().enumerate() {
            let got = (watch.served_ns(place) - before[place]) as f64 / (DURATION_NS - 10 * SECOND) as f64;
            prop_assert!((got - due).abs() <= 0.01 + 0.01 * due, "{place}: {got} of {due}, {groups:?} on {cpus}");
        }
    }

    /// Beside others that are busy, or come and go, some of a lower priority, some pinned; that have reservations, or
    /// tasks that have. One of its own priority is always busy on all CPUs: shares are of what is served, so that who
    /// has an idle machine for itself uses all of them. It comes after two cycles, which is what the bound is about.
    #[test]
    fn who_uses_half_their_share_waits_for_what_is_reserved_and_a_quantum(
        cpus in 1u32..=8, seed: u16, run_us in 100u64..3000, weight in 20u32..500, busy in 20u32..500,
        beside in beside(),
    ) {
        let (mut domains, mut tasks) = (Vec::new(), Vec::new());
        domains.push(DomainSpec { weight, ..DomainSpec::new("sleeper", None) });
        domains.push(DomainSpec { weight: busy, ..DomainSpec::new("busy", None) });
        tasks.push(TaskSpec { starts: vec![Amount::Fixed(0)], ..task("busy", Some(1), cpus, &BUSY) });
        beside.add(cpus, &mut domains, &mut tasks);
        let share = half_of(&beside, weight, weight + busy, cpus);
        tasks.push(sleeper(0, run_us, share));
        let sleeper = tasks.iter().map(|task| task.count as usize).sum::<usize>() - 1;
        let mut watch = Watch::new(&plain(cpus, seed, domains, tasks));
        watch.run(DURATION_NS)?;
        let waited_ns = watch.machine.task_view(sleeper).longest_wait_ns as f64;
        let bound_ns = beside.delay_ns(0.0);
        prop_assert!(waited_ns <= bound_ns, "{waited_ns}, at most {bound_ns}");
    }

    /// The same beside up to three that `cpu.max` holds back, which have credit, too, each time that they may go on:
    /// each goes first for a quantum, and until it has used as much of its share as the sleeper did when it last ran.
    #[test]
    fn who_uses_half_their_share_waits_for_limited_ones_no_longer_than_they_need_to_draw_level(
        cpus in 1u32..=8, seed: u16, run_us in 100u64..1000, weight in 50u32..500, busy in 20u32..500, rare_ms in 50u64..3000,
        limited in prop::collection::vec((20u32..1000, 20u64..60, any::<bool>()), 1..4), beside in beside(),
    ) {
        let (mut domains, mut tasks) = (Vec::new(), Vec::new());
        domains.push(DomainSpec { weight, ..DomainSpec::new("sleeper", None) });
        domains.push(DomainSpec { weight: busy, ..DomainSpec::new("busy", None) });
        domains.push(DomainSpec::new("rare", None));
        tasks.push(TaskSpec { starts: vec![Amount::Fixed(0)], ..task("busy", Some(1), cpus, &BUSY) });
        // One that is seldom there makes what contends at the level change beside the sleeper's own coming and going.
        tasks.push(task("rare", Some(2), 1, &[
            Phase::Run(Amount::Fixed(50 * US)), Phase::Sleep(Amount::Uniform(rare_ms * MS, rare_ms * 3 / 2 * MS)),
        ]));
        for (weight, limit_ms, always) in &limited {
            let place = domains.len();
            domains.push(DomainSpec {
                weight: *weight, quota: Some((limit_ms * MS, 100 * MS)), ..DomainSpec::new(format!("l{place}"), None)
            });
            tasks.push(task(&format!("l{place}"), Some(place), cpus, if *always { &BUSY[..] } else { &ONOFF[..] }));
        }
        beside.add(cpus, &mut domains, &mut tasks);
        let weights: u32 = limited.iter().map(|(weight, ..)| weight).sum();
        let share = half_of(&beside, weight, weight + busy + 100 + weights, cpus);
        tasks.push(sleeper(0, run_us, share));
        let sleeper = tasks.iter().map(|task| task.count as usize).sum::<usize>() - 1;
        let mut watch = Watch::new(&plain(cpus, seed, domains, tasks));
        watch.run(DURATION_NS)?;
        let waited_ns = watch.machine.task_view(sleeper).longest_wait_ns as f64;
        let level_ns = (run_us * US) as f64 * f64::from(weights) / f64::from(weight);
        let bound_ns = beside.delay_ns((limited.len() as u64 * QUANTUM_NS) as f64 + level_ns);
        prop_assert!(waited_ns <= bound_ns, "{waited_ns}, at most {bound_ns}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// The recursive definition, with reservations and priorities, where everybody could use all CPUs.
    #[test]
    fn busy_trees_with_reservations_and_priorities_follow_the_recursive_definition(
        cpus in 1u32..=8, mut domains in domains(8), own in prop::collection::vec(any::<bool>(), 8), seed: u16,
    ) {
        domains.iter_mut().for_each(|domain| domain.quota = None);
        let busy: Vec<bool> = (0..domains.len())
            .map(|place| own[place] || domains.iter().all(|other| other.parent != Some(place)))
            .collect();
        let tasks: Vec<TaskSpec> = (0..domains.len()).filter(|place| busy[*place])
            .map(|place| TaskSpec {
                starts: vec![Amount::Fixed(0)], ..task(&format!("t{place}"), Some(place), cpus, &BUSY)
            })
            .collect();
        let mut watch = Watch::new(&plain(cpus, seed, domains.clone(), tasks));
        watch.run(DURATION_NS)?;
        for (place, due) in due::of_busy_tree(&domains, &busy, cpus).into_iter().enumerate() {
            let due_ns = due * f64::from(cpus) * DURATION_NS as f64;
            let got_ns = watch.served_ns(place) as f64;
            let depth = std::iter::successors(Some(place), |place| domains[*place].parent).count() as u64;
            // At each level what every CPU is in the middle of, and what a reservation may be ahead; and rescues.
            let bound_ns = (u64::from(cpus) * depth * (2 * QUANTUM_NS + 6 * MS) + 10 * MS) as f64;
            prop_assert!((got_ns - due_ns).abs() <= bound_ns, "{place}: {got_ns} of {due_ns}, within {bound_ns}");
        }
    }

    /// A budget of more than a fifth of a second lets best-effort work go first for half a millisecond again and again:
    /// whose deadline is 4 ms away or more meets it all the same.
    #[test]
    fn deadlines_of_4_ms_and_more_are_met_beside_long_budgets(
        long_ms in 300u64..3000, period_us in prop::collection::vec(4_000u64..40_000, 1..5), part in 0.1..0.78f64,
        seed: u16,
    ) {
        let long = Reservation { budget_ns: long_ms * MS, period_ns: long_ms * MS * 10 };
        let each = (part - 0.1) / period_us.len() as f64;
        let mut tasks = vec![
            task("loop", None, 3, &BUSY),
            TaskSpec {
                reservation: Some((long, false)),
                starts: vec![Amount::Uniform(100 * MS, SECOND)],
                ..task("honest", None, 1, &[Phase::Run(Amount::Fixed(long.budget_ns)), Phase::Until(long.period_ns)])
            },
        ];
        for period_us in period_us {
            let (budget_ns, period_ns) = (((period_us as f64 * each) as u64 * US).max(100 * US), period_us * US);
            tasks.push(TaskSpec {
                reservation: Some((Reservation { budget_ns, period_ns }, false)),
                ..task("honest", None, 1, &[Phase::Run(Amount::Fixed(budget_ns)), Phase::Until(period_ns)])
            });
        }
        Watch::new(&plain(1, seed, Vec::new(), tasks)).run(DURATION_NS)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Within a domain those who use little go before the others at once, or when these have run for a millisecond; the
    /// same where all of them may run on one CPU only.
    #[test]
    fn tasks_that_use_little_of_their_domain_wait_at_most_a_millisecond(
        cpus in 1u32..=8, others in 1u32..60, run_us in 10u64..70, seed: u16, pinned: bool,
    ) {
        let sleeps = [Phase::Run(Amount::Fixed(run_us * US)), Phase::Sleep(Amount::Uniform(10 * MS, 20 * MS))];
        let mut tasks = vec![task("others", Some(0), others, &BUSY), task("sleeper", Some(0), 3, &sleeps)];
        if pinned {
            tasks.iter_mut().for_each(|task| task.pinned = CpuSet::of([0]));
        }
        // Who is new is not known to use little.
        let scenario =
            Scenario { warmup_ns: 2 * SECOND, ..plain(cpus, seed, vec![DomainSpec::new("all", None)], tasks) };
        let latency_ms = Machine::new(&scenario).run().task("sleeper").unwrap().latency_ms_max;
        // Three sleepers may wake at once.
        prop_assert!(latency_ms <= 1.25, "{latency_ms}");
    }

    /// Something runs out of a reservation in the sleeper's domain, which pays for it: a film that takes most of what
    /// the domain is due. It runs ahead of everybody, wherever its domain stands, and so does not make the sleeper
    /// wait, which uses little of that place.
    #[test]
    fn who_sleeps_beside_a_reserved_task_waits_for_limited_ones_as_if_that_used_nothing(
        cpus in 1u32..=8, run_us in 10u64..150, film_part in 0.3..0.75f64, weight in 20u32..1000, limit_ms in 5u64..30,
        seed: u16,
    ) {
        let weights = [300, 100, weight, 100];
        let mut domains: Vec<DomainSpec> = weights.iter().enumerate()
            .map(|(place, weight)| DomainSpec { weight: *weight, ..DomainSpec::new(format!("d{place}"), None) })
            .collect();
        domains[2].quota = Some((limit_ms * MS, 100 * MS));
        let machine = f64::from(cpus);
        let limited = (limit_ms as f64 / 100.0).min(machine * f64::from(weight) / f64::from(weight + 500));
        let film_ns = ((film_part * (machine - limited) / 5.0).min(0.65) * 40.0 * MS as f64) as u64;
        let film = TaskSpec {
            reservation: Some((Reservation { budget_ns: film_ns + film_ns / 10, period_ns: 30 * MS }, false)),
            ..task("film", Some(3), 1, &[Phase::Run(Amount::Fixed(film_ns)), Phase::Until(40 * MS)])
        };
        let mut tasks: Vec<TaskSpec> =
            (0..3).map(|place| task(&format!("t{place}"), Some(place), 4 * cpus, &BUSY)).collect();
        let sleeps = [Phase::Run(Amount::Fixed(run_us * US)), Phase::Sleep(Amount::Fixed(10 * MS))];
        tasks.extend([task("sleeper", Some(3), 1, &sleeps), film]);
        // Who is new is not known to use little.
        let scenario = Scenario { warmup_ns: 2 * SECOND, ..plain(cpus, seed, domains, tasks) };
        let outcome = Machine::new(&scenario).run();
        prop_assert_eq!(outcome.task("film").unwrap().frames.as_ref().unwrap().frames_late, 0);
        let waited_ns = outcome.task("sleeper").unwrap().latency_ms_max * 1e6;
        // What runs, the film, and one slice of those that are limited.
        prop_assert!(waited_ns <= (2 * QUANTUM_NS + film_ns) as f64, "{waited_ns}, the film {film_ns}");
    }
}

/// A machine with these domains and tasks.
fn plain(cpus: u32, seed: u16, domains: Vec<DomainSpec>, tasks: Vec<TaskSpec>) -> Scenario {
    Scenario {
        seed: seed.into(),
        duration_ns: DURATION_NS,
        machine: MachineSettings { cpus, ..MachineSettings::default() },
        domains,
        tasks,
        ..Scenario::default()
    }
}

/// The share of one CPU that a domain of this weight is due, where those beside `beside` weigh so much with it.
fn half_of(beside: &Beside, weight: u32, own: u32, cpus: u32) -> f64 {
    let weights = f64::from(own + beside.weights_of_all());
    (1.0 - beside.fractions()) * (1.0 - beside.class()) * f64::from(weight) / weights * f64::from(cpus)
}

/// A task that comes after two cycles, runs for so long again and again, and uses half of this share of a CPU at most.
fn sleeper(domain: usize, run_us: u64, share: f64) -> TaskSpec {
    let away_ns = (run_us as f64 * 2000.0 / share.min(1.0)) as u64;
    TaskSpec {
        starts: vec![Amount::Fixed(2 * CYCLE_NS)],
        ..task(
            "sleeper",
            Some(domain),
            1,
            &[
                Phase::Run(Amount::Fixed(run_us * US)),
                Phase::Sleep(Amount::Uniform(away_ns, away_ns + 10 * MS)),
            ],
        )
    }
}

/// Two more domains, of these weights, below one of those that are there or the root, with a loop for each CPU. Returns
/// the place of the first.
fn with_probes(mut scenario: Scenario, at: prop::sample::Index, weights: [u32; 2]) -> (Scenario, usize) {
    let parent = at.index(scenario.domains.len() + 1).checked_sub(1);
    let probes = scenario.domains.len();
    for (place, weight) in weights.into_iter().enumerate() {
        scenario.domains.push(DomainSpec { weight, ..DomainSpec::new(format!("probe{place}"), parent) });
        scenario.tasks.push(TaskSpec {
            starts: vec![Amount::Fixed(0)],
            ..task(&format!("probe{place}"), Some(probes + place), scenario.machine.cpus, &BUSY)
        });
    }
    (scenario, probes)
}
