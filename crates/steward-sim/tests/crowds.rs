//! What a crowd of light tasks takes away from a task of the usual weight in the same domain, and what is left to the
//! crowd. docs/scheduler.md derives the bounds.

use proptest::prelude::*;
use steward_sim::cpu::scenario::{CpuSet, DomainSpec, MachineSettings, TaskSpec, weight_of_nice};
use steward_sim::{Amount, Machine, Phase, Program, Scenario};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const DURATION_NS: u64 = 40 * SECOND;
/// How long a task runs at a time on average: a slice of 3 ms ends at the tick after it.
const TURN_NS: u64 = 4 * MS;
/// The same of one that nobody waits for.
const TURN_ALONE_NS: u64 = 20 * MS;
const BUSY: [Phase; 1] = [Phase::Run(Amount::Forever)];

fn task(name: &str, nice: i32, count: u32, phases: &[Phase]) -> TaskSpec {
    TaskSpec {
        name: name.to_owned(),
        count,
        domains: vec![Some(0)],
        weight: weight_of_nice(nice),
        starts: vec![Amount::Fixed(0)],
        pinned: None,
        reservation: None,
        user: 0,
        programs: vec![Program { phases: phases.into(), repeat: None }],
    }
}

/// What a busy task of nice 0 waits at most and uses, in nanoseconds, and what any of the crowd waits at most, where
/// all of the crowd begin at the same moment.
fn beside(cpus: u32, crowd: TaskSpec, ordinary: u32) -> (u64, u64, u64) {
    let first = TaskSpec { pinned: crowd.pinned, ..task("ordinary", 0, ordinary, &BUSY) };
    let mut machine = Machine::new(&Scenario {
        duration_ns: DURATION_NS,
        machine: MachineSettings { cpus, ..MachineSettings::default() },
        domains: vec![DomainSpec::new("session", None)],
        tasks: vec![first, crowd],
        ..Scenario::default()
    });
    while machine.step(DURATION_NS) {}
    machine.account();
    let views: Vec<_> = machine.task_views().collect();
    let (ordinary, crowd) = views.split_at(ordinary as usize);
    let longest =
        |tasks: &[steward_sim::cpu::view::TaskView]| tasks.iter().map(|task| task.longest_wait_ns).max();
    let used_ns = ordinary.iter().map(|task| task.used_ns).sum();
    (longest(ordinary).unwrap_or(0), used_ns, longest(crowd).unwrap_or(0))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whether they compute without end, or sleep together and come back at the same moment again and again; and the
    /// same where all of them may use one CPU only.
    #[test]
    fn beside_any_crowd_of_light_tasks_a_usual_one_waits_by_its_weight(
        nice in 1i32..20, count in 1u32..4_500, ordinary in 1u32..4, returns in any::<bool>(), run_us in 100u64..8_000,
        confined in any::<bool>(),
    ) {
        let phases = [Phase::Run(Amount::Fixed(run_us * 1000)), Phase::Until(10 * SECOND)];
        let mut crowd = task("crowd", nice, count, if returns { &phases } else { &BUSY });
        let cpus = 1 + u32::from(confined);
        crowd.pinned = if confined { CpuSet::of([1]) } else { None };
        let (waited_ns, used_ns, crowd_waited_ns) = beside(cpus, crowd, ordinary);
        let (light, usual) = (f64::from(weight_of_nice(nice) * count), f64::from(100 * ordinary));
        // By weight: after a turn it is due the next one when all others have had what they are due meanwhile. While
        // all of the crowd sleep its turns are longer.
        let turn_ns = TURN_NS + if returns { TURN_ALONE_NS } else { 0 };
        let due_ns = turn_ns as f64 * (light + usual) / 100.0;
        let most_ns = 4.0 * due_ns + 500e6;
        prop_assert!(waited_ns as f64 <= most_ns, "{} ms of {} ms", waited_ns / MS, most_ns as u64 / MS);
        prop_assert!(crowd_waited_ns <= 16 * SECOND, "one of the crowd waited {} ms", crowd_waited_ns / MS);
        let due = usual / (light + usual) * DURATION_NS as f64;
        let turns_ns = f64::from(2 * ordinary) * TURN_NS as f64;
        prop_assert!(used_ns as f64 >= 0.9 * due - turns_ns, "{} ms of {} ms", used_ns / MS, due as u64 / MS);
    }
}

/// The rest of a moment's fairness: the crowd has what it is due as well.
#[test]
fn thousands_of_nice_19_leave_a_task_of_nice_0_its_due_and_have_theirs() {
    let (waited_ns, used_ns, crowd_waited_ns) = beside(1, task("crowd", 19, 4_097, &BUSY), 1);
    assert!(waited_ns <= 600 * MS, "it waited {} ms", waited_ns / MS);
    let used_ms = used_ns / MS;
    assert!((900..1_050).contains(&used_ms), "it had {used_ms} ms of 953");
    assert!(crowd_waited_ns <= 16 * SECOND, "one of the crowd waited {} ms", crowd_waited_ns / MS);
}
