//! `steward top`: what every task and domain gets, wants, will get and could get, and which promises are kept.
//!
//! [`source`] asks the daemon; [`model`] makes one [`model::Snapshot`] of its answers, with [`cpu::promise`] and
//! [`history`]; all that is shown comes from it: the screen ([`app`], [`view`], [`draw`], [`detail`], [`terminal`]),
//! one look ([`print`]), JSON, and recordings ([`record`]). Only [`source`], [`record`] and [`terminal`] do I/O.

pub mod app;
pub mod cpu;
pub mod detail;
pub mod disk;
pub mod draw;
pub mod groups;
pub mod history;
pub mod memory;
pub mod model;
pub mod print;
pub mod record;
pub mod row;
#[cfg(test)]
pub mod sample;
pub mod source;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod view;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use libsteward::api;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::parse_time;
use crate::output;
use crate::users::Users;
use crate::who::{self, Newest, Who};
use model::Model;
use record::Recorder;
use source::{News, Question, Source};

/// How often `--once` and `--json` look when the daemon has no figures.
const LOOKS_MAX: u32 = 5;

/// Watch what programs get, want and will get, and which promises are kept
///
/// A tree of domains and tasks with four allocations each, in milliseconds of CPU time per second: actual (got in the
/// last second), desired (wanted), predicted (will get in the next) and potential (could get at most); their slowdowns;
/// and reservations with the reason where one is broken. F1 shows the keys, q quits.
///
/// Where standard input or output is no terminal it prints one look, as with --once. It shows what you may see: your
/// own tasks and what the rules say of others'. Colours are off with NO_COLOR.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward top                              the screen; r on a row changes its reservation\n  \
        steward top --once | head -20            who is busy, as text\n  \
        steward top --domain batch --json        one domain, for a program\n  \
        steward top --record load.jsonl --for 10min && steward report load.jsonl")]
pub struct TopArguments {
    /// Print one look as a table, without what is idle and has no promise, and end.
    #[arg(long, conflicts_with_all = ["json", "record"])]
    pub once: bool,
    /// The same with what is idle, and with every thread.
    #[arg(long, conflicts_with_all = ["json", "record"])]
    pub all: bool,
    /// Print one look as one JSON object, with its "schema", and end.
    #[arg(long, conflicts_with = "record")]
    pub json: bool,
    /// Time between two looks, 100ms to 60s.
    #[arg(long = "interval", value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,
    /// Write every look into this file, a JSON object a line, for steward report. Tasks without a promise are left out.
    /// Without a terminal nothing else is done, until --for is over or Ctrl-C.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record for this long, and end.
    #[arg(long = "for", value_name = "TIME", requires = "record", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Only this domain and what is below it.
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// Only this process, by number or name.
    #[arg(long, value_name = "PROCESS", conflicts_with = "domain", value_parser = who::parse)]
    pub pid: Option<Who>,
    #[command(flatten)]
    pub newest: Newest,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_time(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    if allowed.contains(&interval) { Ok(interval) } else { Err("it must be 100ms to 60s".to_owned()) }
}

/// `steward top`.
///
/// # Errors
/// When the daemon does not answer (the screen waits for it instead), or the recording cannot be written.
pub fn top(socket: &Path, arguments: &TopArguments) -> anyhow::Result<()> {
    let pid =
        arguments.pid.as_ref().map(|process| who::resolve_process(process, arguments.newest)).transpose()?;
    let forecasts = api::ListForecasts { domain: arguments.domain.clone(), pid, domains_only: None };
    let with_records = arguments.record.is_some();
    let question = Question { socket: socket.to_owned(), forecasts, with_records };
    let interval = arguments.interval;
    let recorder = arguments.record.as_deref().map(Recorder::create).transpose()?;
    let end = arguments.duration.map(|duration| Instant::now() + duration);
    let on_a_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let has_screen = on_a_terminal && !arguments.once && !arguments.all && !arguments.json;
    match recorder {
        recorder if has_screen => terminal::run(&question, interval, recorder, end),
        Some(recorder) => record(&question, interval, recorder, end),
        None => {
            let model = look(&question, interval)?;
            let print_text =
                |model: &Model| output::print(&print::text(model, arguments.all, &Users::read()));
            if arguments.json {
                output::print(&(record::json(model.snapshot())? + "\n"))
            } else {
                print_text(&model)
            }
        }
    }
}

/// One look: two readings, because the first cannot tell whether deadlines were missed lately, and knows nothing of
/// tasks that have just started. Some more where the daemon has no figures yet.
fn look(question: &Question, interval: Duration) -> anyhow::Result<Model> {
    let mut source = Source::connect(question, libsteward::START_TIMEOUT)?;
    let mut model = Model::default();
    model.take(source.read()?);
    for _ in 1..LOOKS_MAX {
        std::thread::sleep(interval);
        model.take(source.read()?);
        if model.snapshot().is_measured() {
            break;
        }
    }
    Ok(model)
}

/// Records without a screen, and says on standard error when the daemon goes and comes.
fn record(
    question: &Question,
    interval: Duration,
    mut recorder: Recorder,
    end: Option<Instant>,
) -> anyhow::Result<()> {
    let (send, receive) = channel();
    // Connected here, so that a daemon that is not there is an error and not an empty recording.
    drop(Source::connect(question, libsteward::START_TIMEOUT)?);
    let (signals, news, question) = (send.clone(), send, question.clone());
    let mut wanted = signal_hook::iterator::Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    std::thread::spawn(move || {
        if wanted.forever().next().is_some() {
            // Nobody receives when the time was over just now.
            let _ = signals.send(None);
        }
    });
    std::thread::spawn(move || source::watch(&question, interval, &news, Some));
    let (mut model, mut is_away) = (Model::default(), false);
    loop {
        let left = end.map_or(Duration::from_secs(3600), |end| end.saturating_duration_since(Instant::now()));
        match receive.recv_timeout(left) {
            Ok(Some(News::Read(reading))) => {
                is_away = false;
                model.take(*reading);
                recorder.write(model.snapshot())?;
            }
            Ok(Some(News::Lost(reason))) => {
                if !std::mem::replace(&mut is_away, true) {
                    eprintln!("steward: {}", text::clean(&reason));
                }
            }
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if end.is_some() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_within_what_the_daemon_allows() {
        assert_eq!(parse_interval("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["99ms", "61s", "0s", "1", "", "-1s"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}
