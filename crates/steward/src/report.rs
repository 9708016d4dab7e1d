//! `steward report`: a recording of `steward top --record` as one HTML file with figures, and nothing outside it.

pub mod disk;
pub mod figure;
pub mod memory;
pub mod recording;

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use steward_figure::{escape, page_head};

use crate::output::print;
use crate::top::cpu::promise::Keeping;
use crate::top::text::{allocation, clean};
use figure::Frame;
use recording::{Recording, Series};

/// How many domains are drawn: those with a promise first, then those that got most.
const DOMAINS_MAX: usize = 12;
/// How many promises are listed and drawn, the most broken first.
const PROMISES_MAX: usize = 100;
/// How many decisions are listed, the latest.
const EVENTS_MAX: usize = 200;

/// Turn a recording of steward top into a page with figures
///
/// The page holds all that it shows: CPU time and slowdown of the machine and its domains over time, their memory,
/// every promise with when and why it was broken, and the decisions. Reads a file that steward top --record wrote.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward top --record load.jsonl --for 10min\n  \
        steward report load.jsonl\n  \
        steward report load.jsonl -o /var/www/html/load.html")]
pub struct ReportArguments {
    /// The recording.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the page there instead of beside the recording, under its name with .html; - is standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `steward report`.
///
/// # Errors
/// When the recording is none (with file and line), or the page cannot be written.
pub fn report(arguments: &ReportArguments) -> anyhow::Result<()> {
    let name = arguments.file.display().to_string();
    let file = File::open(&arguments.file).with_context(|| format!("cannot read the recording {name}"))?;
    let recording = Recording::read(file, &name)?;
    if let Some(cut) = &recording.cut {
        eprintln!("steward: {cut}");
    }
    let page = html(&recording, &name);
    let path = arguments.output.clone().unwrap_or_else(|| arguments.file.with_extension("html"));
    if path == Path::new("-") {
        return print(&page);
    }
    anyhow::ensure!(
        std::fs::canonicalize(&path).ok() != std::fs::canonicalize(&arguments.file).ok(),
        "{} is the recording itself; name another file with -o",
        path.display()
    );
    std::fs::write(&path, page).with_context(|| format!("cannot write the report {}", path.display()))?;
    print(&format!("Wrote {}.\n", path.display()))
}

/// The page.
fn html(recording: &Recording, name: &str) -> String {
    let title = format!("Steward: {}", escape(&clean(name)));
    let mut page = page_head(&title, figure::STYLE);
    let frame = Frame::of(&recording.machine.points, recording.length_s);
    introduction(&mut page, recording);
    promises(&mut page, recording, frame);
    page.push_str(&memory::promises(recording.domains.iter(), PROMISES_MAX));
    page.push_str("<h2>CPU time and slowdown</h2>");
    let machine = figure::series("machine: all tasks together", &recording.machine, frame);
    let _ = write!(page, "<p class=\"scroll\">{machine}</p>");
    let (drawn, left_out) = drawn(recording);
    for (domain, series) in drawn {
        let _ = write!(page, "<p class=\"scroll\">{}</p>", figure::series(&clean(domain), series, frame));
    }
    if left_out > 0 {
        let _ = write!(page, "<p class=\"faint\">{left_out} more domain(s) had no promise and got less.</p>");
    }
    memory_of_domains(&mut page, recording, frame);
    let disks = recording.domains.iter().map(|(name, series)| (name, series.disk.as_slice()));
    page.push_str(&disk::table(disks));
    events(&mut page, recording);
    page.push_str("</body></html>\n");
    page
}

fn introduction(page: &mut String, recording: &Recording) {
    let about = &recording.about;
    let mechanism = about.mechanism.as_deref().unwrap_or("nothing");
    let _ = write!(
        page,
        "<p>{} readings over {} s, begun {}; {} CPU(s); {} in force; model {}, counters {}. CPU time is in milliseconds \
         per second; slowdown is what was wanted over what was given.</p>",
        recording.machine.points.len(),
        recording.length_s.round(),
        utc(recording.start_unix_ms),
        about.cpus,
        escape(&clean(mechanism)),
        escape(&clean(&about.model)),
        escape(&clean(&about.source)),
    );
    if let Some(cut) = &recording.cut {
        let _ = write!(page, "<p class=\"missed\">{}</p>", escape(cut));
    }
}

/// The domains with figures of their own, and how many have none. The root is the machine.
fn drawn(recording: &Recording) -> (Vec<(&String, &Series)>, usize) {
    let domains = recording.domains.iter().filter(|(name, _)| *name != "/");
    let mut all: Vec<(&String, &Series)> = domains.collect();
    all.sort_by(|(_, left), (_, right)| {
        let rank = |series: &Series| (series.promise.is_none(), -series.mean_ms_per_s());
        rank(left).partial_cmp(&rank(right)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let left_out = all.len().saturating_sub(DOMAINS_MAX);
    all.truncate(DOMAINS_MAX);
    (all, left_out)
}

/// The memory of domains: those with a promise of it first, then those that used most.
fn memory_of_domains(page: &mut String, recording: &Recording, frame: Frame) {
    let counted = recording.domains.iter().filter(|(_, series)| !series.memory.is_empty());
    let mut all: Vec<(&String, &Series)> = counted.collect();
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|(_, series)| {
        let is_promised =
            series.memory.iter().any(|(_, memory)| memory.promised.is_some() || memory.kept.is_some());
        let most = series.memory.iter().map(|(_, memory)| memory.used).max();
        std::cmp::Reverse((is_promised, most))
    });
    page.push_str("<h2>Memory</h2>");
    for (domain, series) in all.iter().take(DOMAINS_MAX) {
        let figure = memory::figure(&clean(domain), &series.memory, frame);
        let words = escape(&memory::words(&series.memory));
        let _ = write!(page, "<p class=\"scroll\">{figure}</p><p class=\"faint\">{words}</p>");
    }
    if let Some(left_out) = all.len().checked_sub(DOMAINS_MAX).filter(|count| *count > 0) {
        let _ = write!(
            page,
            "<p class=\"faint\">{left_out} more domain(s) were promised none and used less.</p>"
        );
    }
}

/// All that had a promise, the most broken first.
fn promised(recording: &Recording) -> Vec<(String, &Series)> {
    let domains = recording.domains.iter().map(|(name, series)| (format!("domain {}", clean(name)), series));
    let tasks = recording.tasks.iter();
    let tasks = tasks.map(|((name, pid, tid), series)| {
        let task = if pid == tid {
            format!("{} ({pid})", clean(name))
        } else {
            format!("{} ({pid}/{tid})", clean(name))
        };
        (task, series)
    });
    let mut all: Vec<(String, &Series)> =
        domains.chain(tasks).filter(|(_, series)| series.promise.is_some()).collect();
    all.sort_by_key(|(_, series)| std::cmp::Reverse(series.count(Keeping::Broken)));
    all
}

fn promises(page: &mut String, recording: &Recording, frame: Frame) {
    page.push_str("<h2>Promises of CPU time</h2>");
    let mut all = promised(recording);
    if all.is_empty() {
        page.push_str("<p>Nothing was promised to anybody.</p>");
        return;
    }
    let left_out = all.len().saturating_sub(PROMISES_MAX);
    all.truncate(PROMISES_MAX);
    page.push_str(
        "<div class=\"scroll\"><table><tr><th>who</th><th>promised</th><th>kept</th><th>broken</th><th>nothing wanted</th>\
         <th>why broken last</th></tr>",
    );
    for (name, series) in &all {
        promise_row(page, name, series);
    }
    page.push_str("</table></div><p class=\"faint\">In readings.</p>");
    if left_out > 0 {
        let _ = write!(page, "<p class=\"faint\">{left_out} more promise(s) were broken no oftener.</p>");
    }
    let _ = write!(page, "<p class=\"scroll\">{}</p>", figure::promises(&all, frame));
}

fn promise_row(page: &mut String, name: &str, series: &Series) {
    let Some(promise) = &series.promise else { return };
    let broken = series.count(Keeping::Broken);
    let class = if broken > 0 { "missed" } else { "met" };
    let why = series.broken.as_ref().map_or_else(String::new, |(at_s, why)| format!("at {at_s:.0} s: {why}"));
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{} ({} ms/s)</td><td>{}</td><td class=\"{class}\">{broken}</td><td>{}</td>\
         <td style=\"text-align:left\">{}</td></tr>",
        escape(name),
        escape(&clean(&promise.reserved)),
        allocation(promise.promised_ms_per_s),
        series.count(Keeping::Kept),
        series.count(Keeping::Idle),
        escape(&clean(&why))
    );
}

fn events(page: &mut String, recording: &Recording) {
    if recording.events.is_empty() {
        return;
    }
    let first = recording.events.len().saturating_sub(EVENTS_MAX);
    let _ = write!(page, "<h2>Decisions</h2><details open><summary>{} in all", recording.events.len());
    if first > 0 {
        let _ = write!(page, ", the latest {EVENTS_MAX} of them");
    }
    page.push_str("</summary><pre>");
    for (at_s, event) in &recording.events[first..] {
        let _ = writeln!(page, "{at_s:8.1} s  {}", escape(&clean(&event.text)));
    }
    page.push_str("</pre></details>");
}

/// A moment as people write it, in universal time.
fn utc(unix_ms: u64) -> String {
    let moment = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    // The year 9999 is as far as it can be written.
    let last = Duration::from_secs(253_402_300_799);
    let moment = moment.filter(|moment| *moment <= std::time::UNIX_EPOCH + last);
    moment.map_or_else(
        || "at an unknown time".to_owned(),
        |moment| humantime::format_rfc3339_seconds(moment).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use recording::tests::lines;

    fn page() -> String {
        let text = lines().join("\n");
        html(&Recording::read(text.as_bytes(), "load.jsonl").expect("it is a recording"), "load.jsonl")
    }

    #[test]
    fn the_page_shows_promises_and_figures_and_refers_to_nothing_outside_it() {
        let page = page();
        for part in [
            "30 readings over 29 s, begun 2027-01-15T08:00:00Z; 2 CPU(s)",
            "<td>domain web</td><td>30 % (600 ms/s)</td><td>0</td><td class=\"missed\">30</td>",
            "at 29 s: got 200 of the 600 ms/s",
            "CPU time and slowdown of web",
            "state-broken",
        ] {
            assert!(page.contains(part), "{part:?} is not in:\n{page}");
        }
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!without_namespace.contains("http") && !page.contains("<script"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }

    #[test]
    fn the_page_looks_as_it_did() {
        insta::assert_snapshot!(page().replace("><", ">\n<"));
    }

    #[test]
    fn a_name_cannot_break_out_of_the_page() {
        let text =
            lines().join("\n").replace("mplayer", "<script>alert(1)</script>").replace("batch", "<b>&amp;");
        let recording = Recording::read(text.as_bytes(), "load.jsonl").expect("it is a recording");
        let page = html(&recording, "<i>.jsonl");
        assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains("<i>"));
    }

    #[test]
    fn a_moment_is_written_as_people_write_it() {
        assert_eq!(utc(1_709_251_199_000), "2024-02-29T23:59:59Z");
        assert_eq!(utc(u64::MAX), "at an unknown time");
    }
}
