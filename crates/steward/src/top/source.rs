//! Where readings come from: asks the daemon, again and again, and connects again when it has gone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libsteward::api::ApiError;
use libsteward::{Client, Error, Events, api};
use rustix::process::Signal;
use steward_kernel::process::{self, Pidfd};
use steward_kernel::{KernelError, Roots};

use super::app::{Change, Victim};
use super::model::Reading;

/// Between two questions after what became of promises of memory: it is told by the second, of a minute at least.
const RECORDS_EVERY: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Of which domain or process, if not of all.
    pub forecasts: api::ListForecasts,
    /// Whether also what became of promises of memory, now and then.
    pub with_records: bool,
}

/// A connection that gives readings.
#[derive(Debug)]
pub struct Source {
    client: Client,
    decisions: Events<api::Monitored>,
    forecasts: api::ListForecasts,
    /// When it is to be asked next what became of promises of memory; `None`: never.
    records_at: Option<Instant>,
    /// What the daemon remembered when the connection was made.
    remembered: Option<Vec<api::Event>>,
    /// Processes that were looked at: their name, and whether they are threads of the kernel.
    known: HashMap<i32, (String, bool)>,
}

impl Source {
    /// Connects, and waits `patience` at most for a daemon that is starting.
    ///
    /// # Errors
    /// As [`Client::connect`] and [`Client::call`].
    pub fn connect(question: &Question, patience: Duration) -> Result<Self, Error> {
        let connect = || Client::connect_within(&question.socket, patience);
        let decisions = connect()?.monitor(false)?;
        let mut client = connect()?;
        let remembered = Some(client.call(&api::ListEvents {})?.events);
        let forecasts = question.forecasts.clone();
        let records_at = question.with_records.then(Instant::now);
        Ok(Source { client, decisions, forecasts, records_at, remembered, known: HashMap::new() })
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
        let (domains, no_domains) = match self.client.call(&api::ListDomains {}) {
            Ok(domains) => (domains, None),
            // Without cgroups there are tasks all the same.
            Err(Error::Api(ApiError::MechanismFailed { reason })) => {
                (api::DomainList::default(), Some(reason))
            }
            Err(error) => return Err(error),
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let kernel_threads = self.kernel_threads(&forecasts.tasks);
        let unix_ms = since_1970.as_millis() as u64;
        let memory_records = self.memory_records(&forecasts, &domains)?;
        Ok(Reading {
            unix_ms,
            forecasts,
            status,
            domains,
            events,
            kernel_threads,
            memory_records,
            no_domains,
        })
    }

    /// What became of what the domains were promised of the memory, when that is due.
    fn memory_records(
        &mut self,
        forecasts: &api::Forecasts,
        domains: &api::DomainList,
    ) -> Result<HashMap<String, Vec<api::AuditedMemory>>, Error> {
        let mut records = HashMap::new();
        if self.records_at.is_none_or(|at| Instant::now() < at) {
            return Ok(records);
        }
        self.records_at = Some(Instant::now() + RECORDS_EVERY);
        let asked: BTreeSet<&str> = forecasts.domains.iter().map(|domain| domain.name.as_str()).collect();
        let promised = |domain: &&api::Domain| domain.memory_min.is_some() || domain.protect.is_some();
        for domain in domains.domains.iter().filter(promised).filter(|one| asked.contains(one.name.as_str()))
        {
            let about = api::AuditDomain { domain: Some(domain.name.clone()) };
            match self.client.call(&about) {
                Ok(audited) => records.extend(audited.memory.map(|spans| (domain.name.clone(), spans))),
                // It has gone meanwhile, or the caller may not know: the rest is told.
                Err(Error::Api(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    /// Which tasks are threads of the kernel itself, by number. Each is looked at once, and again when its name is
    /// another.
    fn kernel_threads(&mut self, tasks: &[api::TaskForecast]) -> HashSet<i32> {
        let roots = Roots::default();
        let mut known = HashMap::with_capacity(self.known.len());
        let mut found = HashSet::new();
        // All of the kernel's are processes of their own, of user 0.
        for task in tasks.iter().filter(|task| task.tid == task.pid && task.user == 0) {
            let before = self.known.remove(&task.tid).filter(|(name, _)| *name == task.name);
            let is_kernels = before.map_or_else(
                || {
                    process::stat(task.tid, &roots)
                        .is_ok_and(|stat| stat.name == task.name && stat.is_kernel_thread())
                },
                |(_, is_kernels)| is_kernels,
            );
            if is_kernels {
                found.insert(task.tid);
            }
            known.insert(task.tid, (task.name.clone(), is_kernels));
        }
        self.known = known;
        found
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
        // It is tried again anyway, and says meanwhile that it is away.
        None => source.insert(Source::connect(question, Duration::ZERO)?).read(),
    }
}

/// Asks the daemon for a change; the answer in a sentence, also when it refuses.
pub fn change(socket: &Path, change: &Change) -> String {
    let changed = Client::connect(socket).and_then(|mut client| match change {
        Change::Set(set) => {
            let standing =
                client.call(set)?.standing.map_or("not decided yet", crate::cpu::status::standing_name);
            let api::Reservation { budget_ns, period_ns } = set.cpu;
            let cpu = steward_core::cpu::reservation::Reservation { budget_ns, period_ns };
            Ok(format!("Process {} has {cpu}: {standing}.", set.pid))
        }
        Change::Release(pid) => {
            client.call(&api::Release { pid: *pid })?;
            Ok(format!("Process {pid} is best-effort now."))
        }
        Change::Domain(set) => Ok(crate::domain::line(&client.call(&**set)?.domain).trim_end().to_owned()),
    });
    changed.unwrap_or_else(|error| match error {
        Error::Api(refusal) => format!("Refused: {refusal}"),
        other => format!("Not done: {other}"),
    })
}

/// Sends a signal to exactly the process that was seen, with the rights of whoever asks; what came of it in a sentence.
pub fn kill(victim: &Victim, signal: Signal) -> String {
    let Victim { tid, pid, name } = victim;
    let shown = format!("{name} ({pid})");
    let gone = || format!("{shown} has ended already");
    let roots = Roots::default();
    let held = match Pidfd::open(*pid, &roots) {
        Ok(held) => held,
        Err(error) if error.is_absent() => return gone(),
        Err(error) => return format!("Not ended: {error}"),
    };
    // Looked at while it is held: what has the number now keeps it.
    let is_same =
        |stat: &process::TaskStat| stat.name == *name && process::process_of(*tid, &roots).ok() == Some(*pid);
    match process::stat(*tid, &roots) {
        Ok(stat) if is_same(&stat) => {}
        Ok(_) => return format!("Not ended: process {pid} is another one now, or is called otherwise"),
        Err(KernelError::Read { .. }) => return gone(),
        Err(error) => return format!("Not ended: {error}"),
    }
    match rustix::process::pidfd_send_signal(held.as_fd(), signal) {
        Ok(()) if signal == Signal::KILL => format!("{shown} is ended."),
        Ok(()) => format!("{shown} was asked to end."),
        Err(rustix::io::Errno::SRCH) => gone(),
        Err(rustix::io::Errno::PERM) => format!("Not ended: {shown} is not yours to end"),
        Err(errno) => format!("Not ended: {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn exactly_the_process_that_was_seen_is_ended() {
        let mut child =
            Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("there is sleep");
        let pid = child.id() as i32;
        let victim = |name: &str| Victim { tid: pid, pid, name: name.to_owned() };
        assert!(kill(&victim("mplayer"), Signal::TERM).contains("another one now"));
        assert!(child.try_wait().expect("it can be waited for").is_none(), "it was left alone");
        assert_eq!(kill(&victim("sleep"), Signal::TERM), format!("sleep ({pid}) was asked to end."));
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().expect("it ends").signal(), Some(15));
        assert_eq!(kill(&victim("sleep"), Signal::KILL), format!("sleep ({pid}) has ended already"));
    }
}
