//! Figures and names as text for a terminal: names that cannot do harm there, short numbers, bars, small histories.

use libsteward::api::Forecast;
use unicode_width::UnicodeWidthStr;

/// Less CPU time than this, in ms per second, counts as nothing.
pub const NOTHING_MS_PER_S: f64 = 0.5;

/// A name as it may be shown: what a terminal would obey or not show (control characters, changes of direction, marks
/// of no width) is spelled out.
pub fn clean(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        let escaped = character.escape_debug();
        if escaped.len() > 1 && !matches!(character, '"' | '\'' | '\\') {
            text.extend(escaped);
        } else {
            text.push(character);
        }
    }
    text
}

/// CPU time per second: `0`, `3.4`, `167`, `12k` (12,000 ms per second are 12 CPUs).
pub fn allocation(ms_per_s: f64) -> String {
    match ms_per_s {
        value if !value.is_finite() => "?".to_owned(),
        value if value < 0.05 => "0".to_owned(),
        value if value < 9.95 => format!("{value:.1}"),
        value if value < 9_999.5 => format!("{value:.0}"),
        value => format!("{:.0}k", value / 1e3),
    }
}

/// What a slowdown is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slowdown {
    /// The last second.
    Now,
    /// The next second.
    Next,
    /// The next second, were it to want all it could have.
    Potential,
}

/// A slowdown: `1.0`, `12`, `>999`; `stall` when something is wanted and nothing given, `-` when nothing is wanted.
pub fn slowdown(forecast: &Forecast, of: Slowdown) -> String {
    match slowdown_value(forecast, of) {
        None => "-".to_owned(),
        Some(value) if value.is_infinite() => "stall".to_owned(),
        Some(value) if value < 9.95 => format!("{value:.1}"),
        Some(value) if value < 999.5 => format!("{value:.0}"),
        Some(_) => ">999".to_owned(),
    }
}

/// A slowdown as a number: infinity when something is wanted and nothing given, `None` when nothing is wanted.
pub fn slowdown_value(forecast: &Forecast, of: Slowdown) -> Option<f64> {
    let value = match of {
        Slowdown::Now => forecast.slowdown,
        Slowdown::Next => forecast.future_slowdown,
        Slowdown::Potential => forecast.potential_slowdown,
    };
    let stalled = (forecast.desired_ms_per_s >= NOTHING_MS_PER_S).then_some(f64::INFINITY);
    value.filter(|value| !value.is_nan()).or(stalled)
}

/// What one character of a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Beyond everything.
    Empty,
    /// It got this (actual).
    Got,
    /// It wanted this and did not get it (desired).
    Missed,
    /// Here ends what it will get (predicted).
    Predicted,
    /// Here ends what it could get (potential).
    Potential,
}

impl Mark {
    /// The character, which says all without colour.
    pub fn character(self) -> char {
        match self {
            Mark::Empty => ' ',
            Mark::Got => '#',
            Mark::Missed => '-',
            Mark::Predicted => '>',
            Mark::Potential => '|',
        }
    }
}

/// The four allocations as one bar of that many characters; `whole_ms_per_s` fills it.
pub fn bar(forecast: &Forecast, whole_ms_per_s: f64, width: usize) -> Vec<Mark> {
    let cells = |ms_per_s: f64| {
        let part = (ms_per_s / whole_ms_per_s).clamp(0.0, 1.0);
        // A bar begins as soon as there is anything, and is full only when all is used.
        if ms_per_s < NOTHING_MS_PER_S || part.is_nan() {
            0
        } else {
            ((part * width as f64).round() as usize).max(1)
        }
    };
    let (got, wanted) = (cells(forecast.actual_ms_per_s), cells(forecast.desired_ms_per_s));
    let fill = |cell: usize| match cell {
        cell if cell < got => Mark::Got,
        cell if cell < wanted => Mark::Missed,
        _ => Mark::Empty,
    };
    let mut bar: Vec<Mark> = (0..width).map(fill).collect();
    // Marks that would hide the end of the bar say nothing that it does not say.
    for (at, mark) in [
        (cells(forecast.predicted_ms_per_s), Mark::Predicted),
        (cells(forecast.potential_ms_per_s), Mark::Potential),
    ] {
        let hides = mark == Mark::Predicted && at == got;
        if at > 0 && !hides {
            bar[at - 1] = mark;
        }
    }
    bar
}

/// The bar as characters.
pub fn bar_text(forecast: &Forecast, whole_ms_per_s: f64, width: usize) -> String {
    bar(forecast, whole_ms_per_s, width).into_iter().map(Mark::character).collect()
}

/// Values over time, one character each, the latest last, from 0 to `highest`. `unicode` says whether the terminal
/// shows block characters.
pub fn history_text(values: impl IntoIterator<Item = f64>, highest: f64, unicode: bool) -> String {
    let levels =
        if unicode { [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] } else { LEVELS_ASCII };
    let level = |value: f64| {
        let part = (value / highest).clamp(0.0, 1.0);
        if part > 0.0 { levels[((part * 8.0).round() as usize).max(1)] } else { levels[0] }
    };
    values.into_iter().map(level).collect()
}

const LEVELS_ASCII: [char; 9] = [' ', '_', '.', ',', ':', '-', '=', '+', '#'];

/// The text, with as many of the parts as there is room for, from the first on.
pub fn longest(width: usize, text: &str, parts: &[&str]) -> String {
    let mut text = text.to_owned();
    for part in parts {
        if text.width() + part.width() > width {
            break;
        }
        text.push_str(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(actual: f64, desired: f64, predicted: f64, potential: f64) -> Forecast {
        Forecast {
            actual_ms_per_s: actual,
            desired_ms_per_s: desired,
            predicted_ms_per_s: predicted,
            potential_ms_per_s: potential,
            ..Forecast::default()
        }
    }

    #[test]
    fn a_name_can_do_no_harm_to_the_terminal() {
        assert_eq!(clean("it's \"C:\\\" ü 日"), "it's \"C:\\\" ü 日");
        let wild = "a\x1b[2Jb\u{9b}31m\r\n\u{7f}\u{202e}c\u{200b}";
        let shown = clean(wild);
        assert_eq!(shown, "a\\u{1b}[2Jb\\u{9b}31m\\r\\n\\u{7f}\\u{202e}c\\u{200b}");
        assert!(!shown.chars().any(char::is_control));
    }

    #[test]
    fn allocations_and_slowdowns_are_short_whatever_they_are() {
        let shown = [0.0, 3.44, 166.7, 9_999.4, 64_000.0, f64::NAN].map(allocation);
        assert_eq!(shown, ["0", "3.4", "167", "9999", "64k", "?"]);
        let with = |slowdown| Forecast { slowdown, ..forecast(0.0, 100.0, 0.0, 0.0) };
        let shown = [Some(1.04), Some(12.3), Some(1e6), None, Some(f64::NAN)];
        let shown = shown.map(|value| super::slowdown(&with(value), Slowdown::Now));
        assert_eq!(shown, ["1.0", "12", ">999", "stall", "stall"]);
        assert_eq!(super::slowdown(&Forecast::default(), Slowdown::Next), "-");
    }

    #[test]
    fn a_bar_shows_four_allocations_without_colour() {
        let text = |forecast: &Forecast| bar_text(forecast, 1000.0, 10);
        assert_eq!(text(&forecast(300.0, 600.0, 500.0, 800.0)), "###->- |  ");
        assert_eq!(text(&forecast(300.0, 300.0, 300.0, 1000.0)), "###      |");
        assert_eq!(text(&forecast(1.0, 1.0, 1.0, 1.0)), "|         ");
        assert_eq!(text(&forecast(5000.0, 9000.0, 5000.0, 5000.0)), "#########|");
        assert_eq!(text(&Forecast::default()), " ".repeat(10));
        assert_eq!(bar_text(&forecast(1.0, 1.0, f64::NAN, 1.0), 0.0, 3), "##|");
    }

    #[test]
    fn a_history_rises_from_nothing_to_its_highest() {
        assert_eq!(history_text([0.0, 1.0, 50.0, 100.0, 400.0], 100.0, true), " ▁▄██");
        assert_eq!(history_text([0.0, 1.0, 50.0, 100.0], 100.0, false), " _:#");
        assert_eq!(history_text([0.0, f64::NAN], 0.0, true), "  ");
    }
}
