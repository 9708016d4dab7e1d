//! The memory of domains over time, as figures of a report. Pure.

use steward_core::quantity::approximate_size;
use steward_figure::{Legend, Scale, Svg};

use super::figure::{Frame, moments};
use crate::top::memory::Memory;

/// Points that a line has at most.
const POINTS_MAX: usize = 700;
const LEFT: f64 = 56.0;
const FONTS: &str = "system-ui, sans-serif";
const MIB: f64 = 1_048_576.0;

/// A domain's memory at one moment, in seconds since the recording began.
pub type Point = (f64, Memory);

/// What a line shows of it, in bytes.
type Value = fn(&Memory) -> Option<u64>;

/// The lines: their look, what they are called, and what they show.
const LINES: [(&str, &str, Value); 4] = [
    ("line1", "in the swap besides", |memory| Some(memory.swapped).filter(|bytes| *bytes > 0)),
    ("promise", "promised", |memory| memory.promised),
    ("line2", "kept", |memory| memory.kept),
    ("line0", "used", |memory| Some(memory.used)),
];

/// One domain's memory over time, in MiB.
pub fn figure(name: &str, points: &[Point], frame: Frame) -> String {
    let size = points.len().div_ceil(POINTS_MAX).max(1);
    // What is used at one moment in each stretch is as good as a mean, and was there.
    let points: Vec<&Point> = points.iter().step_by(size).collect();
    let gap_s = frame.gap_s * size as f64;
    let values = |value: Value| points.iter().filter_map(move |(_, memory)| value(memory));
    let most_mib = LINES.iter().flat_map(|(_, _, value)| values(*value)).max().unwrap_or(0) as f64 / MIB;
    let most_mib = most_mib.max(1.0).ceil();
    let panel = frame.panel(46.0, 90.0, Scale::Linear(most_mib));
    let mut svg = Svg::open(&format!("Memory of {name}"), 162.0, FONTS);
    svg.text(8.0, 16.0, "ink", "start", &format!("{name}: memory in MiB"));
    let mut legend = Legend { x: LEFT, y: 30.0, sample: 24.0, words: "faint", character: 6.5, gap: 22.0 };
    panel.grid(&mut svg, &[0.0, most_mib / 2.0, most_mib]);
    for (class, words, value) in LINES.into_iter().filter(|(_, _, value)| values(*value).next().is_some()) {
        legend.line(&mut svg, class, words);
        for run in runs(&points, value, gap_s) {
            let place = |(at_s, bytes): (f64, u64)| (panel.x(at_s), panel.y(bytes as f64 / MIB));
            let mut line: Vec<(f64, f64)> = run.into_iter().map(place).collect();
            if let [(x, y)] = line[..] {
                line.push((x + 2.0, y));
            }
            svg.line(class, line);
        }
    }
    moments(&mut svg, &panel);
    svg.finish()
}

/// A value over time, in pieces without gaps.
fn runs(points: &[&Point], value: Value, gap_s: f64) -> Vec<Vec<(f64, u64)>> {
    let mut runs: Vec<Vec<(f64, u64)>> = Vec::new();
    let mut before_s: Option<f64> = None;
    for (at_s, memory) in points {
        let Some(bytes) = value(memory) else {
            before_s = None;
            continue;
        };
        let goes_on = before_s.is_some_and(|before_s| at_s - before_s <= gap_s);
        match runs.last_mut().filter(|_| goes_on) {
            Some(run) => run.push((*at_s, bytes)),
            None => runs.push(vec![(*at_s, bytes)]),
        }
        before_s = Some(*at_s);
    }
    runs
}

/// What is said below a figure: the most that was used, and what was taken meanwhile.
pub fn words(points: &[Point]) -> String {
    let most = points.iter().map(|(_, memory)| memory.used).max().unwrap_or(0);
    let taken = |point: Option<&Point>| point.map_or(0, |(_, memory)| memory.taken);
    let taken = taken(points.last()).saturating_sub(taken(points.first()));
    let most = format!("At most {} used", approximate_size(most));
    if taken == 0 { most + "." } else { format!("{most}; {} taken for others.", approximate_size(taken)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_s: f64, used: u64, kept: Option<u64>) -> Point {
        (at_s, Memory { used, kept, taken: used / 2, ..Memory::default() })
    }

    #[test]
    fn what_is_not_known_and_what_is_missing_is_a_gap() {
        let points = [(0.0, Some(5)), (1.0, None), (2.0, Some(7)), (3.0, Some(7)), (30.0, Some(7))];
        let points: Vec<Point> =
            points.into_iter().map(|(at_s, kept)| point(at_s, (at_s as u64 + 1) << 20, kept)).collect();
        let all: Vec<&Point> = points.iter().collect();
        let lengths = |value: Value| runs(&all, value, 3.0).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(|memory| memory.kept), [1, 2, 1]);
        assert_eq!(lengths(|memory| Some(memory.used)), [4, 1]);
        let svg = figure("web", &points, Frame { length_s: 30.0, gap_s: 3.0 });
        assert_eq!(svg.matches("<polyline class=\"line line0\"").count(), 3, "two pieces and the legend");
        assert!(!svg.contains("in the swap") && svg.contains("kept"), "{svg}");
        assert_eq!(words(&points), "At most 31M used; 15M taken for others.");
    }

    #[test]
    fn a_long_recording_becomes_few_points() {
        let points: Vec<Point> = (0..100_000).map(|at| point(f64::from(at), 1 << 30, None)).collect();
        let svg = figure("long", &points, Frame { length_s: 99_999.0, gap_s: 3.0 });
        assert!(svg.len() < 30_000, "{}", svg.len());
        assert_eq!(svg.matches("<polyline class=\"line line0\"").count(), 2, "one piece and the legend");
    }
}
