//! The result of a scenario: medians and worsts of every contender, and what each run showed; as JSON and as a table.
//!
//! The JSON is one object: `{"scenario": .., "schema": 1, "contenders": {"stock": {metric: number, ..}, ..}, ..}` with
//! the median over the runs in `contenders`, and `worst`, `runs`, `failures`, `targets` beside it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::measure::WORK_TOTAL;
use crate::metrics::{Film, Metrics, median, worse};
use crate::scenario::{Contender, Scenario, Target};
use crate::sweep;

/// Version of the JSON.
pub const SCHEMA: u32 = 1;

/// What every published number must say about itself.
pub const EMULATED: &str =
    "Measured in an emulated machine: counts and ratios hold elsewhere, milliseconds do not.";

/// The result of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The scenario file's name.
    pub scenario: String,
    /// Version of this structure.
    pub schema: u32,
    /// The scenario's title.
    pub title: String,
    /// What separates the contenders.
    pub about: String,
    /// Which commit was measured, as `git describe` named it when `make build` built it; absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// What it ran on.
    pub machine: MachineFacts,
    /// Median of each metric over the runs that count.
    pub contenders: BTreeMap<Contender, Metrics>,
    /// Worst of each metric over the runs that count.
    pub worst: BTreeMap<Contender, Metrics>,
    /// Runs that do not count, and why.
    pub failures: BTreeMap<Contender, Vec<String>>,
    /// Other projects' schedulers that could not take part, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<Contender, String>,
    /// What was to be reached, and whether it was.
    pub targets: Vec<TargetOutcome>,
    /// Every run.
    pub runs: Vec<RunOutcome>,
    /// When the bombs start and stop, in seconds after the start of a run, for figures.
    pub load_seconds: Vec<(f64, f64)>,
    /// How long a run lasts, in seconds.
    pub duration_seconds: f64,
}

/// The machine that a result comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Processors.
    pub cpus: u32,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Instructions as time: each takes 2^N ns. Absent: the host's clock.
    pub icount_shift: Option<u8>,
    /// In experiments on memory, where it swaps to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_disk: Option<String>,
    /// The kernel's version.
    pub kernel: String,
    /// Always true so far: see [`EMULATED`].
    pub emulated: bool,
}

/// One run of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Who.
    pub contender: Contender,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// The numbers.
    pub metrics: Metrics,
    /// Why it does not count, if so.
    pub error: Option<String>,
    /// What programs were refused or how they failed.
    pub notes: Vec<String>,
    /// What Steward said about itself at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// What Steward decided during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<String>,
    /// The end of the daemon's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The films, for figures. Left out of what is printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub films: Vec<Film>,
}

/// A target with what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetOutcome {
    /// What was to be reached.
    #[serde(flatten)]
    pub target: Target,
    /// The median; absent when it was not measured.
    pub median: Option<f64>,
    /// The worst.
    pub worst: Option<f64>,
    /// Whether the worst run reached it.
    pub met: bool,
}

impl MachineFacts {
    /// What the guest's clock was, for people.
    pub fn clock(&self) -> String {
        match self.icount_shift {
            Some(shift) => format!("each instruction takes {} ns of the guest's clock", 1u64 << shift),
            None => "the guest's clock is the host's".into(),
        }
    }
}

impl Outcome {
    /// The numbers alone: without the films' frames, and without what Steward said and decided.
    pub fn without_records(&self) -> Outcome {
        let run = |run: &RunOutcome| RunOutcome {
            status: None,
            decisions: None,
            log: None,
            films: Vec::new(),
            ..run.clone()
        };
        Outcome { runs: self.runs.iter().map(run).collect(), ..self.clone() }
    }

    /// Puts the runs of a scenario together.
    pub fn new(scenario: &Scenario, machine: MachineFacts, runs: Vec<RunOutcome>) -> Outcome {
        let mut outcome = Outcome {
            scenario: scenario.id.clone(),
            schema: SCHEMA,
            title: scenario.title.clone(),
            about: scenario.about.clone(),
            build: option_env!("STEWARD_BUILD").filter(|build| !build.is_empty()).map(str::to_owned),
            machine,
            contenders: BTreeMap::new(),
            worst: BTreeMap::new(),
            failures: BTreeMap::new(),
            skipped: BTreeMap::new(),
            targets: Vec::new(),
            runs,
            load_seconds: load(scenario),
            duration_seconds: scenario.duration.as_secs_f64(),
        };
        if scenario.measure.overhead {
            outcome.compare_with_stock();
        }
        outcome.look_over_sweep(scenario);
        outcome.summarise();
        outcome.targets = scenario.measure.targets.iter().map(|target| outcome.hold(target)).collect();
        outcome
    }

    fn summarise(&mut self) {
        let mut values: BTreeMap<Contender, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
        for run in &self.runs {
            self.contenders.entry(run.contender).or_default();
            match &run.error {
                Some(error) => self.failures.entry(run.contender).or_default().push(error.clone()),
                None => {
                    for (metric, value) in &run.metrics {
                        let of_contender = values.entry(run.contender).or_default();
                        of_contender.entry(metric.clone()).or_default().push(*value);
                    }
                }
            }
        }
        for (contender, metrics) in values {
            for (metric, values) in metrics {
                let worst = values.iter().copied().reduce(|left, right| worse(&metric, left, right));
                self.contenders.entry(contender).or_default().insert(metric.clone(), median(&values));
                self.worst.entry(contender).or_default().extend(worst.map(|worst| (metric, worst)));
            }
        }
    }

    /// Adds `overhead_ratio_NAME` (the stock median's work per second over this run's) for each program, and their
    /// geometric mean `overhead_ratio`, to every run: 1 is what the default scheduler costs.
    fn compare_with_stock(&mut self) {
        const WORK: &str = "work_per_second";
        let mut stock: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.contender == Contender::Stock && run.error.is_none()) {
            let of_programs = |metric: &str| metric.starts_with(WORK) && !metric.starts_with(WORK_TOTAL);
            for (metric, value) in run.metrics.iter().filter(|(metric, _)| of_programs(metric)) {
                stock.entry(metric.clone()).or_default().push(*value);
            }
        }
        // With several programs the plain name is only their minimum.
        if stock.len() > 1 {
            stock.remove(WORK);
        }
        for run in &mut self.runs {
            let mut logarithms = Vec::new();
            for (metric, values) in &stock {
                // Who did nothing, perhaps for want of time, is compared with nobody.
                let of_stock = Some(median(values)).filter(|rate| *rate > 0.0);
                let rate = run.metrics.get(metric).filter(|rate| **rate > 0.0);
                let (Some(of_stock), Some(rate)) = (of_stock, rate) else { continue };
                let ratio = of_stock / rate;
                logarithms.push(ratio.ln());
                run.metrics.insert(metric.replace(WORK, "overhead_ratio"), ratio);
            }
            if !logarithms.is_empty() {
                let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
                run.metrics.insert("overhead_ratio".into(), mean.exp());
            }
        }
    }

    /// Adds what is read from all points of a contender's turn to the last of its runs.
    fn look_over_sweep(&mut self, scenario: &Scenario) {
        let mut turns: BTreeMap<(Contender, u32), (Metrics, usize)> = BTreeMap::new();
        for (index, run) in self.runs.iter().enumerate().filter(|(_, run)| run.error.is_none()) {
            let (metrics, last) = turns.entry((run.contender, run.repeat)).or_default();
            metrics.extend(run.metrics.clone());
            *last = index;
        }
        for (metrics, last) in turns.into_values() {
            let numbers = sweep::over(&scenario.measure.over_sweep, &scenario.points, &metrics);
            self.runs[last].metrics.extend(numbers);
        }
    }

    fn hold(&self, target: &Target) -> TargetOutcome {
        let of = |values: &BTreeMap<Contender, Metrics>| {
            values.get(&target.contender).and_then(|metrics| metrics.get(&target.metric)).copied()
        };
        let (mut median, mut worst) = (of(&self.contenders), of(&self.worst));
        if target.relative_to.is_some() || target.relative_to_metric.is_some() {
            let metric = target.relative_to_metric.as_ref().unwrap_or(&target.metric);
            let of = self.contenders.get(&target.relative_to.unwrap_or(target.contender));
            let base = of.and_then(|metrics| metrics.get(metric));
            let ratio = |value: Option<f64>| Some(target.ratio(value?, *base?));
            (median, worst) = (ratio(median), ratio(worst));
        }
        TargetOutcome {
            target: target.clone(),
            median,
            worst,
            met: worst.is_some_and(|worst| target.is_met(worst)),
        }
    }

    /// Whether every contender had at least one run that counts; another project's scheduler need not.
    pub fn is_complete(&self) -> bool {
        self.contenders.iter().all(|(contender, metrics)| contender.is_peer() || !metrics.is_empty())
    }

    /// The object that `--json` prints: everything but the times of single frames and the daemon's state.
    pub fn to_json(&self) -> Value {
        let mut slim = self.clone();
        for run in &mut slim.runs {
            run.films.clear();
            run.status = None;
            run.decisions = None;
            run.log = None;
        }
        serde_json::to_value(slim).expect("an outcome has string keys only")
    }

    /// A table for the terminal: metrics down, contenders across, median with the worst behind it where they differ.
    /// What a single program among several did is in the report, except for its worst second and its overhead.
    pub fn table(&self) -> String {
        let contenders: Vec<Contender> = self.contenders.keys().copied().collect();
        let metrics = self.metric_names(false);
        let width = metrics.iter().map(|metric| metric.len()).max().unwrap_or(0).max(6);
        let mut text = format!("{}\n{:width$}", self.title, "");
        for contender in &contenders {
            let _ = write!(text, "  {:>20}", contender.name());
        }
        text.push('\n');
        for metric in metrics {
            let _ = write!(text, "{metric:width$}");
            for contender in &contenders {
                let _ = write!(text, "  {:>20}", self.cell(*contender, metric));
            }
            text.push('\n');
        }
        text.push_str("median (worst run where it differs)\n");
        for target in &self.targets {
            let _ = writeln!(text, "{}", target.sentence());
        }
        for (contender, errors) in &self.failures {
            for error in errors {
                let _ = writeln!(text, "FAILED {contender}: {error}");
            }
        }
        for reason in self.skipped.values() {
            let _ = writeln!(text, "{reason}");
        }
        text.push_str(EMULATED);
        text.push('\n');
        text
    }

    /// The metrics of all contenders by name; `all`: also those of single programs that the terminal has no room for.
    pub fn metric_names(&self, all: bool) -> Vec<&str> {
        let names = self.contenders.values().flat_map(BTreeMap::keys).map(String::as_str);
        let mut names: Vec<&str> = names.filter(|metric| all || !is_detail(metric)).collect();
        names.sort_unstable_by(|left, right| sweep::in_order(left, right));
        names.dedup();
        names
    }

    /// Median and worst of one metric, for people.
    pub fn cell(&self, contender: Contender, metric: &str) -> String {
        let of = |values: &BTreeMap<Contender, Metrics>| {
            values.get(&contender).and_then(|metrics| metrics.get(metric)).map(|value| readable(*value))
        };
        match (of(&self.contenders), of(&self.worst)) {
            (Some(median), Some(worst)) if median != worst => format!("{median} ({worst})"),
            (Some(median), _) => median,
            (None, _) => "-".into(),
        }
    }
}

impl TargetOutcome {
    /// `target: steward frames_per_second_min at least 24: met (median 25, worst run 24)`.
    pub fn sentence(&self) -> String {
        let target = &self.target;
        let verdict = match (self.median, self.worst) {
            (Some(median), Some(worst)) => {
                let word = if self.met { "met" } else { "MISSED" };
                format!("{word} (median {}, worst run {})", readable(median), readable(worst))
            }
            _ => "NOT MEASURED".into(),
        };
        format!("target: {} {} {}: {verdict}", target.contender, target.metric, target.bound())
    }
}

/// Whether a metric is a single program's, of a kind that the terminal has no room for.
fn is_detail(metric: &str) -> bool {
    const KINDS: [&str; 14] = [
        "major_faults_",
        "cgroup_major_faults_",
        "throttled_",
        "low_breached_",
        "oom_kills_",
        "frames_total_",
        "frames_late_",
        "gap_ms_max_",
        "latency_ms_p50_",
        "latency_ms_p99_",
        "latency_ms_max_",
        "work_per_second_",
        "frames_late_ratio_",
        "underflows_per_second_",
    ];
    const SHOWN: [&str; 2] = ["frames_late_ratio", "work_per_second_total"];
    !SHOWN.iter().any(|shown| metric == *shown || metric.starts_with("work_per_second_total_"))
        && KINDS.iter().any(|kind| metric.starts_with(kind))
}

/// A number with about four significant digits.
pub fn readable(value: f64) -> String {
    match value.abs() {
        size if size.fract() == 0.0 || size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// When programs that are neither watched nor measured run: the bombs.
fn load(scenario: &Scenario) -> Vec<(f64, f64)> {
    use crate::scenario::MetricKind::{Player, Reply};
    if scenario.one_after_another {
        return Vec::new();
    }
    let bombs =
        scenario.programs.iter().filter(|row| !row.foreground && !matches!(row.metrics, Player | Reply));
    let mut spans: Vec<(f64, f64)> = bombs
        .map(|row| (row.start.as_secs_f64(), row.stop.unwrap_or(scenario.duration).as_secs_f64()))
        .collect();
    spans.sort_by(|left, right| left.0.total_cmp(&right.0));
    spans.dedup();
    spans
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    fn scenario(measure: &str) -> Scenario {
        let text = format!(
            "title='t'\nduration='4s'\n[measure]\n{measure}\n[[program]]\nname='p'\ncommand='p'\nstart='1s'\n"
        );
        Scenario::parse(&text, Path::new("t.toml")).unwrap()
    }

    fn run(contender: Contender, metrics: &[(&str, f64)]) -> RunOutcome {
        RunOutcome {
            contender,
            repeat: 1,
            metrics: metrics.iter().map(|(metric, value)| ((*metric).to_owned(), *value)).collect(),
            error: None,
            notes: Vec::new(),
            status: None,
            decisions: None,
            log: None,
            films: Vec::new(),
        }
    }

    /// A result with a film each for `stock` and `steward`.
    pub(crate) fn with_films() -> Outcome {
        let shown = |step: f64| Film {
            program: "film".into(),
            start_ms: 0.0,
            period_ms: 40.0,
            frames: 100,
            shown_ms: (0..100).map(|frame| f64::from(frame) * step).collect(),
        };
        let mut runs = vec![
            run(Contender::Stock, &[("frames_per_second_min", 4.0), ("gap_ms_max", 800.0)]),
            run(Contender::Steward, &[("frames_per_second_min", 25.0), ("gap_ms_max", 41.0)]),
        ];
        runs[0].films.push(shown(250.0));
        runs[1].films.push(shown(40.0));
        let scenario = scenario("targets=[{metric='frames_per_second_min', at_least=24}]");
        Outcome::new(&scenario, MachineFacts { cpus: 1, ..MachineFacts::default() }, runs)
    }

    #[test]
    fn the_plain_number_is_the_median_and_the_worst_stands_beside_it() {
        let runs = [24.0, 25.0, 20.0].map(|fps| run(Contender::Steward, &[("frames_per_second_min", fps)]));
        let scenario = scenario("targets=[{metric='frames_per_second_min', at_least=24}]");
        let outcome = Outcome::new(&scenario, MachineFacts::default(), runs.to_vec());
        let json = outcome.to_json();
        assert_eq!(json["scenario"], "t");
        assert_eq!(json["schema"], 1);
        assert_eq!(json["contenders"]["steward"]["frames_per_second_min"], 24.0);
        assert_eq!(json["worst"]["steward"]["frames_per_second_min"], 20.0);
        assert!(!outcome.targets[0].met);
        assert!(outcome.table().contains("at least 24: MISSED (median 24, worst run 20)"));
    }

    #[test]
    fn nothing_is_no_more_than_a_tenth_of_nothing_and_something_is() {
        let targets = "targets=[{metric='requests_starved', at_most=0.1, relative_to='stock'}]";
        let met = |stock, steward| {
            let runs = [(Contender::Stock, stock), (Contender::Steward, steward)];
            let runs = runs.map(|(contender, starved)| run(contender, &[("requests_starved", starved)]));
            Outcome::new(&scenario(targets), MachineFacts::default(), runs.to_vec()).targets[0].met
        };
        assert!(met(0.0, 0.0));
        assert!(!met(0.0, 1.0));
        assert!(met(10.0, 1.0));
        assert!(!met(10.0, 2.0));
    }

    #[test]
    fn a_failed_run_does_not_count_and_is_told() {
        let mut failed = run(Contender::Steward, &[("frames_total", 1.0)]);
        failed.error = Some("stewardd did not start".into());
        let runs = vec![failed, run(Contender::Stock, &[("frames_total", 9.0)])];
        let outcome = Outcome::new(&scenario(""), MachineFacts::default(), runs);
        assert!(outcome.contenders[&Contender::Steward].is_empty());
        assert!(!outcome.is_complete());
        assert!(outcome.table().contains("FAILED steward: stewardd did not start"));
    }

    #[test]
    fn another_projects_scheduler_that_loads_nothing_costs_its_own_run_and_no_other() {
        let mut failed = run(Contender::ScxCosmos, &[]);
        failed.error = Some("scx_cosmos loaded no scheduler; what it said:\nInvalid argument".into());
        let counts =
            [Contender::Stock, Contender::Steward].map(|contender| run(contender, &[("gap_ms_max", 41.0)]));
        let runs = [vec![failed.clone()], counts.to_vec()].concat();
        let targets = "targets=[{metric='gap_ms_max', at_most=42}]";
        let outcome = Outcome::new(&scenario(targets), MachineFacts::default(), runs);
        assert!(outcome.is_complete() && outcome.targets[0].met);
        assert!(outcome.contenders[&Contender::ScxCosmos].is_empty());
        assert_eq!(outcome.contenders[&Contender::Stock]["gap_ms_max"], 41.0);
        assert_eq!(outcome.cell(Contender::ScxCosmos, "gap_ms_max"), "-");
        assert!(outcome.table().contains("FAILED scx_cosmos: scx_cosmos loaded no scheduler"));
        // The same of a contender that must run.
        failed.contender = Contender::Stock;
        let outcome = Outcome::new(&scenario(targets), MachineFacts::default(), vec![failed]);
        assert!(!outcome.is_complete());
    }

    #[test]
    fn overhead_is_the_stock_schedulers_rate_over_the_contenders() {
        let rates = |contender, ring: f64, busy: f64| {
            let total = ("work_per_second_total", ring + busy);
            let metrics = [("work_per_second_ring", ring), ("work_per_second_busy", busy), total];
            run(contender, &metrics)
        };
        let runs = vec![rates(Contender::Stock, 100.0, 50.0), rates(Contender::Steward, 50.0, 50.0)];
        let outcome = Outcome::new(&scenario("overhead=true"), MachineFacts::default(), runs);
        let steward = &outcome.contenders[&Contender::Steward];
        assert_eq!(steward["overhead_ratio_ring"], 2.0);
        // Each program counts once, and what they did together does not count beside them.
        assert!((steward["overhead_ratio"] - 2f64.sqrt()).abs() < 1e-12);
        assert!(!steward.contains_key("overhead_ratio_total"));
        assert_eq!(outcome.contenders[&Contender::Stock]["overhead_ratio"], 1.0);
    }

    #[test]
    fn what_did_nothing_under_stock_has_no_overhead_and_meets_no_target() {
        let rates = |contender, ring: f64, busy: f64| {
            run(contender, &[("work_per_second_ring", ring), ("work_per_second_busy", busy)])
        };
        let runs = vec![rates(Contender::Stock, 0.0, 50.0), rates(Contender::Steward, 50.0, 50.0)];
        let measure = "overhead=true\ntargets=[{metric='overhead_ratio_ring', at_most=1.005}]";
        let outcome = Outcome::new(&scenario(measure), MachineFacts::default(), runs);
        let steward = &outcome.contenders[&Contender::Steward];
        assert!(!steward.contains_key("overhead_ratio_ring"));
        assert_eq!(steward["overhead_ratio"], 1.0);
        assert!(!outcome.targets[0].met);
    }

    #[test]
    fn a_result_survives_being_written_and_read() {
        let runs = vec![run(Contender::StockNice, &[("gap_ms_max", 41.5)])];
        let outcome = Outcome::new(&scenario(""), MachineFacts::default(), runs);
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }

    #[test]
    fn numbers_are_readable() {
        let texts: Vec<_> = [0.0, 0.00123, 1.5, 325.0, 41.26, 123.456, 98765.4].map(readable).to_vec();
        assert_eq!(texts, ["0", "0.0012", "1.5", "325", "41.3", "123.5", "98765"]);
    }
}
