//! From what `forecast-check` printed to numbers. Pure.

use crate::metrics::Metrics;

/// A prediction is about so much time from when it was made.
const AHEAD_MS: f64 = 1000.0;
/// What is held against it may be so much nearer or further.
const TOLERANCE_MS: f64 = 150.0;

/// What was told at one moment.
#[derive(Clone, Copy, Debug)]
struct Told {
    at_ms: f64,
    actual: f64,
    desired: f64,
    predicted: f64,
}

#[derive(Debug, Default)]
struct Heard {
    told: Vec<Told>,
    /// When another process began.
    arrivals_ms: Vec<f64>,
    /// What the daemon had used by when.
    used_ms: Vec<(f64, f64)>,
}

/// The numbers of a program that is `forecast-check`:
///
/// - `forecast_error_ratio`: what was predicted wrongly for the next second over what was given in it, where no process
///   came in that second; `forecast_error_ratio_arrivals`: where one came, which the prediction could not know;
/// - `desired_drift_ratio`: how far the desired allocation, mean between two arrivals, is at most from that at the
///   beginning; it ought not to change at all;
/// - `daemon_share`: the part of one CPU that the daemon used meanwhile, and `read_cpu_ms`: the same for each forecast.
pub fn forecast_metrics(text: &str) -> Metrics {
    let heard = hear(text);
    let mut metrics = Metrics::new();
    let (mut alone, mut arrivals) = (Error::default(), Error::default());
    for told in &heard.told {
        let Some(then) = heard.after(told.at_ms) else { continue };
        let came = heard.arrivals_ms.iter().any(|at_ms| (told.at_ms..then.at_ms).contains(at_ms));
        let error = if came { &mut arrivals } else { &mut alone };
        error.wrong += (told.predicted - then.actual).abs();
        error.given += then.actual;
    }
    for (name, error) in [("forecast_error_ratio", alone), ("forecast_error_ratio_arrivals", arrivals)] {
        if error.given > 0.0 {
            metrics.insert(name.into(), error.wrong / error.given);
        }
    }
    if let Some(drift) = heard.desired_drift() {
        metrics.insert("desired_drift_ratio".into(), drift);
    }
    if let (Some((first_ms, from_ms)), Some((last_ms, to_ms))) = (heard.used_ms.first(), heard.used_ms.last())
        && to_ms > from_ms
    {
        metrics.insert("daemon_share".into(), (last_ms - first_ms) / (to_ms - from_ms));
        metrics.insert("read_cpu_ms".into(), (last_ms - first_ms) / (heard.used_ms.len() - 1) as f64);
    }
    metrics
}

#[derive(Clone, Copy, Debug, Default)]
struct Error {
    wrong: f64,
    given: f64,
}

impl Heard {
    /// What was told a second after that.
    fn after(&self, at_ms: f64) -> Option<&Told> {
        let due_ms = at_ms + AHEAD_MS;
        let distance = |told: &&Told| (told.at_ms - due_ms).abs();
        self.told
            .iter()
            .filter(|told| distance(told) <= TOLERANCE_MS)
            .min_by(|left, right| distance(left).total_cmp(&distance(right)))
    }

    fn desired_drift(&self) -> Option<f64> {
        let mut bounds_ms = self.arrivals_ms.clone();
        bounds_ms.push(f64::INFINITY);
        let means = bounds_ms.windows(2).filter_map(|bounds| {
            // The window of the first second after an arrival reaches back before it.
            let of_phase = |told: &&Told| told.at_ms >= bounds[0] + AHEAD_MS && told.at_ms < bounds[1];
            let desired: Vec<f64> = self.told.iter().filter(of_phase).map(|told| told.desired).collect();
            (!desired.is_empty()).then(|| desired.iter().sum::<f64>() / desired.len() as f64)
        });
        let means: Vec<f64> = means.collect();
        let first = means.first().copied().filter(|first| *first > 0.0)?;
        Some(means.iter().map(|mean| (mean - first).abs() / first).fold(0.0, f64::max))
    }
}

fn hear(text: &str) -> Heard {
    let mut heard = Heard::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next();
        let numbers: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        match (kind, numbers.as_slice()) {
            (Some("p"), &[at_ms, actual, desired, predicted, _potential]) => {
                heard.told.push(Told { at_ms, actual, desired, predicted });
            }
            (Some("n"), &[_count, at_ms]) => heard.arrivals_ms.push(at_ms),
            (Some("c"), &[used_ms, at_ms]) => heard.used_ms.push((used_ms, at_ms)),
            _ => {}
        }
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One process, and another after five seconds: each gets half then.
    fn text() -> String {
        let mut text = "n 1 0.0\n".to_owned();
        for tenth in 1..=100 {
            let at_ms = f64::from(tenth) * 100.0;
            if tenth == 50 {
                text += "n 2 4999.0\n";
            }
            // The past second; what comes is known once the second process is there.
            let share = ((at_ms - 5000.0) / 1000.0).clamp(0.0, 1.0);
            let (actual, predicted) = (800.0 - 300.0 * share, if tenth < 50 { 800.0 } else { 550.0 });
            text += &format!(
                "p {at_ms:.3} {actual:.1} 800.0 {predicted:.1} 1000.0\nc {:.3} {at_ms:.3}\n",
                at_ms / 500.0
            );
        }
        text
    }

    #[test]
    fn predictions_are_held_against_the_next_second_and_those_before_an_arrival_apart() {
        let metrics = forecast_metrics(&text());
        // Right before, and 50 too much of 500 after.
        let error = metrics["forecast_error_ratio"];
        assert!((0.04..0.06).contains(&error), "{error}");
        assert!(metrics["forecast_error_ratio_arrivals"] > error, "{metrics:?}");
        assert_eq!(metrics["desired_drift_ratio"], 0.0);
        assert!((metrics["daemon_share"] - 0.002).abs() < 1e-9, "{metrics:?}");
        assert!((metrics["read_cpu_ms"] - 0.2).abs() < 1e-9, "{metrics:?}");
    }

    #[test]
    fn a_program_that_said_nothing_has_no_numbers() {
        assert!(forecast_metrics("").is_empty());
        assert!(forecast_metrics("p 1 2\nn\nc x y\n").is_empty());
    }
}
