//! Where readings come from: asks the daemon, again and again, and connects again when it has gone.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libsteward::{Client, Error, Events, api};

use super::app::Change;
use super::model::Reading;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Of which domain or process, if not of all.
    pub forecasts: api::ListForecasts,
}

/// A connection that gives readings.
#[derive(Debug)]
pub struct Source {
    client: Client,
    decisions: Events<api::Monitored>,
    forecasts: api::ListForecasts,
    /// What the daemon remembered when the connection was made.
    remembered: Option<Vec<api::Event>>,
}

impl Source {
    /// Connects.
    ///
    /// # Errors
    /// As [`Client::connect`] and [`Client::call`].
    pub fn connect(question: &Question) -> Result<Self, Error> {
        let decisions = Client::connect(&question.socket)?.monitor(false)?;
        let mut client = Client::connect(&question.socket)?;
        let remembered = Some(client.call(&api::ListEvents {})?.events);
        Ok(Source { client, decisions, forecasts: question.forecasts.clone(), remembered })
    }

    /// Asks for all that there is to know now.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn read(&mut self) -> Result<Reading, Error> {
        let mut events = self.remembered.take().unwrap_or_default();
        while let Some(monitored) = self.decisions.next_ready()? {
            events.push(monitored.event);
        }
        let forecasts = self.client.call(&self.forecasts)?;
        let status = self.client.call(&api::Status {})?;
        let domains = self.client.call(&api::ListDomains {})?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Reading { unix_ms: since_1970.as_millis() as u64, forecasts, status, domains, events })
    }
}

/// What the thread that reads reports.
#[derive(Debug)]
pub enum News {
    /// A reading.
    Read(Box<Reading>),
    /// The daemon does not answer, or refuses: the reason in a sentence.
    Lost(String),
}

/// Reads every `interval` and sends what it finds, until nobody receives any more.
pub fn watch<T>(question: &Question, interval: Duration, send: &Sender<T>, wrap: impl Fn(News) -> T) {
    let mut source = None;
    loop {
        let begun = Instant::now();
        let news = match read(&mut source, question) {
            Ok(reading) => News::Read(Box::new(reading)),
            Err(error) => {
                source = None;
                News::Lost(match error {
                    Error::Api(refusal) => format!("stewardd refuses: {refusal}"),
                    other => format!("stewardd is away, trying again: {other}"),
                })
            }
        };
        if send.send(wrap(news)).is_err() {
            return;
        }
        std::thread::sleep(interval.saturating_sub(begun.elapsed()));
    }
}

fn read(source: &mut Option<Source>, question: &Question) -> Result<Reading, Error> {
    match source {
        Some(source) => source.read(),
        None => source.insert(Source::connect(question)?).read(),
    }
}

/// Asks the daemon for a change; the answer in a sentence, also when it refuses.
pub fn change(socket: &Path, change: &Change) -> String {
    let changed = Client::connect(socket).and_then(|mut client| match change {
        Change::Set(set) => {
            let standing = client.call(set)?.standing.map_or("not decided yet", crate::status::standing_name);
            let api::Reservation { budget_ns, period_ns } = set.cpu;
            let cpu = steward_core::mechanism::Reservation { budget_ns, period_ns };
            Ok(format!("Process {} has {cpu}: {standing}.", set.pid))
        }
        Change::Release(pid) => {
            client.call(&api::Release { pid: *pid })?;
            Ok(format!("Process {pid} is best-effort now."))
        }
        Change::Domain(set) => Ok(crate::domain::line(&client.call(set)?.domain).trim_end().to_owned()),
    });
    changed.unwrap_or_else(|error| match error {
        Error::Api(refusal) => format!("Refused: {refusal}"),
        other => format!("Not done: {other}"),
    })
}
