//! What the herald costs: one reading taken in and one forecast, for 1,000 and 10,000 tasks. Medians of a hundred.
//!
//!     cargo run --release -p steward-core --example forecast-cost

use std::time::Instant;

use steward_core::cpu::forecast::{
    Changed, DomainSample, Herald, Model, SchedulingClass, TaskReading, TaskSample,
};
use steward_core::cpu::policy::DomainPolicy;

const TENTH_NS: u64 = 100_000_000;
const DOMAINS: u64 = 100;
const ROUNDS: u64 = 100;

fn main() {
    println!("{:>7} {:>8} {:>14} {:>14} {:>14}", "tasks", "busy", "take ms", "steward ms", "proportional ms");
    for count in [1_000, 10_000] {
        for busy in [0, count / 10, count] {
            measure(count, busy);
        }
    }
}

/// `count` tasks in a hundred domains; the first `busy` want CPU time that four CPUs do not have.
fn measure(count: u64, busy: u64) {
    let mut herald = Herald::new();
    let domains: Vec<DomainSample> = (1..=DOMAINS).map(domain).collect();
    let (mut take_ns, mut steward_ns, mut proportional_ns) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..ROUNDS {
        let tasks: Vec<TaskSample> = (0..count).map(|tid| task(tid, busy, step)).collect();
        let busy: Vec<u32> = (0..busy as u32).collect();
        let at_ns = (100 + step) * TENTH_NS;
        let reading = TaskReading { at_ns, tasks: &tasks, changed: Changed::At(&busy) };
        let begin = Instant::now();
        herald.take(&reading);
        take_ns.push(begin.elapsed().as_nanos());
        for (model, spent_ns) in
            [(Model::Steward, &mut steward_ns), (Model::ProportionalShare, &mut proportional_ns)]
        {
            let begin = Instant::now();
            std::hint::black_box(herald.forecasts(model, 4, &domains));
            spent_ns.push(begin.elapsed().as_nanos());
        }
    }
    let median_ms = |mut spent_ns: Vec<u128>| {
        spent_ns.sort_unstable();
        spent_ns[spent_ns.len() / 2] as f64 / 1e6
    };
    println!(
        "{count:>7} {busy:>8} {:>14.3} {:>14.3} {:>14.3}",
        median_ms(take_ns),
        median_ms(steward_ns),
        median_ms(proportional_ns)
    );
}

fn domain(cgroup_id: u64) -> DomainSample {
    DomainSample {
        cgroup_id,
        // A tree ten deep and ten wide.
        parent_id: if cgroup_id == 1 { 0 } else { cgroup_id.saturating_sub(10).max(1) },
        policy: DomainPolicy { weight: Some(100), ..DomainPolicy::default() },
        limit_cpus: f64::INFINITY,
        suspended: false,
    }
}

fn task(tid: u64, busy: u64, step: u64) -> TaskSample {
    let rate = if tid < busy { 1 + tid % 7 } else { 0 };
    // Four CPUs, all handed out.
    let run_ns = TENTH_NS / busy.max(1) * rate;
    TaskSample {
        tid: tid as i32,
        pid: tid as i32,
        started_ns: 1,
        uid: 0,
        cgroup_id: 1 + tid % DOMAINS,
        name: *b"example\0\0\0\0\0\0\0\0\0",
        class: SchedulingClass::Fair,
        weight: 100.0,
        run_ns: run_ns * step,
        wait_ns: run_ns * step * (tid % 5),
        runnable: tid < busy,
        reserved: 0.0,
    }
}
