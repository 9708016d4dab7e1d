//! What the orders among domains promise, on whole machines with ticks, slices and several CPUs. steward-sched's tests
//! hold the decision code itself to the same theorems; docs/scheduler.md derives the constants.

use std::path::Path;

use proptest::prelude::*;
use steward_core::cpu::best_effort::BestEffortOrder;
use steward_sim::cpu::scenario::{CpuSet, DomainSpec, MachineSettings, TaskSpec};
use steward_sim::{Amount, Machine, Outcome, Phase, Program, Scenario, ScenarioFile};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The service cycle.
const CYCLE_NS: u64 = 500 * MS;
/// The longest that a task runs at a time: a slice of 3 ms ends at the tick after it, and ticks are 4 ms apart.
const QUANTUM_NS: u64 = 7 * MS;

fn task(name: &str, domain: usize, count: u32, phases: &[Phase]) -> TaskSpec {
    TaskSpec {
        name: name.to_owned(),
        count,
        domains: vec![Some(domain)],
        weight: 100,
        starts: vec![Amount::Uniform(0, 10 * MS)],
        pinned: None,
        reservation: None,
        user: 0,
        programs: vec![Program { phases: phases.into(), repeat: None }],
    }
}

const BUSY: [Phase; 1] = [Phase::Run(Amount::Forever)];
const ONOFF: [Phase; 2] = [Phase::Run(Amount::Fixed(11 * MS)), Phase::Sleep(Amount::Fixed(5 * MS))];

fn machine(cpus: u32, order: BestEffortOrder, domains: Vec<DomainSpec>, tasks: Vec<TaskSpec>) -> Scenario {
    let mut scenario =
        Scenario { domains, tasks, duration_ns: 20 * SECOND, warmup_ns: 2 * SECOND, ..Scenario::default() };
    scenario.machine = MachineSettings { cpus, ..MachineSettings::default() };
    scenario.best_effort.order = order;
    scenario
}

/// The longest that the task in this place waits, in 20 s, in milliseconds.
fn longest_wait_ms(scenario: &Scenario, place: usize) -> f64 {
    let mut machine = Machine::new(scenario);
    machine.run_until(20 * SECOND);
    machine.task_view(place).longest_wait_ns as f64 / MS as f64
}

/// Domains by reservation and weight. The share of each is its reservation and its weight's part of the rest.
fn domains(terms: &[(f64, u32)]) -> (Vec<DomainSpec>, Vec<f64>) {
    let reserved: f64 = terms.iter().map(|(reserved, _)| reserved).sum();
    let weights: u32 = terms.iter().map(|(_, weight)| weight).sum();
    let specs = terms.iter().enumerate().map(|(place, (reserved, weight))| {
        let mut domain = DomainSpec::new(format!("d{place}"), None);
        (domain.reserved, domain.weight) = (*reserved, *weight);
        domain
    });
    let share = |(own, weight): &(f64, u32)| own + (1.0 - reserved) * f64::from(*weight) / f64::from(weights);
    (specs.collect(), terms.iter().map(share).collect())
}

/// Reservations and weights of several domains, less than everything reserved.
fn terms() -> impl Strategy<Value = Vec<(f64, u32)>> {
    prop::collection::vec((prop_oneof![Just(0.0), 0.02..0.15f64], 50u32..300), 2..7)
}

/// A sleeper that uses so much every 10 ms, a few that are always busy, and many that come back within a while, run for
/// some milliseconds and pause for as long at most.
fn many_come_back_to_few(
    cpus: u32,
    few: usize,
    others: usize,
    [spread_ms, away_ms]: [u64; 2],
    run_us: u64,
    seed: u16,
) -> Scenario {
    let (specs, _) = domains(&vec![(0.0, 100); few + others + 1]);
    let back = Amount::Uniform(3 * SECOND, (3000 + spread_ms) * MS);
    let pauses = Phase::Sleep(Amount::Uniform(5 * MS, (5 + away_ms) * MS));
    let sleeps = [Phase::Sleep(Amount::Fixed(10 * MS)), Phase::Run(Amount::Fixed(run_us * 1000))];
    let mut tasks = vec![task("sleeper", 0, 1, &sleeps)];
    tasks.extend((1..=few).map(|place| task(&format!("t{place}"), place, cpus, &BUSY)));
    tasks.extend((few + 1..=few + others).map(|place| TaskSpec {
        starts: vec![back],
        ..task(&format!("t{place}"), place, 1, &[Phase::Run(Amount::Fixed(11 * MS)), pauses])
    }));
    Scenario {
        seed: seed.into(),
        duration_ns: 12 * SECOND,
        ..machine(cpus, BestEffortOrder::VirtualTime, specs, tasks)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Eclipse 1998, section 5: each domain gets its fraction over every cycle.
    #[test]
    fn every_busy_domain_gets_its_fraction_of_every_cycle_on_any_number_of_cpus(
        terms in terms(), cpus in 1u32..=4,
    ) {
        let (specs, shares) = domains(&terms);
        let tasks = (0..specs.len()).map(|place| task(&format!("t{place}"), place, cpus, &BUSY)).collect();
        let scenario = machine(cpus, BestEffortOrder::VirtualTime, specs, tasks);
        let mut machine = Machine::new(&scenario);
        // A cycle, the width of a token at either end, and a quantum for each domain.
        let window_ns = CYCLE_NS * 9 / 8 + terms.len() as u64 * QUANTUM_NS;
        let step_ns = 25 * MS;
        let steps = (window_ns / step_ns) as usize;
        let mut record: Vec<Vec<u64>> = Vec::new();
        for at_ns in (2 * SECOND..8 * SECOND).step_by(step_ns as usize) {
            machine.run_until(at_ns);
            record.push((0..terms.len()).map(|place| machine.domain_times(&format!("d{place}")).unwrap().0).collect());
        }
        for (place, share) in shares.iter().enumerate() {
            let due_ns = share * CYCLE_NS as f64 * f64::from(cpus);
            let pairs = record.iter().zip(&record[steps + 1..]);
            let least_ns = pairs.map(|(before, after)| after[place] - before[place]).min().unwrap();
            // What each CPU is in the middle of, and 2 % for the rounding of tokens.
            let slack_ns = f64::from(cpus) * QUANTUM_NS as f64 + 0.02 * due_ns;
            prop_assert!(least_ns as f64 >= due_ns - slack_ns, "d{place}: {least_ns} of {due_ns}, {terms:?}");
        }
    }

    /// Eclipse 1998, definition 1, for one task that comes and goes beside domains that never leave.
    #[test]
    fn cumulative_service_is_guaranteed_on_any_number_of_cpus(
        cpus in 1u32..=4, others in 1usize..20, run_ms in 1u64..40, away_ms in 1u64..60, reserved in 0.05..0.2f64,
    ) {
        let mut terms = vec![(0.0, 100); others];
        terms.push((reserved, 100));
        let (specs, shares) = domains(&terms);
        let mut tasks: Vec<TaskSpec> =
            (0..others).map(|place| task(&format!("t{place}"), place, cpus, &BUSY)).collect();
        let phases = [Phase::Run(Amount::Fixed(run_ms * MS)), Phase::Sleep(Amount::Fixed(away_ms * MS))];
        tasks.push(task("comes-and-goes", others, 1, &phases));
        let scenario = machine(cpus, BestEffortOrder::VirtualTime, specs, tasks);
        // The rate that its share comes to: one task cannot use more than one CPU.
        let rate = (shares[others] * f64::from(cpus)).min(1.0);
        let quanta_ns = (others as u64 + 2) * QUANTUM_NS;
        let stretch = 1.0 + quanta_ns as f64 / CYCLE_NS as f64;
        let constant_ns = CYCLE_NS as f64 * 1.125 + quanta_ns as f64;
        let mut machine = Machine::new(&scenario);
        for at_ns in (SECOND..12 * SECOND).step_by(50 * MS as usize) {
            machine.run_until(at_ns);
            let (used_ns, waited_ns) = machine.domain_times(&format!("d{others}")).unwrap();
            let beyond_ns = (used_ns + waited_ns) as f64 - used_ns as f64 / rate * stretch;
            prop_assert!(beyond_ns <= constant_ns, "{beyond_ns} beyond {constant_ns} at {at_ns}");
        }
    }

    /// The delay bound, and that those who use little of their share wait for nobody (Eclipse 1998, section 7).
    #[test]
    fn a_task_that_uses_half_its_share_waits_at_most_a_quantum(
        cpus in 1u32..=4, others in 1usize..64, run_us in 100u64..4000, seed: u16,
    ) {
        let (specs, shares) = domains(&vec![(0.0, 100); others + 1]);
        let mut tasks: Vec<TaskSpec> = (0..others)
            .map(|place| task(&format!("t{place}"), place, cpus, if place % 2 == 0 { &BUSY } else { &ONOFF }))
            .collect();
        let away_ns = (run_us as f64 * 2000.0 / shares[others]) as u64;
        tasks.push(task("sleeper", others, 1, &[
            Phase::Run(Amount::Fixed(run_us * 1000)),
            Phase::Sleep(Amount::Uniform(away_ns, away_ns + 10 * MS)),
        ]));
        let scenario = Scenario { seed: seed.into(), ..machine(cpus, BestEffortOrder::VirtualTime, specs, tasks) };
        let outcome = Machine::new(&scenario).run();
        let sleeper = outcome.task("sleeper").unwrap();
        prop_assert!(sleeper.latency_ms_max * 1e6 <= QUANTUM_NS as f64, "{}", sleeper.latency_ms_max);
    }

    /// Many come back at once to a level that one has had for itself. What each would have been due beside that one
    /// alone is not due to all of them: a round later each is one of many, the one that was alone as well, and a
    /// sleeper among them waits for nobody.
    #[test]
    fn who_comes_back_with_many_others_has_the_credit_of_one_of_many(
        cpus in 1u32..=4, others in 4usize..64, alone_ms in 300u64..3000, seed: u16,
    ) {
        let (specs, _) = domains(&vec![(0.0, 100); others + 2]);
        let (alone_ns, round_ns) = (alone_ms * MS, (others as u64 + 2) * QUANTUM_NS);
        let sleeps = [Phase::Sleep(Amount::Fixed(10 * MS)), Phase::Run(Amount::Fixed(20_000))];
        let mut tasks: Vec<TaskSpec> =
            (0..others).map(|place| task(&format!("t{place}"), place, cpus, &BUSY)).collect();
        tasks.push(task("sleeper", others, 1, &sleeps));
        tasks.iter_mut().for_each(|task| task.starts = vec![Amount::Uniform(alone_ns, alone_ns + 5 * MS)]);
        tasks.push(task("alone", others + 1, cpus, &BUSY));
        let scenario = Scenario {
            seed: seed.into(),
            warmup_ns: alone_ns + 2 * round_ns,
            duration_ns: alone_ns + 2 * round_ns + 2 * CYCLE_NS + 2 * round_ns,
            ..machine(cpus, BestEffortOrder::VirtualTime, specs, tasks)
        };
        let outcome = Machine::new(&scenario).run();
        let sleeper = outcome.task("sleeper").unwrap();
        prop_assert!(sleeper.latency_ms_max * 1e6 <= QUANTUM_NS as f64, "{}", sleeper.latency_ms_max);
        let share = outcome.domains[others + 1].share * (others + 1) as f64;
        prop_assert!(share > 0.5, "{share} of its part");
    }

    /// Many come back, at once or one after the other, to a level that few have had for themselves, and so with more
    /// credit than is due among many; and some pause for long again. A sleeper that was there before them and uses
    /// little does not wait for each of them to have a slice.
    #[test]
    fn a_sleeper_waits_for_none_of_many_who_come_back_to_a_level_of_few(
        cpus in 1u32..=2, few in 1usize..4, others in 8usize..64, spread_ms in 0u64..800, away_ms in 0u64..2000,
        run_us in 20u64..60, seed: u16,
    ) {
        let scenario = many_come_back_to_few(cpus, few, others, [spread_ms, away_ms], run_us, seed);
        let outcome = Machine::new(&scenario).run();
        let sleeper = outcome.task("sleeper").unwrap();
        prop_assert!(sleeper.latency_ms_max * 1e6 <= QUANTUM_NS as f64, "{}", sleeper.latency_ms_max);
    }

    /// The same beside some that are held back by a limit and may weigh more. They have credit, too, each time that it
    /// is refilled: each goes first for a quantum, and until it has used as much of its share as the sleeper did when
    /// it last ran, but not for as long as its limit lasts.
    #[test]
    fn who_uses_half_their_share_waits_for_limited_ones_no_longer_than_they_need_to_draw_level(
        cpus in 1u32..=4, run_us in 100u64..1000, seed: u16, rare_ms in 50u64..3000,
        limited in prop::collection::vec((20u32..1000, 20u64..60, any::<bool>()), 1..4),
    ) {
        let mut terms: Vec<(f64, u32)> = limited.iter().map(|(weight, ..)| (0.0, *weight)).collect();
        terms.extend([(0.0, 100); 3]);
        let (mut specs, shares) = domains(&terms);
        let (busy, sleeper, rare) = (limited.len(), limited.len() + 1, limited.len() + 2);
        // One that is seldom there makes what contends at the level change beside the sleeper's own coming and going.
        let seldom = [Phase::Run(Amount::Fixed(50_000)), Phase::Sleep(Amount::Uniform(rare_ms * MS, rare_ms * 3 / 2 * MS))];
        let mut tasks = vec![task("busy", busy, cpus, &BUSY), task("rare", rare, 1, &seldom)];
        for (place, (_, limit_ms, always)) in limited.iter().enumerate() {
            specs[place].quota = Some((limit_ms * MS, 100 * MS));
            tasks.push(task(&format!("t{place}"), place, cpus, if *always { &BUSY } else { &ONOFF }));
        }
        let away_ns = (run_us as f64 * 2000.0 / shares[sleeper]) as u64;
        tasks.push(task("sleeper", sleeper, 1, &[
            Phase::Run(Amount::Fixed(run_us * 1000)),
            Phase::Sleep(Amount::Uniform(away_ns, away_ns + 10 * MS)),
        ]));
        let scenario = Scenario { seed: seed.into(), ..machine(cpus, BestEffortOrder::VirtualTime, specs, tasks) };
        let outcome = Machine::new(&scenario).run();
        let level_ns: u64 = limited.iter().map(|(weight, ..)| run_us * 1000 * u64::from(*weight) / 100).sum();
        let most_ns = QUANTUM_NS * (1 + limited.len() as u64) + level_ns;
        let waited_ns = outcome.task("sleeper").unwrap().latency_ms_max * 1e6;
        prop_assert!(waited_ns <= most_ns as f64, "{waited_ns} ns, at most {most_ns}");
    }
}

/// The longest that the sleeper waits in one case of many who come back.
fn longest_wait_ns(others: usize, pauses_ms: [u64; 2], run_us: u64, seed: u16) -> f64 {
    let outcome = Machine::new(&many_come_back_to_few(1, 3, others, pauses_ms, run_us, seed)).run();
    outcome.task("sleeper").unwrap().latency_ms_max * 1e6
}

/// The sleeper's credit is counted among many and later among few, again and again, so that it does not have all of it
/// for seconds.
#[test]
fn a_sleeper_waits_for_none_of_many_though_it_never_has_all_of_its_credit() {
    let longest_ns = longest_wait_ns(56, [173, 1211], 29, 45451);
    assert!(longest_ns <= QUANTUM_NS as f64, "{longest_ns}");
}

/// One that came back is preempted by the next one that does after a quarter of a millisecond: it is not known to use
/// little.
#[test]
fn a_sleeper_does_not_wait_for_one_that_was_preempted_before_its_slice_was_over() {
    let longest_ns = longest_wait_ns(54, [525, 1254], 43, 8188);
    assert!(longest_ns <= QUANTUM_NS as f64, "{longest_ns}");
}

/// Runs a file of lab/sim with settings.
fn run(file: &str, settings: &[(&str, &str)]) -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/sim").join(file);
    let file = ScenarioFile::read(&path).unwrap_or_else(|problem| panic!("{problem}"));
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let mut settings: Vec<_> = settings.iter().map(own).collect();
    settings.push(("duration".to_owned(), "22s".to_owned()));
    Machine::new(&file.scenario(&settings).unwrap_or_else(|problem| panic!("{problem}"))).run()
}

/// Eclipse 1998, figure 11.
#[test]
fn a_sleeper_is_woken_in_time_and_later_with_each_competitor_under_wrr() {
    let delay_ms = |order, n| {
        let outcome = run("sleeper.toml", &[("best_effort.order", order), ("task.onoff.count", n)]);
        outcome.task("sleeper").unwrap().latency_ms_p99
    };
    for n in ["1", "8", "64"] {
        assert!(delay_ms("virtual-time", n) < 0.5, "{n}");
    }
    assert!(delay_ms("wrr", "64") > 5.0 * delay_ms("wrr", "8"));
}

/// Eclipse 1998, example 1 and figure 12.
#[test]
fn an_io_loop_with_half_the_cpu_keeps_its_rate_and_loses_it_under_wrr() {
    let rate = |order, n| {
        let outcome = run("io-rate.toml", &[("best_effort.order", order), ("task.loop.count", n)]);
        outcome.task("io").unwrap().work_per_second
    };
    for n in ["1", "8", "64"] {
        assert!(rate("virtual-time", n) >= 39.0, "{n}");
    }
    assert!(rate("wrr", "64") < 30.0);
}

/// Eclipse 1998, figure 9.
#[test]
fn a_player_misses_no_frame_with_8_per_cent_and_needs_three_times_that_under_wrr() {
    let late = |order, fraction| {
        let outcome = run("mpeg-cpu.toml", &[("best_effort.order", order), ("domain.player.cpu", fraction)]);
        outcome.task("card").unwrap().frames.as_ref().unwrap().frames_late
    };
    assert_eq!(late("virtual-time", "8%"), 0);
    assert!(late("virtual-time", "4%") > 0);
    assert!(late("wrr", "24%") > 0);
}

/// Three domains of weights 1, 1 and 3, and one of a higher priority.
fn below_a_priority(cpus: u32, order: BestEffortOrder, above: &[Phase]) -> Outcome {
    let (mut specs, _) = domains(&[(0.0, 100), (0.0, 100), (0.0, 300), (0.0, 100)]);
    specs[3].priority = 6;
    let busy = |place| task("busy", place, 4, &BUSY);
    let tasks = vec![busy(0), busy(1), busy(2), task("above", 3, 1, above)];
    Machine::new(&Scenario { duration_ns: 62 * SECOND, ..machine(cpus, order, specs, tasks) }).run()
}

#[test]
fn below_a_priority_that_comes_and_goes_weights_hold() {
    let comes_and_goes = [Phase::Run(Amount::Fixed(3 * MS)), Phase::Sleep(Amount::Fixed(10 * MS))];
    // Not under WRR: its cycles end by the clock, whether or not all had time for their parts.
    for order in [BestEffortOrder::VirtualTime, BestEffortOrder::MtrLs] {
        for cpus in [1, 2, 4] {
            let outcome = below_a_priority(cpus, order, &comes_and_goes);
            let used = |place: usize| outcome.domains[place].share;
            let below: f64 = (0..3).map(used).sum();
            for (place, wanted) in [(0, 0.2), (1, 0.2), (2, 0.6)] {
                let share = used(place) / below;
                assert!((share - wanted).abs() < 0.05, "{order:?}, {cpus} CPUs, {place}: {share}");
            }
            // It waits for nobody: 3 ms in every 13 ms of one CPU.
            assert!(
                (used(3) * f64::from(cpus) - 3.0 / 13.0).abs() < 0.01,
                "{order:?}, {cpus} CPUs: {}",
                used(3)
            );
        }
    }
}

#[test]
fn below_a_priority_that_stays_nothing_is_left_but_what_it_cannot_use() {
    for (cpus, left) in [(1, 0.0), (2, 1.0)] {
        let outcome = below_a_priority(cpus, BestEffortOrder::VirtualTime, &BUSY);
        let used = |place: usize| outcome.domains[place].share * f64::from(cpus);
        let below: f64 = (0..3).map(used).sum();
        // Less than the rescue of what has waited for 12 s takes.
        assert!((below - left).abs() < 0.01, "{cpus} CPUs: {below}");
        assert!(cpus == 1 || (used(2) / below - 0.6).abs() < 0.05, "{cpus} CPUs: {}", used(2));
    }
}

/// What each of these busy domains gets in CPUs, beside each other, by the CPUs that its tasks may use.
fn confined(cpus: u32, groups: &[(u32, u32, &[u32])]) -> (Vec<f64>, f64) {
    let terms: Vec<(f64, u32)> = groups.iter().map(|(weight, _, _)| (0.0, *weight)).collect();
    let (specs, _) = domains(&terms);
    let tasks = groups
        .iter()
        .enumerate()
        .map(|(place, (_, count, pins))| TaskSpec {
            pinned: CpuSet::of(pins.iter().copied()),
            ..task(&format!("t{place}"), place, *count, &BUSY)
        })
        .collect();
    let outcome = Machine::new(&machine(cpus, BestEffortOrder::VirtualTime, specs, tasks)).run();
    let used = outcome.domains.iter().map(|domain| domain.share * f64::from(cpus)).collect();
    (used, outcome.busy)
}

/// Domains of one loop each that may use two of four CPUs, beside one of four loops that may use all.
#[test]
fn confined_domains_leave_no_cpu_idle_and_share_theirs() {
    for count in [1, 10, 80, 400] {
        let mut groups: Vec<(u32, u32, &[u32])> = vec![(100, 1, &[0, 1]); count];
        groups.push((100, 4, &[]));
        let (used, busy) = confined(4, &groups);
        assert!(busy > 0.9999, "{count} domains: {busy}");
        let each = if count == 1 { 1.0 } else { 2.0 / count as f64 };
        // Those that are due more than their two CPUs have get all of these; one alone is due two CPUs and can use one.
        let worst = used[..count].iter().map(|used| (used - each).abs()).fold(0.0, f64::max);
        assert!(worst < 0.002, "{count} domains: {used:?}");
    }
}

#[test]
fn confined_domains_share_their_cpu_by_weight_beside_free_ones() {
    let (used, busy) = confined(4, &[(100, 2, &[0]), (300, 2, &[0]), (100, 4, &[])]);
    assert!(busy > 0.9999, "{busy}");
    assert!((used[0] - 0.25).abs() < 0.005 && (used[1] - 0.75).abs() < 0.005, "{used:?}");
    // One that is due little does not get more for being pinned.
    let (used, _) = confined(4, &[(10, 1, &[0]), (990, 8, &[])]);
    assert!((used[0] - 0.04).abs() < 0.005, "{used:?}");
}

/// Two domains confined to one CPU share it by their weights, whenever the second comes, and whatever it did before:
/// beside a free one they fall behind the level's clock, by which a newcomer would wait until they have caught up.
#[test]
fn who_is_confined_later_shares_with_those_who_are() {
    for (cpus, weights) in [(4u32, [100u32, 100, 100]), (2, [100, 100, 10]), (2, [300, 100, 5])] {
        let (specs, _) = domains(&weights.map(|weight| (0.0, weight)));
        // It has had its turns elsewhere before.
        let moment = Phase::Run(Amount::Fixed(MS));
        let before = [
            moment,
            Phase::Sleep(Amount::Fixed(50 * MS)),
            moment,
            Phase::Sleep(Amount::Fixed(3600 * SECOND)),
        ];
        let tasks = vec![
            TaskSpec { pinned: CpuSet::of([0]), ..task("first", 0, 2, &BUSY) },
            TaskSpec {
                pinned: CpuSet::of([0]),
                starts: vec![Amount::Fixed(8 * SECOND)],
                ..task("second", 1, 2, &BUSY)
            },
            task("free", 2, cpus, &BUSY),
            TaskSpec { starts: vec![Amount::Fixed(7_900 * MS)], ..task("before", 1, 1, &before) },
        ];
        let mut scenario = machine(cpus, BestEffortOrder::VirtualTime, specs, tasks);
        scenario.warmup_ns = 9 * SECOND;
        let outcome = Machine::new(&scenario).run();
        let used = |place: usize| outcome.domains[place].share * f64::from(cpus);
        let due = f64::from(weights[1]) / f64::from(weights[0] + weights[1]);
        assert!((used(0) + used(1) - 1.0).abs() < 0.001, "the CPU is theirs: {} and {}", used(0), used(1));
        assert!((used(1) - due).abs() < 0.005, "{} of {due}", used(1));
    }
}

/// The same in sets of CPUs: one that was served everywhere before, and is then confined to two of four CPUs with
/// another one, has its half of them at once.
#[test]
fn who_is_confined_to_a_set_later_shares_with_those_who_are() {
    let (specs, _) = domains(&[(0.0, 100), (0.0, 100), (0.0, 10)]);
    let two = CpuSet::of([0, 1]);
    let until = [Phase::Run(Amount::Fixed(4 * SECOND)), Phase::Sleep(Amount::Fixed(3600 * SECOND))];
    let tasks = vec![
        TaskSpec { pinned: two, ..task("first", 0, 4, &BUSY) },
        TaskSpec { pinned: two, starts: vec![Amount::Fixed(9 * SECOND)], ..task("second", 1, 4, &BUSY) },
        task("free", 2, 4, &BUSY),
        TaskSpec { starts: vec![Amount::Fixed(0)], ..task("before", 1, 2, &until) },
    ];
    let mut scenario = machine(4, BestEffortOrder::VirtualTime, specs, tasks);
    scenario.warmup_ns = 10 * SECOND;
    let outcome = Machine::new(&scenario).run();
    let used: Vec<f64> = outcome.domains.iter().map(|domain| domain.share * 4.0).collect();
    assert!((used[0] - 1.0).abs() < 0.02 && (used[1] - 1.0).abs() < 0.02, "{used:?}");
}

/// A worker of each CPU, such as the kernel's own, is not passed over for what its domain gets on other CPUs.
#[test]
fn who_may_run_nowhere_else_has_its_part_whatever_its_domain_gets_elsewhere() {
    let (specs, _) = domains(&[(0.0, 100), (0.0, 100)]);
    let worker =
        |cpu: u32| TaskSpec { pinned: CpuSet::of([cpu]), ..task(&format!("worker{cpu}"), 0, 1, &BUSY) };
    let mut tasks: Vec<TaskSpec> = (0..4).map(worker).collect();
    tasks.push(TaskSpec { pinned: CpuSet::of([0]), ..task("crowd", 1, 2, &BUSY) });
    let scenario = machine(4, BestEffortOrder::VirtualTime, specs, tasks);
    let wait_ms = longest_wait_ms(&scenario, 0);
    assert!(wait_ms < 50.0, "it waited {wait_ms} ms");
    let outcome = Machine::new(&scenario).run();
    let used: Vec<f64> = outcome.domains.iter().map(|domain| domain.share * 4.0).collect();
    assert!((used[0] - 3.5).abs() < 0.02 && (used[1] - 0.5).abs() < 0.02, "{used:?}");
}

/// Of a domain that gets all that it is due in one set of CPUs, a task that may run in another one only has a turn
/// after eight cycles at the latest, and not only when it is rescued.
#[test]
fn who_is_passed_over_in_a_set_for_what_its_domain_gets_in_another_waits_for_eight_cycles_at_most() {
    let (specs, _) = domains(&[(0.0, 100), (0.0, 100)]);
    let tasks = vec![
        TaskSpec { pinned: CpuSet::of([2, 3, 4, 5]), ..task("elsewhere", 0, 4, &BUSY) },
        TaskSpec { pinned: CpuSet::of([0, 1]), ..task("here", 0, 1, &BUSY) },
        TaskSpec { pinned: CpuSet::of([0, 1]), ..task("others", 1, 3, &BUSY) },
    ];
    let wait_ms = longest_wait_ms(&machine(6, BestEffortOrder::VirtualTime, specs, tasks), 4);
    assert!(wait_ms < 8.0 * 500.0 + 100.0, "{wait_ms}");
}

/// Of a domain that has tasks of both kinds, those that are confined are not put behind all that has fallen behind on
/// their CPU: they have their turns while the domain gets what it is due elsewhere.
#[test]
fn who_is_confined_has_turns_whatever_its_domain_gets_elsewhere() {
    let (specs, _) = domains(&[(0.0, 100), (0.0, 100), (0.0, 100)]);
    let tasks = vec![
        TaskSpec { pinned: CpuSet::of([0]), ..task("crowd", 0, 2, &BUSY) },
        task("free", 1, 2, &BUSY),
        task("mixed", 2, 2, &BUSY),
        TaskSpec { pinned: CpuSet::of([0]), ..task("confined", 2, 1, &BUSY) },
    ];
    let scenario = machine(2, BestEffortOrder::VirtualTime, specs, tasks);
    let place = scenario.tasks.iter().map(|task| task.count as usize).sum::<usize>() - 1;
    let wait_ms = longest_wait_ms(&scenario, place);
    assert!(wait_ms < 500.0, "{wait_ms}");
}

/// A kernel thread of nice -20 that runs for a moment weighs 87 times what others do. It is one of the root's own
/// tasks, beside which the credit of domains is counted, and leaves them at least half of it: who used a tenth has a
/// burst of a tenth without a wait.
#[test]
fn a_moment_of_nice_minus_20_takes_from_nobody_what_they_saved() {
    let (specs, _) = domains(&[(0.0, 100), (0.0, 100)]);
    let burst = [Phase::Run(Amount::Fixed(100 * MS)), Phase::Sleep(Amount::Fixed(900 * MS))];
    let moment = [Phase::Run(Amount::Fixed(20_000)), Phase::Sleep(Amount::Fixed(400 * MS))];
    let mut thread = task("kthread", 0, 1, &moment);
    thread.domains = vec![None];
    thread.weight = 8_668;
    let tasks = vec![task("busy", 0, 1, &BUSY), task("bursts", 1, 1, &burst), thread];
    let outcome = Machine::new(&machine(1, BestEffortOrder::VirtualTime, specs, tasks)).run();
    // Ten bursts in ten seconds, each as long as it takes, and not twice as long.
    let rate = outcome.task("bursts").unwrap().work_per_second;
    assert!(rate > 0.95, "{rate}");
}

/// A loop that begins in a moment's pause of somebody who has had the whole machine stood in no order; its domain has
/// used nothing for so long, and is not ahead for as long.
#[test]
fn who_begins_on_an_idle_cpu_has_no_more_credit_than_who_waited() {
    let (specs, _) = domains(&[(0.0, 100), (0.0, 100)]);
    let pauses = [
        Phase::Run(Amount::Fixed(9_500 * MS)),
        Phase::Sleep(Amount::Fixed(1000 * MS)),
        Phase::Run(Amount::Forever),
    ];
    for cpus in [1, 2] {
        let mut begins = task("begins", 1, cpus, &BUSY);
        begins.starts = vec![Amount::Fixed(10 * SECOND)];
        let tasks = vec![task("pauses", 0, cpus, &pauses), begins];
        let scenario = machine(cpus, BestEffortOrder::VirtualTime, specs.clone(), tasks);
        let outcome =
            Machine::new(&Scenario { duration_ns: 20 * SECOND, warmup_ns: 12 * SECOND, ..scenario }).run();
        let share = outcome.domains[0].share;
        assert!((share - 0.5).abs() < 0.02, "{cpus} CPUs: {share}");
    }
}

/// One that is held back comes again ten times a second with all of its credit, and wants all CPUs. So has the loop,
/// whose domain is due more than one CPU and can use no more: it loses no turn to it.
#[test]
fn a_loop_that_is_due_a_cpu_has_it_beside_one_that_is_held_back() {
    for cpus in [3, 4, 6, 8] {
        let weights = [("single", 10_000), ("limited", 1000), ("heavy", 300), ("light", 100)];
        let mut specs = weights.map(|(name, weight)| DomainSpec { weight, ..DomainSpec::new(name, None) });
        specs[1].quota = Some((80 * MS, 100 * MS));
        let tasks = (0..4)
            .map(|place| task(weights[place].0, place, if place == 0 { 1 } else { 16 }, &BUSY))
            .collect();
        let scenario = machine(cpus, BestEffortOrder::VirtualTime, specs.into(), tasks);
        let outcome = Machine::new(&scenario).run();
        let part = outcome.domains[0].share * f64::from(cpus);
        assert!(part >= 0.98, "{part} of a CPU, of {cpus}");
    }
}
