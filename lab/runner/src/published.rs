//! What the project publishes of the lab's results: the block of figures in the README, the page `docs/results.md` and
//! the pictures beside it. All of it is made from `result.json` files, so that no number is ever copied by hand. They
//! are kept in `docs/results`, so that a series of some scenarios replaces what is said of those and of no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use steward_core::printable::printable;
use steward_core::quantity::percent_to;

use crate::figure;
use crate::metrics::Metrics;
use crate::outcome::{EMULATED, Outcome, TargetOutcome, readable};
use crate::read;
use crate::scenario::Contender;

const BEGIN: &str = "<!-- figures:begin -->\n";
const END: &str = "<!-- figures:end -->";
/// The scenario of `make demo`: its figure is the README's picture.
const DEMO: &str = "demo";
const OVERHEAD: &str = "overhead_ratio";
/// In `docs`: the result of each scenario when it was measured last, without its records.
const KEPT: &str = "results";
/// Nobody's film plays in a scenario without this metric.
const WORST_SECOND: &str = "frames_per_second_min";
/// How many characters of an error the page has.
const ERROR_MAX: usize = 600;

/// Reads `NAME/result.json` of every scenario below `reports`, by name.
///
/// # Errors
/// Names the file that cannot be read, or says that there is none.
pub fn read(reports: &Path) -> Result<Vec<Outcome>> {
    let entries = std::fs::read_dir(reports).with_context(|| format!("cannot read {}", reports.display()))?;
    let results = entries.filter_map(Result::ok).map(|entry| entry.path().join("result.json"));
    let results: Vec<PathBuf> = results.filter(|path| path.is_file()).collect();
    if results.is_empty() {
        bail!("{} holds no results: `make lab` makes them", reports.display());
    }
    let mut outcomes = results.iter().map(|path| parse(path)).collect::<Result<Vec<_>>>()?;
    outcomes.sort_by_key(|outcome| natural(&outcome.scenario));
    Ok(outcomes)
}

/// A key that orders names as people do: 50 before 2000.
fn natural(name: &str) -> String {
    let parts = name.split_inclusive(|letter: char| !letter.is_ascii_digit());
    parts.map(|part| format!("{part:0>20}")).collect()
}

fn parse(path: &Path) -> Result<Outcome> {
    let text = std::fs::read(path).with_context(|| format!("cannot read the result {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not a result of the lab", path.display()))
}

/// Brings these results into the repository at `root`: into `docs/results`, where they replace those of the same
/// scenarios, and from there, with those of all others, into the README's block, `docs/results.md` and
/// `docs/figures/*.png`; returns the files. Scenarios of `root` without a result are named on the page, so that nobody
/// takes the rest for everything.
///
/// # Errors
/// Names the file that cannot be read or written, and the mark that is missing in the README.
pub fn write(root: &Path, outcomes: &[Outcome]) -> Result<Vec<PathBuf>> {
    let make = |directory: PathBuf| {
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        anyhow::Ok(directory)
    };
    let results = make(root.join("docs").join(KEPT))?;
    let figures = make(root.join("docs/figures"))?;
    let scenarios = read::files(&root.join("lab/scenarios"))?;
    let mut files = Vec::new();
    for outcome in outcomes {
        if let Some(svg) = figure::frame_rates(outcome) {
            files.push((figures.join(picture(outcome)), figure::png(&svg)?));
        }
        let text = serde_json::to_string_pretty(&outcome.without_records())?;
        files.push((results.join(format!("{}.json", outcome.scenario)), format!("{text}\n").into_bytes()));
    }
    let mut all: BTreeMap<String, Outcome> = kept(&results, &scenarios)?;
    all.extend(outcomes.iter().map(|outcome| (natural(&outcome.scenario), outcome.clone())));
    let outcomes: Vec<Outcome> = all.into_values().collect();
    let has_picture = |outcome: &Outcome| {
        let path = figures.join(picture(outcome));
        path.is_file() || files.iter().any(|(written, _)| *written == path)
    };
    let missing = without_result(&scenarios, &outcomes);
    let page = page(&outcomes, has_picture, &missing);
    let readme = root.join("README.md");
    let text =
        std::fs::read_to_string(&readme).with_context(|| format!("cannot read {}", readme.display()))?;
    let text = replace_block(&text, &block(&outcomes)).with_context(|| format!("{}", readme.display()))?;
    files.push((root.join("docs/results.md"), page.into_bytes()));
    files.push((readme, text.into_bytes()));
    for (path, bytes) in &files {
        std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// The results that were kept, of scenarios that there still are, by the key that orders them.
fn kept(directory: &Path, scenarios: &[PathBuf]) -> Result<BTreeMap<String, Outcome>> {
    let kept = scenarios.iter().filter_map(|scenario| scenario.file_stem()).map(|name| {
        let mut file = name.to_os_string();
        file.push(".json");
        directory.join(file)
    });
    let outcomes = kept.filter(|path| path.is_file()).map(|path| {
        let outcome = parse(&path)?;
        Ok((natural(&outcome.scenario), outcome))
    });
    outcomes.collect()
}

fn picture(outcome: &Outcome) -> String {
    format!("{}-frame-rate.png", outcome.scenario)
}

/// The text with what stands between the two marks replaced.
fn replace_block(text: &str, block: &str) -> Result<String> {
    let (before, rest) =
        text.split_once(BEGIN).with_context(|| format!("has no line `{}`", BEGIN.trim_end()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("has no line `{END}`"))?;
    Ok(format!("{before}{BEGIN}{block}{END}{after}"))
}

/// One number that the README names, in a sentence.
struct Headline {
    scenario: &'static str,
    metric: &'static str,
    /// The sentence up to its end; `{}` is the number under Steward.
    sentence: &'static str,
    number: fn(f64) -> String,
}

/// What the README says: no more than somebody reads who does not know Steward yet.
const HEADLINES: [Headline; 5] = [
    Headline {
        scenario: "fork-bomb-2000-nice",
        metric: WORST_SECOND,
        sentence: "A film beside 2,000 busy loops at nice -20 shows {} of its 25 frames in its worst second",
        number: readable,
    },
    Headline {
        scenario: "fork-bomb-2000-nice",
        metric: "latency_ms_max",
        sentence: "A shell that is started each second beside them answers within {}",
        number: time,
    },
    Headline {
        scenario: "make-j32",
        metric: WORST_SECOND,
        sentence: "A film beside `make -j32` shows {} of its 25 frames in its worst second",
        number: readable,
    },
    Headline {
        scenario: "forecast",
        metric: "forecast_error_ratio",
        sentence: "A forecast of what a process will get is off by {}, as identical ones come one by one",
        number: |ratio| percent_to(ratio, 1),
    },
    Headline {
        scenario: "overhead",
        metric: OVERHEAD,
        sentence: "With Steward the whole machine takes {} of the instructions that it takes with the default scheduler, in the geometric mean of all benchmarks",
        number: |ratio| percent_to(ratio, 1),
    },
];

impl Headline {
    /// The sentence, with what others reach where they were measured too; `None` without a result.
    fn say(&self, outcomes: &[Outcome]) -> Option<String> {
        let outcome = outcomes.iter().find(|outcome| outcome.scenario == self.scenario)?;
        let number = |contender| Some((self.number)(*outcome.contenders.get(&contender)?.get(self.metric)?));
        let sentence = self.sentence.replace("{}", &format!("**{}**", number(Contender::Steward)?));
        let others = [Contender::Stock, Contender::StockNice].into_iter().filter(|_| self.metric != OVERHEAD);
        let others = others.filter_map(|other| Some(format!("{} {}", number(other)?, in_words(other))));
        let others: Vec<String> = others.collect();
        let beside = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
        let (runs, build) = (runs_in_words(outcome), build_in_words(outcome));
        Some(format!("- {sentence}{beside}: `{}`, {runs}{build}.", self.scenario))
    }
}

/// On how many CPUs they were measured: `one emulated CPU`.
fn cpus_in_words(outcomes: &[Outcome]) -> String {
    let counts: BTreeSet<u32> = outcomes.iter().map(|outcome| outcome.machine.cpus).collect();
    match counts.into_iter().collect::<Vec<u32>>().as_slice() {
        [1] => "one emulated CPU".to_owned(),
        counts => {
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            format!("{} emulated CPUs", counts.join(" or "))
        }
    }
}

/// What stands in the README: five numbers. The rest is in `docs/results.md`.
fn block(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    if let Some(demo) = outcomes.iter().find(|outcome| outcome.scenario == DEMO) {
        let _ = writeln!(
            text,
            "![Frames per second under each contender: {}](docs/figures/{})\n\n{}\n",
            demo.title,
            picture(demo),
            demo_sentence(demo)
        );
    }
    let named = |outcome: &&Outcome| HEADLINES.iter().any(|headline| headline.scenario == outcome.scenario);
    let measured: Vec<Outcome> = outcomes.iter().filter(named).cloned().collect();
    let sentences: Vec<String> = HEADLINES.iter().filter_map(|headline| headline.say(outcomes)).collect();
    if !sentences.is_empty() {
        let _ = writeln!(
            text,
            "Measured on {}; each number is the median of its runs.\n\n{}\n",
            cpus_in_words(&measured),
            sentences.join("\n")
        );
    }
    text.push_str("[All results](docs/results.md), with what was to be reached and where it was missed.\n");
    text
}

/// All results at a glance: the head of `docs/results.md`.
fn overview(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let others: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.scenario != DEMO).collect();
    let (films, others): (Vec<&Outcome>, Vec<&Outcome>) =
        others.into_iter().partition(|outcome| has_films(outcome));
    if !films.is_empty() {
        text.push_str(
            "\nFrames in the worst second / frames late by more than a period / longest wait for a shell started each second: median, \
             and the worst of the runs in brackets where it differs. Where today's scheduler with nice -20 does as well as Steward, the \
             table says so.\n\n",
        );
        films_table(&mut text, &films);
    }
    let with_targets =
        others.iter().filter(|outcome| overhead_sentence(outcome).is_none() && !outcome.targets.is_empty());
    let with_targets: Vec<&&Outcome> = with_targets.collect();
    if !with_targets.is_empty() {
        text.push_str("\n| scenario | | CPUs | runs | to be reached |\n|---|---|---|---|---|\n");
        for outcome in with_targets {
            let targets: Vec<String> = outcome.targets.iter().map(TargetOutcome::sentence).collect();
            let targets = targets.join("<br>").replace("target: ", "");
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {targets} |",
                outcome.scenario,
                outcome.title,
                outcome.machine.cpus,
                runs(outcome)
            );
        }
    }
    if let Some(sentence) = others.iter().find_map(|outcome| overhead_sentence(outcome)) {
        let _ = writeln!(text, "\n{sentence}");
    }
    text
}

/// Whether its films are what it compares the usual contenders by.
fn has_films(outcome: &Outcome) -> bool {
    outcome.contenders.get(&Contender::Stock).is_some_and(|metrics| metrics.contains_key(WORST_SECOND))
}

/// How often each contender ran.
fn runs(outcome: &Outcome) -> u32 {
    outcome.runs.iter().map(|run| run.repeat).max().unwrap_or(0)
}

fn runs_in_words(outcome: &Outcome) -> String {
    match runs(outcome) {
        1 => "one run".to_owned(),
        count => format!("{count} runs"),
    }
}

/// What was measured, to follow other words: `, build 198d32bd`.
fn build_in_words(outcome: &Outcome) -> String {
    outcome.build.as_ref().map(|build| format!(", build {build}")).unwrap_or_default()
}

fn demo_sentence(demo: &Outcome) -> String {
    let worst = demo.worst.iter().filter_map(|(contender, metrics)| {
        let frames = metrics.get(WORST_SECOND)?;
        Some(format!("{} {}", readable(*frames), in_words(*contender)))
    });
    let worst: Vec<String> = worst.collect();
    format!(
        "`make demo`, {} on {}{}: of the 25 frames of a second, the worst second of the film or the call shows {}.",
        runs_in_words(demo),
        cpus_in_words(std::slice::from_ref(demo)),
        build_in_words(demo),
        worst.join(", ")
    )
}

fn in_words(contender: Contender) -> &'static str {
    match contender {
        Contender::Stock => "under the default scheduler",
        Contender::StockNice => "with nice values set by hand",
        Contender::Deadline => "under SCHED_DEADLINE",
        Contender::Steward => "under Steward",
        other => other.name(),
    }
}

fn films_table(text: &mut String, films: &[&Outcome]) {
    text.push_str(
        "| scenario | | CPUs | runs | default scheduler | nice -20 by hand | SCHED_DEADLINE | Steward |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for film in films {
        let _ =
            write!(text, "| `{}` | {} | {} | {} |", film.scenario, film.title, film.machine.cpus, runs(film));
        for contender in Contender::USUAL {
            let _ = write!(text, " {} |", film_cell(film, contender));
        }
        text.push('\n');
    }
}

/// `25 / 0.0 % / 18 ms (24 / 0.1 % / 25 ms)`.
fn film_cell(outcome: &Outcome, contender: Contender) -> String {
    let counted = outcome.runs.iter().filter(|run| run.contender == contender && run.error.is_none()).count();
    let failed = outcome.failures.get(&contender).map_or(0, Vec::len);
    let (Some(median), Some(worst)) = (outcome.contenders.get(&contender), outcome.worst.get(&contender))
    else {
        return if failed > 0 { format!("no run of {failed} counts") } else { "-".into() };
    };
    let (median, worst) = (film_numbers(median), film_numbers(worst));
    let mut cell = if median == worst { median } else { format!("{median} ({worst})") };
    if failed > 0 {
        let _ = write!(cell, ", {counted} of {} runs", counted + failed);
    }
    cell
}

fn film_numbers(metrics: &Metrics) -> String {
    let number = |name: &str| metrics.get(name).copied();
    let parts = [
        number(WORST_SECOND).map(readable),
        number("frames_late_ratio").map(|ratio| format!("{:.1} %", ratio * 100.0)),
        number("latency_ms_max").map(time),
    ];
    parts.map(|part| part.unwrap_or_else(|| "-".into())).join(" / ")
}

fn time(ms: f64) -> String {
    if ms >= 1000.0 { format!("{:.1} s", ms / 1e3) } else { format!("{ms:.0} ms") }
}

/// What scheduling costs in instructions, if this outcome has it.
fn overhead_sentence(outcome: &Outcome) -> Option<String> {
    let steward = outcome.contenders.get(&Contender::Steward)?;
    let overall = steward.get(OVERHEAD)?;
    let prefix = format!("{OVERHEAD}_");
    let each = steward.iter().filter_map(|(metric, ratio)| Some((metric.strip_prefix(&prefix)?, *ratio)));
    let each: Vec<(&str, f64)> = each.collect();
    let (dearest, most) = each.iter().max_by(|left, right| left.1.total_cmp(&right.1))?;
    let (cheapest, least) = each.iter().min_by(|left, right| left.1.total_cmp(&right.1))?;
    let null_scheduler = outcome.contenders.get(&Contender::NullScheduler);
    let null_scheduler = null_scheduler.and_then(|metrics| metrics.get(&format!("{prefix}{dearest}")));
    let null_scheduler = null_scheduler.map_or_else(String::new, |ratio| {
        format!(" (where the least that a sched_ext scheduler can be takes {ratio:.3})")
    });
    Some(format!(
        "What it costs: over the {} benchmarks of `{}` a machine with Steward takes {overall:.3} of the instructions that it takes with the \
         default scheduler, from {least:.3} in `{cheapest}` to {most:.3} in `{dearest}`{null_scheduler}; {}, median of {}.",
        each.len(),
        outcome.scenario,
        cpus_in_words(std::slice::from_ref(outcome)),
        runs_in_words(outcome),
    ))
}

/// The names of the scenario files that no outcome is of.
fn without_result(files: &[PathBuf], outcomes: &[Outcome]) -> Vec<String> {
    let measured: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.scenario.as_str()).collect();
    let names = files.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.filter(|name| !measured.contains(name.as_str())).collect();
    names.sort_by_key(|name| natural(name));
    names
}

/// `docs/results.md`; `has_picture`: of which there is one.
fn page(outcomes: &[Outcome], has_picture: impl Fn(&Outcome) -> bool, missing: &[String]) -> String {
    let mut text = format!(
        "# Results\n\nMade by `make figures` from what `make lab` left; nothing here is written by hand. Each number is the median of the \
         runs, with the worst run in brackets where it differs; a target is met when the worst run meets it. {EMULATED} What the names \
         mean: [lab.md](lab.md).\n",
    );
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "\nNot measured for this page: {}.", names.join(", "));
    }
    text.push_str(&overview(outcomes));
    for outcome in outcomes {
        section(&mut text, outcome, has_picture(outcome));
    }
    text
}

fn section(text: &mut String, outcome: &Outcome, has_picture: bool) {
    let machine = &outcome.machine;
    let _ = write!(
        text,
        "\n## {}\n\n{}. {} of each contender (`steward-lab run {}`{}); Linux {}, {}, {} MiB; {}.\n\n",
        outcome.scenario,
        outcome.title.trim_end_matches('.'),
        capitalised(&runs_in_words(outcome)),
        outcome.scenario,
        build_in_words(outcome),
        machine.kernel,
        cpus_in_words(std::slice::from_ref(outcome)),
        machine.memory_mib,
        machine.clock(),
    );
    if has_picture {
        let _ = write!(text, "![Frames per second over time](figures/{})\n\n", picture(outcome));
    }
    for target in &outcome.targets {
        let _ = writeln!(text, "- {}", target.sentence());
    }
    for (contender, errors) in &outcome.failures {
        for error in errors {
            let _ = writeln!(text, "- a run of {contender} does not count: {}", flowed(error));
        }
    }
    for reason in outcome.skipped.values() {
        let _ = writeln!(text, "- {}", reason.lines().next().unwrap_or_default());
    }
    numbers(text, outcome);
}

/// An error on one line, without what colours a terminal; of a long one its beginning and its end, where the reason is.
fn flowed(error: &str) -> String {
    let mut plain = String::with_capacity(error.len());
    let mut characters = error.chars();
    while let Some(character) = characters.next() {
        match character {
            // A sequence ends with its first letter (ECMA-48, 5.4).
            '\u{1b}' => _ = characters.by_ref().find(|end| matches!(end, '@'..='Z' | '\\'..='~')),
            other => plain.push(other),
        }
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    let line = printable(&words.join(" ")).into_owned();
    let count = line.chars().count();
    if count <= ERROR_MAX {
        return line;
    }
    let begin: String = line.chars().take(ERROR_MAX / 3).collect();
    let end: String = line.chars().skip(count - (ERROR_MAX - ERROR_MAX / 3)).collect();
    format!("{begin} ... {end}")
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn numbers(text: &mut String, outcome: &Outcome) {
    let contenders: Vec<Contender> = outcome.contenders.keys().copied().collect();
    let _ = write!(text, "\n| |");
    for contender in &contenders {
        let _ = write!(text, " {contender} |");
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(contenders.len()));
    for metric in outcome.metric_names(true) {
        let _ = write!(text, "| {metric} |");
        for contender in &contenders {
            let _ = write!(text, " {} |", outcome.cell(*contender, metric));
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::with_films;

    fn demo() -> Outcome {
        Outcome { scenario: DEMO.into(), ..with_films() }
    }

    #[test]
    fn scenarios_without_a_result_are_named() {
        let files =
            ["demo", "fork-bomb-2000", "fork-bomb-50"].map(|name| PathBuf::from(format!("{name}.toml")));
        let missing = without_result(&files, &[demo()]);
        assert_eq!(missing, ["fork-bomb-50", "fork-bomb-2000"]);
        let text = page(&[demo()], |_| false, &missing);
        assert!(text.contains("\nNot measured for this page: `fork-bomb-50`, `fork-bomb-2000`.\n"), "{text}");
        assert!(!page(&[demo()], |_| false, &[]).contains("Not measured"));
    }

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let readme = format!("before\n{BEGIN}old\n{END}\nafter\n");
        assert_eq!(replace_block(&readme, "new\n").unwrap(), format!("before\n{BEGIN}new\n{END}\nafter\n"));
        assert!(replace_block("no marks", "new").unwrap_err().to_string().contains("figures:begin"));
    }

    #[test]
    fn the_readme_says_how_often_it_was_run_and_what_the_worst_second_was() {
        let block = block(&[demo(), with_films()]);
        assert!(
            block.contains("`make demo`, one run on ") && block.contains(": of the 25 frames"),
            "{block}"
        );
        assert!(block.contains("4 under the default scheduler, 25 under Steward"), "{block}");
        let overview = overview(&[demo(), with_films()]);
        assert!(overview.contains("| `t` | t | 1 | 1 | 4 / - / - | - | - | 25 / - / - |"), "{overview}");
    }

    #[test]
    fn the_readme_has_one_number_in_each_sentence_and_says_on_how_many_cpus() {
        let mut film = Outcome { scenario: "make-j32".into(), ..with_films() };
        film.machine.cpus = 1;
        let mut cost = Outcome { scenario: "overhead".into(), ..with_films() };
        cost.machine.cpus = 1;
        cost.contenders.get_mut(&Contender::Steward).unwrap().insert(OVERHEAD.into(), 0.8874);
        cost.build = Some("v0-1-gabc".into());
        let block = block(&[demo(), film.clone(), cost.clone()]);
        for line in [
            "Measured on one emulated CPU; each number is the median of its runs.",
            "- A film beside `make -j32` shows **25** of its 25 frames in its worst second (4 under the default scheduler): \
             `make-j32`, one run.",
            "- With Steward the whole machine takes **88.7 %** of the instructions that it takes with the default scheduler, \
             in the geometric mean of all benchmarks: `overhead`, one run, build v0-1-gabc.",
        ] {
            assert!(block.lines().any(|shown| shown == line), "{line:?} is not in:\n{block}");
        }
        assert!(!block.contains('|'), "no tables: {block}");
        cost.machine.cpus = 4;
        assert_eq!(cpus_in_words(&[film, cost]), "1 or 4 emulated CPUs");
    }

    #[test]
    fn a_scenario_without_films_shows_what_it_was_to_reach() {
        let mut outcome = with_films();
        outcome.contenders.remove(&Contender::Stock);
        let overview = overview(&[outcome]);
        assert!(
            overview
                .contains("| `t` | t | 1 | 1 | steward frames_per_second_min at least 24: met (median 25"),
            "{overview}"
        );
    }

    #[test]
    fn scenarios_are_in_the_order_of_their_numbers() {
        let mut names = ["bomb-2000", "bomb-50-nice", "a", "bomb-50"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["a", "bomb-50", "bomb-50-nice", "bomb-2000"]);
    }

    #[test]
    fn the_median_stands_before_the_worst_and_failed_runs_are_told() {
        let mut outcome = with_films();
        outcome.worst.get_mut(&Contender::Steward).unwrap().insert(WORST_SECOND.into(), 24.0);
        outcome.failures.insert(Contender::Steward, vec!["it broke".into()]);
        assert_eq!(film_cell(&outcome, Contender::Steward), "25 / - / - (24 / - / -), 1 of 2 runs");
    }

    #[test]
    fn what_another_projects_scheduler_said_when_it_loaded_nothing_is_told_whole_and_on_one_line() {
        let mut outcome = with_films();
        let said = "scx_cosmos loaded no scheduler; what it said:\n17:55 \u{1b}[0m\u{1b}[34m[INFO] \u{1b}[0mflags: 0x36\n\
                    Error: Failed to load BPF program\n\nCaused by:\n    Invalid argument (os error 22)\n";
        outcome.failures.insert(Contender::ScxCosmos, vec![said.into()]);
        let mut text = String::new();
        section(&mut text, &outcome, false);
        let line = "- a run of scx_cosmos does not count: scx_cosmos loaded no scheduler; what it said: 17:55 [INFO] flags: \
                    0x36 Error: Failed to load BPF program Caused by: Invalid argument (os error 22)";
        assert!(text.lines().any(|told| told == line), "{text}");
        let long = flowed(&format!("it said {} and ended", "much\n".repeat(1000)));
        assert!(long.starts_with("it said much much") && long.ends_with("much and ended"), "{long}");
        assert!(long.chars().count() <= ERROR_MAX + 5, "{long}");
    }

    #[test]
    fn all_files_are_written_from_the_results_of_a_directory() {
        let root = tempfile::tempdir().unwrap();
        let reports = root.path().join("lab/reports");
        crate::report::write(&demo(), &reports.join(DEMO)).unwrap();
        std::fs::write(root.path().join("README.md"), format!("{BEGIN}{END}")).unwrap();
        let scenarios = root.path().join("lab/scenarios");
        std::fs::create_dir(&scenarios).unwrap();
        std::fs::write(scenarios.join("soak.toml"), "").unwrap();
        let written = write(root.path(), &read(&reports).unwrap()).unwrap();
        assert_eq!(written.len(), 4, "a picture, the result, the page and the README: {written:?}");
        let page = || std::fs::read_to_string(root.path().join("docs/results.md")).unwrap();
        let first = page();
        assert!(first.contains("target: steward frames_per_second_min at least 24: met"), "{first}");
        assert!(first.contains("Not measured for this page: `soak`."), "{first}");
        assert!(first.contains("(`steward-lab run demo`)") && first.contains("one emulated CPU"), "{first}");
        assert!(first.contains("![Frames per second over time](figures/demo-frame-rate.png)"), "{first}");

        // Another series, of another scenario: of the first one all that was said stands.
        std::fs::write(scenarios.join("demo.toml"), "").unwrap();
        let soak = Outcome { scenario: "soak".into(), build: Some("v0-1-gabc".into()), ..with_films() };
        let without_films = soak.without_records();
        write(root.path(), std::slice::from_ref(&without_films)).unwrap();
        let second = page();
        let section = |text: &str| {
            let (_, rest) = text.split_once("\n## demo\n").unwrap();
            rest.split("\n## ").next().unwrap().to_owned()
        };
        assert_eq!(section(&second), section(&first), "{second}");
        assert!(second.contains("(`steward-lab run soak`, build v0-1-gabc)"), "{second}");
        assert!(!second.contains("Not measured for this page"), "{second}");
        let kept = std::fs::read_to_string(root.path().join("docs/results/demo.json")).unwrap();
        assert!(!kept.contains("films"), "what is kept are numbers: {kept}");
        // A scenario that is no more has no result either.
        std::fs::remove_file(scenarios.join("soak.toml")).unwrap();
        write(root.path(), &read(&reports).unwrap()).unwrap();
        assert_eq!(page(), first.replace("\nNot measured for this page: `soak`.\n", ""));
    }

    #[test]
    fn without_results_it_says_how_to_get_some() {
        let empty = tempfile::tempdir().unwrap();
        assert!(read(empty.path()).unwrap_err().to_string().contains("make lab"));
    }
}
