//! `steward top --once`: the model as plain text.

use super::draw::NO_FIGURES;
use super::model::{Model, Snapshot};
use super::text::{Slowdown, allocation, bar_text, clean, slowdown};
use super::view::{Line, Row, View};
use crate::output::table;
use crate::users::Users;

/// A bar's characters.
const BAR: usize = 16;

/// Headline, table, and a sentence for every promise that is broken. What is idle and has no promise is left out, and
/// threads of one process and those of the kernel are one row each, unless `all` is wanted.
pub fn text(model: &Model, all: bool, users: &Users) -> String {
    let snapshot = model.snapshot();
    headline(snapshot) + "\n" + &rows(snapshot, all, users) + &broken(snapshot)
}

fn headline(snapshot: &Snapshot) -> String {
    let machine = &snapshot.machine;
    let hidden = match snapshot.hidden {
        0 => String::new(),
        hidden => format!(", and {hidden} that you may not see"),
    };
    let promises = snapshot.promises;
    let figures = if snapshot.is_measured() { String::new() } else { format!("{NO_FIGURES}\n") };
    let no_domains = match &snapshot.no_domains {
        Some(reason) => format!("Tasks only, since {}.\n", clean(reason)),
        None => String::new(),
    };
    format!(
        "{figures}{no_domains}{} CPU(s), {} task(s){hidden}. {} in force; model {}, counters {}.\n\
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

const TITLES: [&str; 12] = [
    "NAME",
    "TASK",
    "USER",
    "ACTUAL",
    "DESIRED",
    "PREDICTED",
    "POTENTIAL",
    "BAR",
    "NOW",
    "NEXT",
    "MEMORY",
    "RESERVED",
];

fn rows(snapshot: &Snapshot, all: bool, users: &Users) -> String {
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    let view = View { hide_idle: !all, threads: all, kernel: all, ..View::default() };
    let lines = view.lines(snapshot);
    rows.extend(lines.iter().map(|line| row(line, snapshot.cpus, users)));
    let with_idle = View { hide_idle: false, ..view.clone() }.lines(snapshot).len();
    let left_out = match with_idle - lines.len() {
        0 => String::new(),
        count => format!("\n{count} idle row(s) without a promise are left out (--all shows them).\n"),
    };
    table(&rows, &[1, 2, 3, 4, 5, 6, 8, 9, 10]) + &left_out
}

fn row(line: &Line, cpus: u32, users: &Users) -> Vec<String> {
    let (row, forecast) = (line.row, line.row.forecast());
    let (task, user) = match row {
        Row::Domain(_) => (String::new(), String::new()),
        Row::Group(row) => {
            (row.pid().map_or_else(String::new, |pid| pid.to_string()), clean(&users.name(row.user)))
        }
        Row::Task(row) => (row.task.tid.to_string(), clean(&users.name(row.task.user))),
    };
    let name = match row {
        Row::Group(row) => clean(&row.title()),
        row => clean(row.name()),
    };
    let suspended = matches!(row, Row::Domain(row) if row.domain.suspended);
    let suspended = if suspended { " (suspended)" } else { "" };
    let memory = if let Row::Domain(row) = row { row.memory } else { None };
    let promise = row.promise().map(|promise| format!("{} {}", promise.reserved, promise.state.name()));
    vec![
        format!("{}{name}{suspended}", "  ".repeat(line.depth)),
        task,
        user,
        allocation(forecast.actual_ms_per_s),
        allocation(forecast.desired_ms_per_s),
        allocation(forecast.predicted_ms_per_s),
        allocation(forecast.potential_ms_per_s),
        format!("[{}]", bar_text(forecast, row.whole_ms_per_s(cpus), BAR)),
        slowdown(forecast, Slowdown::Now),
        slowdown(forecast, Slowdown::Next),
        memory.map(|memory| memory.cell()).unwrap_or_default(),
        promise.unwrap_or_default(),
    ]
}

/// Why promises are broken, a line each.
fn broken(snapshot: &Snapshot) -> String {
    use super::cpu::promise::{Keeping, Promise};
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
        insta::assert_snapshot!(text(&testing::model(), false, &Users::default()));
    }

    #[test]
    fn threads_are_one_row_unless_all_is_wanted_and_wide_names_shift_nothing() {
        let mut model = Model::default();
        let mut reading = testing::reading_with_threads();
        reading.forecasts.tasks[4].name = "日本語".into();
        model.take(reading);
        let shown = text(&model, false, &Users::default());
        assert!(shown.contains("日本語 (3)") && shown.contains("kernel (2)"), "{shown}");
        assert!(!shown.contains("decoder") && !shown.contains("kworker"), "{shown}");
        let all = text(&model, true, &Users::default());
        assert!(all.contains("decoder") && all.contains("kworker/0:1"), "{all}");
        use unicode_width::UnicodeWidthStr;
        for shown in [shown, all] {
            let bars = shown.lines().filter_map(|line| {
                line.find('[').filter(|_| line.contains("]  ")).map(|at| line[..at].width())
            });
            let bars: std::collections::BTreeSet<usize> = bars.filter(|at| *at > 20).collect();
            assert_eq!(bars.len(), 1, "the bars begin in one column:\n{shown}");
        }
    }

    #[test]
    fn what_is_idle_is_shown_when_all_is_wanted_and_missing_figures_are_said() {
        let mut model = testing::model();
        assert!(!text(&model, false, &Users::default()).contains("cron"));
        assert!(text(&model, true, &Users::default()).contains("cron"));
        let mut reading = testing::reading(40);
        reading.forecasts.window_ns = 0;
        model.take(reading);
        assert!(text(&model, false, &Users::default()).starts_with("No figures yet"));
    }
}
