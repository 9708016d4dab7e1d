//! `steward sim`: runs a scenario, or a recording, in the simulator.

use std::fmt::Write;

use anyhow::Context;
use serde::Serialize;
use steward_sim::{Machine, Outcome, ScenarioFile};

use crate::cli::SimArguments;
use crate::output::{print, print_json};

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
    let (path, file) = match &arguments.file {
        Some(path) => (path, ScenarioFile::read(path)?),
        None => anyhow::bail!("name a scenario file, as in `steward sim lab/sim/sleeper.toml`"),
    };
    let scenario = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let fixed = arguments.settings();
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
    let mut report = Report { scenario, points: Vec::new() };
    for settings in points {
        let scenario = file.scenario(&settings)?;
        let set = settings.into_iter().map(|(key, value)| (key, value.into())).collect();
        report.points.push(Point { set, outcome: Machine::new(&scenario).run() });
    }
    if arguments.output.json { print_json(&report) } else { print(&text(&report)?) }
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
