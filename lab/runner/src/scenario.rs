//! What a scenario's file says: the machine, the programs, the contenders and what to measure, in TOML.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use steward_lab_workloads::scheduling::parse_reservation;

pub use crate::contender::Contender;
use crate::size;
pub use domain::DomainRow;
pub use sweep::{OverSweep, Sweep};
pub use timed_disk::{DISK_SCRIPT, DiskKind, Elevator, FileSystem, Swap, TimedDisk};

mod domain;
mod sweep;
mod timed_disk;

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
    /// program that says what is late, `requests_met`, `requests_met_ratio` and, of dear ones, `requests_met_dear` too.
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

/// A scenario with one value of its parameter.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value as it is written.
    pub label: String,
    /// The value as a number.
    pub value: f64,
    /// The scenario.
    pub scenario: Scenario,
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
    /// The class of its disk requests.
    pub io: Option<steward_core::disk::Class>,
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

    /// `value` by `base`, to be held against the bound. Nothing of nothing is just what is wanted: neither too much nor
    /// too little.
    pub fn ratio(&self, value: f64, base: f64) -> f64 {
        let wanted = self.at_most.or(self.at_least).filter(|_| value == 0.0 && base == 0.0);
        wanted.unwrap_or(value / base)
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

/// Two players, of which one is measured: for tests.
#[cfg(test)]
pub(crate) fn honest_and_liar() -> Scenario {
    let text = "title='t'\nduration='4s'\n[machine]\ncpus=2\n[measure]\nof=['honest']\n\
        [[program]]\nname='honest'\ncommand='p'\nmetrics='player'\n\
        [[program]]\nname='liar'\ncommand='p'\nmetrics='player'\n";
    Scenario::parse(text, std::path::Path::new("t.toml")).expect("it is as it should be")
}
