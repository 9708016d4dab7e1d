//! Which rows of a snapshot are shown, and in which order: the tree, folding, sorting, filtering, searching. Pure.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use libsteward::api::Forecast;

use super::model::{DomainRow, Key, Snapshot, TaskRow};
use super::promise::Promise;
use super::text::{NOTHING_MS_PER_S, Slowdown, slowdown_value};

/// What rows can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The name.
    Name,
    /// The thread's number.
    Task,
    /// The user's number.
    User,
    /// The weight.
    Weight,
    /// What it got.
    Actual,
    /// What it wanted.
    Desired,
    /// What it will get.
    Predicted,
    /// What it could get.
    Potential,
    /// The slowdown of the last second.
    Now,
    /// The slowdown of the next.
    Next,
    /// Whether its promise is kept: broken ones first.
    Promise,
}

impl Column {
    /// All, in the order of the screen.
    pub const ALL: [Column; 11] = [
        Column::Name,
        Column::Task,
        Column::User,
        Column::Weight,
        Column::Actual,
        Column::Desired,
        Column::Predicted,
        Column::Potential,
        Column::Now,
        Column::Next,
        Column::Promise,
    ];

    /// The key that sorts by it, the title, and what it is.
    pub fn describe(self) -> (char, &'static str, &'static str) {
        match self {
            Column::Name => ('N', "NAME", "name"),
            Column::Task => ('T', "TASK", "thread number"),
            Column::User => ('U', "USER", "user's number"),
            Column::Weight => ('W', "WEIGHT", "weight"),
            Column::Actual => ('A', "ACTUAL", "actual allocation"),
            Column::Desired => ('D', "DESIRED", "desired allocation"),
            Column::Predicted => ('P', "PREDICT", "predicted allocation"),
            Column::Potential => ('O', "POTENT", "potential allocation"),
            Column::Now => ('S', "NOW", "slowdown now"),
            Column::Next => ('X', "NEXT", "slowdown expected"),
            Column::Promise => ('K', "KEPT", "promises, broken ones first"),
        }
    }

    /// Whether sorting by it starts with the largest.
    fn starts_descending(self) -> bool {
        !matches!(self, Column::Name | Column::Task | Column::User | Column::Promise)
    }
}

/// One row of the snapshot.
#[derive(Clone, Copy, Debug)]
pub enum Row<'a> {
    /// A domain.
    Domain(&'a DomainRow),
    /// A task.
    Task(&'a TaskRow),
}

impl<'a> Row<'a> {
    /// What it is about.
    pub fn key(self) -> Key {
        match self {
            Row::Domain(row) => Key::Domain(row.domain.name.clone()),
            Row::Task(row) => row.key(),
        }
    }

    /// Its allocations.
    pub fn forecast(self) -> &'a Forecast {
        match self {
            Row::Domain(row) => &row.domain.forecast,
            Row::Task(row) => &row.task.forecast,
        }
    }

    /// What it was promised.
    pub fn promise(self) -> Option<&'a Promise> {
        match self {
            Row::Domain(row) => row.promise.as_ref(),
            Row::Task(row) => row.promise.as_ref(),
        }
    }

    /// Its name: of a domain the last part.
    pub fn name(self) -> &'a str {
        match self {
            Row::Domain(row) => row.short_name(),
            Row::Task(row) => &row.task.name,
        }
    }

    /// The allocation that fills its bar: the machine for a domain, one CPU for a task.
    pub fn whole_ms_per_s(self, cpus: u32) -> f64 {
        match self {
            Row::Domain(_) => f64::from(cpus.max(1)) * 1e3,
            Row::Task(_) => 1e3,
        }
    }

    /// Whether it wants nothing and is promised nothing.
    fn is_idle(self) -> bool {
        let forecast = self.forecast();
        let most = forecast.actual_ms_per_s.max(forecast.desired_ms_per_s);
        most < NOTHING_MS_PER_S && self.promise().is_none()
    }

    fn number(self, column: Column) -> f64 {
        let forecast = self.forecast();
        match (column, self) {
            (Column::Actual, _) => forecast.actual_ms_per_s,
            (Column::Desired, _) => forecast.desired_ms_per_s,
            (Column::Predicted, _) => forecast.predicted_ms_per_s,
            (Column::Potential, _) => forecast.potential_ms_per_s,
            (Column::Now, _) => slowdown_value(forecast, Slowdown::Now).unwrap_or(0.0),
            (Column::Next, _) => slowdown_value(forecast, Slowdown::Next).unwrap_or(0.0),
            (Column::Promise, _) => self.promise().map_or(9.0, |promise| f64::from(promise.state as u8)),
            (Column::Task, Row::Task(row)) => f64::from(row.task.tid),
            (Column::User, Row::Task(row)) => f64::from(row.task.user),
            (Column::Weight, Row::Task(row)) => row.task.weight,
            (Column::Task | Column::User | Column::Weight, Row::Domain(_)) | (Column::Name, _) => 0.0,
        }
    }

    fn compare(self, other: Row, column: Column) -> Ordering {
        match column {
            Column::Name => self.name().to_lowercase().cmp(&other.name().to_lowercase()),
            _ => self.number(column).total_cmp(&other.number(column)),
        }
    }

    fn matches(self, wanted: &str) -> bool {
        let numbered = match self {
            Row::Task(row) => row.task.tid.to_string() == wanted || row.task.pid.to_string() == wanted,
            Row::Domain(_) => false,
        };
        numbered || self.name().to_lowercase().contains(wanted)
    }
}

/// One row as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The row.
    pub row: Row<'a>,
    /// How deep it is in the tree.
    pub depth: usize,
    /// Whether what is below it is folded away; `None` when nothing is below.
    pub folded: Option<bool>,
}

/// What the person chose to see.
#[derive(Clone, Debug)]
pub struct View {
    /// What rows are sorted by.
    pub sort: Column,
    /// Largest first.
    pub descending: bool,
    /// Only what has this in its name, with what is above and below it.
    pub filter: String,
    /// Tasks only, without the tree.
    pub flat: bool,
    /// Leave out what wants nothing and is promised nothing.
    pub hide_idle: bool,
    /// Names of domains that are folded.
    pub folded: HashSet<String>,
}

impl Default for View {
    fn default() -> Self {
        View {
            sort: Column::Actual,
            descending: true,
            filter: String::new(),
            flat: false,
            hide_idle: false,
            folded: HashSet::new(),
        }
    }
}

/// What is directly below a domain.
type Children<'a> = HashMap<&'a str, Vec<Row<'a>>>;

impl View {
    /// Sorts by a column; by the same again, the other way round.
    pub fn sort_by(&mut self, column: Column) {
        self.descending = if self.sort == column { !self.descending } else { column.starts_descending() };
        self.sort = column;
    }

    /// The rows to show, from the top.
    pub fn lines<'a>(&self, snapshot: &'a Snapshot) -> Vec<Line<'a>> {
        let wanted = self.filter.to_lowercase();
        if self.flat {
            return self.flat_lines(snapshot, &wanted);
        }
        let mut children: Children = HashMap::new();
        let mut tops = Vec::new();
        let mut known = HashSet::new();
        for row in &snapshot.domains {
            // Only a parent that came before counts: so there can be no circle.
            let parent = row.domain.parent.as_deref().filter(|parent| known.contains(parent));
            parent.map_or(&mut tops, |parent| children.entry(parent).or_default()).push(Row::Domain(row));
            known.insert(row.domain.name.as_str());
        }
        for row in &snapshot.tasks {
            let domain = Some(row.task.domain.as_str()).filter(|domain| known.contains(domain));
            domain.map_or(&mut tops, |domain| children.entry(domain).or_default()).push(Row::Task(row));
        }
        let mut lines = Vec::new();
        self.add(tops, &children, 0, &wanted, &mut lines);
        lines
    }

    fn flat_lines<'a>(&self, snapshot: &'a Snapshot, wanted: &str) -> Vec<Line<'a>> {
        let mut rows: Vec<Row> = snapshot.tasks.iter().map(Row::Task).collect();
        rows.retain(|row| (wanted.is_empty() || row.matches(wanted)) && !(self.hide_idle && row.is_idle()));
        self.order(&mut rows);
        rows.into_iter().map(|row| Line { row, depth: 0, folded: None }).collect()
    }

    fn order(&self, rows: &mut [Row]) {
        rows.sort_by(|left, right| {
            let order = left.compare(*right, self.sort);
            if self.descending { order.reverse() } else { order }
        });
    }

    /// Adds rows with all below them that is to be seen. `wanted` is empty below a domain that matches itself.
    fn add<'a>(
        &self,
        mut rows: Vec<Row<'a>>,
        children: &Children<'a>,
        depth: usize,
        wanted: &str,
        lines: &mut Vec<Line<'a>>,
    ) {
        self.order(&mut rows);
        for row in rows {
            let matched = wanted.is_empty() || row.matches(wanted);
            let below = match row {
                Row::Domain(domain) => children.get(domain.domain.name.as_str()),
                Row::Task(_) => None,
            };
            let place = lines.len();
            let folded = matches!(row, Row::Domain(domain) if self.folded.contains(&domain.domain.name));
            // What is looked for is shown wherever it is.
            let folded = folded && self.filter.is_empty();
            lines.push(Line { row, depth, folded: below.map(|_| folded) });
            if let Some(below) = below.filter(|_| !folded) {
                self.add(below.clone(), children, depth + 1, if matched { "" } else { wanted }, lines);
            }
            let is_alone = lines.len() == place + 1;
            if is_alone && (!matched || (self.hide_idle && !folded && row.is_idle())) {
                lines.pop();
            }
        }
    }

    /// The place of the next row after `from`, going round, whose name has this in it.
    pub fn find(lines: &[Line], text: &str, from: usize) -> Option<usize> {
        let wanted = text.to_lowercase();
        let found = |place: &usize| lines[*place].row.matches(&wanted);
        let from = from.min(lines.len());
        (from..lines.len()).chain(0..from).find(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::testing;

    fn shown(view: &View) -> Vec<String> {
        let model = testing::model();
        let line = |line: &Line| format!("{}{}", " ".repeat(line.depth), line.row.name());
        view.lines(model.snapshot()).iter().map(line).collect()
    }

    #[test]
    fn siblings_are_sorted_and_stay_below_their_parent() {
        let view = View::default();
        assert_eq!(
            shown(&view),
            [
                "/",
                " batch",
                "  make",
                "  cc1",
                "  cc1",
                " user.slice",
                "  user-1000.slice",
                "   mplayer",
                "   ev\u{1b}[31mil",
                "   vim",
                " web",
                "  nginx",
                " system.slice",
                "  cron"
            ]
        );
    }

    #[test]
    fn sorting_twice_by_a_column_turns_it_round() {
        let mut view = View { flat: true, ..View::default() };
        view.sort_by(Column::Name);
        assert_eq!(shown(&view).first().map(String::as_str), Some("cc1"));
        view.sort_by(Column::Name);
        assert_eq!(shown(&view).first().map(String::as_str), Some("vim"));
        view.sort_by(Column::Now);
        assert!(view.descending);
        view.sort_by(Column::Promise);
        let model = testing::model();
        let lines = view.lines(model.snapshot());
        assert_eq!(lines[0].row.name(), "mplayer", "a broken promise comes first");
    }

    #[test]
    fn a_filter_keeps_what_is_above_and_below_a_match() {
        let mut view = View { filter: "MPLAY".into(), ..View::default() };
        assert_eq!(shown(&view), ["/", " user.slice", "  user-1000.slice", "   mplayer"]);
        view.filter = "batch".into();
        assert_eq!(shown(&view).len(), 5);
        view.filter = "4321".into();
        assert_eq!(shown(&view).last().map(String::as_str), Some("   mplayer"));
        view.filter = "no such name".into();
        assert!(shown(&view).is_empty());
    }

    #[test]
    fn folding_hides_what_is_below_unless_it_is_looked_for() {
        let mut view = View::default();
        view.folded.insert("batch".into());
        assert_eq!(shown(&view)[..3], ["/", " batch", " user.slice"]);
        view.filter = "make".into();
        assert_eq!(shown(&view), ["/", " batch", "  make"]);
    }

    #[test]
    fn what_is_idle_and_has_no_promise_can_be_left_out() {
        let shown = shown(&View { hide_idle: true, ..View::default() });
        assert!(
            !shown.iter().any(|name| name.contains("cron") || name.contains("system.slice")),
            "{shown:?}"
        );
        assert!(shown.iter().any(|name| name.contains("web")), "it has a promise");
    }

    #[test]
    fn a_tree_that_is_written_wrong_is_shown_whole() {
        let mut snapshot = testing::model().snapshot().clone();
        for row in &mut snapshot.domains {
            row.domain.parent = Some("web".into());
        }
        snapshot.tasks[0].task.domain = "gone".into();
        let lines = View::default().lines(&snapshot);
        assert_eq!(lines.len(), snapshot.domains.len() + snapshot.tasks.len());
    }

    #[test]
    fn a_search_goes_on_from_the_top() {
        let model = testing::model();
        let lines = View::default().lines(model.snapshot());
        let first = View::find(&lines, "cc1", 0).expect("it is there");
        let second = View::find(&lines, "cc1", first + 1).expect("there are two");
        assert_eq!(View::find(&lines, "cc1", second + 1), Some(first));
        assert_eq!(View::find(&lines, "nobody", 0), None);
        assert_eq!(View::find(&[], "a", 7), None);
    }
}
