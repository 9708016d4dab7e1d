//! What is said of the selected row, in figures, sentences and over time.

use ratatui::text::{Line, Span};

use super::app::App;
use super::cpu::promise::{Keeping, Promise};
use super::history::History;
use super::text::{Slowdown, allocation, clean, history_text, longest, slowdown};
use super::theme::Theme;
use super::view::Row;
use crate::users::Users;
use steward_core::quantity::approximate_duration;
use steward_core::quantity::percent;

/// A slowdown that fills its history: what is slower looks the same.
const SLOWDOWN_FULL: f64 = 8.0;

/// As many lines as there is room for; the last may be longer than the screen is wide.
pub fn lines(app: &App, theme: Theme, width: usize, height: usize) -> Vec<Line<'static>> {
    if height == 0 {
        return Vec::new();
    }
    let snapshot = app.model.snapshot();
    let lines = app.view.lines(snapshot);
    let Some(line) = lines.get(app.cursor) else { return Vec::new() };
    let row = line.row;
    let history = app.model.history(&row.key());
    let title = Line::styled(
        title(row, &app.users),
        ratatui::style::Style::new().add_modifier(ratatui::style::Modifier::BOLD),
    );
    let promise = promise_line(row, history, theme);
    let past = history.map(|history| history_line(history, row, snapshot.cpus, width, app.looks.unicode));
    let past = past.unwrap_or_default();
    if height < 6 {
        return vec![title, past, promise];
    }
    let slow = history.map(|history| slowdown_line(history, width, app.looks.unicode)).unwrap_or_default();
    vec![title, figures(row, width), past, slow, promise]
}

fn title(row: Row, users: &Users) -> String {
    match row {
        Row::Domain(row) => {
            let domain = &row.domain;
            format!(
                "domain {}: {} tasks, {} runnable, guaranteed {} of the machine{}{}",
                clean(&domain.name),
                domain.tasks,
                domain.runnable,
                percent(domain.guaranteed),
                row.memory.map(|memory| format!("; {}", memory.words())).unwrap_or_default(),
                row.disk.map(|disk| format!("; {}", disk.words())).unwrap_or_default()
            )
        }
        Row::Task(row) => {
            let task = &row.task;
            format!(
                "{}, task {} of {}, user {}, weight {}, in {}",
                clean(&task.name),
                task.tid,
                task.pid,
                clean(&users.name(task.user)),
                allocation(task.weight),
                clean(&task.domain)
            )
        }
        Row::Group(row) => {
            let (name, threads, domain) = (clean(&row.name), row.members.len(), clean(&row.domain));
            match row.pid() {
                Some(pid) => {
                    let user = clean(&users.name(row.user));
                    format!("{name}, process {pid}, {threads} threads, user {user}, in {domain}")
                }
                None => format!("{threads} threads of the kernel itself in {domain} (G shows them)"),
            }
        }
    }
}

/// The allocations and slowdowns; in short words where the screen is narrow.
fn figures(row: Row, width: usize) -> Line<'static> {
    let forecast = row.forecast();
    let [actual, desired, predicted, potential] = [
        forecast.actual_ms_per_s,
        forecast.desired_ms_per_s,
        forecast.predicted_ms_per_s,
        forecast.potential_ms_per_s,
    ]
    .map(allocation);
    let [now, next, best] =
        [Slowdown::Now, Slowdown::Next, Slowdown::Potential].map(|of| slowdown(forecast, of));
    let long = format!(
        "actual {actual} desired {desired} predicted {predicted} potential {potential} ms/s; slowdown {now} next \
         {next} at best {best}"
    );
    if long.len() <= width {
        return Line::raw(long);
    }
    let short = format!("got {actual} wanted {desired} next {predicted} could {potential} ms/s");
    let (slow, next, best) = (format!("; slow {now}"), format!(" next {next}"), format!(" best {best}"));
    Line::raw(longest(width, &short, &[&slow, &next, &best]))
}

/// The promise in a sentence. The last line, because it may need two.
fn promise_line(row: Row, history: Option<&History>, theme: Theme) -> Line<'static> {
    let Some(Promise { reserved, promised_ms_per_s, state, why }) = row.promise() else {
        return Line::raw("nothing is reserved (r reserves)");
    };
    let style = if *state == Keeping::Broken { theme.alarm() } else { ratatui::style::Style::new() };
    let (readings, broken) = history.map(History::promises).unwrap_or_default();
    let before =
        if broken > 0 { format!(" Broken in {broken} of {readings} readings.") } else { String::new() };
    Line::from(vec![
        Span::raw(format!("{reserved} ({} ms/s) ", allocation(*promised_ms_per_s))),
        Span::styled(state.name(), style),
        Span::raw(format!(": {why}.{before}")),
    ])
}

fn history_line(history: &History, row: Row, cpus: u32, width: usize, unicode: bool) -> Line<'static> {
    let points = history.points();
    let room = width.saturating_sub(34).max(8);
    let latest = points.len().saturating_sub(room);
    let values: Vec<f64> = points.skip(latest).map(|point| f64::from(point.actual_ms_per_s)).collect();
    let highest = values.iter().copied().fold(1.0, f64::max).min(row.whole_ms_per_s(cpus));
    Line::raw(format!(
        "got  [{}] to {} ms/s, {}",
        history_text(values, highest, unicode),
        allocation(highest),
        approximate_duration(history.span_ns())
    ))
}

fn slowdown_line(history: &History, width: usize, unicode: bool) -> Line<'static> {
    let points = history.points();
    let room = width.saturating_sub(34).max(8);
    let latest = points.len().saturating_sub(room);
    // Nothing wanted and undisturbed are both the floor.
    let value = |slowdown: Option<f32>| slowdown.map_or(0.0, |slowdown| (f64::from(slowdown) - 1.0).max(0.0));
    let values: Vec<f64> = points.skip(latest).map(|point| value(point.slowdown)).collect();
    Line::raw(format!("slow [{}] 1 to {SLOWDOWN_FULL}", history_text(values, SLOWDOWN_FULL - 1.0, unicode)))
}
