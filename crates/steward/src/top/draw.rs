//! The screen: draws an [`App`] into whatever room there is. No colour says anything that a character does not say too.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, Wrap};

use super::app::{App, Connection, Mode, Purpose, Target};
use super::detail;
use super::text::{Mark, Slowdown, allocation, bar, clean, longest, slowdown};
use super::theme::Theme;
use super::view::{self, Column, Row};
use crate::users::Users;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many lines each part has, in a screen of that height.
struct Heights {
    header: u16,
    detail: u16,
}

impl Heights {
    fn of(height: u16) -> Self {
        match height {
            0..8 => Heights { header: 1, detail: 0 },
            8..14 => Heights { header: 3, detail: 0 },
            14..22 => Heights { header: 3, detail: 3 },
            _ => Heights { header: 3, detail: 6 },
        }
    }
}

/// Draws all.
pub fn draw(frame: &mut Frame, app: &mut App) {
    let theme = Theme { colour: app.looks.colour };
    let heights = Heights::of(frame.area().height);
    let parts = Layout::vertical([
        Constraint::Length(heights.header),
        Constraint::Min(1),
        Constraint::Length(heights.detail),
        Constraint::Length(1),
    ]);
    let [header, middle, below, keys] = parts.areas(frame.area());
    frame.render_widget(Paragraph::new(header_lines(app, theme, header.width)), header);
    match app.mode {
        Mode::Help => {
            let whole = Rect { height: middle.height + below.height, ..middle };
            frame.render_widget(Paragraph::new(HELP), whole);
        }
        Mode::Sort(place) => {
            let whole = Rect { height: middle.height + below.height, ..middle };
            sort_menu(frame, place, whole);
        }
        Mode::Table | Mode::Prompt(..) | Mode::Kill(_) => {
            table(frame, app, theme, middle);
            draw_below(frame, app, theme, below);
        }
    }
    frame.render_widget(Paragraph::new(last_line(app, theme, below.height == 0)), keys);
}

/// A message while there is one, otherwise what there is to say of the selected row.
fn draw_below(frame: &mut Frame, app: &App, theme: Theme, area: Rect) {
    if let Some(message) = &app.message {
        let text = Paragraph::new(message.as_str()).style(theme.alarm()).wrap(Wrap { trim: false });
        return frame.render_widget(text, area);
    }
    let mut lines = detail::lines(app, theme, usize::from(area.width), usize::from(area.height));
    let Some(last) = lines.pop() else { return };
    let above = lines.len() as u16;
    frame.render_widget(Paragraph::new(lines), area);
    let rest = Rect { y: area.y + above, height: area.height.saturating_sub(above), ..area };
    frame.render_widget(Paragraph::new(last).wrap(Wrap { trim: false }), rest);
}

fn header_lines(app: &App, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let snapshot = app.model.snapshot();
    let away = match &app.connection {
        Connection::Waiting => Some("waiting for stewardd ...".to_owned()),
        Connection::Up => None,
        Connection::Down(reason) => Some(reason.clone()),
        Connection::Silent(seconds) => Some(format!("stewardd has not answered for {seconds} s")),
    };
    let away = away.map(|text| Line::styled(text, theme.alarm()));
    if app.model.is_empty() {
        return vec![away.unwrap_or_default()];
    }
    let hidden = if snapshot.hidden > 0 { format!(" ({} hidden)", snapshot.hidden) } else { String::new() };
    let first = format!(
        "steward top  {} CPU{}, {} task{}{hidden}  {}",
        snapshot.cpus,
        plural(u64::from(snapshot.cpus)),
        snapshot.tasks.len(),
        plural(snapshot.tasks.len() as u64),
        snapshot.mechanism.as_deref().unwrap_or("nothing in force"),
    );
    let model = format!("  model {}", clean(&snapshot.model));
    let source = format!(" from {}", clean(&snapshot.source));
    let first = longest(usize::from(width), &first, &[&model, &source]);
    let machine = &snapshot.machine;
    let whole = f64::from(snapshot.cpus.max(1)) * 1e3;
    let figures = format!("] {} of {} ms/s", allocation(machine.actual_ms_per_s), allocation(whole));
    let wanted = format!(", {} wanted", allocation(machine.desired_ms_per_s));
    let slow = format!(", slowdown {}", slowdown(machine, Slowdown::Now));
    let next = format!(" next {}", slowdown(machine, Slowdown::Next));
    let room = usize::from(width).saturating_sub("Machine [".len() + BAR_LEAST);
    let figures = longest(room, &figures, &[&wanted, &slow, &next]);
    // What the words leave, of a sixth of the screen.
    let left = (room + BAR_LEAST).saturating_sub(figures.width());
    let bar_width = usize::from(width / 6).clamp(BAR_LEAST, 40).min(left.max(BAR_LEAST));
    let mut second = vec![Span::raw("Machine [")];
    second.extend(spans(&bar(machine, whole, bar_width), theme));
    second.push(Span::raw(figures));
    let third = away.unwrap_or_else(|| promise_line(app, theme));
    vec![Line::raw(first), Line::from(second), third]
}

/// The shortest bar of the machine, in columns.
const BAR_LEAST: usize = 8;

fn promise_line(app: &App, theme: Theme) -> Line<'static> {
    let snapshot = app.model.snapshot();
    if !snapshot.is_measured() {
        return Line::styled(NO_FIGURES, theme.alarm());
    }
    let promises = snapshot.promises;
    let mut spans = Vec::new();
    if snapshot.no_domains.is_some() {
        spans.push(Span::raw("No domains here. "));
    }
    spans.push(Span::raw("Promises: "));
    if promises.broken > 0 {
        spans.push(Span::styled(format!("{} BROKEN", promises.broken), theme.alarm()));
        spans.push(Span::raw(format!(", {} kept, {} idle", promises.kept, promises.idle)));
    } else {
        spans.push(Span::raw(format!("{} kept, {} idle, none broken", promises.kept, promises.idle)));
    }
    let view = &app.view;
    if !view.filter.is_empty() {
        spans.push(Span::raw(format!("  filter: {}", view.filter)));
    }
    if view.hide_idle {
        spans.push(Span::raw("  idle rows hidden"));
    }
    Line::from(spans)
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A bar as coloured text.
fn spans(bar: &[Mark], theme: Theme) -> Vec<Span<'static>> {
    let runs = bar.chunk_by(|left, right| left == right);
    let span = |run: &[Mark]| {
        let text: String = run.iter().map(|mark| mark.character()).collect();
        Span::styled(text, theme.mark(run[0]))
    };
    runs.map(span).collect()
}

/// A column of the table.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    /// One that can be sorted by.
    Sorted(Column),
    /// The four allocations as a bar.
    Bar,
    /// What was promised.
    Reserved,
}

/// The columns that there is room for, with their widths; the first takes what is left.
fn columns(width: u16) -> Vec<(Shown, u16)> {
    use Shown::{Bar, Reserved, Sorted};
    let task = (Sorted(Column::Task), 7);
    let actual = (Sorted(Column::Actual), 7);
    let (now, next) = ((Sorted(Column::Now), 5), (Sorted(Column::Next), 5));
    let (reserved, kept) = ((Reserved, 9), (Sorted(Column::Promise), 6));
    let mut columns = vec![(Sorted(Column::Name), 10)];
    columns.extend(match width {
        0..50 => vec![actual, now, kept],
        50..78 => vec![task, actual, now, next, kept],
        78..110 => vec![task, actual, (Bar, 12), now, next, reserved, kept],
        _ => vec![
            task,
            (Sorted(Column::User), 6),
            (Sorted(Column::Weight), 6),
            actual,
            (Sorted(Column::Desired), 7),
            (Sorted(Column::Predicted), 7),
            (Sorted(Column::Potential), 7),
            (Bar, (width / 9).clamp(12, 40)),
            now,
            next,
            reserved,
            kept,
        ],
    });
    columns
}

fn table(frame: &mut Frame, app: &mut App, theme: Theme, area: Rect) {
    app.fit(usize::from(area.height.saturating_sub(1)));
    let snapshot = app.model.snapshot();
    let columns = columns(area.width);
    let lines = app.view.lines(snapshot);
    let shown = lines.iter().enumerate().skip(app.offset).take(app.page);
    let users = &app.users;
    let rows = shown.map(|(place, line)| {
        let cells =
            columns.iter().map(|(column, width)| cell(line, *column, *width, snapshot.cpus, users, theme));
        let style = if place == app.cursor { Theme::title() } else { Style::new() };
        TableRow::new(cells).style(style)
    });
    let titles = columns.iter().map(|(column, width)| title(*column, *width, app));
    let header = TableRow::new(titles).style(Style::new().add_modifier(Modifier::BOLD));
    let widths = columns.iter().map(|(column, width)| match column {
        Shown::Sorted(Column::Name) => Constraint::Min(*width),
        _ => Constraint::Length(*width),
    });
    let rows: Vec<TableRow> = rows.collect();
    let is_empty = rows.is_empty() && !app.model.is_empty();
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
    if is_empty && area.height > 1 {
        let text = if app.view.filter.is_empty() {
            "nothing to show"
        } else {
            "nothing passes the filter (Esc clears it)"
        };
        frame.render_widget(Paragraph::new(text), Rect { y: area.y + 1, height: 1, ..area });
    }
}

fn is_left(column: Shown) -> bool {
    matches!(column, Shown::Bar | Shown::Reserved | Shown::Sorted(Column::Name | Column::Promise))
}

fn aligned(text: String, column: Shown, width: u16) -> String {
    if is_left(column) { text } else { format!("{text:>width$}", width = usize::from(width)) }
}

fn title(column: Shown, width: u16, app: &App) -> String {
    let text = match column {
        Shown::Bar if width < 26 => "#got -wanted".to_owned(),
        Shown::Bar => "#got -wanted >next |could".to_owned(),
        Shown::Reserved => "RESERVED".to_owned(),
        Shown::Sorted(column) => {
            let (_, title, _) = column.describe();
            let arrow = if app.view.descending { "v" } else { "^" };
            if app.view.sort == column {
                // The arrow is worth more than a title's last letter.
                let room = if column == Column::Name { title.len() } else { usize::from(width) - 1 };
                format!("{}{arrow}", &title[..title.len().min(room)])
            } else {
                title.to_owned()
            }
        }
    };
    aligned(text, column, width)
}

fn cell(
    line: &view::Line,
    column: Shown,
    width: u16,
    cpus: u32,
    users: &Users,
    theme: Theme,
) -> Cell<'static> {
    let (row, forecast) = (line.row, line.row.forecast());
    let text = match column {
        Shown::Bar => {
            let marks = bar(forecast, row.whole_ms_per_s(cpus), usize::from(width));
            return Cell::new(Line::from(spans(&marks, theme)));
        }
        Shown::Reserved => {
            row.promise().map_or_else(String::new, |promise| promise.reserved.replace(' ', ""))
        }
        Shown::Sorted(Column::Promise) => {
            let Some(promise) = row.promise() else { return Cell::new("") };
            return Cell::new(promise.state.name()).style(theme.keeping(promise.state));
        }
        Shown::Sorted(Column::Name) => name(line),
        Shown::Sorted(Column::Actual) => allocation(forecast.actual_ms_per_s),
        Shown::Sorted(Column::Desired) => allocation(forecast.desired_ms_per_s),
        Shown::Sorted(Column::Predicted) => allocation(forecast.predicted_ms_per_s),
        Shown::Sorted(Column::Potential) => allocation(forecast.potential_ms_per_s),
        Shown::Sorted(Column::Now) => slowdown(forecast, Slowdown::Now),
        Shown::Sorted(Column::Next) => slowdown(forecast, Slowdown::Next),
        Shown::Sorted(of_task @ (Column::Task | Column::User | Column::Weight)) => match row {
            Row::Domain(_) => String::new(),
            Row::Group(row) => match of_task {
                Column::Task => row.pid().map_or_else(String::new, |pid| pid.to_string()),
                Column::User => cut(&users.name(row.user), usize::from(width)),
                _ => String::new(),
            },
            Row::Task(row) => match of_task {
                Column::Task => row.task.tid.to_string(),
                Column::User => cut(&users.name(row.task.user), usize::from(width)),
                _ => allocation(row.task.weight),
            },
        },
    };
    Cell::new(aligned(text, column, width))
}

/// A name in that many columns; a `+` says that there is more of it.
fn cut(name: &str, width: usize) -> String {
    let name = clean(name);
    if name.width() <= width {
        return name;
    }
    let mut text = String::new();
    for character in name.chars() {
        if text.width() + character.width().unwrap_or(0) >= width {
            break;
        }
        text.push(character);
    }
    text + "+"
}

/// The name, indented, with a mark where something is below: `-` open, `+` folded.
fn name(line: &view::Line) -> String {
    let mark = match (line.folded, line.row) {
        (Some(true), _) => "+ ",
        (Some(false), _) => "- ",
        (None, Row::Domain(_)) => ". ",
        (None, Row::Task(_) | Row::Group(_)) => "",
    };
    let text = match line.row {
        Row::Group(row) => clean(&row.title()),
        row => clean(row.name()),
    };
    let suspended = matches!(line.row, Row::Domain(row) if row.domain.suspended);
    let suspended = if suspended { " (suspended)" } else { "" };
    format!("{}{mark}{text}{suspended}", " ".repeat(line.depth))
}

fn sort_menu(frame: &mut Frame, place: usize, area: Rect) {
    let mut lines =
        vec![Line::raw("Sort by (Enter takes it, a letter too; the same column again turns it round):")];
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = (place + 1).saturating_sub(height);
    for (at, column) in Column::ALL.iter().enumerate().skip(first).take(height) {
        let (letter, _, words) = column.describe();
        let style = if at == place { Theme::title() } else { Style::new() };
        lines.push(Line::styled(format!(" {letter}  {words} "), style));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// A line that is being typed, what the keys do, or a message where there is no other place for it.
fn last_line(app: &App, theme: Theme, has_message: bool) -> Line<'static> {
    if let Mode::Prompt(purpose, text) = &app.mode {
        let question = match purpose {
            Purpose::Search => "Search: ".to_owned(),
            Purpose::Filter => "Filter: ".to_owned(),
            Purpose::Reserve(Target::Process(pid, name)) => {
                format!("{} ({pid}), as 5ms/30ms (nothing takes it away): ", clean(name))
            }
            Purpose::Reserve(Target::Thread(tid, name)) => {
                format!("thread {} ({tid}), as 5ms/30ms (nothing takes it away): ", clean(name))
            }
            Purpose::Reserve(Target::Domain(name)) => {
                format!("{}, as 30% (nothing takes it away): ", clean(name))
            }
        };
        let mut spans = vec![Span::styled(question, Theme::title()), Span::raw(format!(" {text}_"))];
        if let Some(message) = app.message.as_ref().filter(|_| has_message) {
            spans.push(Span::styled(format!("  {message}"), theme.alarm()));
        }
        return Line::from(spans);
    }
    if let Mode::Kill(victim) = &app.mode {
        let question =
            format!("End {} ({})? t: SIGTERM  k: SIGKILL  other keys: no", clean(&victim.name), victim.pid);
        return Line::styled(question, theme.alarm());
    }
    if let Some(message) = app.message.as_ref().filter(|_| has_message) {
        return Line::styled(message.clone(), Style::new().add_modifier(Modifier::BOLD));
    }
    let spans = KEYS
        .iter()
        .flat_map(|(key, what)| [Span::raw(*key), Span::styled(format!("{what} "), Theme::title())]);
    Line::from(spans.collect::<Vec<_>>())
}

/// What the keys do, in the last line; fits in 80 columns.
const KEYS: [(&str, &str); 11] = [
    ("F1", "Help"),
    ("F3", "Find"),
    ("F4", "Filter"),
    ("F5", "Tree"),
    ("F6", "Sort"),
    ("H", "Threads"),
    ("G", "Kernel"),
    ("i", "Idle"),
    ("r", "Reserve"),
    ("F9", "End"),
    ("q", "Quit"),
];

/// What is said while the daemon's figures are all 0 because it has none.
pub const NO_FIGURES: &str =
    "No figures yet: stewardd has not read its counters twice in a short enough time.";

/// Fits on 80x24.
const HELP: &str = "\
Each row is a task, a process with several, or a domain (a cgroup); CPU time is
in ms per second.
Bar: # got (actual), - wanted and not got (desired), > will get (predicted),
     | could get (potential). A full bar is the machine, for a task one CPU.
NOW, NEXT: slowdown, desired over actual and over predicted; 1.0 is undisturbed,
     'stall': wants and gets nothing. KEPT: whether what is RESERVED is given.

 Up Down PgUp PgDn Home End   move            F1 ? h    this page
 F3 /   search (n: next)      F4 \\  filter (Esc clears)
 F5 t   tree or flat list     i     hide what is idle
 H      threads below their process or not    G  the kernel's threads
 F6 s   sort by ...           < >   column before, after    I  turn round
 N T U W name task user weight      A D P O  actual desired predicted potential
 S X    slowdown now, next    K     broken promises first
 Space Enter - + Left Right   fold and unfold      *  all
 r      change the reservation: 5ms/30ms for a process (its first thread; with
        ' all' behind it all threads) or a thread, 30% for a domain
 F9 x   end the process: asks first           q F10 Ctrl-C quit  Ctrl-Z shell

Any key goes back.";

#[cfg(test)]
mod tests;
