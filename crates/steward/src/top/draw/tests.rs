//! What is on the screen, recorded, at the usual sizes; and that no size and no name breaks it.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::*;
use crate::top::app::Looks;
use crate::top::model::testing;

fn app(colour: bool) -> App {
    let mut app = App::new(Looks { colour, unicode: true });
    app.fit(20);
    (0..40).for_each(|second| app.take(testing::reading(second)));
    app
}

fn press(app: &mut App, codes: &[KeyCode]) {
    codes.iter().for_each(|code| drop(app.key(KeyEvent::new(*code, KeyModifiers::NONE))));
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

fn screen(app: &mut App, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal.draw(|frame| draw(frame, app)).expect("it draws");
    terminal
}

fn text(app: &mut App, width: u16, height: u16) -> String {
    screen(app, width, height).backend().to_string()
}

/// The sample, on the film that lost its reservation.
fn on_the_film() -> App {
    let mut app = app(true);
    press(&mut app, &letters("/mplayer"));
    press(&mut app, &[KeyCode::Enter]);
    app
}

#[test]
fn the_screen_of_80_by_24_is_as_recorded() {
    insta::assert_snapshot!(text(&mut on_the_film(), 80, 24));
}

#[test]
fn the_screen_of_120_by_40_is_as_recorded() {
    insta::assert_snapshot!(text(&mut on_the_film(), 120, 40));
}

#[test]
fn the_screen_of_40_by_10_is_as_recorded() {
    insta::assert_snapshot!(text(&mut on_the_film(), 40, 10));
}

#[test]
fn the_help_and_the_menu_fit_on_80_by_24() {
    let mut app = app(true);
    press(&mut app, &[KeyCode::F(1)]);
    let help = text(&mut app, 80, 24);
    assert!(
        help.contains("Any key goes back.") && help.lines().all(|line| !line.contains("...\"")),
        "{help}"
    );
    assert!(HELP.lines().all(|line| line.chars().count() <= 80), "every line fits");
    press(&mut app, &[KeyCode::Esc, KeyCode::F(6)]);
    insta::assert_snapshot!(text(&mut app, 80, 24));
}

#[test]
fn a_reservation_that_is_typed_is_seen_with_what_is_wrong() {
    let mut app = on_the_film();
    press(&mut app, &letters("r30%"));
    assert!(text(&mut app, 80, 24).contains("mplayer (4321), as 5ms/30ms (nothing takes it away):  30%_"));
    press(&mut app, &[KeyCode::Enter]);
    assert!(text(&mut app, 80, 24).contains("write it as 5ms/30ms"));
}

#[test]
fn a_daemon_that_is_away_is_said_and_the_last_reading_stays() {
    let mut app = App::new(Looks { colour: true, unicode: true });
    assert!(text(&mut app, 80, 24).contains("waiting for stewardd"));
    app.lost("stewardd is away, trying again: nobody listens".into());
    assert!(text(&mut app, 80, 24).contains("stewardd is away, trying again: nobody listens"));
    app.take(testing::reading(0));
    app.lost("stewardd is away, trying again: nobody listens".into());
    let away = text(&mut app, 80, 24);
    assert!(away.contains("nobody listens") && away.contains("mplayer"), "{away}");
    app.take(testing::reading(1));
    app.connection = Connection::Silent(7);
    assert!(text(&mut app, 80, 24).contains("stewardd has not answered for 7 s"));
}

#[test]
fn a_daemon_without_figures_is_not_taken_for_an_idle_machine() {
    let (mut app, mut reading) = (app(true), testing::reading(50));
    reading.forecasts.window_ns = 0;
    app.take(reading);
    assert!(text(&mut app, 80, 24).contains("No figures yet"));
}

#[test]
fn no_size_and_no_mode_breaks_the_screen() {
    for (width, height) in
        [(1, 1), (2, 3), (10, 5), (20, 8), (40, 10), (49, 13), (79, 14), (110, 21), (400, 100)]
    {
        let mut app = app(true);
        for keys in ["", "?", " s", "j", " rx", "\u{1b}\\zzz"] {
            for key in keys.chars() {
                let code = if key == '\u{1b}' { KeyCode::Esc } else { KeyCode::Char(key) };
                press(&mut app, &[code]);
                let shown = text(&mut app, width, height);
                assert!(!shown.chars().any(|character| character.is_control() && character != '\n'));
            }
        }
    }
}

#[test]
fn without_colour_no_cell_has_one() {
    let mut app = app(false);
    let terminal = screen(&mut app, 120, 40);
    assert!(
        terminal
            .backend()
            .buffer()
            .content()
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
    );
    let mut coloured = on_the_film();
    let terminal = screen(&mut coloured, 120, 40);
    assert!(terminal.backend().buffer().content().iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn wide_names_keep_the_columns_in_place() {
    // Where the figures begin behind the name, and what stands from there on.
    let figures = |name: &str| {
        let mut app = App::new(Looks { colour: false, unicode: false });
        let mut reading = testing::reading(0);
        reading.forecasts.tasks[4].name = name.into();
        app.take(reading);
        let shown = screen(&mut app, 80, 24);
        let buffer = shown.backend().buffer();
        let first = name.chars().next().expect("a name").to_string();
        let row = (0..24).find(|y| (0..80).any(|x| buffer[(x, *y)].symbol() == first)).expect("it is shown");
        let cells: Vec<&str> = (24..80).map(|x| buffer[(x, row)].symbol()).collect();
        let begin = cells.windows(4).position(|four| four.concat() == "4321").expect("its number");
        (begin, cells[begin..].concat())
    };
    let narrow = figures(&"@".repeat(36));
    for name in ["日本語日本語日本語日本語日本語日本語", "日", "@日本e\u{301}"] {
        assert_eq!(figures(name), narrow, "{name}");
    }
}

/// The sample with threads, on the row with this name.
fn with_threads(name: &str) -> App {
    let mut app = App::new(Looks { colour: true, unicode: true });
    app.users = crate::users::Users::of("root:x:0:0:\nanna-with-a-long-name:x:1000:1000:\n");
    app.take(testing::reading_with_threads());
    press(&mut app, &letters(&format!("/{name}")));
    press(&mut app, &[KeyCode::Enter]);
    app
}

#[test]
fn threads_are_folded_into_processes_and_users_have_names() {
    let mut app = with_threads("mplayer");
    insta::assert_snapshot!(text(&mut app, 120, 24));
    press(&mut app, &letters(" G"));
    insta::assert_snapshot!("threads_unfolded", text(&mut app, 80, 30));
}

#[test]
fn nothing_of_the_header_and_the_keys_is_cut_at_80_columns() {
    let width = |text: &str| text.trim_end().width();
    assert!(
        KEYS.iter().map(|(key, what)| key.width() + what.width() + 1).sum::<usize>() <= 81,
        "the last blank may be cut"
    );
    // A large machine without sched_ext, and a task with large figures.
    let mut reading = testing::reading(0);
    let forecasts = &mut reading.forecasts;
    (forecasts.cpus, forecasts.hidden) = (256, 4711);
    (forecasts.model, forecasts.source) = ("proportional-share".into(), "procfs".into());
    forecasts.machine.actual_ms_per_s = 255_000.0;
    forecasts.machine.desired_ms_per_s = 1_234_567.0;
    let film = &mut forecasts.tasks[4].forecast;
    (film.actual_ms_per_s, film.desired_ms_per_s) = (9_000.0, 9_999.0);
    (film.predicted_ms_per_s, film.potential_ms_per_s) = (9_000.0, 9_999.0);
    reading.status.cpu.mechanism.kind = Some(libsteward::api::MechanismKind::Deadline);
    let mut app = App::new(Looks { colour: false, unicode: true });
    app.take(reading);
    press(&mut app, &letters("/mplayer"));
    press(&mut app, &[KeyCode::Enter]);
    for columns in [40, 60, 80, 100, 120] {
        let theme = Theme { colour: false };
        for line in header_lines(&app, theme, columns) {
            let line: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
            assert!(columns < 80 || width(&line) <= usize::from(columns), "{columns}: {line:?}");
        }
        for line in detail::lines(&app, theme, usize::from(columns), 6).iter().skip(1).take(1) {
            let line: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
            assert!(columns < 60 || width(&line) <= usize::from(columns), "{columns}: {line:?}");
        }
    }
    let shown = text(&mut app, 80, 24);
    assert!(shown.contains("256 CPUs, 8 tasks (4711 hidden)  SCHED_DEADLINE"), "{shown}");
}

#[test]
fn ending_a_process_is_asked_about() {
    let mut app = with_threads("mplayer");
    press(&mut app, &[KeyCode::F(9)]);
    let question = "End mplayer (4321)? t: SIGTERM  k: SIGKILL  other keys: no";
    assert!(text(&mut app, 80, 24).contains(question));
    assert!(question.len() <= 80);
}

#[test]
fn a_machine_without_domains_shows_its_tasks() {
    let mut reading = testing::reading(0);
    let root = reading.forecasts.domains.remove(0);
    reading.forecasts.domains = vec![root];
    reading.forecasts.tasks.iter_mut().for_each(|task| task.domain = "/".into());
    reading.domains = Default::default();
    reading.no_domains = Some("there are no domains here: no cgroup v2".into());
    let mut app = App::new(Looks { colour: false, unicode: true });
    app.take(reading);
    let shown = text(&mut app, 80, 24);
    assert!(
        shown.contains("No domains here.") && shown.contains("mplayer") && shown.contains("nginx"),
        "{shown}"
    );
}
