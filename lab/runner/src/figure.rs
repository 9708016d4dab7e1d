//! The lab's figures as SVG, and as PNG for pages that take no SVG. Pure.

use anyhow::{Context, Result};
use steward_figure::{Legend, Panel, Scale, Svg, Tenths, WIDTH, standalone};

use crate::metrics::{Film, frames_per_second};
use crate::outcome::{Outcome, RunOutcome};
use crate::scenario::Contender;

const LEFT: f64 = 52.0;
const PANEL: f64 = 120.0;
const PANEL_GAP: f64 = 46.0;
const TOP: f64 = 34.0;
const FONT: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;
const FONT_FAMILY: &str = "Ubuntu";
/// The one that a PNG is drawn with comes first, so that both look alike.
const FONTS: &str = "Ubuntu, system-ui, sans-serif";

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
    let mut svg = Svg::open("Frames per second over time", height, FONTS);
    legend(&mut svg, &programs, !outcome.load_seconds.is_empty());
    for (index, (contender, run)) in panels.iter().enumerate() {
        let panel = Panel {
            left: LEFT,
            top: TOP + 18.0 + index as f64 * (PANEL + PANEL_GAP),
            height: PANEL,
            length_s: outcome.duration_seconds,
            scale: Scale::Linear(top_rate),
        };
        for (from, until) in &outcome.load_seconds {
            let (x, width) = (panel.x(*from), panel.x(*until) - panel.x(*from));
            svg.rect("load", (Tenths(x), Tenths(panel.top)), (Tenths(width), PANEL));
        }
        axes(&mut svg, &panel, top_rate);
        draw(&mut svg, &panel, contender.name(), run, &programs);
    }
    Some(svg.finish())
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
    let mut svg = Svg::open("Longest time without a new frame", height, FONTS);
    svg.text(8.0, 20.0, "ink", "start", "Longest time without a new frame (worst run, logarithmic)");
    let bottom = TOP + 30.0 * rows.len() as f64;
    let mut mark = least;
    while mark <= most {
        svg.grid_line((Tenths(x(mark)), Tenths(TOP)), (Tenths(x(mark)), Tenths(bottom)));
        svg.text(x(mark), bottom + 16.0, "faint", "middle", &milliseconds(mark));
        mark *= 10.0;
    }
    for (index, (name, gap_ms)) in rows.iter().enumerate() {
        let y = TOP + 30.0 * index as f64 + 5.0;
        svg.text(left - 8.0, y + 14.0, "ink", "end", name);
        let width = (x(*gap_ms) - left).max(1.0);
        svg.rect("bar", (left, Tenths(y)), (Tenths(width), 20));
        svg.text(x(*gap_ms) + 6.0, y + 14.0, "ink", "start", &milliseconds(*gap_ms));
    }
    Some(svg.finish())
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

/// A run: its name, and a line for each player.
fn draw(svg: &mut Svg, panel: &Panel, name: &str, run: &RunOutcome, programs: &[String]) {
    svg.text(LEFT, panel.top - 8.0, "ink", "start", name);
    for film in &run.films {
        let colour = programs.iter().position(|program| *program == film.program).unwrap_or(0) % 4;
        let rates = rates(film, panel.length_s);
        let points = rates.iter().map(|(at_s, rate)| (panel.x(at_s + 0.5), panel.y(*rate)));
        svg.line(&format!("line{colour}"), points);
    }
}

fn axes(svg: &mut Svg, panel: &Panel, top_rate: f64) {
    let step = if top_rate > 60.0 { top_rate / 4.0 } else { 10.0 };
    panel.grid(svg, &steps(step, top_rate));
    let step = if panel.length_s > 60.0 { 20.0 } else { 5.0 };
    for second in steps(step, panel.length_s) {
        panel.moment(svg, second, &format!("{second:.0} s"));
    }
}

/// 0, then on by `step`, up to and with `most`.
fn steps(step: f64, most: f64) -> Vec<f64> {
    std::iter::successors(Some(0.0), |value| Some(value + step)).take_while(|value| *value <= most).collect()
}

fn legend(svg: &mut Svg, programs: &[String], has_load: bool) {
    svg.text(8.0, 20.0, "ink", "start", "Frames per second");
    let mut legend = Legend { x: 150.0, y: 16.0, sample: 22.0, words: "ink", character: 7.0, gap: 20.0 };
    for (index, program) in programs.iter().enumerate() {
        legend.line(svg, &format!("line{}", index % 4), program);
    }
    if has_load {
        legend.area(svg, "load", "load");
    }
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
    fn the_figures_look_as_they_did() {
        let outcome = Outcome { load_seconds: vec![(2.0, 6.5)], ..with_films() };
        let figures = [frame_rates(&outcome), gaps(&outcome)].map(Option::unwrap);
        insta::assert_snapshot!(standalone(&figures.join("\n")).replace("><", ">\n<"));
    }

    #[test]
    fn a_figure_becomes_a_png() {
        let bytes = png(&frame_rates(&with_films()).unwrap()).unwrap();
        assert_eq!(&bytes[1..4], b"PNG");
        assert!(png(&gaps(&with_films()).unwrap()).is_ok());
    }
}
