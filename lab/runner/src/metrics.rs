//! From what programs printed to numbers, with names that all scenarios share. Pure.
//!
//! The line format is that of the library beside the synthetic programs (`steward_lab_workloads`); lines that are
//! none of these are a program's own words and are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steward_lab_guest::ProgramMemory;

use crate::scenario::ProgramRow;

/// Metric name to number.
pub type Metrics = BTreeMap<String, f64>;

/// What one program did in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramOutput {
    /// Its name; `NAME-INDEX` where the scenario wants several.
    pub name: String,
    /// What it printed.
    pub text: String,
    /// CPU time of it and its children, in milliseconds.
    pub cpu_ms: f64,
    /// How it ended, if it did before it was killed.
    pub ended: Option<String>,
    /// What could not be given to it.
    pub notes: Vec<String>,
    /// What its memory went through, where the experiment is about that.
    pub memory: Option<ProgramMemory>,
}

/// When each frame of a film was shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Film {
    /// The player.
    pub program: String,
    /// When the film began, in milliseconds after the run.
    pub start_ms: f64,
    /// Time between two frames, in milliseconds.
    pub period_ms: f64,
    /// How many frames it has.
    pub frames: usize,
    /// When each was shown, in milliseconds after the start of the run.
    pub shown_ms: Vec<f64>,
}

/// Everything that was measured in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The numbers.
    pub metrics: Metrics,
    /// The films, for figures.
    pub films: Vec<Film>,
    /// What could not be measured, and why: such a run does not count.
    pub errors: Vec<String>,
}

/// Whether more of a metric is better, by its name.
pub fn more_is_better(metric: &str) -> bool {
    const STARTS: [&str; 9] = [
        "disk_read",
        "disk_written",
        "frames_total",
        "frames_per_second",
        "work_per_second",
        "work_growth",
        "requests_total",
        "share_",
        "programs_without_faults",
    ];
    STARTS.iter().any(|start| metric.starts_with(start))
}

/// The worse of two values of a metric.
pub fn worse(metric: &str, left: f64, right: f64) -> f64 {
    if more_is_better(metric) { left.min(right) } else { left.max(right) }
}

/// The median: of an even number of values, the mean of the middle two. `NaN` for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// The value below which a fraction `rank` (0 to 1) of the values lie (nearest rank). `NaN` for none.
pub fn quantile(values: &[f64], rank: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (rank * sorted.len() as f64).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

pub(crate) fn film(row: &ProgramRow, output: &ProgramOutput, run_start_ms: f64) -> Film {
    let mut film = Film { program: output.name.clone(), ..Film::default() };
    if let (Some(fps), Some(length)) = (row.fps, row.film) {
        film.period_ms = 1e3 / fps;
        film.frames = (length.as_secs_f64() * fps).round() as usize;
        film.shown_ms = status_lines(&output.text).map(|at_ms| at_ms - run_start_ms).collect();
        // Its first frames come in a burst, before its own clock runs; they are no measure for the others.
        let is_paced = |pair: &[f64]| pair[1] - pair[0] >= film.period_ms / 2.0;
        let burst = film.shown_ms.windows(2).position(is_paced).unwrap_or(0);
        film.shown_ms.drain(..burst);
        film.frames = film.frames.saturating_sub(burst);
        film.start_ms = film.shown_ms.first().copied().unwrap_or(row.start.as_secs_f64() * 1e3);
        return film;
    }
    film.start_ms = row.start.as_secs_f64() * 1e3;
    for line in output.text.lines() {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next();
        let numbers: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        match (kind, numbers.as_slice()) {
            (Some("start"), [start_ms, period_ms, frames]) => {
                film.start_ms = start_ms - run_start_ms;
                film.period_ms = *period_ms;
                film.frames = *frames as usize;
            }
            (Some("f"), [at_ms]) => film.shown_ms.push(at_ms - run_start_ms),
            _ => {}
        }
    }
    film
}

/// When mplayer's status line (`V:   1.2  30/ 30 ...` or `A: ...`) changed its frame number.
fn status_lines(text: &str) -> impl Iterator<Item = f64> {
    let mut last = None;
    text.lines().filter_map(move |line| {
        let (at_ms, words) = stamped(line)?;
        let position = words.strip_prefix("V:").or_else(|| words.strip_prefix("A:"))?;
        let is_new = last.as_deref() != Some(position);
        last = Some(position.to_owned());
        is_new.then_some(at_ms)
    })
}

fn stamped(line: &str) -> Option<(f64, &str)> {
    let (at_ms, words) = line.strip_prefix("t ")?.split_once(' ')?;
    Some((at_ms.parse().ok()?, words))
}

/// The numbers of a film that was watched until `end_ms` after the start of the run.
///
/// Frame `i` is due at `start + i * period`. It is late when it is shown more than a period after that, or when it is
/// still not shown more than a period after that at the end. Seconds are those of the film from its start: a film of
/// 30 s has 30, and each counts the frames shown in it.
pub fn film_metrics(film: &Film, end_ms: f64) -> Metrics {
    let mut metrics = Metrics::new();
    metrics.insert("frames_total".into(), film.shown_ms.len() as f64);
    let length_ms = film.frames as f64 * film.period_ms;
    let watched_ms = (end_ms - film.start_ms).min(length_ms);
    if film.frames == 0 || watched_ms <= 0.0 {
        // It never began: nothing was shown in any second.
        metrics.insert("frames_per_second_min".into(), 0.0);
        metrics.insert("frames_late_ratio".into(), 1.0);
        metrics.insert("gap_ms_max".into(), (end_ms - film.start_ms).max(0.0));
        return metrics;
    }
    let (late, due) = late_frames(film, end_ms);
    metrics.insert("frames_late".into(), late as f64);
    metrics.insert("frames_late_ratio".into(), late as f64 / due.max(1) as f64);
    metrics.insert("underflows_per_second".into(), underflows_per_second(film, end_ms, watched_ms));
    let per_second = frames_per_second(film, watched_ms);
    if let Some(least) = per_second.iter().min() {
        metrics.insert("frames_per_second_min".into(), *least as f64);
    }
    let unfinished = film.shown_ms.len() < film.frames;
    let moments = std::iter::once(film.start_ms)
        .chain(film.shown_ms.iter().copied())
        .chain(unfinished.then_some(end_ms.min(film.start_ms + length_ms.max(watched_ms))));
    let moments: Vec<f64> = moments.collect();
    let gap = moments.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    metrics.insert("gap_ms_max".into(), gap);
    metrics
}

/// How often the card's buffer was found empty, when it is looked at 200 times a second (Eclipse 1998, fig 9): the
/// frame that is to be shown is not there a period after its moment. 0 to 200.
fn underflows_per_second(film: &Film, end_ms: f64, watched_ms: f64) -> f64 {
    const SAMPLES_PER_SECOND: f64 = 200.0;
    let empty_ms: f64 = (0..film.frames)
        .map(|frame| {
            let wanted_ms = film.start_ms + (frame + 1) as f64 * film.period_ms;
            let shown_ms = film.shown_ms.get(frame).copied().unwrap_or(end_ms).min(end_ms);
            (shown_ms - wanted_ms).clamp(0.0, film.period_ms)
        })
        .sum();
    empty_ms / watched_ms * SAMPLES_PER_SECOND
}

/// How many frames were late, of how many that were due.
fn late_frames(film: &Film, end_ms: f64) -> (usize, usize) {
    let due_ms = |frame: usize| film.start_ms + frame as f64 * film.period_ms;
    let shown_late = film.shown_ms.iter().enumerate();
    let shown_late = shown_late.filter(|(frame, at_ms)| **at_ms - due_ms(*frame) > film.period_ms).count();
    let missing = (film.shown_ms.len()..film.frames).filter(|frame| due_ms(*frame) + film.period_ms < end_ms);
    let missing = missing.count();
    (shown_late + missing, film.shown_ms.len() + missing)
}

/// Frames shown in each whole second of the first `watched_ms` of a film.
pub fn frames_per_second(film: &Film, watched_ms: f64) -> Vec<usize> {
    // Half a frame of tolerance: a period that is not a whole number of nanoseconds must not cost the last second.
    let seconds = ((watched_ms + film.period_ms / 2.0) / 1e3).floor() as usize;
    let mut counts = vec![0; seconds];
    for at_ms in &film.shown_ms {
        let second = ((at_ms - film.start_ms) / 1e3).floor();
        if second >= 0.0 && (second as usize) < seconds {
            counts[second as usize] += 1;
        }
    }
    counts
}

/// Latencies of a program that prints requests (`s`) and replies (`r`); one that is open at the end counts as it
/// stands.
pub(crate) fn reply_metrics(text: &str, end_ms: f64) -> Metrics {
    let mut latencies = Vec::new();
    let mut open = None;
    for line in text.lines() {
        match line.split_once(' ').map(|(kind, number)| (kind, number.trim().parse::<f64>())) {
            Some(("s", Ok(at_ms))) => open = Some(at_ms),
            Some(("r", Ok(latency_ms))) => {
                latencies.push(latency_ms);
                open = None;
            }
            _ => {}
        }
    }
    latencies.extend(open.map(|at_ms| (end_ms - at_ms).max(0.0)));
    let mut metrics = Metrics::new();
    if !latencies.is_empty() {
        let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
        metrics.insert("latency_ms_mean".into(), mean);
        metrics.insert("latency_ms_p50".into(), quantile(&latencies, 0.5));
        metrics.insert("latency_ms_p99".into(), quantile(&latencies, 0.99));
        metrics.insert("latency_ms_max".into(), quantile(&latencies, 1.0));
    }
    metrics
}

/// What a search for a reservation printed, among other lines: one JSON object.
pub(crate) fn tune_metrics(text: &str) -> Metrics {
    let object = text.find("\n{").map_or(text, |at| &text[at..]).trim_start_matches(|c| c != '{');
    let found = serde_json::Deserializer::from_str(object).into_iter::<serde_json::Value>().next();
    let Some(Ok(found)) = found else { return Metrics::new() };
    // One that came to no end has found nothing.
    let number = |key: &str| found[key].as_f64().filter(|_| found["settled"] == true);
    let metrics = [("reservation_found", "level"), ("search_seconds", "seconds")];
    metrics.iter().filter_map(|(metric, key)| Some(((*metric).to_owned(), number(key)?))).collect()
}

/// Units per second between the first and the last report, in the time that the program says it took, or lines per
/// second of the run.
pub(crate) fn work_metrics(row: &ProgramRow, text: &str, start_ms: f64, end_ms: f64) -> Metrics {
    let rate = if let (Some(words), Some(units)) = (&row.seconds_after, row.units) {
        own_seconds(text, words).map_or(0.0, |seconds| units / seconds)
    } else if row.count_lines {
        let whole = (row.start.as_secs_f64(), (end_ms - start_ms) / 1e3);
        let (from, to) = row.counted.map_or(whole, |(from, to)| (from.as_secs_f64(), to.as_secs_f64()));
        let moments = text.lines().filter_map(stamped).map(|(at_ms, _)| (at_ms - start_ms) / 1e3);
        moments.filter(|at| row.counted.is_none() || (from..to).contains(at)).count() as f64 / (to - from)
    } else {
        let reports: Vec<(f64, f64)> = text.lines().filter_map(work_report).collect();
        match (reports.first(), reports.last()) {
            (Some((units_0, ms_0)), Some((units_1, ms_1))) if ms_1 > ms_0 => {
                (units_1 - units_0) / ((ms_1 - ms_0) / 1e3)
            }
            _ => 0.0,
        }
    };
    Metrics::from([("work_per_second".to_owned(), rate)])
}

/// The number that a benchmark printed after `words`: `Time: 1.234`, or `Total time: 1.234 [sec]`.
fn own_seconds(text: &str, words: &str) -> Option<f64> {
    let (_, after) = text.split_once(words)?;
    after.split_ascii_whitespace().next()?.parse().ok().filter(|seconds: &f64| *seconds > 0.0)
}

fn work_report(line: &str) -> Option<(f64, f64)> {
    let (units, at_ms) = line.strip_prefix("w ")?.split_once(' ')?;
    Some((units.parse().ok()?, at_ms.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::{Scenario, honest_and_liar};

    fn film_shown_at(shown_ms: Vec<f64>, frames: usize) -> Film {
        Film { program: "film".into(), start_ms: 1000.0, period_ms: 40.0, frames, shown_ms }
    }

    fn on_time(frames: usize) -> Vec<f64> {
        (0..frames).map(|frame| 1005.0 + frame as f64 * 40.0).collect()
    }

    #[test]
    fn a_film_that_is_shown_as_it_should_has_all_frames_in_every_second() {
        let metrics = film_metrics(&film_shown_at(on_time(75), 75), 4000.0);
        assert_eq!(metrics["frames_per_second_min"], 25.0);
        assert_eq!((metrics["frames_late"], metrics["frames_total"]), (0.0, 75.0));
        assert!((metrics["gap_ms_max"] - 40.0).abs() < 1e-9);
    }

    #[test]
    fn a_stall_shows_as_a_gap_late_frames_and_a_second_without_its_frames() {
        let mut shown = on_time(75);
        // Frames 30 to 39 all come when frame 39 is due: 0 to 9 periods late, of which 8 by more than one period.
        shown[30..40].fill(1005.0 + 39.0 * 40.0);
        let metrics = film_metrics(&film_shown_at(shown, 75), 4000.0);
        assert_eq!(metrics["gap_ms_max"], 400.0);
        assert_eq!(metrics["frames_late"], 9.0);
        assert_eq!(metrics["frames_per_second_min"], 25.0);
    }

    #[test]
    fn frames_that_were_never_shown_are_late_and_their_seconds_empty() {
        let metrics = film_metrics(&film_shown_at(on_time(25), 75), 4000.0);
        assert_eq!(metrics["frames_per_second_min"], 0.0);
        // Of the 50 missing frames, the last is due within the last period and may still come.
        assert_eq!(metrics["frames_late"], 49.0);
        assert!(metrics["gap_ms_max"] > 2000.0);
    }

    #[test]
    fn a_film_that_never_began_is_not_better_than_one_that_stutters() {
        let metrics = film_metrics(&Film { start_ms: 0.0, ..Film::default() }, 5000.0);
        assert_eq!(metrics["frames_per_second_min"], 0.0);
        assert_eq!(metrics["gap_ms_max"], 5000.0);
        assert_eq!(metrics["frames_late_ratio"], 1.0);
    }

    #[test]
    fn a_request_without_reply_counts_with_the_time_it_has_waited() {
        let metrics = reply_metrics("s 1000\nr 5\ns 2000\nr 7\ns 3000\n", 9000.0);
        assert_eq!(metrics["latency_ms_max"], 6000.0);
        assert_eq!(metrics["latency_ms_mean"], 6012.0 / 3.0);
        assert_eq!(metrics["latency_ms_p50"], 7.0);
    }

    #[test]
    fn a_search_counts_once_it_has_come_to_an_end() {
        let printed = |settled| {
            format!(
                "steward: 1.2 s\n{{\n \"level\": 0.15, \"seconds\": 9.5, \"settled\": {settled}\n}}\nf 1\n"
            )
        };
        let metrics = tune_metrics(&printed(true));
        assert_eq!((metrics["reservation_found"], metrics["search_seconds"]), (0.15, 9.5));
        assert!(tune_metrics(&printed(false)).is_empty() && tune_metrics("it failed").is_empty());
    }

    #[test]
    fn a_benchmark_that_times_itself_is_believed() {
        assert_eq!(own_seconds("# Running:\n\n     Total time: 0.500 [sec]\n", "Total time:"), Some(0.5));
        assert_eq!(own_seconds("Running in process mode\nTime: 1.25\n", "Time:"), Some(1.25));
        assert_eq!(own_seconds("it failed", "Time:"), None);
    }

    #[test]
    fn work_is_units_per_second_between_reports() {
        let row = honest_and_liar().programs.remove(0);
        assert_eq!(work_metrics(&row, "w 0 1000\nw 50 1500\n", 0.0, 0.0)["work_per_second"], 100.0);
        assert_eq!(work_metrics(&row, "w 0 1000\n", 0.0, 0.0)["work_per_second"], 0.0);
    }

    #[test]
    fn lines_are_counted_over_the_whole_run_or_between_two_moments() {
        let row = |more: &str| {
            let text = format!(
                "title='t'\nduration='10s'\n[[program]]\nname='p'\ncommand='p'\nstart='2s'\nmetrics='work'\ncount_lines=true\n{more}"
            );
            Scenario::parse(&text, Path::new("t.toml")).map(|mut scenario| scenario.programs.remove(0))
        };
        let printed = "t 3500 a\nt 6000 b\nt 7999 c\nno line of it\nt 8000 d\n";
        let rate = |row: &ProgramRow| work_metrics(row, printed, 1000.0, 11000.0)["work_per_second"];
        assert_eq!(rate(&row("").unwrap()), 0.5);
        assert_eq!(rate(&row("counted=['5s', '7s']").unwrap()), 1.0);
        for wrong in
            ["counted=['1s', '7s']", "counted=['7s', '5s']", "counted=['5s', '11s']", "counted=['5s']"]
        {
            assert!(row(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_status_line_counts_once_for_each_frame() {
        let text =
            "t 10.0 MPlayer\nt 11.0 V:   0.0   1/  1\nt 11.5 V:   0.0   1/  1\nt 51.0 V:   0.0   2/  2\n";
        assert_eq!(status_lines(text).collect::<Vec<_>>(), [11.0, 51.0]);
    }

    #[test]
    fn the_burst_at_a_real_players_start_is_no_measure_for_the_rest_of_the_film() {
        let text = "title='t'\nduration='4s'\n[[program]]\nname='p'\ncommand='p'\nmetrics='player'\nfps=25\nfilm='1s'\n";
        let row = Scenario::parse(text, Path::new("t.toml")).unwrap().programs.remove(0);
        let moments = (0..25).map(|frame: i32| if frame < 5 { 100 + frame } else { 104 + (frame - 4) * 40 });
        let text = moments.enumerate().map(|(frame, at)| format!("t {at} V: {frame}/ {frame}\n")).collect();
        let film = film(&row, &ProgramOutput { text, ..ProgramOutput::default() }, 0.0);
        assert_eq!((film.start_ms, film.frames, film.shown_ms.len()), (104.0, 21, 21));
        assert_eq!(film_metrics(&film, 4000.0)["frames_late"], 0.0);
    }

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.99), 4.0);
    }
}
