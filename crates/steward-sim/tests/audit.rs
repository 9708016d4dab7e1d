//! The record of promises against the scheduler's own rules, on whole machines: what MTR-LS serves is never called
//! broken, and what is starved is.

use proptest::prelude::*;
use steward_core::cpu::audit::{Auditor, Promise, Reading, Tally};
use steward_core::cpu::best_effort::BestEffortOrder;
use steward_core::record::Counted;
use steward_sim::cpu::scenario::{DomainSpec, MachineSettings, TaskSpec};
use steward_sim::{Amount, Machine, Phase, Program, Scenario};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Tasks of one domain: how many, and what each does.
fn tasks(domain: usize, count: u32, phases: &[Phase]) -> TaskSpec {
    TaskSpec {
        name: format!("t{domain}"),
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

/// Loops, tasks that come and go at random, and bursts of many at once.
fn habit() -> impl Strategy<Value = (u32, Vec<Phase>)> {
    prop_oneof![
        (1u32..8).prop_map(|count| (count, vec![Phase::Run(Amount::Forever)])),
        (1u32..12, 1u64..50, 1u64..200).prop_map(|(count, run_ms, sleep_ms)| {
            let run = Phase::Run(Amount::Exponential(run_ms * MS));
            (count, vec![run, Phase::Sleep(Amount::Exponential(sleep_ms * MS))])
        }),
        (20u32..60, 1u64..10, 300u64..2000).prop_map(|(count, run_ms, sleep_ms)| {
            let run = Phase::Run(Amount::Fixed(run_ms * MS));
            (count, vec![run, Phase::Sleep(Amount::Fixed(sleep_ms * MS))])
        }),
    ]
}

/// Audits all domains once a second. Returns what was found for each, summed.
fn audit(scenario: &Scenario, seconds: u64) -> Vec<Tally> {
    let mut machine = Machine::new(scenario);
    let mut auditor = Auditor::new();
    let mut sums = vec![Tally::default(); scenario.domains.len()];
    for second in 1..=seconds {
        machine.run_until(second * SECOND);
        let records = machine.domain_records();
        let promises: Vec<Promise> = (0..scenario.domains.len())
            .map(|place| Promise {
                path: format!("d{place}"),
                cgroup_id: machine.cgroup_id(&format!("d{place}")).unwrap(),
                user: 0,
            })
            .collect();
        let reading = Reading {
            at_ns: second * SECOND,
            generation: 0,
            cpus: scenario.machine.cpus,
            took_ns: 0,
            service_cycle_ns: 500 * MS,
            records: &records,
        };
        for audited in auditor.observe(&reading, &promises) {
            sums[audited.promise].add(&audited.tally);
        }
    }
    sums
}

fn machine(cpus: u32, terms: &[(f64, u32, Vec<Phase>)]) -> Scenario {
    let mut domains = Vec::new();
    let mut all = Vec::new();
    for (place, (reserved, count, phases)) in terms.iter().enumerate() {
        let mut domain = DomainSpec::new(format!("d{place}"), None);
        domain.reserved = *reserved;
        domains.push(domain);
        all.push(tasks(place, *count, phases));
    }
    let mut scenario = Scenario { domains, tasks: all, duration_ns: 60 * SECOND, ..Scenario::default() };
    scenario.machine = MachineSettings { cpus, ..MachineSettings::default() };
    scenario.best_effort.order = BestEffortOrder::VirtualTime;
    scenario
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_the_scheduler_serves_is_never_called_broken(
        cpus in 1u32..=4,
        terms in prop::collection::vec((0.05..0.2f64, habit()), 2..6),
    ) {
        let terms: Vec<(f64, u32, Vec<Phase>)> =
            terms.into_iter().map(|(reserved, (count, phases))| (reserved, count, phases)).collect();
        for (place, sum) in audit(&machine(cpus, &terms), 30).iter().enumerate() {
            prop_assert_eq!(sum.broken, 0, "domain {}: {:?} of {:?}", place, sum, terms);
        }
    }
}

#[test]
fn a_busy_domain_wants_all_that_it_is_promised_and_gets_it() {
    let busy = vec![Phase::Run(Amount::Forever)];
    let sums = audit(&machine(2, &[(0.3, 4, busy.clone()), (0.5, 4, busy)]), 20);
    for (sum, promised_ns) in sums.iter().zip([19 * 600 * MS, 19 * SECOND]) {
        assert_eq!((sum.seconds, sum.broken), (19, 0), "{sum:?}");
        assert!(
            sum.promised_ns.abs_diff(promised_ns) < MS && sum.wanted_ns > promised_ns / 100 * 99,
            "{sum:?}"
        );
        assert!(sum.received_ns >= sum.wanted_ns / 100 * 98, "{sum:?}");
    }
}
