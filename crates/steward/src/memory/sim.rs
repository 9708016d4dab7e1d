//! `steward sim --replay` of what the memory loop saw (`stewardd --record-memory`): from whom memory would have been
//! taken with other settings.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use steward_core::memory::manager::{Manager, Settings};
use steward_core::quantity::{approximate_size, parse_fraction, parse_size};
use steward_sim::memory::replay::{Recording, Share};

/// What each cgroup had then, and would have had.
#[derive(Serialize)]
pub struct Report {
    looks: usize,
    seconds: f64,
    /// What was set in place of what was set then.
    set: BTreeMap<String, String>,
    domains: Vec<Domain>,
}

#[derive(Serialize)]
struct Domain {
    path: String,
    then: Share,
    now: Share,
}

/// Whether a file begins as such a recording does. Not of a pipe: what is read of it here would be gone.
pub fn is_recording(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut first = String::new();
    let read = File::open(path).and_then(|file| BufReader::new(file).read_line(&mut first));
    read.is_ok() && first.contains("\"steward_memory_recording\"")
}

/// Decides about each look anew, with these settings in place of those of then.
///
/// # Errors
/// When it is no recording, or a setting is none.
pub fn replay(path: &Path, set: &[(String, String)]) -> anyhow::Result<Report> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let recording = Recording::read(BufReader::new(file)).map_err(anyhow::Error::msg);
    let recording = recording.with_context(|| path.display().to_string())?;
    let (Some(first), Some(last)) = (recording.looks.first(), recording.looks.last()) else {
        anyhow::bail!("{}: there are no looks in it: nobody was protected while it was made", path.display());
    };
    let settings = changed(first.settings, set)?;
    let of_then: Vec<_> = recording.looks.iter().map(|look| look.decision.clone()).collect();
    let of_now = recording.replay(&mut Manager::default(), (!set.is_empty()).then_some(&settings));
    let (then, now) = (recording.shares(&of_then), recording.shares(&of_now));
    let domain = |(path, then): (&&str, &Share)| Domain {
        path: if path.is_empty() { "/".to_owned() } else { (*path).to_owned() },
        then: *then,
        now: now[*path],
    };
    Ok(Report {
        looks: recording.looks.len(),
        seconds: last.now_ns.saturating_sub(first.now_ns) as f64 / 1e9,
        set: set.iter().cloned().collect(),
        domains: then.iter().map(domain).collect(),
    })
}

fn changed(settings: Settings, set: &[(String, String)]) -> anyhow::Result<Settings> {
    let mut settings = settings;
    for (key, value) in set {
        let wrong = |why: String| anyhow::anyhow!("{key}={value}: {why}");
        match key.as_str() {
            "memory.reserve" => {
                settings.reserve_bytes = parse_size(value).map_err(|error| wrong(error.to_string()))?;
            }
            "memory.reservable" => settings.reservable = parse_fraction(value).map_err(wrong)?,
            _ => anyhow::bail!(
                "{key}: a recording of memory is replayed with another memory.reserve or memory.reservable"
            ),
        }
    }
    Ok(settings)
}

/// As a table; only those from whom something is taken, or who are demoted, then or now.
pub fn text(report: &Report) -> anyhow::Result<String> {
    let mut text = String::new();
    let set: Vec<String> = report.set.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    if !set.is_empty() {
        writeln!(text, "{}", set.join(", ")).context("writing text")?;
    }
    let is_told = |share: &Share| share.taken_bytes > 0 || share.demoted_looks > 0;
    let told: Vec<&Domain> =
        report.domains.iter().filter(|domain| is_told(&domain.then) || is_told(&domain.now)).collect();
    writeln!(text, "{} looks in {:.1} s, decided anew", report.looks, report.seconds)
        .context("writing text")?;
    if told.is_empty() {
        text.push_str("Nothing was taken from anybody, nor would be.\n");
        return Ok(text);
    }
    let width = told.iter().map(|domain| domain.path.len()).max().unwrap_or(0).max("DOMAIN".len());
    writeln!(
        text,
        "\n{:width$}  TAKEN THEN       NOW  DEMOTED THEN       NOW  LEAST TO USE THEN       NOW",
        "DOMAIN"
    )
    .context("writing text")?;
    for Domain { path, then, now } in told {
        writeln!(
            text,
            "{path:width$}  {:>10}  {:>8}  {:>12}  {:>8}  {:>17}  {:>8}",
            approximate_size(then.taken_bytes),
            approximate_size(now.taken_bytes),
            format!("{} looks", then.demoted_looks),
            format!("{} looks", now.demoted_looks),
            approximate_size(then.least_available_bytes),
            approximate_size(now.least_available_bytes),
        )
        .context("writing text")?;
    }
    text.push_str("\nWhat was seen stays as it was: this is what would have been decided, not what would have come of it.\n");
    Ok(text)
}
