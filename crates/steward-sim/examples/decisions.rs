//! What a scheduling decision costs with few and with many domains, on this host.
//!
//! `cargo run --release -p steward-sim --example decisions`
//!
//! Each machine has 16 CPUs and 10 busy tasks a domain. What is printed is the host's time for a whole turn of the
//! simulation (timer interrupt, charge, choice, queueing the task that ran) from the second to the seventh second: the
//! best of several rounds.

use std::sync::Arc;
use std::time::Instant;

use steward_core::mechanism::BestEffortOrder;
use steward_sim::scenario::{DomainSpec, MachineSettings, TaskSpec};
use steward_sim::{Amount, Machine, Phase, Program, Scenario};

const ROUNDS: u32 = 100;
const NS_PER_S: u64 = 1_000_000_000;

fn scenario(domains: usize, order: BestEffortOrder) -> Scenario {
    let mut scenario = Scenario {
        machine: MachineSettings { cpus: 16, ..MachineSettings::default() },
        domains: (0..domains).map(|domain| DomainSpec::new(format!("d{domain}"), None)).collect(),
        tasks: vec![TaskSpec {
            name: "loop".to_owned(),
            count: 10 * domains as u32,
            domains: (0..domains).map(Some).collect(),
            weight: 100,
            starts: vec![Amount::Fixed(0)],
            pinned: None,
            reservation: None,
            programs: vec![Program { phases: Arc::from([Phase::Run(Amount::Forever)]), repeat: None }],
        }],
        ..Scenario::default()
    };
    scenario.best_effort.order = order;
    scenario
}

/// Host time for each decision in nanoseconds, and how many decisions there were.
fn round(scenario: &Scenario) -> (f64, u64) {
    let mut machine = Machine::new(scenario);
    machine.run_until(2 * NS_PER_S);
    let before = machine.decisions();
    let begin = Instant::now();
    machine.run_until(7 * NS_PER_S);
    let spent_ns = begin.elapsed().as_nanos() as f64;
    let decisions = machine.decisions() - before;
    (spent_ns / decisions as f64, decisions)
}

fn main() {
    println!("{:8} {:>8} {:>8} {:>10} {:>12}", "order", "domains", "tasks", "decisions", "ns/decision");
    for order in [BestEffortOrder::MtrLs, BestEffortOrder::Wrr, BestEffortOrder::Vtime] {
        let mut base = None;
        for domains in [10, 100, 1000] {
            let scenario = scenario(domains, order);
            let (best_ns, decisions) = (0..ROUNDS)
                .map(|_| round(&scenario))
                .min_by(|left, right| left.0.total_cmp(&right.0))
                .expect("at least one round");
            let ratio = best_ns / *base.get_or_insert(best_ns);
            let tasks = domains * 10;
            println!(
                "{:8} {domains:8} {tasks:8} {decisions:10} {best_ns:12.1} {ratio:6.2}x",
                order.to_string()
            );
        }
    }
}
