//! `steward top` and `steward report` as people use them, against a daemon in memory: on a terminal, in a pipe,
//! recording.

#[path = "../../libsteward/tests/daemon/mod.rs"]
mod daemon;
#[path = "../src/top/sample.rs"]
mod sample;
#[path = "top/stand_in.rs"]
mod stand_in;
#[path = "top/tmux.rs"]
mod tmux;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use stand_in::StandIn;
use tmux::Terminal;

const STEWARD: &str = env!("CARGO_BIN_EXE_steward");

fn steward(socket: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(STEWARD);
    command.arg("--socket").arg(socket).args(arguments).stdin(Stdio::null()).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A directory with a daemon in it.
fn machine() -> (tempfile::TempDir, StandIn) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let daemon = StandIn::start(&directory.path().join("socket"));
    (directory, daemon)
}

fn on_a_terminal(directory: &Path, daemon: &StandIn, environment: &str, arguments: &str) -> Terminal {
    let socket = daemon.socket.display();
    let command = format!("{environment} {STEWARD} --socket {socket} top --interval 100ms {arguments}");
    Terminal::start(directory, 80, 24, &command)
}

/// Puts the cursor on the next row with this in its name.
fn search(terminal: &Terminal, text: &str) {
    terminal.press("/", "Search:");
    terminal.type_in(text);
    terminal.press("Enter", "F1Help");
}

#[test]
fn the_screen_shows_the_tree_and_obeys_keys() {
    let (directory, daemon) = machine();
    let terminal = on_a_terminal(directory.path(), &daemon, "", "");
    let screen = terminal.until_shown("mplayer");
    for part in ["2 CPUs, 8 tasks (12 hidden)", "BROKEN", "5ms/30ms", "ev\\u{1b}[31mil", "F1Help"] {
        assert!(screen.contains(part), "{part:?} is not in:\n{screen}");
    }
    search(&terminal, "mplayer");
    terminal.until_shown("BROKEN: mplayer was revoked: CPU 0 had 95 %");
    terminal.press("F4", "Filter:");
    terminal.type_in("nginx");
    terminal.until("the filter", |screen| screen.contains("nginx") && !screen.contains("mplayer"));
    terminal.press("Escape", "mplayer");
    terminal.press_until("-", "the fold", |screen| screen.contains("+ web") && !screen.contains("nginx "));
    terminal.press("Space", "nginx ");
    terminal.press_until("F5", "the flat list", |screen| !screen.contains("user.slice "));
    terminal.press("N", "NAME^");
    terminal.press("F6", "Sort by");
    terminal.press("Escape", "NAME^");
    terminal.press("F1", "Any key goes back.");
    terminal.press("x", "cron");
    terminal.press("q", "ended with 0");
}

#[test]
fn the_screen_fits_itself_to_the_terminal() {
    let (directory, daemon) = machine();
    let terminal = on_a_terminal(directory.path(), &daemon, "NO_COLOR=1", "");
    let screen = terminal.until_shown("mplayer");
    assert!(!screen.contains("PREDICT"));
    terminal.resize(120, 40);
    terminal.until("a wide screen", |screen| screen.contains("PREDICT") && screen.contains("cron"));
    terminal.resize(40, 10);
    let screen =
        terminal.until("a small screen", |screen| !screen.contains("RESERVED") && screen.contains("NAME"));
    assert!(screen.lines().count() <= 10, "{screen}");
    terminal.resize(20, 3);
    terminal.until("a tiny screen", |screen| screen.lines().count() <= 3 && screen.contains("steward top"));
    terminal.resize(80, 24);
    terminal.until_shown("RESERVED");
    let looks = terminal.screen(true);
    assert!(!(31..38).any(|colour| looks.contains(&format!("\u{1b}[{colour}m"))), "NO_COLOR:\n{looks}");
    terminal.press("C-c", "ended with 0");
}

#[test]
fn a_reservation_is_changed_and_a_refusal_says_why() {
    let (directory, daemon) = machine();
    let terminal = on_a_terminal(directory.path(), &daemon, "", "");
    terminal.until_shown("mplayer");
    search(&terminal, "web");
    terminal.press("r", "web, as 30%");
    terminal.type_in("90%");
    terminal.press("Enter", "Refused: no room: 0.9 was asked, 0.5 is left");
    terminal.press("r", "web, as 30%");
    terminal.type_in("40%");
    terminal.press("Enter", "Domain web has 40 % of the machine reserved");
    search(&terminal, "mplayer");
    terminal.press("r", "(4321), as 5ms/30ms");
    terminal.type_in("6ms/30ms");
    terminal.press("Enter", "Process 4321 has 6ms/30ms: admitted.");
    let methods: Vec<String> = daemon.state().changes.iter().map(|(method, _)| method.clone()).collect();
    assert_eq!(methods, ["io.steward.SetDomain", "io.steward.SetDomain", "io.steward.Set"]);
    assert_eq!(daemon.state().changes[2].1["cpu"]["budget_ns"], 6_000_000);
}

#[test]
fn a_process_that_has_gone_is_not_ended_in_place_of_another() {
    let (directory, daemon) = machine();
    let terminal = on_a_terminal(directory.path(), &daemon, "", "");
    terminal.until_shown("mplayer");
    search(&terminal, "mplayer");
    terminal.press("F9", "End mplayer (4321)?");
    terminal.press("n", "nothing was ended");
    terminal.press("x", "End mplayer (4321)?");
    // Process 4321 of this machine, if there is one, is no film of the sample's.
    terminal.press_until("t", "that nothing was done", |screen| {
        screen.contains("has ended already") || screen.contains("is another one now")
    });
}

#[test]
fn a_daemon_without_domains_is_asked_for_tasks() {
    let (_directory, daemon) = machine();
    daemon.state().no_domains = true;
    let output = steward(&daemon.socket, &["top", "--once", "--interval", "100ms"]);
    let shown = text(&output.stdout);
    assert!(output.status.success() && shown.contains("mplayer"), "{shown}\n{}", text(&output.stderr));
    assert!(shown.starts_with("Tasks only, since there are no domains here: no cgroup v2.\n"), "{shown}");
}

#[test]
fn a_daemon_that_goes_away_is_said_and_found_again() {
    let (directory, daemon) = machine();
    let terminal = on_a_terminal(directory.path(), &daemon, "", "");
    terminal.until_shown("mplayer");
    let socket = daemon.socket.clone();
    drop(daemon);
    let screen = terminal.until_shown("stewardd is away, trying again");
    assert!(screen.contains("mplayer"), "the last reading stays:\n{screen}");
    let daemon = StandIn::start(&socket);
    terminal.until("the daemon again", |screen| screen.contains("Promises: ") && !screen.contains("away"));
    assert!(daemon.state().second > 0);
    terminal.press("F10", "ended with 0");
}

#[test]
fn a_terminal_is_given_back_to_the_shell_for_a_while() {
    let (directory, daemon) = machine();
    let socket = daemon.socket.display();
    // An interactive shell, which has jobs.
    let terminal = Terminal::start(directory.path(), 80, 24, "PS1='shell> ' ENV= sh -i");
    terminal.until_shown("shell>");
    terminal.type_in(&format!("{STEWARD} --socket {socket} top"));
    terminal.press("Enter", "mplayer");
    terminal
        .press_until("C-z", "the shell", |screen| screen.contains("Stopped") && !screen.contains("mplayer"));
    terminal.type_in("fg");
    terminal.press("Enter", "mplayer");
    terminal.press_until("q", "the shell again", |screen| {
        screen.contains("shell>") && !screen.contains("mplayer")
    });
}

#[test]
fn in_a_pipe_it_prints_one_look_that_can_do_no_harm() {
    let (_directory, daemon) = machine();
    for arguments in [&["top"][..], &["top", "--once", "--interval", "100ms"]] {
        let output = steward(&daemon.socket, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        for part in [
            "\nPromises: 2 kept, 2 broken",
            "\n      mplayer ",
            "2ms/40ms kept",
            "cpu.max of web holds it back.",
        ] {
            assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
        }
        assert!(!shown.chars().any(|character| character.is_control() && character != '\n'));
    }
}

#[test]
fn json_is_one_object_with_its_schema() {
    let (_directory, daemon) = machine();
    let arguments = ["top", "--json", "--interval", "100ms", "--domain", "batch"];
    let output = steward(&daemon.socket, &arguments);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&value["schema"], &value["promises"]["broken"]), (&1.into(), &2.into()));
    assert_eq!(value["domains"][4]["promise"]["state"], "broken");
    assert_eq!(value["tasks"][4]["forecast"]["desired_ms_per_s"], 180.0);
    assert_eq!(daemon.state().asked, serde_json::json!({ "domain": "batch" }));
}

#[test]
fn a_recording_becomes_a_report() {
    let (directory, daemon) = machine();
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let (recording, page) = (path("load.jsonl"), path("load.html"));
    let arguments = ["top", "--record", &recording, "--for", "1s", "--interval", "100ms"];
    let output = steward(&daemon.socket, &arguments);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let output = steward(&daemon.socket, &["report", &recording]);
    assert_eq!(text(&output.stdout), format!("Wrote {page}.\n"), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(&page).expect("it is written");
    assert!(written.starts_with("<!doctype html>") && written.contains("<td>mplayer (4321)</td>"));
    let output = steward(&daemon.socket, &["report", &recording, "-o", "-"]);
    assert_eq!(text(&output.stdout), written);
    let output = steward(&daemon.socket, &["report", &recording, "-o", &recording]);
    assert!(text(&output.stderr).contains("is the recording itself"));
    let output = steward(&daemon.socket, &["report", &page]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with(&format!("steward: {page}:1: ")), "{}", text(&output.stderr));
    let output = steward(&daemon.socket, &["report", &path("none.jsonl")]);
    assert!(text(&output.stderr).contains("cannot read the recording"));
}

#[test]
fn what_cannot_be_done_is_said_with_a_code() {
    let (directory, daemon) = machine();
    let socket = daemon.socket.clone();
    let fault = |arguments: &[&str]| {
        let output = steward(&socket, arguments);
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = fault(&["top", "--record", "/nonexistent/file", "--for", "1s"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("cannot write the recording /nonexistent/file"), "{message}");
    for wrong in [
        &["top", "--once", "--json"][..],
        &["top", "--all", "--json"],
        &["top", "--interval", "1ms"],
        &["top", "--for", "1s"],
        &["top", "--pid", "0"],
        &["top", "--pid", "7", "--domain", "batch"],
        &["report"],
    ] {
        assert_eq!(fault(wrong).0, Some(2), "{wrong:?}");
    }
    drop(daemon);
    let recording = directory.path().join("load.jsonl");
    let record = ["top", "--record", recording.to_str().expect("UTF-8"), "--for", "1s"];
    for arguments in [&["top", "--once"][..], &["top", "--json"], &record] {
        let (code, message) = fault(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(message.contains("cannot reach stewardd"), "{message}");
    }
}
