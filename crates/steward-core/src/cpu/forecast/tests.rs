//! What forecasts promise, whatever is counted.

use super::*;
use crate::cpu::policy::DomainPolicy;

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
            ..*task
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
        let forecast = report.task(0);
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
fn what_the_machine_used_is_exact_where_the_idle_time_is_known() {
    let at = |step: u64| 100 * SECOND_NS + step * SECOND_NS / 10;
    let mut herald = Herald::new();
    for step in 0..=20 {
        // The first of every ten tasks of 100 ms has just begun, and run all its life; what the others did is gone with
        // them.
        let begun = TaskSample { started_ns: at(step) - SECOND_NS / 10, run_ns: SECOND_NS / 10, ..task(50) };
        let tasks =
            if step % 10 == 0 { vec![TaskSample { tid: 50 + step as i32, ..begun }] } else { Vec::new() };
        herald.observe(at(step), tasks);
        herald.set_idle(step * SECOND_NS / 10 * 7 / 10);
    }
    let machine = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]).machine;
    assert!(near(machine.actual_ms_per_s, 300.0), "{machine:?}");
    assert!(machine.desired_ms_per_s >= machine.actual_ms_per_s, "{machine:?}");
    // Where nothing that is there now has run, what was used was used all the same.
    herald.observe(at(21), Vec::new());
    herald.set_idle(21 * SECOND_NS / 10 * 7 / 10);
    let machine = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]).machine;
    assert!(near(machine.actual_ms_per_s, 300.0) && near(machine.predicted_ms_per_s, 300.0), "{machine:?}");
}

/// A herald and 2 s of a domain whose programs live `life_ms` each: `at_once` of them begin every `every_ms` and share
/// the one CPU. The clock goes in steps of 10 ms; tasks are read every 100 ms, `offset` steps before that is a round
/// number.
fn short_lives(at_once: u64, life_ms: u64, every_ms: u64, offset: u64) -> Herald {
    const STEP_NS: u64 = 10_000_000;
    let mut herald = Herald::new();
    let (mut used_ns, mut runnable_ns) = (7, 3);
    for step in 0..=200 {
        let now_ns = 100 * SECOND_NS + step * STEP_NS;
        let age = step * 10 % every_ms / 10;
        if (step + offset).is_multiple_of(10) {
            let born = |number: u64| TaskSample {
                cgroup_id: 2,
                started_ns: now_ns - age * STEP_NS,
                run_ns: age * STEP_NS / at_once,
                wait_ns: age * STEP_NS * (at_once - 1) / at_once,
                ..task((1000 + step / (every_ms / 10) * at_once + number) as i32)
            };
            let there = if age < life_ms / 10 { at_once } else { 0 };
            herald.observe(now_ns, (0..there).map(born).collect());
            herald.set_domain_counters([DomainCounters { cgroup_id: 2, used_ns, runnable_ns }].into_iter());
        }
        if age < life_ms / 10 {
            used_ns += STEP_NS;
            runnable_ns += STEP_NS * at_once;
        }
    }
    herald
}

#[test]
fn what_short_lived_programs_used_is_as_the_scheduler_counted_it_whenever_one_looks() {
    for offset in 0..10 {
        let herald = short_lives(1, 100, 250, offset);
        let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0), domain(2, ROOT)]);
        for figures in &report.domains {
            let forecast = figures.forecast;
            assert!((380.0..=440.0).contains(&forecast.actual_ms_per_s), "{offset}: {forecast:?}");
            assert!((0.95..1.1).contains(&forecast.slowdown().unwrap()), "{offset}: {forecast:?}");
            let predicted = forecast.predicted_ms_per_s / forecast.actual_ms_per_s;
            assert!((0.95..1.1).contains(&predicted), "{offset}: {forecast:?}");
        }
        // Eight at a time, one batch after the other: each is eight times slower than if it were alone.
        for life_ms in [50, 100, 400] {
            let herald = short_lives(8, life_ms, life_ms, offset);
            let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0), domain(2, ROOT)]);
            let forecast = report.domains[1].forecast;
            let (past, future) = (forecast.slowdown().unwrap(), forecast.future_slowdown().unwrap());
            assert!(near(forecast.actual_ms_per_s, 1000.0), "{life_ms} {offset}: {forecast:?}");
            assert!((6.5..=8.1).contains(&past) && past == future, "{life_ms} {offset}: {forecast:?}");
        }
    }
}

#[test]
fn a_domain_whose_tasks_go_on_has_the_sums_of_its_tasks_whatever_is_not_charged_yet() {
    let mut loops = [1, 2, 3].map(|tid| (TaskSample { cgroup_id: 2, ..task(tid) }, 200.0, 600.0));
    loops[2].0.class = SchedulingClass::RealTime;
    let observe = |counters: &dyn Fn(u64) -> Option<u64>| {
        let mut herald = Herald::new();
        for step in 0..=20 {
            herald.observe(100 * SECOND_NS + step * SECOND_NS / 10, counted(&loops, step));
            let counted = counters(step).map(|used_ns| DomainCounters {
                cgroup_id: 2,
                used_ns,
                runnable_ns: 2 * step * SECOND_NS / 10,
            });
            herald.set_domain_counters(counted.into_iter());
        }
        herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0), domain(2, ROOT)])
    };
    let plain = observe(&|_| None);
    // Real-time tasks are not counted; up to 20 ms are missing here and there; the scheduler began anew.
    for counters in [
        &|step| Some(step * 40_000_000) as Option<u64>,
        &|step| Some((step * 40_000_000).saturating_sub(step % 3 * 10_000_000)),
        &|step| Some(if step < 15 { 1 << 40 } else { step * 100_000_000 }),
    ] as [&dyn Fn(u64) -> Option<u64>; 3]
    {
        assert_eq!(observe(counters).domains, plain.domains);
    }
    // One of them has ended meanwhile: what it used beside the others is not lost.
    let more = observe(&|step| Some(step * 60_000_000)).domains[1].forecast;
    assert!(near(more.actual_ms_per_s, plain.domains[1].forecast.actual_ms_per_s + 200.0), "{more:?}");
}

#[test]
fn a_suspended_domain_is_predicted_nothing_though_some_of_it_has_just_ended() {
    let herald = short_lives(1, 100, 250, 0);
    let held = [domain(ROOT, 0), DomainSample { suspended: true, ..domain(2, ROOT) }, domain(3, 2)];
    let figures = herald.forecasts(Model::Steward, 1, &held).domains[1].forecast;
    assert!(figures.actual_ms_per_s > 380.0 && figures.predicted_ms_per_s == 0.0, "{figures:?}");
}

#[test]
fn loops_share_a_cpu_by_weight_and_a_changed_weight_shows_at_once() {
    let heavy = TaskSample { weight: 300.0, ..task(1) };
    let tasks = [(heavy, 750.0, 250.0), (task(2), 250.0, 750.0)];
    let mut herald = steady(&tasks);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert!(near(report.task(0).predicted_ms_per_s, 750.0), "{report:?}");
    assert!(near(report.task(0).desired_ms_per_s, 1000.0), "{report:?}");
    assert!(near(report.task(1).potential_ms_per_s, 250.0), "{report:?}");
    let mut next = counted(&tasks, 21);
    next[0].weight = 100.0;
    herald.observe(100 * SECOND_NS + 2_100_000_000, next);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert!((report.task(0).predicted_ms_per_s - 500.0).abs() < 20.0, "{report:?}");
    assert!((report.task(1).potential_ms_per_s - 500.0).abs() < 20.0, "{report:?}");
}

#[test]
fn a_first_observation_says_nothing_of_old_tasks_and_all_of_those_just_born() {
    let mut herald = Herald::new();
    let at_ns = 100 * SECOND_NS;
    let old = TaskSample { run_ns: 50 * SECOND_NS, ..task(1) };
    let born = TaskSample {
        started_ns: at_ns - SECOND_NS / 2,
        run_ns: SECOND_NS / 8,
        wait_ns: SECOND_NS / 4,
        ..task(2)
    };
    herald.observe(at_ns, vec![born, old]);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert_eq!(report.window_ns, 0);
    assert_eq!(
        report.task(0),
        Forecast { potential_ms_per_s: report.task(0).potential_ms_per_s, ..Forecast::default() }
    );
    assert_eq!(report.task(0).slowdown(), None);
    let forecast = report.task(1);
    assert_eq!((forecast.actual_ms_per_s, forecast.desired_ms_per_s), (250.0, 500.0), "{forecast:?}");
    assert_eq!(forecast.slowdown(), Some(2.0));
}

#[test]
fn observations_at_uneven_times_and_a_missing_one_give_the_same_rates() {
    let mut herald = Herald::new();
    let rates = [(task(1), 300.0, 600.0)];
    for tenths in [0, 1, 2, 7, 8, 11, 18, 19, 23] {
        herald.observe(100 * SECOND_NS + tenths * SECOND_NS / 10, counted(&rates, tenths));
    }
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert_eq!(report.window_ns, 12 * SECOND_NS / 10, "from 1.1 s to 2.3 s");
    assert!(near(report.task(0).actual_ms_per_s, 300.0), "{report:?}");
    assert!(near(report.task(0).desired_ms_per_s, 750.0), "{report:?}");
}

#[test]
fn observations_in_quick_succession_do_not_pile_up_and_change_nothing() {
    let mut herald = Herald::new();
    for ms in 0..3000 {
        let mut tasks = counted(&[(task(1), 300.0, 0.0)], 1);
        tasks[0].run_ns = ms * 300_000;
        herald.observe(100 * SECOND_NS + ms * 1_000_000, tasks);
    }
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert!(near(report.task(0).actual_ms_per_s, 300.0), "{report:?}");
    assert!(report.window_ns >= 950_000_000 && report.window_ns < 1_050_000_000, "{}", report.window_ns);
    assert!(herald.history.lengths().0 < 30, "{:?}", herald.history.lengths());
}

#[test]
fn a_counter_that_goes_back_restarts_that_task_alone() {
    let rates = [(task(1), 300.0, 0.0), (task(2), 400.0, 0.0)];
    let mut herald = steady(&rates);
    let mut next = counted(&rates, 21);
    next[0].run_ns = 1000;
    herald.observe(100 * SECOND_NS + 2_100_000_000, next.clone());
    let report = herald.forecasts(Model::Steward, 2, &[domain(ROOT, 0)]);
    assert_eq!(report.task(0).actual_ms_per_s, 0.0);
    assert!(near(report.task(1).actual_ms_per_s, 400.0));
    next[0].run_ns += 50_000_000;
    next[1].run_ns += 40_000_000;
    herald.observe(100 * SECOND_NS + 2_200_000_000, next);
    let report = herald.forecasts(Model::Steward, 2, &[domain(ROOT, 0)]);
    assert!(near(report.task(0).actual_ms_per_s, 500.0), "{report:?}");
}

#[test]
fn a_thread_id_that_is_used_again_is_another_task() {
    let mut herald = steady(&[(task(1), 900.0, 0.0)]);
    let at_ns = 100 * SECOND_NS + 2_100_000_000;
    let reborn = TaskSample { started_ns: at_ns - 200_000_000, run_ns: 20_000_000, ..task(1) };
    herald.observe(at_ns, vec![reborn]);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert!(near(report.task(0).actual_ms_per_s, 100.0), "{report:?}");
}

#[test]
fn a_clock_that_jumps_begins_anew_and_never_gives_a_wrong_rate() {
    for jump_ns in [50 * SECOND_NS, 3600 * SECOND_NS] {
        for back in [false, true] {
            let rates = [(task(1), 300.0, 0.0)];
            let mut herald = steady(&rates);
            let at_ns = 102 * SECOND_NS;
            let at_ns = if back { at_ns.saturating_sub(jump_ns) } else { at_ns + jump_ns };
            herald.observe(at_ns, counted(&rates, 21));
            let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
            assert_eq!((report.at_ns, report.window_ns, report.task(0).actual_ms_per_s), (at_ns, 0, 0.0));
            herald.observe(at_ns + SECOND_NS / 10, counted(&rates, 22));
            let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
            assert!(near(report.task(0).actual_ms_per_s, 300.0), "{report:?}");
        }
    }
}

#[test]
fn a_task_that_vanished_is_not_forecast_and_what_it_used_is_handed_out_to_those_that_wait() {
    let rates = [(task(1), 990.0, 10.0), (task(2), 10.0, 990.0)];
    let mut herald = steady(&rates);
    let mut next = counted(&rates, 21);
    next.remove(0);
    herald.observe(100 * SECOND_NS + 2_100_000_000, next);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    assert_eq!((herald.tasks().len(), report.tasks().count()), (1, 1));
    assert!(report.task(0).predicted_ms_per_s > 900.0, "{report:?}");
}

#[test]
fn a_task_that_never_ran_wants_nothing_and_has_no_slowdown() {
    let report = steady(&[(task(1), 0.0, 0.0)]).forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    let forecast = report.task(0);
    assert_eq!((forecast.desired_ms_per_s, forecast.predicted_ms_per_s), (0.0, 0.0));
    assert_eq!(
        (forecast.slowdown(), forecast.future_slowdown(), forecast.potential_slowdown()),
        (None, None, None)
    );
    assert_eq!(forecast.potential_ms_per_s, 1000.0);
}

/// CPU Futures, section 4.2: 100 seconds stand in for a second in which there was hardly anything but waiting.
#[test]
fn a_task_that_waited_for_more_than_900_ms_of_the_second_is_judged_by_the_last_100_seconds() {
    let mut herald = Herald::new();
    let mut sample = task(1);
    for step in 0..=1200 {
        herald.observe(100 * SECOND_NS + step * SECOND_NS / 10, vec![sample]);
        // It used 20 % of an idle machine for 118 s, and then got hardly anything.
        let (run_ns, wait_ns) = if step < 1180 { (20_000_000, 0) } else { (500_000, 99_500_000) };
        sample.run_ns += run_ns;
        sample.wait_ns += wait_ns;
    }
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    let forecast = report.task(0);
    assert!(near(forecast.actual_ms_per_s, 5.0), "{forecast:?}");
    assert!(near(forecast.desired_ms_per_s, 200.0), "{forecast:?}");
    assert!(herald.history.lengths().1 <= 12, "{:?}", herald.history.lengths());
}

#[test]
fn one_that_has_only_ever_waited_may_want_a_whole_cpu() {
    let report = steady(&[(task(1), 0.0, 1000.0)]).forecasts(Model::Steward, 1, &[domain(ROOT, 0)]);
    let forecast = report.task(0);
    assert_eq!(forecast.desired_ms_per_s, 1000.0);
    assert_eq!(forecast.slowdown(), Some(SLOWDOWN_MAX));
    assert_eq!(forecast.predicted_ms_per_s, 0.0, "nothing was handed out to anyone");
}

#[test]
fn a_weight_of_zero_or_no_number_counts_as_the_least_one() {
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let light = TaskSample { weight, ..task(1) };
        for model in [Model::ProportionalShare, Model::Steward] {
            let herald = steady(&[(light, 5.0, 995.0), (task(2), 995.0, 5.0)]);
            let report = herald.forecasts(model, 1, &[domain(ROOT, 0)]);
            let predicted = report.task(0).predicted_ms_per_s;
            assert!((0.0..50.0).contains(&predicted), "{weight}: {report:?}");
        }
    }
}

#[test]
fn real_time_tasks_come_first_and_idle_ones_last() {
    let first = TaskSample { class: SchedulingClass::RealTime, ..task(1) };
    let last = TaskSample { class: SchedulingClass::Idle, ..task(3) };
    let herald = steady(&[(first, 400.0, 0.0), (task(2), 590.0, 410.0), (last, 10.0, 990.0)]);
    for model in [Model::ProportionalShare, Model::Steward] {
        let report = herald.forecasts(model, 1, &[domain(ROOT, 0)]);
        let predicted: Vec<f64> = report.tasks().map(|forecast| forecast.predicted_ms_per_s).collect();
        assert_eq!(predicted[0], 400.0);
        assert!((580.0..=600.0).contains(&predicted[1]), "{predicted:?}");
        assert!(predicted[2] < 20.0, "{predicted:?}");
        assert!(report.task(2).potential_ms_per_s < 20.0, "{report:?}");
    }
}

/// Two domains below the root with one loop each on one CPU; the first got `first` ms/s.
fn two_loops(first: f64, policies: [DomainPolicy; 2]) -> (Herald, Vec<DomainSample>) {
    let in_domain = |tid: i32, cgroup_id| TaskSample { cgroup_id, ..task(tid) };
    let herald =
        steady(&[(in_domain(1, 10), first, 1000.0 - first), (in_domain(2, 11), 1000.0 - first, first)]);
    let mut domains = vec![domain(ROOT, 0), domain(10, ROOT), domain(11, ROOT)];
    for (domain, policy) in domains[1..].iter_mut().zip(policies) {
        domain.policy = policy;
    }
    (herald, domains)
}

fn weighing(weight: u32) -> DomainPolicy {
    DomainPolicy { weight: Some(weight), ..DomainPolicy::default() }
}

#[test]
fn a_changed_weight_reservation_or_priority_of_a_domain_shows_at_once() {
    let (herald, domains) = two_loops(500.0, [weighing(100), weighing(300)]);
    let predicted = |model, domains: &[DomainSample]| {
        herald.forecasts(model, 1, domains).domains[1].forecast.predicted_ms_per_s
    };
    assert!(near(predicted(Model::Steward, &domains), 250.0));
    assert!(near(predicted(Model::ProportionalShare, &domains), 250.0));
    let mut reserved = domains.clone();
    reserved[1].policy.reserved = 0.6;
    assert!(near(predicted(Model::Steward, &reserved), 600.0 + 400.0 / 4.0));
    assert!(
        near(predicted(Model::ProportionalShare, &reserved), 250.0),
        "no reservations without Steward's scheduler"
    );
    let mut first = domains.clone();
    first[1].policy.priority = 5;
    assert!(near(predicted(Model::Steward, &first), 1000.0));
    let report = herald.forecasts(Model::Steward, 1, &first);
    assert!(near(report.domains[2].forecast.potential_ms_per_s, 0.0), "{report:?}");
    first[2].policy.reserved = 0.2;
    assert!(near(predicted(Model::Steward, &first), 800.0), "a reservation holds whatever the priority");
}

#[test]
fn a_limit_holds_a_domain_back_and_leaves_the_rest_to_others() {
    let (herald, mut domains) = two_loops(500.0, [weighing(100), weighing(100)]);
    domains[1].limit_cpus = 0.2;
    let report = herald.forecasts(Model::Steward, 1, &domains);
    assert!(near(report.domains[1].forecast.predicted_ms_per_s, 200.0), "{report:?}");
    assert!(near(report.domains[1].forecast.potential_ms_per_s, 200.0), "{report:?}");
    assert!(near(report.domains[2].forecast.predicted_ms_per_s, 800.0), "{report:?}");
}

#[test]
fn a_suspended_domain_is_predicted_nothing_and_its_potential_is_what_it_would_have_if_released() {
    let (herald, mut domains) = two_loops(500.0, [weighing(100), weighing(100)]);
    domains[1].suspended = true;
    // What is below it is suspended too.
    domains.push(domain(12, 10));
    let report = herald.forecasts(Model::Steward, 1, &domains);
    let suspended = report.domains[1].forecast;
    assert_eq!(suspended.predicted_ms_per_s, 0.0);
    assert!(near(suspended.potential_ms_per_s, 500.0), "{report:?}");
    assert_eq!(report.domains[1].tasks, 1);
    assert!(near(report.domains[2].forecast.predicted_ms_per_s, 1000.0), "{report:?}");
    assert!(near(report.outside(1).predicted_ms_per_s, 1000.0), "{report:?}");
}

#[test]
fn a_task_gets_its_reservation_first_and_shares_the_rest() {
    let reserved = TaskSample { reserved: 0.4, ..task(1) };
    let report = steady(&[(reserved, 700.0, 300.0), (task(2), 300.0, 700.0)]).forecasts(
        Model::Steward,
        1,
        &[domain(ROOT, 0)],
    );
    assert!((report.task(0).predicted_ms_per_s - 700.0).abs() < 20.0, "{report:?}");
    let beside = TaskSample { cgroup_id: 10, ..task(2) };
    let herald = steady(&[(reserved, 500.0, 500.0), (beside, 500.0, 500.0)]);
    let report = herald.forecasts(Model::Steward, 1, &[domain(ROOT, 0), domain(10, ROOT)]);
    assert!(
        near(report.task(0).predicted_ms_per_s, 500.0),
        "its domain pays for what it reserves: {report:?}"
    );
}

#[test]
fn tasks_of_a_cgroup_without_a_cpu_controller_count_as_its_ancestors() {
    let mut domains = vec![domain(ROOT, 0), domain(10, ROOT), domain(11, ROOT)];
    domains[2].policy.weight = None;
    let in_domain = |tid: i32, cgroup_id| TaskSample { cgroup_id, ..task(tid) };
    // Two loops below 11 are two loops of the root.
    let herald = steady(&[
        (in_domain(1, 10), 333.0, 667.0),
        (in_domain(2, 11), 333.0, 667.0),
        (in_domain(3, 11), 333.0, 667.0),
    ]);
    let report = herald.forecasts(Model::ProportionalShare, 1, &domains);
    assert!((report.domains[1].forecast.predicted_ms_per_s - 333.0).abs() < 5.0, "{report:?}");
    assert_eq!((report.domains[2].tasks, report.domains[0].tasks), (2, 3));
    assert_eq!([0, 1, 2].map(|domain| report.members(domain)(1)), [true, false, true]);
    assert_eq!(report.home(2), Some(2));
}

#[test]
fn parents_that_are_missing_or_go_round_in_a_circle_are_the_roots_children() {
    let samples = [
        (TaskSample { cgroup_id: 20, ..task(1) }, 500.0, 0.0),
        (TaskSample { cgroup_id: 99, ..task(2) }, 100.0, 0.0),
    ];
    let herald = steady(&samples);
    for domains in [
        vec![domain(ROOT, 0), domain(20, 21), domain(21, 20), domain(22, 22)],
        vec![domain(20, 77), domain(21, 0)],
        vec![domain(20, 21), domain(21, 20)],
        vec![],
    ] {
        let report = herald.forecasts(Model::Steward, 1, &domains);
        assert!(near(report.machine.predicted_ms_per_s, 600.0), "{domains:?} {report:?}");
        assert_eq!(report.domains.len(), domains.len());
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> impl Strategy<Value = (TaskSample, f64, f64)> {
        (
            0u64..8,
            prop_oneof![
                Just(SchedulingClass::Fair),
                Just(SchedulingClass::Fair),
                Just(SchedulingClass::Idle),
                Just(SchedulingClass::RealTime)
            ],
            prop_oneof![Just(0.0), Just(100.0), 0.01..9000.0f64],
            0.0..=1000.0f64,
            0.0..=1000.0f64,
            prop_oneof![Just(0.0), 0.0..0.8f64],
        )
            .prop_map(|(cgroup_id, class, weight, run, wait, reserved)| {
                let wait = wait.min(1000.0 - run);
                (TaskSample { cgroup_id, class, weight, reserved, ..task(1) }, run, wait)
            })
    }

    fn any_domain() -> impl Strategy<Value = DomainSample> {
        (
            1u64..8,
            0u64..8,
            prop_oneof![Just(None), (1u32..10_000).prop_map(Some)],
            prop_oneof![Just(0.0), 0.0..=1.0f64],
            (0u8..9, 0u8..9),
            prop_oneof![Just(None), (1u32..10_000).prop_map(Some)],
            prop_oneof![Just(f64::INFINITY), 0.0..2.0f64],
            any::<bool>(),
        )
            .prop_map(
                |(
                    cgroup_id,
                    parent_id,
                    weight,
                    reserved,
                    (priority, own_priority),
                    own_weight,
                    limit_cpus,
                    suspended,
                )| {
                    DomainSample {
                        cgroup_id,
                        parent_id,
                        policy: DomainPolicy { priority, weight, reserved, own_priority, own_weight },
                        limit_cpus,
                        suspended: suspended && cgroup_id % 3 == 0,
                    }
                },
            )
    }

    fn check(forecast: &Forecast, capacity: f64) -> Result<(), TestCaseError> {
        let Forecast { actual_ms_per_s, desired_ms_per_s, predicted_ms_per_s, potential_ms_per_s } =
            *forecast;
        for figure in [actual_ms_per_s, desired_ms_per_s, predicted_ms_per_s, potential_ms_per_s] {
            prop_assert!(figure.is_finite() && figure >= 0.0, "{:?}", forecast);
        }
        prop_assert!(predicted_ms_per_s <= potential_ms_per_s + 1e-6, "{:?}", forecast);
        prop_assert!(predicted_ms_per_s <= desired_ms_per_s + 1e-6, "{:?}", forecast);
        prop_assert!(potential_ms_per_s <= capacity + 1e-6, "{:?}", forecast);
        for slowdown in [forecast.slowdown(), forecast.future_slowdown()].into_iter().flatten() {
            prop_assert!(slowdown > 0.0 && slowdown <= SLOWDOWN_MAX, "{:?}", forecast);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn what_a_task_did_in_the_last_second_is_exact_however_it_rested_before(
            phases in proptest::collection::vec((1usize..40, any::<bool>()), 1..12),
        ) {
            let works: Vec<bool> =
                phases.iter().flat_map(|(tenths, works)| std::iter::repeat_n(*works, *tenths)).collect();
            let mut herald = Herald::new();
            let mut counted = vec![3_000_000_000];
            for (tenth, works) in works.iter().enumerate() {
                let run_ns = counted[tenth];
                let now = TaskSample { run_ns, runnable: *works, ..task(1) };
                let at_ns = 100 * SECOND_NS + tenth as u64 * SECOND_NS / 10;
                // Other tasks come and go, so that now all are read and now what has changed.
                let others = if tenth % 7 == 0 { vec![now, task(2)] } else { vec![now] };
                herald.take(&TaskReading { at_ns, tasks: &others, changed: Changed::At(&[0]) });
                let began = tenth.saturating_sub(10);
                let report = herald.forecasts(Model::Steward, 4, &[domain(ROOT, 0)]);
                let expected_ms = (run_ns - counted[began]) as f64 / 1e6;
                let seconds = (tenth - began) as f64 / 10.0;
                let actual = report.task(0).actual_ms_per_s;
                prop_assert!((actual * seconds - expected_ms).abs() < 0.01, "{tenth}: {actual} {expected_ms}");
                counted.push(run_ns + if *works { 30_000_000 } else { 0 });
            }
        }

        #[test]
        fn whatever_there_is_sums_stay_within_the_machine_and_figures_in_their_order(
            tasks in prop::collection::vec(sample(), 0..30),
            mut domains in prop::collection::vec(any_domain(), 0..8),
            cpus in 1u32..9,
            model in prop_oneof![Just(Model::Steward), Just(Model::ProportionalShare)],
        ) {
            domains.sort_by_key(|domain| domain.cgroup_id);
            domains.dedup_by_key(|domain| domain.cgroup_id);
            let tasks: Vec<_> = tasks.into_iter().enumerate().map(|(index, (task, run, wait))| {
                (TaskSample { tid: index as i32 + 1, ..task }, run, wait)
            }).collect();
            let herald = steady_for(1, &tasks);
            let report = herald.forecasts(model, cpus, &domains);
            let capacity = f64::from(cpus) * 1000.0;
            for forecast in report.tasks() {
                check(&forecast, capacity.min(1000.0))?;
            }
            let sum: f64 = report.tasks().map(|forecast| forecast.predicted_ms_per_s).sum();
            prop_assert!(sum <= capacity + 1e-3, "{sum}");
            check(&report.machine, capacity)?;
            for domain in &report.domains {
                check(&domain.forecast, capacity)?;
            }
            for index in 0..domains.len() {
                let (inside, outside) = (report.domains[index].forecast, report.outside(index));
                let both = inside.predicted_ms_per_s + outside.predicted_ms_per_s;
                prop_assert!((both - report.machine.predicted_ms_per_s).abs() < 1e-3);
                check(&outside, capacity)?;
            }
        }

        #[test]
        fn any_sequence_of_counters_and_times_gives_figures(
            steps in prop::collection::vec(
                (any::<u64>(), prop::collection::vec((1i32..5, any::<u64>(), any::<u64>(), any::<u64>()), 0..5)), 1..20,
            ),
            small in any::<bool>(),
        ) {
            let mut herald = Herald::new();
            for (at_ns, tasks) in steps {
                let shorten = |number: u64| if small { number % (3 * SECOND_NS) } else { number };
                let tasks = tasks.into_iter().map(|(tid, started_ns, run_ns, wait_ns)| TaskSample {
                    started_ns: shorten(started_ns), run_ns: shorten(run_ns), wait_ns: shorten(wait_ns), ..task(tid)
                }).collect();
                herald.observe(shorten(at_ns), tasks);
                let report = herald.forecasts(Model::Steward, 2, &[domain(ROOT, 0)]);
                for forecast in report.tasks() {
                    check(&forecast, 1000.0)?;
                }
            }
        }

        /// What a source says about changes spares work and changes no figure.
        #[test]
        fn a_reading_that_says_what_changed_gives_the_same_as_all_tasks(
            before in prop::collection::vec(sample(), 1..12),
            steps in prop::collection::vec(
                (1u64..400, prop::collection::vec((0usize..12, sample(), any::<bool>()), 0..4)), 1..30,
            ),
            cpus in 1u32..4,
        ) {
            let mut tasks: Vec<TaskSample> = before.into_iter().enumerate().map(|(index, (task, _, _))| {
                TaskSample { tid: index as i32 + 1, reserved: 0.0, ..task }
            }).collect();
            let domains: Vec<DomainSample> = (0..8).map(|id| domain(id + 1, id)).collect();
            let (mut told, mut untold) = (Herald::new(), Herald::new());
            let mut at_ns = 100 * SECOND_NS;
            for (elapsed_ms, changes) in steps {
                let mut places: Vec<u32> = Vec::new();
                for (place, (now, run, wait), runnable) in changes {
                    let place = place % tasks.len();
                    let elapsed = elapsed_ms as f64 * 1e3;
                    let task = &mut tasks[place];
                    task.run_ns += (run * elapsed) as u64;
                    task.wait_ns += (wait * elapsed) as u64;
                    (task.cgroup_id, task.weight, task.runnable) = (now.cgroup_id, now.weight, runnable);
                    places.push(place as u32);
                }
                at_ns += elapsed_ms * 1_000_000;
                places.extend((0..).zip(&tasks).filter(|(_, task)| task.runnable).map(|(place, _)| place));
                places.sort_unstable();
                places.dedup();
                told.take(&TaskReading { at_ns, tasks: &tasks, changed: Changed::At(&places) });
                untold.observe(at_ns, tasks.clone());
                let reserved = [(tasks[0].tid, 0.3), (99, 0.5)];
                told.set_reserved(reserved.into_iter());
                untold.set_reserved(reserved.into_iter());
                for model in [Model::Steward, Model::ProportionalShare] {
                    let (one, other) = (told.forecasts(model, cpus, &domains), untold.forecasts(model, cpus, &domains));
                    prop_assert_eq!(&one, &other);
                }
            }
        }
    }
}
