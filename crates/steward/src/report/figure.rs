//! The figures of a report as SVG: allocations and slowdowns over time, and promises. Pure. The colours are those of
//! the lab's figures, and every line and state can be told without them.

use steward_figure::{Legend, Panel, Scale, Svg, Tenths};

use super::recording::{Point, Series};
use crate::top::cpu::promise::Keeping;

const LEFT: f64 = 56.0;
const FONTS: &str = "system-ui, sans-serif";
/// Points that a line has at most: more than it has pixels would only cost room.
const POINTS_MAX: usize = 700;
/// A slowdown beyond this is drawn as this.
const SLOWDOWN_MAX: f64 = 100.0;

/// What the page's style adds to what all pages with figures have.
pub const STYLE: &str = ".promise{stroke:#656d76;stroke-width:1.5;stroke-dasharray:14 4}.broken{fill:#c0392b;fill-opacity:.22}\
.state-kept{fill:#1a7f37}.state-broken{fill:#c0392b}.state-idle{fill:#9198a1}.thin{stroke-width:1.2;stroke-dasharray:1 3}";

/// What all figures of a report share.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// How long the recording is, in seconds.
    pub length_s: f64,
    /// More time than this between two readings, in seconds, is a gap.
    pub gap_s: f64,
}

impl Frame {
    /// For readings at those moments.
    pub fn of(points: &[Point], length_s: f64) -> Self {
        let mut steps: Vec<f64> = points.windows(2).map(|pair| pair[1].at_s - pair[0].at_s).collect();
        steps.sort_by(f64::total_cmp);
        let usual = steps.get(steps.len() / 2).copied().unwrap_or(1.0);
        Frame { length_s: length_s.max(1e-3), gap_s: 3.0 * usual.max(0.1) }
    }

    /// A panel from its top, so high.
    pub(super) fn panel(&self, top: f64, height: f64, scale: Scale) -> Panel {
        Panel { left: LEFT, top, height, length_s: self.length_s, scale }
    }
}

/// What is drawn of readings in a panel.
struct Plot<'a> {
    panel: Panel,
    gap_s: f64,
    points: &'a [Point],
}

impl Plot<'_> {
    /// A line through values, interrupted where there are none and where readings are missing.
    fn line(&self, svg: &mut Svg, class: &str, value: impl Fn(&Point) -> Option<f64>) {
        let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
        let mut before_s = None;
        for point in self.points {
            let is_gap = before_s.is_some_and(|before_s| point.at_s - before_s > self.gap_s);
            before_s = Some(point.at_s);
            let value = value(point).filter(|value| !value.is_nan());
            if is_gap || value.is_none() {
                runs.push(Vec::new());
            }
            if let (Some(value), Some(run)) = (value, runs.last_mut()) {
                run.push((self.panel.x(point.at_s), self.panel.y(value)));
            }
        }
        for mut run in runs.into_iter().filter(|run| !run.is_empty()) {
            if let [(x, y)] = run[..] {
                run.push((x + 2.0, y));
            }
            svg.line(class, run);
        }
    }

    /// Bands over the time in which the promise was broken.
    fn bands(&self, svg: &mut Svg) {
        for (from_s, until_s, state) in spans(self.points, self.gap_s) {
            if state == Some(Keeping::Broken) {
                let (x, until) = (self.panel.x(from_s), self.panel.x(until_s));
                let size = (Tenths((until - x).max(1.0)), Tenths(self.panel.height));
                svg.rect("broken", (Tenths(x), Tenths(self.panel.top)), size);
            }
        }
    }
}

/// Names moments below the panel.
pub(super) fn moments(svg: &mut Svg, panel: &Panel) {
    for at_s in marks(panel.length_s) {
        let label =
            if panel.length_s < 180.0 { format!("{at_s:.0} s") } else { format!("{:.0} min", at_s / 60.0) };
        panel.moment(svg, at_s, &label);
    }
}

/// Moments to be named along a recording of that length: about six.
fn marks(length_s: f64) -> Vec<f64> {
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0];
    let step = steps.into_iter().find(|step| length_s / step <= 7.0).unwrap_or(length_s / 6.0);
    (0..=7).map(|index| f64::from(index) * step).take_while(|at_s| *at_s <= length_s).collect()
}

/// Times in which a promise stood alike: from, until, how.
fn spans(points: &[Point], gap_s: f64) -> Vec<(f64, f64, Option<Keeping>)> {
    let mut spans: Vec<(f64, f64, Option<Keeping>)> = Vec::new();
    for point in points {
        let state = point.promise.map(|(_, state)| state);
        match spans.last_mut() {
            Some((_, until_s, before)) if point.at_s - *until_s <= gap_s => {
                *until_s = point.at_s;
                if *before != state {
                    spans.push((point.at_s, point.at_s, state));
                }
            }
            _ => spans.push((point.at_s, point.at_s, state)),
        }
    }
    spans
}

/// So many points that a line has no more than it needs: means, for slowdowns the worst, for promises too.
fn thinned(points: &[Point]) -> Vec<Point> {
    let size = points.len().div_ceil(POINTS_MAX).max(1);
    let merge = |chunk: &[Point]| {
        let mean = |value: fn(&Point) -> f64| chunk.iter().map(value).sum::<f64>() / chunk.len() as f64;
        Point {
            at_s: chunk[0].at_s,
            actual_ms_per_s: mean(|point| point.actual_ms_per_s),
            desired_ms_per_s: mean(|point| point.desired_ms_per_s),
            predicted_ms_per_s: mean(|point| point.predicted_ms_per_s),
            slowdown: chunk.iter().filter_map(|point| point.slowdown).max_by(f64::total_cmp),
            promise: chunk.iter().filter_map(|point| point.promise).min_by_key(|(_, state)| *state),
        }
    };
    points.chunks(size).map(merge).collect()
}

/// A round number that is not below.
fn round_up(value: f64) -> f64 {
    let value = if value.is_finite() { value.max(10.0) } else { 10.0 };
    let magnitude = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * magnitude).find(|step| *step >= value).unwrap_or(value)
}

/// One task, domain or machine over time: its allocations, and its slowdown below.
pub fn series(name: &str, series: &Series, frame: Frame) -> String {
    // Chunks merged into one point are further apart.
    let points = thinned(&series.points);
    let apart = series.points.len().div_ceil(POINTS_MAX).max(1) as f64;
    let frame = Frame { gap_s: frame.gap_s * apart, ..frame };
    let highest = |point: &Point| {
        let promised = point.promise.map_or(0.0, |(promised, _)| promised);
        point.actual_ms_per_s.max(point.desired_ms_per_s).max(promised)
    };
    let most = round_up(points.iter().map(highest).fold(0.0, f64::max));
    let plot = |panel| Plot { panel, gap_s: frame.gap_s, points: &points };
    let above = plot(frame.panel(46.0, 120.0, Scale::Linear(most)));
    let below = plot(frame.panel(186.0, 56.0, Scale::Logarithmic(SLOWDOWN_MAX)));
    let mut svg = Svg::open(&format!("CPU time and slowdown of {name}"), 268.0, FONTS);
    svg.text(8.0, 16.0, "ink", "start", name);
    legend(&mut svg, series.promise.is_some());
    above.bands(&mut svg);
    above.panel.grid(&mut svg, &[0.0, most / 2.0, most]);
    above.line(&mut svg, "line1", |point| Some(point.desired_ms_per_s));
    above.line(&mut svg, "line3 thin", |point| Some(point.predicted_ms_per_s));
    above.line(&mut svg, "line0", |point| Some(point.actual_ms_per_s));
    above.line(&mut svg, "promise", |point| point.promise.map(|(promised, _)| promised));
    below.panel.grid(&mut svg, &[1.0, 10.0, SLOWDOWN_MAX]);
    below.line(&mut svg, "line2", |point| point.slowdown);
    moments(&mut svg, &below.panel);
    svg.finish()
}

fn legend(svg: &mut Svg, has_promise: bool) {
    let mut legend = Legend { x: LEFT, y: 30.0, sample: 24.0, words: "faint", character: 6.5, gap: 22.0 };
    let lines = [
        ("line0", "got"),
        ("line1", "wanted"),
        ("line3 thin", "predicted"),
        ("promise", "promised"),
        ("line2", "slowdown, below"),
    ];
    for (class, words) in lines.into_iter().filter(|(class, _)| has_promise || *class != "promise") {
        legend.line(svg, class, words);
    }
    if has_promise {
        legend.area(svg, "broken", "promise broken");
    }
    svg.text(LEFT, 182.0, "faint", "start", "slowdown (logarithmic; 1 is undisturbed)");
}

/// Promises over time, a row each: high where broken, half as high where kept, thin where nothing was wanted.
pub fn promises(rows: &[(String, &Series)], frame: Frame) -> String {
    const ROW: f64 = 34.0;
    let height = 44.0 + ROW * rows.len() as f64;
    let panel = frame.panel(44.0, ROW * rows.len() as f64, Scale::Linear(1.0));
    let mut svg = Svg::open("Promises over time", height + 10.0, FONTS);
    let mut x = 8.0;
    for (class, high, words) in
        [("kept", 8.0, "kept"), ("idle", 2.0, "nothing wanted"), ("broken", 16.0, "broken")]
    {
        svg.rect(&format!("state-{class}"), (x, 20.0 - high), (20, high));
        svg.text(x + 26.0, 20.0, "ink", "start", words);
        x += 60.0 + 6.5 * words.len() as f64;
    }
    for (index, (name, series)) in rows.iter().enumerate() {
        let base = 44.0 + ROW * index as f64 + 16.0;
        svg.text(LEFT, base - 18.0, "ink", "start", name);
        for (from_s, until_s, state) in spans(&series.points, frame.gap_s) {
            let Some(state) = state else { continue };
            let (class, high) = match state {
                Keeping::Broken => ("state-broken", 14.0),
                Keeping::Kept => ("state-kept", 7.0),
                Keeping::Idle => ("state-idle", 2.0),
            };
            let (x, until) = (panel.x(from_s), panel.x(until_s));
            svg.rect(class, (Tenths(x), Tenths(base - high)), (Tenths((until - x).max(1.0)), high));
        }
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_s: f64, state: Keeping) -> Point {
        Point {
            at_s,
            actual_ms_per_s: 100.0,
            desired_ms_per_s: 200.0,
            predicted_ms_per_s: 100.0,
            slowdown: Some(2.0),
            promise: Some((150.0, state)),
        }
    }

    #[test]
    fn a_gap_in_the_readings_is_a_gap_in_the_line_and_in_the_promise() {
        let points: Vec<Point> =
            [0.0, 1.0, 2.0, 30.0, 31.0].map(|at_s| point(at_s, Keeping::Broken)).to_vec();
        let frame = Frame::of(&points, 31.0);
        let series = Series { points, ..Series::default() };
        let svg = super::series("web", &series, frame);
        assert_eq!(svg.matches("<polyline class=\"line line0\"").count(), 3, "two pieces and the legend");
        assert_eq!(svg.matches("<rect class=\"broken\"").count(), 2);
    }

    #[test]
    fn a_change_of_state_begins_a_new_span() {
        let states = [Keeping::Kept, Keeping::Kept, Keeping::Broken, Keeping::Kept];
        let points: Vec<Point> = (0..).zip(states).map(|(at, state)| point(f64::from(at), state)).collect();
        let spans = spans(&points, 3.0);
        assert_eq!(
            spans.iter().map(|(from_s, until_s, _)| (*from_s, *until_s)).collect::<Vec<_>>(),
            [(0.0, 2.0), (2.0, 3.0), (3.0, 3.0)]
        );
    }

    #[test]
    fn a_long_recording_becomes_few_points_and_keeps_its_worst() {
        let mut points: Vec<Point> = (0..100_000).map(|at| point(f64::from(at), Keeping::Kept)).collect();
        points[50_000].slowdown = Some(f64::INFINITY);
        points[70_000].promise = Some((150.0, Keeping::Broken));
        let thin = thinned(&points);
        assert!(thin.len() <= POINTS_MAX);
        assert!(thin.iter().any(|point| point.slowdown == Some(f64::INFINITY)));
        assert!(thin.iter().any(|point| point.promise == Some((150.0, Keeping::Broken))));
        let frame = Frame::of(&points, 99_999.0);
        let svg = super::series("long", &Series { points, ..Series::default() }, frame);
        assert_eq!(svg.matches("<polyline class=\"line line0\"").count(), 2, "one piece and the legend");
        assert!(svg.len() < 100_000, "{}", svg.len());
    }

    #[test]
    fn marks_and_scales_are_round_and_few() {
        assert_eq!(marks(29.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(marks(0.0), [0.0]);
        for length_s in [0.5, 3.0, 100.0, 86_400.0, 1e7] {
            assert!((1..=8).contains(&marks(length_s).len()), "{length_s}");
        }
        assert_eq!([0.0, 3400.0, 180.0, f64::NAN].map(round_up), [10.0, 4000.0, 200.0, 10.0]);
    }
}
