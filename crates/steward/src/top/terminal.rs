//! The screen on a real terminal: one thread reads the keys, one asks the daemon, this one draws what they send.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::app::{Action, App, Connection, Looks};
use super::draw::draw;
use super::record::Recorder;
use super::source::{self, News, Question};
use crate::users::Users;

/// What happens to the screen.
enum Happened {
    Key(event::KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The terminal has gone, or somebody asks for the end.
    End,
    News(News),
    /// The daemon answered a change.
    Answer(String),
}

/// What the terminal can show: colours unless NO_COLOR, block characters where the locale is UTF-8.
fn looks() -> Looks {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_lowercase();
    Looks { colour: set("NO_COLOR").is_none(), unicode: locale.contains("utf-8") || locale.contains("utf8") }
}

/// Runs the screen until the person quits, or until `end`.
///
/// # Errors
/// When the terminal cannot be used, or the recording not be written.
pub fn run(
    question: &Question,
    interval: Duration,
    recorder: Option<Recorder>,
    end: Option<Instant>,
) -> anyhow::Result<()> {
    let (send, receive) = channel();
    start_threads(question, interval, &send)?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let mut app = App::new(looks());
    app.users = Users::read();
    let mut screen = Screen { app, recorder, heard: Instant::now(), interval };
    let result = screen.run(&mut terminal, question, &send, &receive, end);
    ratatui::restore();
    result
}

/// The threads that send what happens; they end with the process.
fn start_threads(question: &Question, interval: Duration, send: &Sender<Happened>) -> anyhow::Result<()> {
    let keys = send.clone();
    std::thread::spawn(move || {
        loop {
            let happened = match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Happened::Key(key),
                Ok(Event::Resize(..)) => Happened::Resized,
                Ok(_) => continue,
                Err(_) => Happened::End,
            };
            let is_end = matches!(happened, Happened::End);
            if keys.send(happened).is_err() || is_end {
                return;
            }
        }
    });
    let (news, question) = (send.clone(), question.clone());
    std::thread::spawn(move || source::watch(&question, interval, &news, Happened::News));
    let signals = send.clone();
    let mut wanted = signal_hook::iterator::Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    std::thread::spawn(move || {
        if wanted.forever().next().is_some() {
            // Nobody receives when the screen has ended already.
            let _ = signals.send(Happened::End);
        }
    });
    Ok(())
}

struct Screen {
    app: App,
    recorder: Option<Recorder>,
    /// When the daemon was last heard of.
    heard: Instant,
    interval: Duration,
}

impl Screen {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        question: &Question,
        send: &Sender<Happened>,
        receive: &Receiver<Happened>,
        end: Option<Instant>,
    ) -> anyhow::Result<()> {
        loop {
            terminal.draw(|frame| draw(frame, &mut self.app)).context("cannot draw on the terminal")?;
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            // At least once a second, to say how long the daemon has been silent.
            let first = receive.recv_timeout(left.unwrap_or(Duration::MAX).min(Duration::from_secs(1)));
            let mut next = match first {
                Ok(happened) => Some(happened),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // All that has happened by now is drawn at once.
            while let Some(happened) = next {
                match self.handle(happened)? {
                    None => {}
                    Some(Action::Quit) => return Ok(()),
                    Some(Action::Suspend) => suspend(terminal)?,
                    Some(Action::Kill(victim, signal)) => self.app.answer(&source::kill(&victim, signal)),
                    Some(Action::Change(change)) => {
                        let (answer, socket) = (send.clone(), question.socket.clone());
                        // On a thread and a connection of its own: somebody may have to type a password first.
                        std::thread::spawn(move || {
                            answer.send(Happened::Answer(source::change(&socket, &change)))
                        });
                    }
                }
                next = receive.try_recv().ok();
            }
            self.watch_for_silence();
        }
    }

    fn handle(&mut self, happened: Happened) -> anyhow::Result<Option<Action>> {
        match happened {
            Happened::Key(key) => return Ok(self.app.key(key)),
            Happened::Resized => {}
            Happened::End => return Ok(Some(Action::Quit)),
            Happened::Answer(text) => self.app.answer(&text),
            Happened::News(News::Lost(reason)) => {
                self.heard = Instant::now();
                self.app.lost(reason);
            }
            Happened::News(News::Read(reading)) => {
                self.heard = Instant::now();
                self.app.take(*reading);
                if let Some(recorder) = &mut self.recorder {
                    recorder.write(self.app.model.snapshot())?;
                }
            }
        }
        Ok(None)
    }

    fn watch_for_silence(&mut self) {
        let silent = self.heard.elapsed();
        if silent > self.interval * 3 + Duration::from_secs(2)
            && !matches!(self.app.connection, Connection::Down(_))
        {
            self.app.connection = Connection::Silent(silent.as_secs());
        }
    }
}

/// Gives the terminal back, stops as Ctrl-Z stops any program, and takes it again when continued.
fn suspend(terminal: &mut DefaultTerminal) -> anyhow::Result<()> {
    ratatui::restore();
    signal_hook::low_level::raise(signal_hook::consts::SIGTSTP).context("cannot stop this process")?;
    // The other screen is empty when it is taken, and a new terminal knows of nothing on it: no need to clear it, which
    // would ask the terminal for the cursor's place and race for the answer with the thread that reads keys.
    *terminal = ratatui::try_init().context("cannot use the terminal again")?;
    Ok(())
}
