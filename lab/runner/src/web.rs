//! From what the clients of a web server printed to numbers. Pure.

use std::collections::BTreeMap;

use crate::metrics::Metrics;

/// A request that takes longer has starved (CPU Futures, section 5.3).
const STARVED_MS: u64 = 10_000;

/// A moment of the load.
#[derive(Debug)]
struct Report {
    done: f64,
    at_ms: f64,
    /// `heavy` or `light`, where the load alternates.
    phase: Option<String>,
}

/// What the clients told.
#[derive(Debug, Default)]
struct Heard {
    reports: Vec<Report>,
    /// How many requests took so many tenths of a millisecond; those still open count with their age.
    latencies: BTreeMap<u64, u64>,
    /// The same of those among them that cost more than the mean, where that was said.
    dear: BTreeMap<u64, u64>,
    failed: f64,
    finished: bool,
    /// A request that takes more milliseconds is late, where that was said.
    goal_ms: Option<u64>,
}

/// The numbers of one program that is `web-load` or prints the same lines.
///
/// Without its last words, which tell what is still open, there is no `requests_starved`: it cannot be known.
pub fn web_metrics(text: &str) -> Metrics {
    let heard = hear(text);
    let mut metrics = Metrics::new();
    metrics.insert("work_per_second".into(), rate(&heard.reports, |_| true).unwrap_or(0.0));
    for phase in ["heavy", "light"] {
        if let Some(rate) = rate(&heard.reports, |report| report.phase.as_deref() == Some(phase)) {
            metrics.insert(format!("work_per_second_{phase}"), rate);
        }
    }
    for (name, rank) in [("latency_ms_p50", 0.5), ("latency_ms_p99", 0.99), ("latency_ms_max", 1.0)] {
        if let Some(latency) = quantile(&heard.latencies, rank) {
            metrics.insert(name.into(), latency as f64 / 10.0);
        }
    }
    metrics.insert("requests_total".into(), heard.reports.last().map_or(0.0, |report| report.done));
    if heard.finished {
        let starved: u64 = heard.latencies.range(STARVED_MS * 10 + 1..).map(|(_, count)| count).sum();
        metrics.insert("requests_starved".into(), starved as f64);
        metrics.insert("requests_failed".into(), heard.failed);
        if let Some(goal_ms) = heard.goal_ms {
            let in_time = |latencies: &BTreeMap<u64, u64>| {
                latencies.range(..=goal_ms * 10).map(|(_, count)| count).sum::<u64>()
            };
            let met: u64 = in_time(&heard.latencies);
            let all: u64 = heard.latencies.values().sum();
            metrics.insert("requests_met".into(), met as f64);
            metrics.insert("requests_met_ratio".into(), met as f64 / (all as f64 + heard.failed).max(1.0));
            if !heard.dear.is_empty() {
                let dear: u64 = in_time(&heard.dear);
                metrics.insert("requests_met_dear".into(), dear as f64);
            }
        }
    }
    metrics
}

fn hear(text: &str) -> Heard {
    let mut heard = Heard::default();
    let mut phase: Option<String> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let numbers: Vec<f64> = words.iter().skip(1).map_while(|word| word.parse().ok()).collect();
        match (words.as_slice(), numbers.as_slice()) {
            (["w", ..], [done, at_ms]) => {
                heard.reports.push(Report { done: *done, at_ms: *at_ms, phase: phase.clone() });
            }
            (["q" | "o", ..], [latency_ms, count]) => {
                *heard.latencies.entry(tenths(*latency_ms)).or_default() += *count as u64;
            }
            (["dear", ..], [latency_ms, count]) => {
                *heard.dear.entry(tenths(*latency_ms)).or_default() += *count as u64;
            }
            (["x", ..], [failed]) => (heard.failed, heard.finished) = (*failed, true),
            (["goal", ..], [goal_ms]) => heard.goal_ms = Some(*goal_ms as u64),
            (["phase", name, _], _) => phase = Some((*name).to_owned()),
            _ => {}
        }
    }
    heard
}

/// Milliseconds in tenths, rounded.
fn tenths(ms: f64) -> u64 {
    (ms * 10.0).round() as u64
}

/// Requests per second over the intervals that end with a report that counts.
fn rate(reports: &[Report], counts: impl Fn(&Report) -> bool) -> Option<f64> {
    let intervals = reports.windows(2).filter(|pair| counts(&pair[1]));
    let (done, ms) = intervals.fold((0.0, 0.0), |(done, ms), pair| {
        (done + pair[1].done - pair[0].done, ms + pair[1].at_ms - pair[0].at_ms)
    });
    (ms > 0.0).then(|| done / (ms / 1e3))
}

/// The latency that a fraction `rank` of the requests do not exceed (nearest rank).
fn quantile(latencies: &BTreeMap<u64, u64>, rank: f64) -> Option<u64> {
    let total: u64 = latencies.values().sum();
    let wanted = ((rank * total as f64).ceil() as u64).max(1);
    let mut seen = 0;
    latencies.iter().find_map(|(latency, count)| {
        seen += count;
        (seen >= wanted).then_some(*latency)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_over_ten_seconds_starve_and_open_ones_count_as_they_stand() {
        let text = "w 0 1000\nw 3 2000\nq 10 2\nq 10000 1\nw 4 3000\nq 10100 1\no 50 6\no 12000 1\nx 2\n";
        let metrics = web_metrics(text);
        assert_eq!((metrics["requests_total"], metrics["work_per_second"]), (4.0, 2.0));
        assert_eq!((metrics["requests_starved"], metrics["requests_failed"]), (2.0, 2.0));
        assert_eq!((metrics["latency_ms_p50"], metrics["latency_ms_max"]), (50.0, 12_000.0));
    }

    #[test]
    fn requests_within_their_goal_are_counted_and_those_refused_are_not_among_them() {
        let metrics = web_metrics("goal 1000\nw 0 0\nq 10 2\nq 1000 1\nq 1001 4\nw 7 2000\nx 3\n");
        assert_eq!((metrics["requests_met"], metrics["requests_met_ratio"]), (3.0, 0.3));
        assert!(!web_metrics("w 0 0\nq 10 2\nx 0\n").contains_key("requests_met"));
    }

    #[test]
    fn dear_requests_within_their_goal_are_counted_among_all_and_told_apart() {
        let text = "goal 1000\nw 0 0\nq 10 2\nq 900 3\nq 1001 4\ndear 900 1\ndear 1001 2\nw 9 2000\nx 0\n";
        let metrics = web_metrics(text);
        assert_eq!((metrics["requests_met"], metrics["requests_met_dear"]), (5.0, 1.0));
        assert!(!web_metrics("goal 1000\nw 0 0\nq 10 2\nx 0\n").contains_key("requests_met_dear"));
    }

    #[test]
    fn work_belongs_to_the_phase_in_which_it_was_done() {
        let text =
            "w 0 0\nphase heavy 0\nw 0 0\nw 50 1000\nw 100 2000\nphase light 2000\nw 100 2000\nw 110 3000\n";
        let metrics = web_metrics(text);
        assert_eq!((metrics["work_per_second_heavy"], metrics["work_per_second_light"]), (50.0, 10.0));
    }

    #[test]
    fn clients_that_were_killed_leave_what_starved_unknown() {
        let metrics = web_metrics("w 0 1000\nw 3 2000\nq 10 3\n");
        assert!(!metrics.contains_key("requests_starved"));
        assert_eq!(web_metrics("")["work_per_second"], 0.0);
        assert!(!web_metrics("").contains_key("latency_ms_max"));
    }
}
