//! A scenario that is run once for each value of a parameter, and what is read from all of its runs. Pure.
//!
//! `[sweep] parameter = "n"` makes `$n` in the rest of the file stand for the value; `"$n"` alone is the value
//! itself, so that it can be a number.

use std::cmp::Ordering;
use std::path::Path;

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::metrics::{Measured, Metrics, worse};
use crate::scenario::{OverSweep, Point, Sweep};

/// The text of a scenario for each value of its `[sweep]`; none when it has no such section.
///
/// # Errors
/// When the section has a mistake.
pub fn texts(text: &str, path: &Path) -> Result<Vec<(String, f64, String)>> {
    #[derive(Deserialize)]
    struct Header {
        sweep: Option<Sweep>,
    }
    // Mistakes in the file are found, with their lines, when it is read as a scenario.
    let Ok(Header { sweep: Some(sweep) }) = toml::from_str(text) else { return Ok(Vec::new()) };
    let name = &sweep.parameter;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase()) || sweep.values.is_empty() {
        bail!("{}: [sweep]: its parameter is a word in small letters, and it needs values", path.display());
    }
    let mut points: Vec<(String, f64, String)> = Vec::new();
    for value in &sweep.values {
        let number = match value {
            toml::Value::Integer(number) => *number as f64,
            toml::Value::Float(number) => *number,
            other => bail!("{}: [sweep]: {other} is not a number", path.display()),
        };
        if points.last().is_some_and(|(_, before, _)| *before >= number) {
            bail!("{}: [sweep]: the values must ascend, and {number} does not", path.display());
        }
        let label = value.to_string();
        let text = text.replace(&format!("\"${name}\""), &label).replace(&format!("${name}"), &label);
        points.push((label, number, text));
    }
    Ok(points)
}

/// What a metric of one point is called: `latency_ms_p99@64`.
pub fn at(metric: &str, label: &str) -> String {
    format!("{metric}@{label}")
}

/// The order of metrics by name, and of one metric at several values by value.
pub fn in_order(left: &str, right: &str) -> Ordering {
    let parts = |metric: &str| match metric.split_once('@') {
        Some((name, value)) => (name.to_owned(), value.parse().unwrap_or(f64::NAN)),
        None => (metric.to_owned(), f64::NEG_INFINITY),
    };
    let ((left_name, left_value), (right_name, right_value)) = (parts(left), parts(right));
    left_name.cmp(&right_name).then(left_value.total_cmp(&right_value))
}

/// What is kept of one point's run: its metrics under names that say which point, without films (there would be too
/// many) and without the shares of programs that there are several of.
pub fn only(metrics: &Metrics, label: &str) -> Measured {
    let is_one_of_several = |metric: &str| {
        let number = metric.strip_prefix("share_").and_then(|name| name.rsplit_once('-'));
        number.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
    };
    let kept = metrics.iter().filter(|(metric, _)| !is_one_of_several(metric));
    let metrics = kept.map(|(metric, value)| (at(metric, label), *value)).collect();
    Measured { metrics, ..Measured::default() }
}

/// The numbers that are read from the metrics of all points of one contender's turn.
pub fn over(rows: &[OverSweep], points: &[Point], metrics: &Metrics) -> Metrics {
    let mut numbers = Metrics::new();
    for row in rows {
        let values: Vec<(f64, Option<f64>)> = points
            .iter()
            .map(|point| (point.value, metrics.get(&at(&row.metric, &point.label)).copied()))
            .collect();
        let number = match row.at_most {
            // Without a measurement there is no number, whatever it would otherwise be.
            Some(_) if values.iter().any(|(_, metric)| metric.is_none()) => None,
            Some(bound) => smallest(&values, bound).or(row.otherwise),
            None => growth(&row.metric, &values),
        };
        numbers.extend(number.map(|number| (row.name.clone(), number)));
    }
    numbers
}

/// The smallest value from which on the metric keeps its bound at all values; none if it does not at the last.
fn smallest(values: &[(f64, Option<f64>)], bound: f64) -> Option<f64> {
    let keeps = |metric: Option<f64>| metric.is_some_and(|metric| metric <= bound);
    values.iter().rev().take_while(|(_, metric)| keeps(*metric)).last().map(|(value, _)| *value)
}

/// The worst over the first, both at least a millionth.
fn growth(metric: &str, values: &[(f64, Option<f64>)]) -> Option<f64> {
    let all: Option<Vec<f64>> = values.iter().map(|(_, metric)| *metric).collect();
    let all = all?;
    let worst = all.iter().copied().reduce(|left, right| worse(metric, left, right))?;
    Some(worst.max(1e-6) / all.first()?.max(1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const TEXT: &str = r#"
title = "t"
duration = "9s"
[sweep]
parameter = "n"
values = [1, 4, 16]
[[program]]
name = "bomb"
command = "bomb --loops $n"
count = "$n"
"#;

    fn scenario(text: &str) -> Result<Scenario> {
        Scenario::parse(text, Path::new("t.toml"))
    }

    #[test]
    fn the_parameter_stands_for_its_value_as_a_word_and_as_a_number() {
        let scenario = scenario(TEXT).unwrap();
        let last = &scenario.points[2];
        assert_eq!((last.label.as_str(), last.value), ("16", 16.0));
        assert_eq!(last.scenario.programs[0].command, "bomb --loops 16");
        assert_eq!(last.scenario.programs[0].count, 16);
    }

    #[test]
    fn values_ascend_and_a_mistake_elsewhere_keeps_its_line() {
        let complaint = |text: &str| format!("{:#}", scenario(text).expect_err("the text has a mistake"));
        assert!(complaint(&TEXT.replace("1, 4", "4, 1")).contains("must ascend"));
        assert!(complaint(&TEXT.replace("count", "coun")).starts_with("t.toml:10: unknown field `coun`"));
    }

    #[test]
    fn the_smallest_value_counts_only_if_all_larger_ones_keep_the_bound_too() {
        let values =
            [(0.1, 0.0), (0.2, 3.0), (0.3, 0.0), (0.4, 0.0)].map(|(value, late)| (value, Some(late)));
        assert_eq!(smallest(&values, 0.0), Some(0.3));
        assert_eq!(smallest(&values[..2], 0.0), None);
        assert_eq!(smallest(&[(0.1, Some(0.0)), (0.2, None)], 0.0), None);
    }

    #[test]
    fn growth_is_the_worst_over_the_first() {
        assert_eq!(
            growth("latency_ms_p99", &[(1.0, Some(2.0)), (2.0, Some(5.0)), (3.0, Some(4.0))]),
            Some(2.5)
        );
        assert_eq!(growth("work_per_second", &[(1.0, Some(40.0)), (2.0, Some(20.0))]), Some(0.5));
        assert_eq!(growth("latency_ms_p99", &[(1.0, Some(2.0)), (2.0, None)]), None);
    }
}
