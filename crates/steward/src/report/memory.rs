//! The memory of domains over time, as figures of a report. Pure.

use std::fmt::Write;

use libsteward::api;
use steward_core::quantity::{approximate_duration, approximate_size};
use steward_figure::{Legend, Scale, Svg, escape};

use super::figure::{Frame, moments};
use super::recording::{Record, Series};
use crate::top::memory::Memory;
use crate::top::text::clean;

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

/// How many that broke a promise are named of a span.
const NAMED_MAX: usize = 3;

/// The promises of memory and what became of them in the minute, hour and day that ended with what was told last, the
/// most broken first; nothing where nobody was promised any.
pub fn promises<'all>(domains: impl Iterator<Item = (&'all String, &'all Series)>, most: usize) -> String {
    let with_record = |(name, series): (&'all String, &'all Series)| {
        series.memory_record.as_ref().map(|record| (name, series, record))
    };
    let mut all: Vec<(&String, &Series, &Record)> = domains.filter_map(with_record).collect();
    if all.is_empty() {
        return String::new();
    }
    let broken = |spans: &[api::AuditedMemory]| spans.iter().map(|span| span.broken).max();
    all.sort_by_key(|(_, _, (_, spans))| std::cmp::Reverse(broken(spans)));
    let mut text = "<h2>Promises of memory</h2><div class=\"scroll\"><table><tr><th>who</th><th>promised</th><th>last</th>\
                    <th>in force</th><th>kept</th><th>broken</th><th>stalled at worst</th><th>by</th></tr>"
        .to_owned();
    for (name, series, (_, spans)) in all.iter().take(most) {
        let promised = series.memory.last().map_or_else(String::new, |(_, memory)| promised(memory));
        for (place, span) in spans.iter().enumerate() {
            let (who, what) = if place == 0 { (clean(name), promised.as_str()) } else { (String::new(), "") };
            span_row(&mut text, &who, what, span);
        }
    }
    let told_s = all.iter().map(|(_, _, (at_s, _))| *at_s).fold(0.0, f64::max);
    let _ = write!(
        text,
        "</table></div><p class=\"faint\">In seconds that were judged, of the minute, hour and day until {told_s:.0} s of this \
         recording, as far as they were seen. A second is broken when tasks stood still for want of memory for more than 50 ms; by \
         whom: who took the most memory in these.</p>"
    );
    if let Some(left_out) = all.len().checked_sub(most).filter(|count| *count > 0) {
        let _ = write!(text, "<p class=\"faint\">{left_out} more promise(s) were broken no oftener.</p>");
    }
    text
}

/// What a domain was promised, in a few words.
fn promised(memory: &Memory) -> String {
    let parts = [
        memory.promised.map(approximate_size),
        memory.kept.map(|_| "what it used in its protection period".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn span_row(text: &mut String, who: &str, promised: &str, span: &api::AuditedMemory) {
    let class = if span.broken > 0 { "missed" } else { "met" };
    let in_force = match span.seen_ns {
        0 => "-".to_owned(),
        seen_ns => format!("{:.0} %", span.in_force_ns as f64 / seen_ns as f64 * 100.0),
    };
    let worst = match span.broken {
        0 => "-".to_owned(),
        _ => approximate_duration(span.worst_stalled_ns),
    };
    let _ = write!(
        text,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{in_force}</td><td>{}</td><td class=\"{class}\">{}</td><td>{worst}</td>\
         <td style=\"text-align:left\">{}</td></tr>",
        escape(who),
        escape(promised),
        escape(&clean(&span.span)),
        span.seconds.saturating_sub(span.broken),
        span.broken,
        escape(&clean(&culprits(&span.culprits)))
    );
}

/// Who broke a promise, most often first.
fn culprits(culprits: &[api::Culprit]) -> String {
    let named = culprits.iter().take(NAMED_MAX).map(|culprit| {
        let name = culprit.domain.as_deref().unwrap_or("others");
        format!("{name} ({} s, {})", culprit.seconds, approximate_size(culprit.taken))
    });
    let mut words: Vec<String> = named.collect();
    if let Some(more) = culprits.len().checked_sub(NAMED_MAX).filter(|count| *count > 0) {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}

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

    fn promised_series(name: &str, broken: u64) -> (String, Series) {
        let culprits = vec![
            api::Culprit { domain: Some("hog<1>".into()), seconds: broken, taken: 5 << 20 },
            api::Culprit { domain: None, seconds: 1, taken: 1 << 20 },
        ];
        let minute = api::AuditedMemory {
            span: "minute".into(),
            seen_ns: 60_000_000_000,
            in_force_ns: 30_000_000_000,
            seconds: 60,
            broken,
            worst_stalled_ns: 840_000_000,
            culprits: if broken > 0 { culprits } else { Vec::new() },
            ..api::AuditedMemory::default()
        };
        let hour = api::AuditedMemory { span: "hour".into(), ..api::AuditedMemory::default() };
        let memory = vec![(0.0, Memory { promised: Some(64 << 20), kept: Some(0), ..Memory::default() })];
        let memory_record = Some((20.0, vec![minute, hour]));
        (name.to_owned(), Series { memory, memory_record, ..Series::default() })
    }

    #[test]
    fn promises_of_memory_are_a_table_with_who_broke_them_and_the_most_broken_first() {
        let all = [promised_series("calm", 0), promised_series("edi\u{1b}tor", 3)];
        let of = |most| promises(all.iter().map(|(name, series)| (name, series)), most);
        let text = of(10);
        let row = "<td>64M, what it used in its protection period</td><td>minute</td><td>50 %</td><td>57</td>\
                   <td class=\"missed\">3</td><td>840ms</td>\
                   <td style=\"text-align:left\">hog&lt;1&gt; (3 s, 5M), others (1 s, 1M)</td>";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("<td>hour</td><td>-</td><td>0</td><td class=\"met\">0</td><td>-</td>"),
            "{text}"
        );
        assert!(text.find("tor</td>") < text.find("calm</td>") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("until 20 s of this recording") && !text.contains("hog<1>"), "{text}");
        assert!(of(1).contains("1 more promise(s)") && !of(1).contains("calm"), "{}", of(1));
        let nobody = Series::default();
        assert_eq!(promises(std::iter::once((&"web".to_owned(), &nobody)), 10), "");
    }

    #[test]
    fn a_long_recording_becomes_few_points() {
        let points: Vec<Point> = (0..100_000).map(|at| point(f64::from(at), 1 << 30, None)).collect();
        let svg = figure("long", &points, Frame { length_s: 99_999.0, gap_s: 3.0 });
        assert!(svg.len() < 30_000, "{}", svg.len());
        assert_eq!(svg.matches("<polyline class=\"line line0\"").count(), 2, "one piece and the legend");
    }
}
