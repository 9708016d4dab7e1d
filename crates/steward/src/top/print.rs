//! `steward top --once`: the model as plain text.

use super::draw::NO_FIGURES;
use super::model::{Model, Snapshot};
use super::text::{Slowdown, allocation, bar_text, clean, slowdown};
use super::view::{Line, Row, View};
use crate::output::table;

/// A bar's characters.
const BAR: usize = 16;

/// Headline, table, and a sentence for every promise that is broken. What is idle and has no promise is left out, unless
/// `all` is wanted.
pub fn text(model: &Model, all: bool) -> String {
    let snapshot = model.snapshot();
    headline(snapshot) + "\n" + &rows(snapshot, all) + &broken(snapshot)
}

fn headline(snapshot: &Snapshot) -> String {
    let machine = &snapshot.machine;
    let hidden = match snapshot.hidden {
        0 => String::new(),
        hidden => format!(", and {hidden} that you may not see"),
    };
    let promises = snapshot.promises;
    let figures = if snapshot.is_measured() { String::new() } else { format!("{NO_FIGURES}\n") };
    format!(
        "{figures}{} CPU(s), {} task(s){hidden}. {} in force; model {}, counters {}.\n\
         Machine: got {} of {} ms per second, wanted {}; slowdown {} now, {} next.\n\
         Promises: {} kept, {} broken, {} idle.\n",
        snapshot.cpus,
        snapshot.tasks.len(),
        snapshot.mechanism.as_deref().unwrap_or("nothing is"),
        clean(&snapshot.model),
        clean(&snapshot.source),
        allocation(machine.actual_ms_per_s),
        allocation(f64::from(snapshot.cpus) * 1e3),
        allocation(machine.desired_ms_per_s),
        slowdown(machine, Slowdown::Now),
        slowdown(machine, Slowdown::Next),
        promises.kept,
        promises.broken,
        promises.idle
    )
}

const TITLES: [&str; 11] =
    ["NAME", "TASK", "USER", "ACTUAL", "DESIRED", "PREDICTED", "POTENTIAL", "BAR", "NOW", "NEXT", "RESERVED"];

fn rows(snapshot: &Snapshot, all: bool) -> String {
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    let view = View { hide_idle: !all, ..View::default() };
    let lines = view.lines(snapshot);
    rows.extend(lines.iter().map(|line| row(line, snapshot.cpus)));
    let left_out = match snapshot.domains.len() + snapshot.tasks.len() - lines.len() {
        0 => String::new(),
        count => format!("\n{count} idle row(s) without a promise are left out (--all shows them).\n"),
    };
    table(&rows, &[1, 2, 3, 4, 5, 6, 8, 9]) + &left_out
}

fn row(line: &Line, cpus: u32) -> Vec<String> {
    let (row, forecast) = (line.row, line.row.forecast());
    let (task, user) = match row {
        Row::Domain(_) => (String::new(), String::new()),
        Row::Task(row) => (row.task.tid.to_string(), row.task.user.to_string()),
    };
    let suspended = matches!(row, Row::Domain(row) if row.domain.suspended);
    let suspended = if suspended { " (suspended)" } else { "" };
    let promise = row.promise().map(|promise| format!("{} {}", promise.reserved, promise.state.name()));
    vec![
        format!("{}{}{suspended}", "  ".repeat(line.depth), clean(row.name())),
        task,
        user,
        allocation(forecast.actual_ms_per_s),
        allocation(forecast.desired_ms_per_s),
        allocation(forecast.predicted_ms_per_s),
        allocation(forecast.potential_ms_per_s),
        format!("[{}]", bar_text(forecast, row.whole_ms_per_s(cpus), BAR)),
        slowdown(forecast, Slowdown::Now),
        slowdown(forecast, Slowdown::Next),
        promise.unwrap_or_default(),
    ]
}

/// Why promises are broken, a line each.
fn broken(snapshot: &Snapshot) -> String {
    use super::promise::{Keeping, Promise};
    let domains = snapshot.domains.iter().map(|row| (clean(&row.domain.name), row.promise.as_ref()));
    let tasks = snapshot
        .tasks
        .iter()
        .map(|row| (format!("{} (task {})", clean(&row.task.name), row.task.tid), row.promise.as_ref()));
    let mut text = String::new();
    for (name, promise) in domains.chain(tasks) {
        if let Some(Promise { state: Keeping::Broken, reserved, why, .. }) = promise {
            text.push_str(&format!("\n{name}: {reserved} is broken: {why}."));
        }
    }
    if text.is_empty() { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::testing;

    #[test]
    fn one_look_is_a_table_and_a_sentence_for_every_broken_promise() {
        insta::assert_snapshot!(text(&testing::model(), false));
    }

    #[test]
    fn what_is_idle_is_shown_when_all_is_wanted_and_missing_figures_are_said() {
        let mut model = testing::model();
        assert!(!text(&model, false).contains("cron") && text(&model, true).contains("cron"));
        let mut reading = testing::reading(40);
        reading.forecasts.window_ns = 0;
        model.take(reading);
        assert!(text(&model, false).starts_with("No figures yet"));
    }
}
