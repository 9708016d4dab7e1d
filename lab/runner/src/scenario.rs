//! Scenario files: the machine, the programs, the contenders and what to measure, in TOML.
//!
//! An unknown key is an error with file and line, as everywhere in Steward.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Deserializer, Serialize};
use steward_lab_workloads::scheduling::parse_reservation;

pub use crate::contender::Contender;
use crate::disk;
use crate::domains::{self, DomainRow};
use crate::memory::{self, TimedDisk};
use crate::sweep::{self, OverSweep, Point, Sweep};
use crate::{size, wrk};

/// CPU time promised to a program: `budget` in every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// `C`.
    pub budget: Duration,
    /// `T`.
    pub period: Duration,
}

impl fmt::Display for Reservation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}us/{}us", self.budget.as_micros(), self.period.as_micros())
    }
}

impl<'de> Deserialize<'de> for Reservation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (budget, period) = parse_reservation(&text).map_err(serde::de::Error::custom)?;
        Ok(Reservation { budget, period })
    }
}

/// What is read from what a program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// A film: `frames_total`, `frames_late`, `frames_late_ratio`, `frames_per_second_min`, `gap_ms_max`.
    Player,
    /// Requests and replies: `latency_ms_mean`, `latency_ms_p50`, `latency_ms_p99`, `latency_ms_max`; and
    /// `major_faults` of those that tell them.
    Reply,
    /// A search for a reservation (`steward tune --json`): `reservation_found` (a fraction), `search_seconds`.
    Tune,
    /// Units of work: `work_per_second`; and `collector_share` of those that tell what collecting garbage takes.
    Work,
    /// Clients of a web server: `work_per_second` (requests answered; `_heavy`, `_light` where the load alternates),
    /// `latency_ms_p50`, `_p99`, `_max`, `requests_total`, `requests_starved` (over 10 s), `requests_failed`; of a
    /// program that says what is late, `requests_met` and `requests_met_ratio` too.
    Web,
    /// The load generator `wrk`: as `web`, without phases and the largest latency.
    Wrk,
    /// How memory is divided (`memory-shares`): `off_share_used`, `off_share_available`.
    Shares,
    /// `forecast-check`: `forecast_error_ratio` and others (see `lab/runner/src/forecasts.rs`).
    Forecast,
    /// Nothing but its share of the machine's CPU time, which every program has: `share_NAME`.
    Share,
}

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without `.toml`; filled in by [`Scenario::load`].
    #[serde(skip)]
    pub id: String,
    /// One line that says what it is.
    pub title: String,
    /// What separates the contenders here, and where the experiment comes from.
    #[serde(default)]
    pub about: String,
    /// The machine.
    #[serde(default)]
    pub machine: Machine,
    /// How long one run lasts.
    #[serde(deserialize_with = "duration")]
    pub duration: Duration,
    /// How often each contender runs.
    #[serde(default = "five")]
    pub repeat: u32,
    /// Who runs, in this order.
    #[serde(default = "all_contenders")]
    pub contenders: Vec<Contender>,
    /// What all programs together may hold that are not to be protected, under `high-by-hand`, such as `700M`.
    #[serde(default, deserialize_with = "size::some_mebibytes", rename = "ceiling")]
    pub ceiling_mib: Option<u32>,
    /// The programs run one after another, each until it ends, instead of together.
    #[serde(default)]
    pub one_after_another: bool,
    /// Files that a script beside the scenario makes or fetches on the host.
    #[serde(default, rename = "file")]
    pub files: Vec<FileRow>,
    /// Commands that run in the machine once, before all runs.
    #[serde(default, rename = "prepare")]
    pub preparations: Vec<Preparation>,
    /// Specifications that Steward is given besides those of bombs.
    #[serde(default, rename = "spec")]
    pub specifications: Vec<SpecificationRow>,
    /// The scenario is run for each value of a parameter.
    pub sweep: Option<Sweep>,
    /// The scenario with each of these values; filled in by [`Scenario::parse`].
    #[serde(skip)]
    pub points: Vec<Point>,
    /// Domains: cgroups with a policy.
    #[serde(default, rename = "domain")]
    pub domains: Vec<DomainRow>,
    /// The programs.
    #[serde(rename = "program")]
    pub programs: Vec<ProgramRow>,
    /// What to report.
    #[serde(default)]
    pub measure: Measure,
}

/// The machine of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// Memory, such as `512M`; what a timed disk holds comes to it.
    #[serde(deserialize_with = "size::mebibytes", rename = "memory")]
    pub memory_mib: u32,
    /// Number of processors.
    pub cpus: u32,
    /// An instruction takes 2^N ns of the guest's clock; absent, the guest's clock is the host's.
    pub icount_shift: Option<u8>,
    /// Debian packages that the programs come from.
    pub packages: Vec<String>,
    /// Size of an empty file system at /scratch, such as `2G`.
    #[serde(deserialize_with = "size::some_mebibytes", rename = "disk")]
    pub disk_mib: Option<u32>,
    /// A disk whose speed is in the machine's own time, with swap: the experiment is about memory.
    pub timed_disk: Option<TimedDisk>,
}

impl Default for Machine {
    fn default() -> Self {
        let (icount_shift, packages, disk_mib, timed_disk) = (None, Vec::new(), None, None);
        Machine { memory_mib: 512, cpus: 2, icount_shift, packages, disk_mib, timed_disk }
    }
}

/// A file that is brought into the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRow {
    /// Where it is in the machine.
    pub path: String,
    /// A script in the scenario's directory; the last line that it prints is the file's path on the host.
    pub script: Option<String>,
    /// A file in the scenario's directory that is brought as it is, instead of a script.
    pub source: Option<String>,
}

/// A command that prepares the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// What to execute, in shell quoting.
    pub command: String,
}

/// A specification, as in Steward's own files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecificationRow {
    /// The executable in the machine.
    pub path: String,
    /// Its reservation.
    pub cpu: Reservation,
    /// Whether children without one of their own get it too.
    #[serde(default)]
    pub inherit: bool,
}

/// A program of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRow {
    /// Its name, in metrics and reports.
    pub name: String,
    /// What to execute, in shell quoting; no shell is involved.
    pub command: String,
    /// What the person at the machine looks at: `stock-nice` runs it at nice -20.
    #[serde(default)]
    pub foreground: bool,
    /// Its reservation, under `deadline` and `steward`.
    pub cpu: Option<Reservation>,
    /// Its memory is to be kept: what contenders of experiments on memory do for it, they do for no other.
    #[serde(default)]
    pub protect: bool,
    /// How soon its disk requests are to be served, under `steward`: `interactive`, `normal` or `background`. Where one
    /// is interactive, so is the thread that writes the file system's journal, as in what ships.
    pub io: Option<steward_core::disk::Class>,
    /// How large it is, for contenders that must be told, such as `60M`.
    #[serde(default, deserialize_with = "size::some_mebibytes", rename = "memory_size")]
    pub memory_size_mib: Option<u32>,
    /// For a bomb that tries to be interactive: under `steward` its executable has a specification with this
    /// reservation and it is started as interactive; under `stock-nice` it runs at nice -20.
    pub interactive: Option<Reservation>,
    /// What is appended to the command under `deadline`, to let the program try the same by itself.
    pub deadline_arguments: Option<String>,
    /// Its nice value under every contender, unless the contender sets one.
    pub nice: Option<i32>,
    /// When it starts.
    #[serde(default, deserialize_with = "duration")]
    pub start: Duration,
    /// When it and all its children are killed.
    #[serde(default, deserialize_with = "some_duration")]
    pub stop: Option<Duration>,
    /// How many of it; they are named NAME-1, NAME-2, ...
    #[serde(default = "one")]
    pub count: u32,
    /// Of several, each next one starts so much later.
    #[serde(default, deserialize_with = "duration")]
    pub apart: Duration,
    /// It runs under these contenders only; under all if empty.
    #[serde(default)]
    pub under: Vec<Contender>,
    /// The CPUs that it may use.
    #[serde(default)]
    pub affinity: Vec<u32>,
    /// The user id that it runs as.
    pub user: Option<u32>,
    /// The `[[domain]]` that it is in.
    pub domain: Option<String>,
    /// Each of it is in a domain of its own, with its name.
    #[serde(default)]
    pub own_domain: bool,
    /// The CPUs that such a domain may use.
    #[serde(default)]
    pub own_cpus: Vec<u32>,
    /// What is read from its output.
    #[serde(default = "share")]
    pub metrics: MetricKind,
    /// For a real player: frames per second of its film. The agent notes when its status line changes.
    pub fps: Option<f64>,
    /// For a real player: how long the film is.
    #[serde(default, deserialize_with = "some_duration")]
    pub film: Option<Duration>,
    /// Count the lines that it prints as units of work, by when they arrive.
    #[serde(default)]
    pub count_lines: bool,
    /// Count those lines only that arrive between these two moments of the run, so that a start does not count.
    #[serde(default, deserialize_with = "some_span")]
    pub counted: Option<(Duration, Duration)>,
    /// For a benchmark that takes its own time: the words before the number of seconds that it prints.
    pub seconds_after: Option<String>,
    /// For such a benchmark: how much work it did in that time.
    pub units: Option<f64>,
}

/// What to report.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Where several programs have metrics of one kind, the plain name is the worst of these; all if empty.
    pub of: Vec<String>,
    /// The machine's idle time is measured between these two moments of the run: `idle_ms_per_second`, of all CPUs
    /// together.
    #[serde(deserialize_with = "some_span")]
    pub idle: Option<(Duration, Duration)>,
    /// Compare `work_per_second` with `stock`: `overhead_ratio`, and `overhead_ratio_NAME` for each program.
    pub overhead: bool,
    /// Numbers that are read from the runs with all values of a `[sweep]`.
    pub over_sweep: Vec<OverSweep>,
    /// What is to be reached.
    pub targets: Vec<Target>,
}

/// A number to be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The metric's name.
    pub metric: String,
    /// By whom.
    #[serde(default = "steward")]
    pub contender: Contender,
    /// The metric is divided by this contender's median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_to: Option<Contender>,
    /// The metric is divided by the median of this other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_to_metric: Option<String>,
    /// Not less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Not more than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

impl Target {
    /// Whether `value` reaches it.
    pub fn is_met(&self, value: f64) -> bool {
        self.at_least.is_none_or(|bound| value >= bound) && self.at_most.is_none_or(|bound| value <= bound)
    }

    /// `at least 24`, for people.
    pub fn bound(&self) -> String {
        let parts = [("at least", self.at_least), ("at most", self.at_most)];
        let words = parts.iter().filter_map(|(word, bound)| bound.map(|bound| format!("{word} {bound}")));
        let bound = words.collect::<Vec<_>>().join(", ");
        match (self.relative_to, &self.relative_to_metric) {
            (Some(contender), Some(metric)) => format!("{bound} x {metric} of {contender}"),
            (Some(contender), None) => format!("{bound} x {contender}"),
            (None, Some(metric)) => format!("{bound} x {metric}"),
            (None, None) => bound,
        }
    }
}

impl ProgramRow {
    /// The names of all of it: its own, or NAME-1, NAME-2, ...
    pub fn names(&self) -> impl Iterator<Item = String> {
        (1..=self.count).map(|index| match self.count {
            1 => self.name.clone(),
            _ => format!("{}-{index}", self.name),
        })
    }
}

impl Scenario {
    /// Reads and checks a scenario file.
    ///
    /// # Errors
    /// Names the file, the line and what is wrong.
    pub fn load(path: &Path) -> Result<Scenario> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the scenario {}", path.display()))?;
        Scenario::parse(&text, path)
    }

    /// Reads and checks the text of a scenario file that is called `path`.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Scenario> {
        let mut points = Vec::new();
        for (label, value, text) in sweep::texts(text, path)? {
            points.push(Point { label, value, scenario: Scenario::parse_one(&text, path)? });
        }
        match points.first() {
            // What does not depend on the parameter is the same in all of them.
            Some(first) => Ok(Scenario { points: points.clone(), ..first.scenario.clone() }),
            None => Scenario::parse_one(text, path),
        }
    }

    fn parse_one(text: &str, path: &Path) -> Result<Scenario> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start).min(text.len());
            let line = text[..offset].matches('\n').count() + 1;
            anyhow::anyhow!("{}:{line}: {}", path.display(), error.message())
        })?;
        scenario.id = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        scenario.check().with_context(|| format!("{} cannot be run", path.display()))?;
        Ok(scenario)
    }

    fn check(&self) -> Result<()> {
        if self.contenders.is_empty() || self.repeat == 0 || self.programs.is_empty() {
            bail!("it needs at least one contender, one repetition and one program");
        }
        if !self.one_after_another && self.duration.is_zero() {
            bail!("its duration must be above 0");
        }
        let mut names = Vec::new();
        for (index, program) in self.programs.iter().enumerate() {
            check_program(program, self.duration).with_context(|| format!("program `{}`", program.name))?;
            for other in self.programs[..index].iter().filter(|other| other.name == program.name) {
                check_namesakes(other, program).with_context(|| format!("program `{}`", program.name))?;
            }
            names.push(&program.name);
        }
        if let Some(file) = self.files.iter().find(|file| file.script.is_some() == file.source.is_some()) {
            bail!("[[file]] {}: give either its source or the script that makes it", file.path);
        }
        if let Some(unknown) = self.measure.of.iter().find(|name| !names.contains(name)) {
            bail!("[measure] of: there is no program `{unknown}`");
        }
        if self.measure.idle.is_some_and(|(from, to)| from >= to || to > self.duration) {
            bail!(
                "[measure] idle: two moments of the run, one after the other, between which idle time is counted"
            );
        }
        memory::check(self)?;
        disk::check(self)?;
        domains::check(self)
    }
}

/// One program may be started in several ways, each under contenders of its own.
fn check_namesakes(one: &ProgramRow, other: &ProgramRow) -> Result<()> {
    let is_apart = |row: &ProgramRow, other: &ProgramRow| {
        !row.under.is_empty() && !row.under.iter().any(|contender| other.under.contains(contender))
    };
    if !is_apart(one, other) || !is_apart(other, one) {
        bail!("two are called so under one contender; say `under` for both, or rename one");
    }
    let measured = |row: &ProgramRow| {
        (row.metrics, row.count_lines, row.counted, row.fps, row.film, row.seconds_after.clone(), row.units)
    };
    if measured(one) != measured(other) || one.count != other.count {
        bail!("two are called so, and are not measured the same way");
    }
    Ok(())
}

fn check_program(program: &ProgramRow, duration: Duration) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if program.name.is_empty() || !program.name.chars().all(is_plain) {
        bail!("a name is made of letters, digits, _ and -");
    }
    let words = shell_words::split(&program.command).context("its command is not valid shell quoting")?;
    if words.is_empty() {
        bail!("its command is empty");
    }
    if let Some(option) = wrk::OPTIONS.iter().find(|option| !program.command.contains(**option))
        && program.metrics == MetricKind::Wrk
    {
        bail!("metrics = \"wrk\" stands on what `wrk` prints with `{option}`: give it that option");
    }
    let last = program.start + program.apart * program.count.saturating_sub(1);
    if program.count == 0 || last >= duration {
        bail!("it would never run: count {}, start {last:?} of {duration:?}", program.count);
    }
    if program.nice.is_some_and(|nice| !(-20..=19).contains(&nice)) {
        bail!("nice goes from -20 to 19");
    }
    if program.fps.is_some() != program.film.is_some() {
        bail!("fps and film belong together: they tell when each frame of a real player's film is due");
    }
    if let Some((from, to)) = program.counted
        && (!program.count_lines || from < program.start || from >= to || to > duration)
    {
        bail!(
            "counted: two moments of its run, one after the other, between which lines are counted (count_lines)"
        );
    }
    if program.seconds_after.is_some() != program.units.is_some() {
        bail!(
            "seconds_after and units belong together: they tell how much work a benchmark did in the time it prints"
        );
    }
    Ok(())
}

fn five() -> u32 {
    5
}

fn one() -> u32 {
    1
}

fn share() -> MetricKind {
    MetricKind::Share
}

fn steward() -> Contender {
    Contender::Steward
}

fn all_contenders() -> Vec<Contender> {
    Contender::USUAL.to_vec()
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    moment(&String::deserialize(deserializer)?)
}

fn moment<E: serde::de::Error>(text: &str) -> Result<Duration, E> {
    steward_core::quantity::parse_duration(text).map(Duration::from_nanos).map_err(E::custom)
}

fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

fn some_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<(Duration, Duration)>, D::Error> {
    let [from, to] = <[String; 2]>::deserialize(deserializer)?;
    Ok(Some((moment(&from)?, moment(&to)?)))
}

/// All scenario files of a directory, by name.
///
/// # Errors
/// When the directory cannot be read.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read the scenarios' directory {}", directory.display()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
title = "a film"
duration = "10s"
[[program]]
name = "film"
command = "frame-player --fps 25"
cpu = "5ms/30ms"
"#;

    fn parse(text: &str) -> Result<Scenario> {
        Scenario::parse(text, Path::new("lab/scenarios/small.toml"))
    }

    fn complaint(text: &str) -> String {
        format!("{:#}", parse(text).expect_err("the text has a mistake"))
    }

    #[test]
    fn two_programs_of_one_name_run_under_different_contenders_and_are_measured_alike() {
        let file = |first: &str, second: &str| {
            let rows = format!(
                "[[program]]\nname='p'\ncommand='a'\n{first}\n[[program]]\nname='p'\ncommand='b'\n{second}\n"
            );
            Scenario::parse(&format!("title='t'\nduration='4s'\n{rows}"), Path::new("t.toml"))
        };
        let refusal = |first, second| format!("{:#}", file(first, second).unwrap_err());
        assert!(file("under=['stock']", "under=['steward']").is_ok());
        assert!(
            refusal("", "under=['steward']").contains("program `p`: two are called so under one contender")
        );
        assert!(refusal("under=['steward','stock']", "under=['steward']").contains("under one contender"));
        let metered = refusal("under=['stock']\nmetrics='work'", "under=['steward']");
        assert!(metered.contains("not measured the same way"), "{metered}");
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let scenario = parse(SMALL).unwrap();
        assert_eq!((scenario.id.as_str(), scenario.repeat), ("small", 5));
        assert_eq!(scenario.contenders, Contender::USUAL);
        assert_eq!((scenario.machine.memory_mib, scenario.machine.cpus), (512, 2));
    }

    #[test]
    fn an_unknown_key_is_an_error_with_file_and_line() {
        let text = complaint(&format!("{SMALL}colour = 3\n"));
        assert!(text.starts_with("lab/scenarios/small.toml:8: unknown field `colour`"), "{text}");
    }

    #[test]
    fn mistakes_name_the_program() {
        let text = complaint(&SMALL.replace("frame-player --fps 25", "frame-player '"));
        assert!(text.contains("program `film`") && text.contains("quoting"), "{text}");
        assert!(complaint(&SMALL.replace("5ms/30ms", "40ms/30ms")).contains("at most the period"));
        assert!(complaint(&format!("{SMALL}start = \"20s\"\n")).contains("never run"));
    }

    #[test]
    fn wrk_needs_the_options_that_its_numbers_stand_on() {
        let with = |command: &str| {
            SMALL.replace("frame-player --fps 25", command).replace("cpu = \"5ms/30ms\"", "metrics = \"wrk\"")
        };
        assert!(parse(&with("wrk --latency --timeout 10s http://localhost/")).is_ok());
        let text = complaint(&with("wrk --latency http://localhost/"));
        assert!(text.contains("program `film`") && text.contains("`--timeout 10s`"), "{text}");
    }

    #[test]
    fn every_scenario_that_ships_can_be_read() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
        let paths = files(&directory).unwrap();
        assert!(!paths.is_empty());
        for path in paths {
            Scenario::load(&path).unwrap();
        }
    }
}
