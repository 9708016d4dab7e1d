//! The herald's models against what a scheduler then gives, in virtual time.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use steward_core::cpu::forecast::{Herald, Model, timesharing};
use steward_sim::cpu::timesharing::Timesharing;
use steward_sim::{Amount, Machine, Phase, Program, ScenarioFile};

const MS: u64 = 1_000_000;
const TENTH_NS: u64 = 100 * MS;

/// Sums of what was predicted wrongly, and of what was given.
#[derive(Clone, Copy, Debug, Default)]
struct Error {
    wrong: f64,
    given: f64,
}

impl Error {
    fn add(&mut self, predicted: f64, actual: f64) {
        self.wrong += (predicted - actual).abs();
        self.given += actual;
    }

    /// The mean error of a prediction over the mean allocation.
    fn mean(&self) -> f64 {
        self.wrong / self.given.max(1e-9)
    }
}

/// A task of a random workload: works and sleeps in turn.
struct Pattern {
    run_us: u64,
    sleep_us: u64,
    nice: i32,
}

fn pattern(random: &mut Pcg64Mcg) -> Pattern {
    let mut upto = |most: u64| random.next_u64() % most;
    let run_us = 500 + upto(20_000);
    // One in three never sleeps.
    let sleep_us = if upto(3) == 0 { 0 } else { 500 + upto(40_000) };
    Pattern { run_us, sleep_us, nice: upto(7) as i32 - 3 }
}

/// The program of a task, with amounts that are always the same, or vary by a fifth, or are drawn at random.
fn toml_program(pattern: &Pattern, spread: Spread) -> String {
    let amount = |us: u64| match spread {
        Spread::Fixed => format!("{us}us"),
        Spread::Fifth => format!("uniform {}us {}us", us * 4 / 5, us * 6 / 5),
        Spread::Exponential => format!("exponential {us}us"),
    };
    if pattern.sleep_us == 0 {
        return "[{ run = \"forever\" }]".to_owned();
    }
    format!("[{{ run = \"{}\" }}, {{ sleep = \"{}\" }}]", amount(pattern.run_us), amount(pattern.sleep_us))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spread {
    Fixed,
    Fifth,
    Exponential,
}

/// A random tree of up to four domains with up to twelve tasks, unchanging for a while.
fn workload(seed: u64, spread: Spread) -> String {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let cpus = 1 + random.next_u64() % 4;
    let mut text = format!("seed = {seed}\nduration = \"20s\"\n[machine]\ncpus = {cpus}\n");
    let domains = random.next_u64() % 5;
    for domain in 0..domains {
        let weight = 50 + random.next_u64() % 300;
        writeln!(text, "[[domain]]\nname = \"d{domain}\"\nweight = {weight}").unwrap();
        match random.next_u64() % 4 {
            0 => writeln!(text, "cpu = \"{}%\"", 5 + random.next_u64() % 15).unwrap(),
            1 => writeln!(text, "priority = {}", 3 + random.next_u64() % 3).unwrap(),
            _ => {}
        }
    }
    for task in 0..1 + random.next_u64() % 12 {
        let pattern = pattern(&mut random);
        let program = toml_program(&pattern, spread);
        writeln!(text, "[[task]]\nname = \"t{task}\"\nnice = {}\nprogram = {program}", pattern.nice).unwrap();
        match random.next_u64() % (domains + 1) {
            0 => {}
            domain => writeln!(text, "domain = \"d{}\"", domain - 1).unwrap(),
        }
        if random.next_u64() % 6 == 0 {
            writeln!(text, "cpu = \"4ms/40ms\"").unwrap();
        }
    }
    text
}

/// Lets a machine run, and holds each second's prediction against the next second.
fn error_of(text: &str, model: Model) -> Error {
    let file = ScenarioFile::parse(Path::new("test.toml"), text)
        .unwrap_or_else(|problem| panic!("{problem}\n{text}"));
    let scenario = file.scenario(&[]).unwrap();
    let mut machine = Machine::new(&scenario);
    let domains = machine.domain_samples();
    let mut herald = Herald::new();
    let mut error = Error::default();
    let mut predictions: Vec<f64> = Vec::new();
    for step in 1..=140 {
        machine.run_until(step * TENTH_NS);
        herald.observe(step * TENTH_NS, machine.task_samples());
        if step < 40 || step % 10 != 0 {
            continue;
        }
        let report = herald.forecasts(model, scenario.machine.cpus, &domains);
        for (predicted, forecast) in predictions.iter().zip(report.tasks()) {
            error.add(*predicted, forecast.actual_ms_per_s);
        }
        predictions = report.tasks().map(|forecast| forecast.predicted_ms_per_s).collect();
    }
    error
}

fn mean_errors(spread: Spread) -> Vec<(u64, f64)> {
    let mut errors: Vec<(u64, f64)> =
        (0..40).map(|seed| (seed, error_of(&workload(seed, spread), Model::Steward).mean())).collect();
    errors.sort_by(|a, b| a.1.total_cmp(&b.1));
    errors
}

fn mean(errors: &[(u64, f64)]) -> f64 {
    errors.iter().map(|(_, error)| error).sum::<f64>() / errors.len() as f64
}

#[test]
fn what_is_predicted_for_an_unchanging_workload_is_what_stewards_scheduler_gives_in_the_next_second() {
    for spread in [Spread::Fixed, Spread::Fifth, Spread::Exponential] {
        let errors = mean_errors(spread);
        let has_priority = |seed: u64| workload(seed, spread).contains("priority");
        let (prioritised, flat): (Vec<_>, Vec<_>) = errors.iter().partition(|(seed, _)| has_priority(*seed));
        println!(
            "{spread:?}: mean {:.3}, median {:.3}, worst {:?}; with priorities {:.3}, without {:.3}",
            mean(&errors),
            errors[errors.len() / 2].1,
            &errors[errors.len() - 5..],
            mean(&prioritised),
            mean(&flat)
        );
        if spread != Spread::Exponential {
            assert!(mean(&errors) <= 0.10, "{spread:?}: {errors:?}");
        }
    }
}

/// A workload of one domain to which more tasks come at 6 s.
fn changing_workload(seed: u64) -> String {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let cpus = 1 + random.next_u64() % 3;
    let mut text = format!("seed = {seed}\nduration = \"20s\"\n[machine]\ncpus = {cpus}\n");
    for task in 0..4 + random.next_u64() % 8 {
        let pattern = pattern(&mut random);
        let program = toml_program(&pattern, Spread::Fifth);
        writeln!(text, "[[task]]\nname = \"t{task}\"\nnice = {}\nprogram = {program}", pattern.nice).unwrap();
        if random.next_u64().is_multiple_of(3) {
            writeln!(text, "start = \"6s\"").unwrap();
        }
    }
    text
}

#[test]
fn soon_after_a_change_a_prediction_is_nearer_than_that_all_stays_as_it_was() {
    let (mut predicted, mut unchanged) = (Error::default(), Error::default());
    for seed in 0..50 {
        let text = changing_workload(seed);
        let scenario = ScenarioFile::parse(Path::new("test.toml"), &text).unwrap().scenario(&[]).unwrap();
        let mut machine = Machine::new(&scenario);
        let mut herald = Herald::new();
        let mut observe_until = |herald: &mut Herald, from: u64, to: u64| {
            for step in from..=to {
                machine.run_until(step * TENTH_NS);
                herald.observe(step * TENTH_NS, machine.task_samples());
            }
            machine.domain_samples()
        };
        let domains = observe_until(&mut herald, 1, 63);
        let soon = herald.forecasts(Model::Steward, scenario.machine.cpus, &domains);
        let tids: Vec<i32> = herald.tasks().iter().map(|task| task.tid).collect();
        observe_until(&mut herald, 64, 73);
        let later = herald.forecasts(Model::Steward, scenario.machine.cpus, &domains);
        for (tid, soon) in tids.iter().zip(soon.tasks()) {
            let Ok(index) = herald.tasks().binary_search_by_key(tid, |task| task.tid) else { continue };
            let actual = later.task(index).actual_ms_per_s;
            predicted.add(soon.predicted_ms_per_s, actual);
            unchanged.add(soon.actual_ms_per_s, actual);
        }
    }
    println!("0.3 s after a change: predicted {:.3}, unchanged {:.3}", predicted.mean(), unchanged.mean());
    assert!(predicted.mean() < 0.8 * unchanged.mean());
}

/// CPU Futures, equation 8: a task that has slept until now wants all that it can get.
#[test]
fn a_task_that_begins_to_want_everything_gets_its_potential() {
    let (mut error, mut short) = (Error::default(), 0);
    for seed in 0..50 {
        let mut text = workload(seed, Spread::Fifth);
        if text.contains("priority") {
            continue;
        }
        text += "[[task]]\nname = \"sleeper\"\nprogram = [{ sleep = \"5s\" }, { run = \"forever\" }]\n";
        if seed % 2 == 0 && text.contains("name = \"d0\"") {
            text += "domain = \"d0\"\n";
        }
        let scenario = ScenarioFile::parse(Path::new("test.toml"), &text).unwrap().scenario(&[]).unwrap();
        let mut machine = Machine::new(&scenario);
        let mut herald = Herald::new();
        let mut last_after = |from: u64, to: u64| {
            for step in from..=to {
                machine.run_until(step * TENTH_NS);
                herald.observe(step * TENTH_NS, machine.task_samples());
            }
            let report = herald.forecasts(Model::Steward, scenario.machine.cpus, &machine.domain_samples());
            report.tasks().last().unwrap()
        };
        let potential = last_after(1, 49).potential_ms_per_s;
        // MTR-LS lets one that has slept have what it did not use of a cycle.
        let actual = last_after(50, 75).actual_ms_per_s;
        error.add(potential, actual);
        short += u32::from(actual < 0.8 * potential);
    }
    println!("potential: mean error {:.3}; {short} got less than four fifths of it", error.mean());
    assert!(error.mean() <= 0.15, "{}", error.mean());
}

/// CPU Futures, figure 4: an unchanging process, and one more identical one at a time, up to ten.
#[test]
fn a_prediction_follows_as_identical_processes_come_one_by_one() {
    let mut text = "duration = \"40s\"\n[machine]\ncpus = 1\n".to_owned();
    for process in 0..10 {
        writeln!(
            text,
            "[[task]]\nname = \"p{process}\"\nstart = \"{}s\"\nprogram = [{{ run = \"uniform 8ms 12ms\" }}, {{ sleep = \"uniform 8ms 12ms\" }}]",
            3 * process
        )
        .unwrap();
    }
    let scenario = ScenarioFile::parse(Path::new("figure4.toml"), &text).unwrap().scenario(&[]).unwrap();
    let mut machine = Machine::new(&scenario);
    let mut herald = Herald::new();
    let mut error = Error::default();
    let mut before: Option<f64> = None;
    let mut desired = Vec::new();
    for step in 1..=320 {
        machine.run_until(step * TENTH_NS);
        herald.observe(step * TENTH_NS, machine.task_samples());
        // A second after each comes, and a second later.
        if step % 10 != 0 || step <= 10 {
            continue;
        }
        let report = herald.forecasts(Model::Steward, 1, &machine.domain_samples());
        let first = report.task(0);
        if let Some(predicted) = before.take() {
            error.add(predicted, first.actual_ms_per_s);
        }
        // What is predicted at the moment at which the next one comes cannot know of it.
        before = (step % 30 != 0).then_some(first.predicted_ms_per_s);
        desired.push(first.desired_ms_per_s);
        assert!(first.potential_ms_per_s >= first.predicted_ms_per_s);
    }
    println!("figure 4: mean error {:.3}, desired {desired:.0?}", error.mean());
    assert!(error.mean() <= 0.10, "{}", error.mean());
    assert!(desired.iter().all(|desired| (400.0..600.0).contains(desired)), "{desired:?}");
}

/// CPU Futures, section 4.3.1.
#[test]
fn the_timesharing_model_holds_for_a_scheduler_with_levels_of_priority() {
    let mut all = Error::default();
    let mut worst: f64 = 0.0;
    for seed in 0..50 {
        let error = timesharing_error(seed);
        worst = worst.max(error.mean());
        all.wrong += error.wrong;
        all.given += error.given;
    }
    println!("timesharing: mean error {:.3}, worst workload {worst:.3}", all.mean());
    assert!(all.mean() <= 0.25, "{}", all.mean());
}

fn timesharing_error(seed: u64) -> Error {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let tasks = (0..1 + random.next_u64() % 8)
        .map(|_| {
            let Pattern { run_us, sleep_us, nice } = pattern(&mut random);
            let fifth = |us: u64| Amount::Uniform(us * 800 + MS, us * 1200 + MS);
            let phases: Arc<[Phase]> = match sleep_us {
                0 => Arc::new([Phase::Run(Amount::Forever)]),
                _ => Arc::new([Phase::Run(fifth(run_us)), Phase::Sleep(fifth(sleep_us))]),
            };
            (Program { phases, repeat: None }, nice)
        })
        .collect();
    let mut machine = Timesharing::new(seed, tasks);
    machine.run_until(3000);
    let (mut counters, mut levels) = (machine.counters(), machine.levels());
    let mut predictions: Vec<f64> = Vec::new();
    let mut error = Error::default();
    for second in 4..14 {
        machine.run_until(second * 1000);
        let (now, levels_now) = (machine.counters(), machine.levels());
        let groups = Timesharing::groups(&levels, &levels_now, 1000);
        let mut next = Vec::new();
        for (index, (after, before)) in now.iter().zip(&counters).enumerate() {
            let actual = (after.run_ms - before.run_ms) as f64;
            let wait = ((after.wait_ms - before.wait_ms) as f64).min(999.0);
            if let Some(predicted) = predictions.get(index) {
                error.add(*predicted, actual);
            }
            let desired = actual * 1000.0 / (1000.0 - wait);
            // The first group is what is idle.
            next.push(timesharing::predicted_ms_per_s(&groups, after.level + 1, desired));
        }
        (predictions, counters, levels) = (next, now, levels_now);
    }
    error
}
