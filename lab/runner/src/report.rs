//! The report of a scenario: one HTML file with everything in it, the result beside it, and the figures as files.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use steward_figure::escape;

use crate::figure;
use crate::outcome::{EMULATED, Outcome, TargetOutcome, readable};
use crate::scenario::Contender;

/// Writes `result.json`, `report.html` and the figures (SVG and PNG) into `directory`; returns the report's path.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    save(&directory.join("result.json"), &serde_json::to_vec(outcome)?)?;
    for (name, svg) in figures(outcome) {
        save(&directory.join(format!("{name}.svg")), steward_figure::standalone(&svg).as_bytes())?;
        save(&directory.join(format!("{name}.png")), &figure::png(&svg)?)?;
    }
    let path = directory.join("report.html");
    save(&path, html(outcome).as_bytes())?;
    Ok(path)
}

fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn figures(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let figures = [("frame-rate", figure::frame_rates(outcome)), ("gaps", figure::gaps(outcome))];
    figures.into_iter().filter_map(|(name, svg)| Some((name, svg?))).collect()
}

/// The page, with no reference to anything outside it.
pub fn html(outcome: &Outcome) -> String {
    let mut page = steward_figure::page_head(&escape(&outcome.title), "");
    let _ = write!(page, "<p>{}</p>", escape(outcome.about.trim()));
    let _ = write!(page, "<p class=\"faint\">{} {}</p>", escape(EMULATED), escape(&machine(outcome)));
    targets(&mut page, outcome);
    for (_, svg) in figures(outcome) {
        let _ = write!(page, "<p class=\"scroll\">{svg}</p>");
    }
    if figures(outcome).iter().any(|(name, _)| *name == "frame-rate") {
        page.push_str("<p class=\"faint\">Of several runs, the one with the worst second is drawn.</p>");
    }
    table(&mut page, outcome);
    remarks(&mut page, outcome);
    page.push_str("</body></html>\n");
    page
}

fn machine(outcome: &Outcome) -> String {
    let machine = &outcome.machine;
    let runs = outcome.runs.iter().map(|run| run.repeat).max().unwrap_or(0);
    let disk = machine.timed_disk.as_ref().map(|disk| format!(", {disk}")).unwrap_or_default();
    format!(
        "Linux {}, {} CPU(s), {} MiB{disk}; {}. Scenario {}, {runs} run(s) of each contender.",
        machine.kernel,
        machine.cpus,
        machine.memory_mib,
        machine.clock(),
        outcome.scenario
    )
}

fn targets(page: &mut String, outcome: &Outcome) {
    if outcome.targets.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Targets</h2><div class=\"scroll\"><table><tr><th>contender</th><th>metric</th><th>to reach</th>\
         <th>median</th><th>worst run</th><th></th></tr>",
    );
    for target in &outcome.targets {
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), readable);
        let (class, verdict) = verdict(target);
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{verdict}</td></tr>",
            target.target.contender,
            escape(&target.target.metric),
            target.target.bound(),
            number(target.median),
            number(target.worst),
        );
    }
    page.push_str("</table></div>");
}

/// In words, because colour alone does not reach everyone.
fn verdict(target: &TargetOutcome) -> (&'static str, &'static str) {
    match (target.worst, target.met) {
        (None, _) => ("missed", "not measured"),
        (Some(_), true) => ("met", "met"),
        (Some(_), false) => ("missed", "missed"),
    }
}

fn table(page: &mut String, outcome: &Outcome) {
    let contenders: Vec<Contender> = outcome.contenders.keys().copied().collect();
    page.push_str(
        "<h2>All numbers</h2><p class=\"faint\">Median, and the worst run in brackets where it differs.</p>",
    );
    page.push_str("<div class=\"scroll\"><table><tr><th>metric</th>");
    for contender in &contenders {
        let _ = write!(page, "<th>{contender}</th>");
    }
    page.push_str("</tr>");
    for metric in outcome.metric_names(true) {
        let _ = write!(page, "<tr><td>{}</td>", escape(metric));
        for contender in &contenders {
            let _ = write!(page, "<td>{}</td>", outcome.cell(*contender, metric));
        }
        page.push_str("</tr>");
    }
    page.push_str("</table></div>");
}

/// Failures, refusals, and what Steward said about itself.
fn remarks(page: &mut String, outcome: &Outcome) {
    let mut lines = Vec::new();
    for run in &outcome.runs {
        let who = format!("{}, run {}", run.contender, run.repeat);
        lines.extend(run.error.iter().map(|error| format!("{who} does not count: {error}")));
        lines.extend(run.notes.iter().map(|note| format!("{who}: {note}")));
        let log = run.error.as_ref().and(run.log.as_ref());
        lines.extend(log.map(|log| format!("{who}, the daemon's log:\n{log}")));
    }
    if !lines.is_empty() {
        page.push_str("<h2>Remarks</h2>");
        for line in lines {
            let _ = write!(page, "<pre>{}</pre>", escape(&line));
        }
    }
    let Some(run) = outcome.runs.iter().rev().find(|run| run.status.is_some() || run.decisions.is_some())
    else {
        return;
    };
    let _ = write!(page, "<h2>What Steward said about run {} of {}</h2>", run.repeat, run.contender);
    let status = run.status.as_ref().and_then(|status| serde_json::to_string_pretty(status).ok());
    for (command, text) in [("steward status --json", status), ("steward events", run.decisions.clone())] {
        let Some(text) = text else { continue };
        let shown: String = text.chars().take(20_000).collect();
        let _ = write!(page, "<details><summary>{command}</summary><pre>{}</pre></details>", escape(&shown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::with_films;

    #[test]
    fn the_page_says_that_the_machine_is_emulated_and_refers_to_nothing_outside_it() {
        let page = html(&with_films());
        assert!(page.contains(EMULATED));
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!without_namespace.contains("http") && !page.contains("<script"));
    }

    #[test]
    fn the_report_is_a_directory_with_the_result_and_the_figures() {
        let directory = tempfile::tempdir().unwrap();
        let path = write(&with_films(), directory.path()).unwrap();
        assert!(path.ends_with("report.html"));
        for name in ["result.json", "frame-rate.svg", "frame-rate.png", "gaps.svg", "gaps.png"] {
            assert!(directory.path().join(name).is_file(), "{name}");
        }
        let text = std::fs::read_to_string(directory.path().join("result.json")).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), with_films());
    }
}
