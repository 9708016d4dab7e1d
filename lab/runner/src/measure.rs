//! From all that programs printed in one run to its numbers: each by what its row says of it, then together. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use steward_lab_guest::Seen;

use crate::metrics::{
    Measured, Metrics, ProgramOutput, film, film_metrics, median, reply_metrics, tune_metrics, work_metrics,
    worse,
};
use crate::scenario::{MetricKind, ProgramRow, Scenario};
use crate::{disk, forecasts, memory, web, wrk};

/// Measures one run that lasted from `start_ms` to `end_ms` of the guest's clock.
pub fn measure(scenario: &Scenario, start_ms: f64, end_ms: f64, outputs: &[ProgramOutput]) -> Measured {
    let mut measured = Measured::default();
    let mut of_kind: BTreeMap<MetricKind, Vec<(String, Metrics)>> = BTreeMap::new();
    for output in outputs {
        let Some(row) = row_of(scenario, &output.name) else { continue };
        let end_ms = row.stop.map_or(end_ms, |stop| end_ms.min(start_ms + stop.as_secs_f64() * 1e3));
        // Its share is of the time in which it was there to take one.
        let from_ms = start_ms + row.start.as_secs_f64() * 1e3;
        let available_ms = (end_ms - from_ms) * f64::from(scenario.machine.cpus);
        if available_ms > 0.0 {
            measured.metrics.insert(format!("share_{}", output.name), output.cpu_ms / available_ms);
        }
        let seen = output.memory.as_ref().filter(|_| scenario.machine.timed_disk.is_some());
        measured
            .metrics
            .extend(seen.map(|seen| memory::program_metrics(&output.name, seen)).into_iter().flatten());
        let metrics = match row.metrics {
            MetricKind::Player => {
                let film = film(row, output, start_ms);
                let metrics = film_metrics(&film, end_ms - start_ms);
                measured.films.push(film);
                metrics
            }
            MetricKind::Reply => {
                let mut metrics = reply_metrics(&output.text, end_ms);
                metrics.extend(memory::fault_metrics(&output.text));
                metrics
            }
            MetricKind::Tune => tune_metrics(&output.text),
            MetricKind::Work => {
                let mut metrics = work_metrics(row, &output.text, start_ms, end_ms);
                metrics.extend(memory::collector_metrics(&output.text));
                metrics
            }
            MetricKind::Shares => memory::share_metrics(&output.text),
            MetricKind::Web => web::web_metrics(&output.text),
            // It had nobody to ask for.
            MetricKind::Wrk
                if output.text.is_empty() && output.ended.as_deref() == Some("exit status: 0") =>
            {
                continue;
            }
            MetricKind::Wrk => match wrk::wrk_metrics(&output.text) {
                Ok(metrics) => metrics,
                Err(error) => {
                    measured.errors.push(format!("{}: {error:#}", output.name));
                    continue;
                }
            },
            MetricKind::Forecast => forecasts::forecast_metrics(&output.text),
            MetricKind::Share => continue,
        };
        of_kind.entry(row.metrics).or_default().push((output.name.clone(), metrics));
    }
    measured
        .metrics
        .extend(of_kind.get(&MetricKind::Reply).map(|of| memory::without_faults(of)).into_iter().flatten());
    measured.metrics.extend(of_kind.get(&MetricKind::Work).map(|of| totals(of)).into_iter().flatten());
    // Those that count first: where two kinds have a metric of one name, the plain name is theirs.
    let of = &scenario.measure.of;
    let counts = |programs: &Vec<(String, Metrics)>| programs.iter().any(|(name, _)| names(of, name));
    let (first, rest): (Vec<_>, Vec<_>) = of_kind.into_values().partition(counts);
    for programs in first.into_iter().chain(rest) {
        combine(&mut measured.metrics, programs, of);
    }
    measured
}

/// What all programs did together; what those of one row did is called so too, with the row's name after it.
pub const WORK_TOTAL: &str = "work_per_second_total";
/// Samples of the daemon's memory below which nothing is said about its growth.
const SAMPLES_FOR_GROWTH: usize = 8;

/// What was seen of the machine as a whole: `idle_ms_per_second`, `daemon_memory_mib` (the most), and
/// `daemon_memory_growth_ratio`, the median over the last quarter of the run by that over the second: the first is its
/// start.
pub fn machine_metrics(seen: &Seen) -> Metrics {
    let mut metrics = Metrics::new();
    metrics.extend(seen.memory.as_ref().map(memory::machine_metrics).into_iter().flatten());
    metrics.extend(seen.free_at_start.as_ref().map(memory::start_metrics).into_iter().flatten());
    metrics.extend(seen.disk.as_ref().map(disk::machine_metrics).into_iter().flatten());
    metrics.extend(seen.idle_ms_per_second.map(|idle| ("idle_ms_per_second".to_owned(), idle)));
    let memory: Vec<f64> = seen.daemon_memory_kib.iter().map(|kib| *kib as f64 / 1024.0).collect();
    metrics
        .extend(memory.iter().copied().reduce(f64::max).map(|most| ("daemon_memory_mib".to_owned(), most)));
    if memory.len() >= SAMPLES_FOR_GROWTH {
        let quarter = memory.len() / 4;
        let (early, late) = (&memory[quarter..2 * quarter], &memory[memory.len() - quarter..]);
        metrics.insert("daemon_memory_growth_ratio".to_owned(), median(late) / median(early));
    }
    metrics
}

/// What Steward said about its scheduler at the end of a run (`steward status --json`): `scheduler_restarts`, how often
/// it had to load it again.
pub fn scheduler_metrics(status: Option<&Value>) -> Metrics {
    let restarts = status.and_then(|status| status["cpu"]["mechanism"]["restarts"].as_f64());
    restarts.map(|restarts| ("scheduler_restarts".to_owned(), restarts)).into_iter().collect()
}

/// What programs of one row did together, where there are several: `work_per_second_total_NAME`, its part of what all
/// rows did, `work_share_NAME`, and of all rows `work_per_second_total`.
fn totals(programs: &[(String, Metrics)]) -> Metrics {
    let mut totals = Metrics::new();
    for (name, metrics) in programs.iter().filter(|_| programs.len() > 1) {
        let rate = metrics.get("work_per_second").copied().unwrap_or(0.0);
        *totals.entry(WORK_TOTAL.to_owned()).or_default() += rate;
        if let Some(stem) = stem(name) {
            *totals.entry(format!("{WORK_TOTAL}_{stem}")).or_default() += rate;
        }
    }
    let whole = totals.get(WORK_TOTAL).copied().filter(|whole| *whole > 0.0);
    let of_rows = totals.iter().filter_map(|(metric, rate)| {
        let row = metric.strip_prefix(WORK_TOTAL)?.strip_prefix('_')?;
        Some((format!("work_share_{row}"), rate / whole?))
    });
    let shares: Metrics = of_rows.collect();
    totals.extend(shares);
    totals
}

/// The row's name, of one among several that come from it.
fn stem(program: &str) -> Option<&str> {
    let is_numbered = |number: &str| number.parse::<u32>().is_ok();
    program.rsplit_once('-').filter(|(_, number)| is_numbered(number)).map(|(stem, _)| stem)
}

/// The row that a program comes from: `loop-3` is of the row `loop` with a count.
pub fn row_of<'a>(scenario: &'a Scenario, name: &str) -> Option<&'a ProgramRow> {
    let exact = scenario.programs.iter().find(|row| row.name == name);
    exact.or_else(|| {
        let (stem, _) = name.rsplit_once('-')?;
        scenario.programs.iter().find(|row| row.name == stem && row.count > 1)
    })
}

/// One program gives the plain names. Several give `METRIC_NAME` each, and the plain name is the worst of those listed;
/// so does one that is not listed where a plain name is taken.
fn combine(into: &mut Metrics, programs: Vec<(String, Metrics)>, of: &[String]) {
    let single = programs.len() == 1;
    for (name, metrics) in programs {
        let counts = of.is_empty() || names(of, &name);
        for (metric, value) in metrics {
            let taken = single && !counts && into.contains_key(&metric);
            if !single || taken {
                into.insert(format!("{metric}_{name}"), value);
            }
            if (single && !taken) || counts {
                into.entry(metric.clone())
                    .and_modify(|so_far| *so_far = worse(&metric, *so_far, value))
                    .or_insert(value);
            }
        }
    }
}

/// Whether a list of rows names a program: `film` names `film-3` too.
fn names(of: &[String], program: &str) -> bool {
    of.iter().any(|name| name == program || Some(name.as_str()) == stem(program))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::honest_and_liar;

    #[test]
    fn growth_of_the_daemon_is_that_of_the_last_quarter_over_the_second() {
        let idle_ms_per_second = Some(12.5);
        let seen = |daemon_memory_kib| Seen { daemon_memory_kib, idle_ms_per_second, ..Seen::default() };
        let steady = machine_metrics(&seen([vec![1024; 2], vec![4096; 6]].concat()));
        assert_eq!((steady["daemon_memory_mib"], steady["daemon_memory_growth_ratio"]), (4.0, 1.0));
        assert_eq!(steady["idle_ms_per_second"], 12.5);
        let growing = machine_metrics(&seen((1..=8).map(|index| index * 1024).collect()));
        assert_eq!(growing["daemon_memory_growth_ratio"], 7.5 / 3.5);
        assert!(!machine_metrics(&seen(vec![4096; 7])).contains_key("daemon_memory_growth_ratio"));
    }

    #[test]
    fn how_often_the_scheduler_was_loaded_again_is_a_number_of_stewards_runs() {
        let status = serde_json::json!({ "cpu": { "mechanism": { "kind": "sched_ext", "restarts": 2 } } });
        assert_eq!(scheduler_metrics(Some(&status))["scheduler_restarts"], 2.0);
        assert!(scheduler_metrics(None).is_empty());
    }

    #[test]
    fn a_row_with_a_count_names_all_of_its_programs() {
        let of = ["film".to_owned()];
        assert!(names(&of, "film") && names(&of, "film-3"));
        assert!(!names(&of, "film-long") && !names(&of, "call-3"));
    }

    #[test]
    fn what_several_did_together_is_the_sum_of_each_row_and_of_all() {
        let program =
            |name: &str, rate| (name.to_owned(), Metrics::from([("work_per_second".to_owned(), rate)]));
        let totals = totals(&[program("writer-1", 2.0), program("writer-2", 3.0), program("reader", 7.0)]);
        assert_eq!(totals["work_per_second_total"], 12.0);
        assert_eq!(totals["work_per_second_total_writer"], 5.0);
        assert_eq!(totals["work_share_writer"], 5.0 / 12.0);
        assert_eq!(totals.len(), 3);
        assert!(super::totals(&[program("reader", 7.0)]).is_empty());
    }

    #[test]
    fn a_load_generator_that_told_nothing_is_an_error_unless_it_had_nobody_to_ask_for() {
        let text = "title='t'\nduration='4s'\n[[program]]\nname='clients'\ncommand='wrk --latency --timeout 10s'\nmetrics='wrk'\n";
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        let measured = |ended: Option<&str>| {
            let output = ProgramOutput {
                name: "clients".into(),
                ended: ended.map(str::to_owned),
                ..Default::default()
            };
            measure(&scenario, 0.0, 4000.0, &[output])
        };
        assert!(measured(Some("exit status: 0")).errors.is_empty());
        for ended in [None, Some("signal: 9 (SIGKILL)")] {
            let measured = measured(ended);
            assert!(measured.errors[0].starts_with("clients: wrk printed nothing"), "{:?}", measured.errors);
            assert!(!measured.metrics.contains_key("requests_starved"));
        }
    }

    #[test]
    fn with_several_players_the_plain_name_is_the_worst_of_those_that_count() {
        let print = |count: usize| {
            let frames: String = (0..count).map(|frame| format!("f {}\n", 105 + frame * 40)).collect();
            format!("start 100 40 75\n{frames}")
        };
        let output = |name: &str, frames| ProgramOutput {
            name: name.into(),
            text: print(frames),
            cpu_ms: 400.0,
            ..ProgramOutput::default()
        };
        let measured =
            measure(&honest_and_liar(), 100.0, 4100.0, &[output("honest", 75), output("liar", 30)]);
        assert_eq!(measured.metrics["frames_per_second_min"], 25.0);
        assert_eq!(measured.metrics["frames_per_second_min_liar"], 0.0);
        assert_eq!(measured.metrics["share_liar"], 0.05);
        assert_eq!(measured.films.len(), 2);
    }
}
