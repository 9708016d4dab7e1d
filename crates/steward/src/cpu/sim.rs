//! `steward sim`: runs a scenario, or a recording, in the simulator.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgGroup, Args};
use serde::Serialize;
use steward_core::cpu::best_effort::BestEffortOrder;
use steward_core::cpu::config::order_by_name;
use steward_core::cpu::reservation::Reservation;
use steward_sim::cpu::recording::Recording;
use steward_sim::{Machine, Outcome, ScenarioFile};

use crate::arguments::{JsonFlag, parse_reservation};
use crate::memory;
use crate::output::{print, print_json};

/// Run a scenario or a recording in the simulator
///
/// A machine in memory runs the scheduler's own decision code on tasks that do what the file says. The same file gives
/// the same result. docs/simulator.md describes the file.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).args(["file", "replay"])))]
#[command(after_help = "Examples:\n  \
        steward sim lab/sim/sleeper.toml\n  \
        steward sim lab/sim/sleeper.toml --order wrr --set task.onoff.count=8 --json\n  \
        steward sim --replay busy.jsonl --spec mplayer=5ms/30ms --cpus 1\n  \
        steward sim --replay memory.jsonl --set memory.reserve=64M")]
pub struct SimArguments {
    /// The scenario.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// A recording to run in place of a scenario: of steward record, or of memory (stewardd --record-memory).
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Reserves CPU time for each recorded thread of this name; may be repeated.
    #[arg(long, value_name = "NAME=C/T", requires = "replay", value_parser = parse_named_reservation)]
    pub spec: Vec<(String, Reservation)>,
    /// How many CPUs the recording is run on, in place of those it was made on.
    #[arg(long, value_name = "N", requires = "replay", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub cpus: Option<u32>,
    /// The order among domains: virtual-time, mtr-ls or wrr.
    #[arg(long, value_name = "ORDER", value_parser = parse_order)]
    pub order: Option<BestEffortOrder>,
    /// Sets a value in place of what the file says or varies; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    pub output: JsonFlag,
}

impl SimArguments {
    /// What is set on the command line, by the keys of the file.
    pub fn settings(&self) -> Vec<(String, String)> {
        let order = self.order.iter().map(|order| ("best_effort.order".to_owned(), order.to_string()));
        order.chain(self.set.iter().cloned()).collect()
    }
}

fn parse_named_reservation(text: &str) -> Result<(String, Reservation), String> {
    let (name, reservation) = text
        .rsplit_once('=')
        .ok_or_else(|| format!("write NAME=C/T, as in mplayer=5ms/30ms, for \"{text}\""))?;
    Ok((name.to_owned(), parse_reservation(reservation)?))
}

fn parse_order(text: &str) -> Result<BestEffortOrder, String> {
    order_by_name(text).ok_or_else(|| "write virtual-time, mtr-ls or wrr".to_owned())
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("write KEY=VALUE, as in machine.cpus=4, for \"{text}\""))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// A run and the settings that it was made with.
#[derive(Serialize)]
struct Point {
    /// What was set in place of what the file says.
    set: serde_json::Map<String, serde_json::Value>,
    outcome: Outcome,
}

#[derive(Serialize)]
struct Report {
    scenario: String,
    points: Vec<Point>,
}

/// Runs what the arguments ask for.
pub fn sim(arguments: &SimArguments) -> anyhow::Result<()> {
    if let Some(path) = arguments.replay.as_deref().filter(|path| memory::sim::is_recording(path)) {
        if arguments.order.is_some() || arguments.cpus.is_some() || !arguments.spec.is_empty() {
            anyhow::bail!(
                "{} is a recording of memory: --order, --cpus and --spec are about CPUs",
                path.display()
            );
        }
        let report = memory::sim::replay(path, &arguments.set)?;
        return if arguments.output.json { print_json(&report) } else { print(&memory::sim::text(&report)?) };
    }
    if arguments.replay.is_some() && !arguments.set.is_empty() {
        anyhow::bail!("--set is for scenarios, and for recordings of memory; give --order, --cpus or --spec");
    }
    let report = match (&arguments.file, &arguments.replay) {
        (Some(path), _) => run_file(path, &arguments.settings())?,
        (None, Some(path)) => replay(path, arguments)?,
        (None, None) => anyhow::bail!("name a scenario, or a recording with --replay"),
    };
    if arguments.output.json { print_json(&report) } else { print(&text(&report)?) }
}

fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Runs every point of a scenario file.
fn run_file(path: &Path, fixed: &[(String, String)]) -> anyhow::Result<Report> {
    let file = ScenarioFile::read(path)?;
    // What is fixed on the command line is not varied.
    let varied = |point: Vec<(String, String)>| {
        let mut settings: Vec<_> =
            point.into_iter().filter(|(key, _)| fixed.iter().all(|(name, _)| name != key)).collect();
        settings.extend(fixed.iter().cloned());
        settings
    };
    let mut points: Vec<Vec<(String, String)>> = Vec::new();
    for point in file.points().into_iter().map(varied) {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    let mut report = Report { scenario: name_of(path), points: Vec::new() };
    for settings in points {
        let scenario = file.scenario(&settings)?;
        let set = settings.into_iter().map(|(key, value)| (key, value.into())).collect();
        report.points.push(Point { set, outcome: Machine::new(&scenario).run() });
    }
    Ok(report)
}

/// Runs a recording, under the order and the reservations of the arguments.
fn replay(path: &Path, arguments: &SimArguments) -> anyhow::Result<Report> {
    let mut scenario = Recording::read(path)?.scenario();
    let mut set = serde_json::Map::new();
    if let Some(order) = arguments.order {
        set.insert("best_effort.order".to_owned(), order.to_string().into());
        scenario.best_effort.order = order;
    }
    if let Some(cpus) = arguments.cpus {
        set.insert("machine.cpus".to_owned(), cpus.to_string().into());
        scenario.set_cpus(cpus);
    }
    for (name, reservation) in &arguments.spec {
        set.insert(format!("task.{name}.cpu"), reservation.to_string().into());
        let mut named = scenario.tasks.iter_mut().filter(|task| task.name == *name).peekable();
        if named.peek().is_none() {
            anyhow::bail!(
                "{}: no thread is named \"{name}\"; `steward sim --replay` lists them",
                path.display()
            );
        }
        named.for_each(|task| task.reservation = Some((*reservation, true)));
    }
    let outcome = Machine::new(&scenario).run();
    Ok(Report { scenario: name_of(path), points: vec![Point { set, outcome }] })
}

fn text(report: &Report) -> anyhow::Result<String> {
    let mut text = String::new();
    for (index, point) in report.points.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        if !point.set.is_empty() {
            let plain = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let pairs: Vec<String> =
                point.set.iter().map(|(key, value)| format!("{key} = {}", plain(value))).collect();
            writeln!(text, "{}", pairs.join(", ")).context("writing text")?;
        }
        write!(text, "{}", point.outcome).context("writing text")?;
    }
    Ok(text)
}
