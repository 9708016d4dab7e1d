//! Which rows of a snapshot are shown, and in which order: the tree, folding, sorting, filtering, searching. Pure.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use libsteward::api::Forecast;

use super::cpu::promise::Promise;
use super::groups::{self, GroupRow};
use super::model::Snapshot;
use super::row::{DomainRow, Key, TaskRow};
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
    /// A process with several threads, or those of the kernel.
    Group(&'a GroupRow),
    /// A task.
    Task(&'a TaskRow),
}

impl<'a> Row<'a> {
    /// What it is about.
    pub fn key(self) -> Key {
        match self {
            Row::Domain(row) => Key::Domain(row.domain.name.clone()),
            Row::Group(row) => row.key.clone(),
            Row::Task(row) => row.key(),
        }
    }

    /// Its allocations.
    pub fn forecast(self) -> &'a Forecast {
        match self {
            Row::Domain(row) => &row.domain.forecast,
            Row::Group(row) => &row.forecast,
            Row::Task(row) => &row.task.forecast,
        }
    }

    /// What it was promised.
    pub fn promise(self) -> Option<&'a Promise> {
        match self {
            Row::Domain(row) => row.promise.as_ref(),
            Row::Group(row) => row.promise.as_ref(),
            Row::Task(row) => row.promise.as_ref(),
        }
    }

    /// Its name: of a domain the last part.
    pub fn name(self) -> &'a str {
        match self {
            Row::Domain(row) => row.short_name(),
            Row::Group(row) => &row.name,
            Row::Task(row) => &row.task.name,
        }
    }

    /// The allocation that fills its bar: one CPU for a task, the machine for all else.
    pub fn whole_ms_per_s(self, cpus: u32) -> f64 {
        match self {
            Row::Domain(_) | Row::Group(_) => f64::from(cpus.max(1)) * 1e3,
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
            (Column::Task, Row::Group(row)) => row.pid().map_or(0.0, f64::from),
            (Column::User, Row::Group(row)) => f64::from(row.user),
            (Column::Task | Column::User, Row::Domain(_)) | (Column::Weight | Column::Name, _) => 0.0,
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
            Row::Group(row) => row.pid().is_some_and(|pid| pid.to_string() == wanted),
            Row::Domain(_) => false,
        };
        numbered || self.name().to_lowercase().contains(wanted)
    }

    /// Whether it or one of the tasks in it matches.
    fn holds(self, wanted: &str) -> bool {
        let is_wanted =
            |(tid, name): &(i32, String)| tid.to_string() == wanted || name.to_lowercase().contains(wanted);
        self.matches(wanted) || matches!(self, Row::Group(row) if row.members.iter().any(is_wanted))
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
    /// Every thread as a row below its domain, and not below its process.
    pub threads: bool,
    /// Show the kernel's own threads one by one.
    pub kernel: bool,
    /// Processes whose threads are shown.
    pub open: HashSet<i32>,
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
            threads: false,
            kernel: false,
            open: HashSet::new(),
        }
    }
}

/// What is directly below a domain or a group.
type Children<'a> = HashMap<Key, Vec<Row<'a>>>;

impl View {
    /// Sorts by a column; by the same again, the other way round.
    pub fn sort_by(&mut self, column: Column) {
        self.descending = if self.sort == column { !self.descending } else { column.starts_descending() };
        self.sort = column;
    }

    /// The rows to show, from the top.
    pub fn lines<'a>(&self, snapshot: &'a Snapshot) -> Vec<Line<'a>> {
        let wanted = self.filter.to_lowercase();
        let mut children: Children = HashMap::new();
        let mut tops = Vec::new();
        let mut known = HashSet::new();
        for row in snapshot.domains.iter().filter(|_| !self.flat) {
            // Only a parent that came before counts: so there can be no circle.
            let parent = row.domain.parent.as_deref().filter(|parent| known.contains(parent));
            let parent = parent.map(|parent| Key::Domain(parent.to_owned()));
            parent.map_or(&mut tops, |parent| children.entry(parent).or_default()).push(Row::Domain(row));
            known.insert(row.domain.name.as_str());
        }
        let mut below_domain = |domain: &str, row: Row<'a>, children: &mut Children<'a>| {
            let parent = known.contains(domain).then(|| Key::Domain(domain.to_owned()));
            parent.map_or(&mut tops, |parent| children.entry(parent).or_default()).push(row);
        };
        let is_shown = |group: &&GroupRow| !self.threads || matches!(group.key, Key::Kernel(_));
        let mut groups = HashSet::new();
        for group in snapshot.groups.iter().filter(is_shown) {
            below_domain(&group.domain, Row::Group(group), &mut children);
            groups.insert(&group.key);
        }
        for row in &snapshot.tasks {
            let group = groups::key(row);
            if groups.contains(&group) {
                children.entry(group).or_default().push(Row::Task(row));
            } else {
                below_domain(&row.task.domain, Row::Task(row), &mut children);
            }
        }
        let mut lines = Vec::new();
        self.add(tops, &children, 0, &wanted, &mut lines);
        lines
    }

    /// Whether what is below a row is folded away. What is looked for is shown wherever it is, but not all threads of a
    /// process that is looked for itself.
    fn is_folded(&self, row: Row, matched: bool) -> bool {
        match row {
            Row::Domain(row) => self.filter.is_empty() && self.folded.contains(&row.domain.name),
            Row::Group(row) => matched && !row.pid().map_or(self.kernel, |pid| self.open.contains(&pid)),
            Row::Task(_) => false,
        }
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
            let below = children.get(&row.key());
            let place = lines.len();
            let folded = self.is_folded(row, matched);
            lines.push(Line { row, depth, folded: below.map(|_| folded) });
            if let Some(below) = below.filter(|_| !folded) {
                self.add(below.clone(), children, depth + 1, if matched { "" } else { wanted }, lines);
            }
            let is_alone = lines.len() == place + 1;
            // Of a folded domain nobody knows what is in it; a group is idle when all in it is.
            let is_idle = row.is_idle() && (!folded || matches!(row, Row::Group(_)));
            if is_alone && (!matched || (self.hide_idle && is_idle)) {
                lines.pop();
            }
        }
    }

    /// The place of the next row after `from`, going round, whose name has this in it.
    pub fn find(lines: &[Line], text: &str, from: usize) -> Option<usize> {
        let wanted = text.to_lowercase();
        let found = |place: &usize| match &lines[*place] {
            // What is in it is not shown.
            Line { row, folded: Some(true), .. } => row.holds(&wanted),
            line => line.row.matches(&wanted),
        };
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

    fn with_threads(view: &View) -> Vec<String> {
        let mut model = crate::top::model::Model::default();
        model.take(testing::reading_with_threads());
        let mark = |line: &Line| match line.folded {
            Some(true) => "+",
            Some(false) => "-",
            None => "",
        };
        let text = |line: &Line| format!("{}{}{}", " ".repeat(line.depth), mark(line), line.row.name());
        view.lines(model.snapshot()).iter().map(text).collect()
    }

    #[test]
    fn threads_are_below_their_process_and_those_of_the_kernel_below_one_row_until_they_are_asked_for() {
        let has = |view: &View, row: &str| with_threads(view).iter().any(|shown| shown == row);
        let mut view = View::default();
        assert!(has(&view, " +kernel") && has(&view, "   +mplayer") && has(&view, "   vim"));
        assert!(!has(&view, "  kworker/0:1") && !has(&view, "    decoder"));
        view.open.insert(4321);
        view.kernel = true;
        assert!(has(&view, " -kernel") && has(&view, "  kworker/0:1") && has(&view, "    decoder"));
        assert!(has(&view, "    mplayer"), "the first thread is one of them");
        view.threads = true;
        assert!(has(&view, "   decoder") && has(&view, "   mplayer") && has(&view, "  kworker/0:1"));
        view.flat = true;
        view.kernel = false;
        assert!(has(&view, "decoder") && has(&view, "+kernel") && !has(&view, "ksoftirqd/0"));
    }

    #[test]
    fn a_thread_that_is_looked_for_is_found_below_its_process() {
        let view = View { filter: "decod".into(), ..View::default() };
        let shown = with_threads(&view);
        assert_eq!(shown.last().map(String::as_str), Some("    decoder"), "{shown:?}");
        let view = View { filter: "mplayer".into(), ..View::default() };
        assert_eq!(with_threads(&view).last().map(String::as_str), Some("   +mplayer"));
        let mut model = crate::top::model::Model::default();
        model.take(testing::reading_with_threads());
        let lines = View::default().lines(model.snapshot());
        for wanted in ["ksoftirqd", "4322"] {
            let place = View::find(&lines, wanted, 0).expect("its row holds it");
            assert!(matches!(lines[place].row, Row::Group(_)));
        }
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
