//! What forecasts promise, whatever is counted.

use super::*;
use crate::mechanism::DomainPolicy;

const SECOND_NS: u64 = 1_000_000_000;
const ROOT: u64 = 1;

/// A task that exists since long ago.
fn task(tid: i32) -> TaskSample {
    TaskSample {
        tid,
        pid: tid,
        started_ns: 5,
        uid: 1000,
        cgroup_id: ROOT,
        name: [0; 16],
        class: SchedulingClass::Fair,
        weight: 100.0,
        run_ns: 0,
        wait_ns: 0,
        runnable: true,
        reserved: 0.0,
    }
}

fn domain(cgroup_id: u64, parent_id: u64) -> DomainSample {
    DomainSample {
        cgroup_id,
        parent_id,
        policy: DomainPolicy { weight: Some(100), ..DomainPolicy::default() },
        limit_cpus: f64::INFINITY,
        suspended: false,
    }
}

/// A herald that has seen `seconds` of tasks that run and wait at constant rates (milliseconds per second).
fn steady_for(seconds: u64, tasks: &[(TaskSample, f64, f64)]) -> Herald {
    let mut herald = Herald::new();
    for step in 0..=seconds * 10 {
        herald.observe(100 * SECOND_NS + step * SECOND_NS / 10, counted(tasks, step));
    }
    herald
}

/// The tasks after so many tenths of a second.
fn counted(tasks: &[(TaskSample, f64, f64)], step: u64) -> Vec<TaskSample> {
    tasks
        .iter()
        .map(|(task, run, wait)| TaskSample {
            run_ns: (run * 1e5) as u64 * step,
            wait_ns: (wait * 1e5) as u64 * step,
            ..task.clone()
        })
        .collect()
}

fn steady(tasks: &[(TaskSample, f64, f64)]) -> Herald {
    steady_for(2, tasks)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 2.0
}

#[test]
fn a_task_alone_on_an_idle_machine_gets_what_it_wants_and_could_have_a_cpu() {
    let herald = steady(&[(task(7), 400.0, 0.0)]);
    for model in [Model::ProportionalShare, Model::Steward] {
        let report = herald.forecasts(model, 2, &[domain(ROOT, 0)]);
        let forecast = report.tasks[0];
        assert!(near(forecast.actual_ms_per_s, 400.0), "{forecast:?}");
        assert_eq!(forecast.desired_ms_per_s, forecast.actual_ms_per_s);
        assert_eq!(forecast.predicted_ms_per_s, forecast.actual_ms_per_s);
        assert_eq!(forecast.potential_ms_per_s, 1000.0);
        assert_eq!((forecast.slowdown(), forecast.future_slowdown()), (Some(1.0), Some(1.0)));
        assert_eq!(report.domains[0].forecast.potential_ms_per_s, 2000.0);
        assert_eq!(report.machine.potential_ms_per_s, 2000.0);
    }
}

#[test]
fn loops_share_a_cpu_by_weight_and_a_changed_weight_shows_at_once() {
    let heavy = TaskSample { weight: 300.0, ..task(1) };
    let tasks = [(heavy, 750.0, 250.0), (task(2), 250.0, 750.0)];
    let mut herald = steady(&tasks);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert!(near(report.tasks[0].predicted_ms_per_s, 750.0), "{report:?}");
    assert!(near(report.tasks[0].desired_ms_per_s, 1000.0), "{report:?}");
    assert!(near(report.tasks[1].potential_ms_per_s, 250.0), "{report:?}");
    let mut next = counted(&tasks, 21);
    next[0].weight = 100.0;
    herald.observe(100 * SECOND_NS + 2_100_000_000, next);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert!((report.tasks[0].predicted_ms_per_s - 500.0).abs() < 20.0, "{report:?}");
    assert!((report.tasks[1].potential_ms_per_s - 500.0).abs() < 20.0, "{report:?}");
}
