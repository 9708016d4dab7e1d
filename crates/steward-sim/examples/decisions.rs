//! What a scheduling decision costs with few and with many domains, on this host.
//!
//! `cargo run --release -p steward-sim --example decisions`
//!
//! Each machine has 16 CPUs, and all tasks are busy. What is printed is the host's time for a whole turn of the
//! simulation (timer interrupt, charge, choice, queueing the task that ran) from the second to the seventh second: the
//! best of several rounds. It is compared with 10 domains that have as many tasks, and with 10 that have ten each.

use std::sync::Arc;
use std::time::Instant;

use steward_core::cpu::best_effort::BestEffortOrder;
use steward_sim::cpu::scenario::{DomainSpec, MachineSettings, TaskSpec};
use steward_sim::{Amount, Machine, Phase, Program, Scenario};

const ROUNDS: u32 = 100;
const NS_PER_S: u64 = 1_000_000_000;

/// How many domains, and how many tasks in all of them.
const CROWDS: [(usize, u32); 5] = [(10, 100), (100, 1_000), (10, 10_000), (100, 10_000), (1_000, 10_000)];

fn scenario(domains: usize, tasks: u32, order: BestEffortOrder) -> Scenario {
    let mut scenario = Scenario {
        machine: MachineSettings { cpus: 16, ..MachineSettings::default() },
        domains: (0..domains).map(|domain| DomainSpec::new(format!("d{domain}"), None)).collect(),
        tasks: vec![TaskSpec {
            name: "loop".to_owned(),
            count: tasks,
            domains: (0..domains).map(Some).collect(),
            weight: 100,
            starts: vec![Amount::Fixed(0)],
            pinned: None,
            reservation: None,
            user: 0,
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
    println!(
        "{:8} {:>8} {:>8} {:>10} {:>12} {:>14} {:>14}",
        "order", "domains", "tasks", "decisions", "ns/decision", "to as many", "to ten each"
    );
    for order in [BestEffortOrder::VirtualTime, BestEffortOrder::MtrLs, BestEffortOrder::Wrr] {
        let mut of_ten: Vec<(u32, f64)> = Vec::new();
        for (domains, tasks) in CROWDS {
            let scenario = scenario(domains, tasks, order);
            let (best_ns, decisions) = (0..ROUNDS)
                .map(|_| round(&scenario))
                .min_by(|left, right| left.0.total_cmp(&right.0))
                .expect("at least one round");
            if domains == 10 {
                of_ten.push((tasks, best_ns));
            }
            let to_as_many = of_ten.iter().find(|(known, _)| *known == tasks).map(|(_, ns)| best_ns / ns);
            let to_ten_each = best_ns / of_ten[0].1;
            let to_as_many = to_as_many.map_or(String::new(), |ratio| format!("{ratio:.2}x"));
            println!(
                "{:8} {domains:8} {tasks:8} {decisions:10} {best_ns:12.1} {to_as_many:>14} {to_ten_each:13.2}x",
                order.to_string()
            );
        }
    }
}
