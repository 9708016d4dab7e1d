//! What keys do.

use super::*;
use crate::top::model::testing;

fn app() -> App {
    let mut app = App::new(Looks { colour: false, unicode: true });
    app.fit(10);
    (0..3).for_each(|second| app.take(testing::reading(second)));
    app
}

fn press(app: &mut App, code: KeyCode) -> Option<Action> {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_text(app: &mut App, text: &str) -> Option<Action> {
    text.chars().for_each(|letter| drop(press(app, KeyCode::Char(letter))));
    press(app, KeyCode::Enter)
}

fn selected(app: &App) -> String {
    let lines = app.view.lines(app.model.snapshot());
    lines.get(app.cursor).map(|line| line.row.name().to_owned()).unwrap_or_default()
}

/// Selects the row with that name.
fn select(app: &mut App, name: &str) {
    press(app, KeyCode::Char('/'));
    type_text(app, name);
    assert_eq!(selected(app), name);
}

#[test]
fn the_selected_row_stays_selected_when_rows_move() {
    let mut app = app();
    select(&mut app, "nginx");
    press(&mut app, KeyCode::Char('N'));
    assert_eq!(selected(&app), "nginx");
    let mut gone = testing::reading(4);
    gone.forecasts.tasks.retain(|task| task.name != "nginx");
    app.take(gone);
    assert!(!selected(&app).is_empty());
    let mut empty = testing::reading(5);
    (empty.forecasts.tasks, empty.forecasts.domains) = (Vec::new(), Vec::new());
    app.take(empty);
    for code in [KeyCode::Down, KeyCode::End, KeyCode::Char(' '), KeyCode::Char('r'), KeyCode::Char('*')] {
        assert_eq!(press(&mut app, code), None);
    }
}

#[test]
fn the_cursor_stays_on_the_screen() {
    let mut app = app();
    app.fit(4);
    press(&mut app, KeyCode::End);
    assert_eq!((app.cursor, app.offset), (13, 10));
    press(&mut app, KeyCode::PageUp);
    assert_eq!((app.cursor, app.offset), (9, 9));
    app.fit(0);
    press(&mut app, KeyCode::Home);
    press(&mut app, KeyCode::Up);
    assert_eq!((app.cursor, app.offset), (0, 0));
}

#[test]
fn a_search_moves_while_it_is_typed_and_says_when_nothing_is_found() {
    let mut app = app();
    press(&mut app, KeyCode::F(3));
    press(&mut app, KeyCode::Char('c'));
    press(&mut app, KeyCode::Char('c'));
    assert_eq!(selected(&app), "cc1");
    let first = app.cursor;
    press(&mut app, KeyCode::F(3));
    assert_eq!((selected(&app).as_str(), app.cursor != first), ("cc1", true));
    press(&mut app, KeyCode::Char('x'));
    assert_eq!(app.message.as_deref(), Some("no row has \"ccx\" in its name"));
    press(&mut app, KeyCode::Backspace);
    assert_eq!(app.message, None);
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.mode, Mode::Table);
}

#[test]
fn a_filter_holds_until_escape() {
    let mut app = app();
    press(&mut app, KeyCode::Char('\\'));
    type_text(&mut app, "vim");
    assert_eq!(app.view.lines(app.model.snapshot()).len(), 4);
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.view.lines(app.model.snapshot()).len(), 14);
    press(&mut app, KeyCode::F(4));
    press(&mut app, KeyCode::Char('q'));
    assert_eq!(app.view.filter, "q", "letters are typed and do nothing else");
    app.key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!(app.view.filter, "");
}

#[test]
fn a_column_is_chosen_by_menu_by_letter_or_by_its_neighbour() {
    let mut app = app();
    press(&mut app, KeyCode::F(6));
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.view.sort, app.view.descending), (Column::Desired, true));
    press(&mut app, KeyCode::Char('K'));
    assert_eq!((app.view.sort, app.view.descending), (Column::Promise, false));
    press(&mut app, KeyCode::Char('>'));
    assert_eq!(app.view.sort, Column::Name);
    press(&mut app, KeyCode::Char('<'));
    press(&mut app, KeyCode::Char('I'));
    assert_eq!((app.view.sort, app.view.descending), (Column::Promise, true));
    press(&mut app, KeyCode::Char('s'));
    press(&mut app, KeyCode::Char('T'));
    assert_eq!((app.view.sort, app.mode), (Column::Task, Mode::Table));
}

#[test]
fn a_task_folds_the_domain_that_it_is_in() {
    let mut app = app();
    select(&mut app, "make");
    press(&mut app, KeyCode::Char('-'));
    assert_eq!(selected(&app), "batch");
    assert_eq!(app.view.lines(app.model.snapshot()).len(), 11);
    press(&mut app, KeyCode::Char(' '));
    assert_eq!(app.view.lines(app.model.snapshot()).len(), 14);
    press(&mut app, KeyCode::Char('*'));
    assert_eq!(app.view.lines(app.model.snapshot()).len(), 5, "the root and the four below it");
}

#[test]
fn a_reservation_is_typed_as_it_is_written_elsewhere() {
    let mut app = app();
    select(&mut app, "mplayer");
    press(&mut app, KeyCode::Char('r'));
    let Some(Action::Change(Change::Set(set))) = type_text(&mut app, "6ms/30ms") else { panic!("a change") };
    assert_eq!((set.pid, set.cpu.budget_ns, set.cpu.period_ns), (4321, 6_000_000, 30_000_000));
    assert_eq!((set.inherit, set.revocable), (Some(false), Some(true)), "as it was");
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(press(&mut app, KeyCode::Enter), Some(Action::Change(Change::Release(4321))));
    select(&mut app, "web");
    press(&mut app, KeyCode::Char('r'));
    let Some(Action::Change(Change::Domain(set))) = type_text(&mut app, "40%") else { panic!("a change") };
    assert_eq!((set.domain.as_str(), set.settings.cpu), ("web", Some(0.4)));
    press(&mut app, KeyCode::Char('r'));
    let Some(Action::Change(Change::Domain(set))) = type_text(&mut app, "") else { panic!("a change") };
    assert_eq!((set.settings.cpu, set.settings.reset), (None, vec!["cpu".to_owned()]));
}

#[test]
fn what_is_no_reservation_is_said_and_can_be_corrected() {
    let mut app = app();
    select(&mut app, "mplayer");
    for (typed, hint) in [("30%", "5ms/30ms"), ("40ms/30ms", "30ms"), ("soon", "soon"), ("-5ms/30ms", "-5ms")]
    {
        press(&mut app, KeyCode::Char('r'));
        assert_eq!(type_text(&mut app, typed), None, "{typed}");
        assert!(app.message.as_deref().is_some_and(|message| message.contains(hint)), "{:?}", app.message);
        assert!(matches!(&app.mode, Mode::Prompt(Purpose::Reserve(_), text) if text == typed));
        press(&mut app, KeyCode::Esc);
    }
    select(&mut app, "web");
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(type_text(&mut app, "5ms/30ms"), None);
    assert!(app.message.as_deref().is_some_and(|message| message.contains("write it as 30%")));
}

#[test]
fn an_answer_is_shown_until_the_next_key_and_cannot_harm_the_terminal() {
    let mut app = app();
    app.answer("no room for \u{1b}[2Jx");
    assert_eq!(app.message.as_deref(), Some("no room for \\u{1b}[2Jx"));
    press(&mut app, KeyCode::Down);
    assert_eq!(app.message, None);
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Action::Quit));
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL)), Some(Action::Suspend));
}

fn with_threads() -> App {
    let mut app = App::new(Looks { colour: false, unicode: true });
    app.fit(30);
    app.take(testing::reading_with_threads());
    app
}

#[test]
fn a_reservation_is_for_the_row_that_is_selected() {
    let mut app = with_threads();
    let set = |app: &mut App, text: &str| {
        press(app, KeyCode::Char('r'));
        match type_text(app, text) {
            Some(Action::Change(Change::Set(set))) => (set.pid, set.inherit),
            other => panic!("a change, not {other:?}"),
        }
    };
    select(&mut app, "mplayer");
    assert_eq!(set(&mut app, "6ms/30ms"), (4321, Some(false)), "the process, folded");
    assert_eq!(set(&mut app, "6ms/30ms all"), (4321, Some(true)));
    press(&mut app, KeyCode::Char(' '));
    select(&mut app, "decoder");
    assert_eq!(
        set(&mut app, "2ms/30ms"),
        (4322, Some(false)),
        "the thread, and not the first one of its process"
    );
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(press(&mut app, KeyCode::Enter), Some(Action::Change(Change::Release(4322))));
    select(&mut app, "kernel");
    assert_eq!(press(&mut app, KeyCode::Char('r')), None);
    assert!(app.message.as_deref().is_some_and(|message| message.contains("G shows them")));
}

#[test]
fn threads_are_shown_and_folded_again_and_the_cursor_stays_on_something_shown() {
    let mut app = with_threads();
    let count = |app: &App| app.view.lines(app.model.snapshot()).len();
    let folded = count(&app);
    select(&mut app, "mplayer");
    press(&mut app, KeyCode::Right);
    assert_eq!((count(&app), selected(&app).as_str()), (folded + 3, "mplayer"));
    select(&mut app, "decoder");
    press(&mut app, KeyCode::Left);
    assert_eq!((count(&app), selected(&app).as_str()), (folded, "mplayer"));
    press(&mut app, KeyCode::Char('G'));
    assert_eq!(count(&app), folded + 2);
    select(&mut app, "kworker/0:1");
    press(&mut app, KeyCode::Char('G'));
    assert_eq!(count(&app), folded);
    press(&mut app, KeyCode::Char('H'));
    assert_eq!(count(&app), folded + 2, "three threads in place of their process");
}

#[test]
fn a_process_is_ended_only_after_a_second_key() {
    let mut app = with_threads();
    let film = Victim { tid: 4321, pid: 4321, name: "mplayer".into() };
    select(&mut app, "mplayer");
    for (asks, answer, outcome) in [
        (KeyCode::F(9), KeyCode::Char('t'), Some(Action::Kill(film.clone(), Signal::TERM))),
        (KeyCode::Char('x'), KeyCode::Char('k'), Some(Action::Kill(film, Signal::KILL))),
        (KeyCode::Char('x'), KeyCode::Enter, None),
        (KeyCode::Char('x'), KeyCode::Char('x'), None),
    ] {
        assert_eq!(press(&mut app, asks), None);
        assert_eq!(press(&mut app, answer), outcome);
        assert_eq!(app.mode, Mode::Table);
    }
    assert_eq!(app.message.as_deref(), Some("nothing was ended"));
    press(&mut app, KeyCode::Char(' '));
    select(&mut app, "decoder");
    press(&mut app, KeyCode::Char('x'));
    let decoder = Victim { tid: 4322, pid: 4321, name: "decoder".into() };
    assert_eq!(press(&mut app, KeyCode::Char('t')), Some(Action::Kill(decoder, Signal::TERM)));
    for (name, why) in [("kernel", "kernel cannot be ended"), ("batch", "steward domain remove batch --kill")]
    {
        select(&mut app, name);
        assert_eq!(press(&mut app, KeyCode::Char('x')), None);
        assert!(app.message.as_deref().is_some_and(|message| message.contains(why)), "{:?}", app.message);
        assert_eq!(app.mode, Mode::Table);
    }
}
