//! Figures as SVG, and as PNG for pages that take no SVG. Pure.
//!
//! Colours come from CSS classes: the report's page defines them for light and dark, and a figure that stands alone
//! carries the light ones in itself.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::metrics::{Film, frames_per_second};
use crate::outcome::{Outcome, RunOutcome};
use crate::scenario::Contender;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const PANEL: f64 = 120.0;
const PANEL_GAP: f64 = 46.0;
const TOP: f64 = 34.0;
const FONT: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;
const FONT_FAMILY: &str = "Ubuntu";

/// Colours of a light page.
pub const LIGHT: &str = ".ground{fill:#ffffff}.ink{fill:#1f2328}.faint{fill:#656d76}.grid{stroke:#d8dee4;stroke-width:1}\
.load{fill:#f3d9b1;fill-opacity:.45}.line{fill:none;stroke-width:2;stroke-linejoin:round}\
.line0{stroke:#0b66c3}.line1{stroke:#1a7f37;stroke-dasharray:7 5}.line2{stroke:#c0392b}.line3{stroke:#8250df}.bar{fill:#0b66c3}";

/// Colours of a dark page.
pub const DARK: &str = ".ground{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#30363d;stroke-width:1}\
.load{fill:#7a5418;fill-opacity:.40}.line{fill:none;stroke-width:2;stroke-linejoin:round}\
.line0{stroke:#58a6ff}.line1{stroke:#56d364;stroke-dasharray:7 5}.line2{stroke:#ff7b72}.line3{stroke:#bc8cff}.bar{fill:#58a6ff}";

/// Frames per second over time, a panel for each contender (Yang 2009, fig 11.2). Of several runs the one with the
/// worst second is drawn. `None` when no contender has a film.
pub fn frame_rates(outcome: &Outcome) -> Option<String> {
    let panels: Vec<(Contender, &RunOutcome)> = outcome
        .contenders
        .keys()
        .filter_map(|contender| Some((*contender, worst_run(outcome, *contender)?)))
        .collect();
    if panels.is_empty() {
        return None;
    }
    let programs = programs(&panels);
    let highest = panels.iter().flat_map(|(_, run)| &run.films).map(highest_rate).fold(30.0, f64::max);
    let top_rate = (highest / 10.0).ceil() * 10.0;
    let height = TOP + panels.len() as f64 * (PANEL + PANEL_GAP);
    let mut svg = open("Frames per second over time", height);
    legend(&mut svg, &programs, !outcome.load_seconds.is_empty());
    for (index, (contender, run)) in panels.iter().enumerate() {
        let panel = Panel {
            top: TOP + 18.0 + index as f64 * (PANEL + PANEL_GAP),
            seconds: outcome.duration_seconds,
            top_rate,
        };
        panel.draw(&mut svg, contender.name(), outcome, run, &programs);
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// The longest time without a new frame, a bar for each contender and player, on a logarithmic scale.
pub fn gaps(outcome: &Outcome) -> Option<String> {
    let rows = outcome.worst.iter();
    let rows: Vec<(&str, f64)> = rows
        .filter_map(|(contender, metrics)| Some((contender.name(), *metrics.get("gap_ms_max")?)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let longest = rows.iter().map(|(_, gap_ms)| *gap_ms).fold(1000.0, f64::max);
    let (least, most) = (10f64, 10f64.powf(longest.log10().ceil()));
    let left = 110.0;
    let x = |ms: f64| left + (ms.max(least) / least).log10() / (most / least).log10() * (WIDTH - left - 90.0);
    let height = TOP + 30.0 * rows.len() as f64 + 34.0;
    let mut svg = open("Longest time without a new frame", height);
    text(&mut svg, 8.0, 20.0, "ink", "start", "Longest time without a new frame (worst run, logarithmic)");
    let bottom = TOP + 30.0 * rows.len() as f64;
    let mut mark = least;
    while mark <= most {
        vertical(&mut svg, x(mark), TOP, bottom);
        text(&mut svg, x(mark), bottom + 16.0, "faint", "middle", &milliseconds(mark));
        mark *= 10.0;
    }
    for (index, (name, gap_ms)) in rows.iter().enumerate() {
        let y = TOP + 30.0 * index as f64 + 5.0;
        text(&mut svg, left - 8.0, y + 14.0, "ink", "end", name);
        let width = (x(*gap_ms) - left).max(1.0);
        let _ =
            write!(svg, "<rect class=\"bar\" x=\"{left}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"20\"/>");
        text(&mut svg, x(*gap_ms) + 6.0, y + 14.0, "ink", "start", &milliseconds(*gap_ms));
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// The SVG with the light colours inside, as a file of its own.
pub fn standalone(svg: &str) -> String {
    svg.replacen('>', &format!("><style>{LIGHT}</style>"), 1)
}

/// The SVG as PNG, twice as large, on white.
///
/// # Errors
/// When the SVG cannot be parsed or does not fit into memory.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    use resvg::{tiny_skia, usvg};
    let mut options = usvg::Options { font_family: FONT_FAMILY.into(), ..usvg::Options::default() };
    options.fontdb_mut().load_font_data(FONT.to_vec());
    let tree = usvg::Tree::from_str(&standalone(svg), &options).context("the figure is not valid SVG")?;
    let size = tree.size().to_int_size().scale_by(2.0).context("the figure has no size")?;
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("the figure is too large")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
    pixels.encode_png().context("cannot encode the PNG")
}

/// The run of a contender whose worst second was worst.
fn worst_run(outcome: &Outcome, contender: Contender) -> Option<&RunOutcome> {
    let runs = outcome.runs.iter().filter(|run| run.contender == contender && run.error.is_none());
    let with_films = runs.filter(|run| !run.films.is_empty());
    let rank = |run: &RunOutcome| run.metrics.get("frames_per_second_min").copied().unwrap_or(f64::MAX);
    with_films.min_by(|left, right| rank(left).total_cmp(&rank(right)))
}

/// The players, in the order in which the scenario has them: their colour is their place.
fn programs(panels: &[(Contender, &RunOutcome)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for film in panels.iter().flat_map(|(_, run)| &run.films) {
        if !names.contains(&film.program) {
            names.push(film.program.clone());
        }
    }
    names
}

/// `(second of the run, frames in it)` for the length of the film, and for what it needed beyond.
fn rates(film: &Film, seconds: f64) -> Vec<(f64, f64)> {
    let whole = frames_per_second(film, seconds * 1e3 - film.start_ms);
    let last = film.shown_ms.last().copied().unwrap_or(0.0);
    let ends_at = if film.shown_ms.len() < film.frames { f64::MAX } else { last };
    let points = whole.iter().enumerate().map(|(second, count)| {
        let at = film.start_ms / 1e3 + second as f64;
        (at, *count as f64)
    });
    points.take_while(|(at, _)| (at + 1.0) * 1e3 <= ends_at + film.period_ms).collect()
}

fn highest_rate(film: &Film) -> f64 {
    rates(film, 1e5_f64.min(film.shown_ms.last().copied().unwrap_or(0.0) / 1e3 + 1.0))
        .iter()
        .map(|(_, rate)| *rate)
        .fold(0.0, f64::max)
}

struct Panel {
    top: f64,
    seconds: f64,
    top_rate: f64,
}

impl Panel {
    fn x(&self, second: f64) -> f64 {
        LEFT + (second / self.seconds).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rate: f64) -> f64 {
        self.top + PANEL - (rate / self.top_rate).clamp(0.0, 1.0) * PANEL
    }

    fn draw(&self, svg: &mut String, name: &str, outcome: &Outcome, run: &RunOutcome, programs: &[String]) {
        for (from, until) in &outcome.load_seconds {
            let (x, width) = (self.x(*from), self.x(*until) - self.x(*from));
            let _ = write!(
                svg,
                "<rect class=\"load\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{PANEL}\"/>",
                self.top
            );
        }
        self.axes(svg);
        text(svg, LEFT, self.top - 8.0, "ink", "start", name);
        for film in &run.films {
            let colour = programs.iter().position(|program| *program == film.program).unwrap_or(0) % 4;
            let points: Vec<String> = rates(film, self.seconds)
                .iter()
                .map(|(at, rate)| format!("{:.1},{:.1}", self.x(at + 0.5), self.y(*rate)))
                .collect();
            let _ = write!(svg, "<polyline class=\"line line{colour}\" points=\"{}\"/>", points.join(" "));
        }
    }

    fn axes(&self, svg: &mut String) {
        let step = if self.top_rate > 60.0 { self.top_rate / 4.0 } else { 10.0 };
        let mut rate = 0.0;
        while rate <= self.top_rate {
            let y = self.y(rate);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT
            );
            text(svg, LEFT - 6.0, y + 4.0, "faint", "end", &format!("{rate:.0}"));
            rate += step;
        }
        let step = if self.seconds > 60.0 { 20.0 } else { 5.0 };
        let mut second = 0.0;
        while second <= self.seconds {
            text(svg, self.x(second), self.top + PANEL + 15.0, "faint", "middle", &format!("{second:.0} s"));
            second += step;
        }
    }
}

fn open(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" font-family=\"{FONT_FAMILY}, system-ui, sans-serif\" font-size=\"12\" role=\"img\">\
         <title>{title}</title><rect class=\"ground\" width=\"100%\" height=\"100%\"/>"
    )
}

fn legend(svg: &mut String, programs: &[String], has_load: bool) {
    text(svg, 8.0, 20.0, "ink", "start", "Frames per second");
    let mut x = 150.0;
    for (index, program) in programs.iter().enumerate() {
        let colour = index % 4;
        let _ = write!(svg, "<polyline class=\"line line{colour}\" points=\"{x},16 {},16\"/>", x + 22.0);
        text(svg, x + 28.0, 20.0, "ink", "start", program);
        x += 48.0 + 7.0 * program.len() as f64;
    }
    if has_load {
        let _ = write!(svg, "<rect class=\"load\" x=\"{x}\" y=\"9\" width=\"22\" height=\"14\"/>");
        text(svg, x + 28.0, 20.0, "ink", "start", "load");
    }
}

fn vertical(svg: &mut String, x: f64, from: f64, until: f64) {
    let _ =
        write!(svg, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{from:.1}\" x2=\"{x:.1}\" y2=\"{until:.1}\"/>");
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, anchor: &str, words: &str) {
    let _ = write!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

/// Text inside HTML or SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn milliseconds(ms: f64) -> String {
    if ms >= 1000.0 { format!("{} s", crate::outcome::readable(ms / 1e3)) } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::with_films;

    #[test]
    fn every_contender_with_a_film_has_a_panel_and_every_player_a_line() {
        let svg = frame_rates(&with_films()).unwrap();
        assert_eq!(
            svg.matches("<polyline class=\"line line0\" points=\"").count(),
            3,
            "two panels and the legend"
        );
        assert!(svg.contains(">stock<") && svg.contains(">steward<"));
    }

    #[test]
    fn a_figure_becomes_a_png() {
        let bytes = png(&frame_rates(&with_films()).unwrap()).unwrap();
        assert_eq!(&bytes[1..4], b"PNG");
        assert!(png(&gaps(&with_films()).unwrap()).is_ok());
    }

    #[test]
    fn words_cannot_break_out_of_the_markup() {
        assert_eq!(escape("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
    }
}
