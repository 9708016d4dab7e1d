//! `steward pool`: sizes the worker pool of a server that knows nothing of it (CPU Futures, section 5.3).
//!
//! The controller is that of `steward-pool`; here is what lies around it: forecasts come from the daemon in a thread of
//! their own, the server is told through what it offers ([`haproxy`], [`apache`]), and what it had before is written
//! down first ([`undo`]), so that the end of this program, however it comes about, can be undone.

mod apache;
mod backlog;
mod haproxy;
mod server;
mod undo;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Subcommand;
use libsteward::{Client, api};
use steward_pool::{Observed, Settings, Watched, WorkerPool};

use apache::ApacheArguments;
use haproxy::HaproxyArguments;
use server::{PoolArguments, Server};
pub use undo::revert;

/// Size the worker pool of a running web server by how many workers share each CPU
///
/// As long as the command runs: more workers when requests wait and the CPU is idle at times, fewer when more than
/// --max-slowdown of them share each CPU. What the server had before is put back at the end (Ctrl-C, SIGTERM); after a
/// kill -9, by the next start or by `steward revert`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    Apache(ApacheArguments),
    Haproxy(HaproxyArguments),
}

/// How often forecasts are asked for.
const EVERY_MS: u64 = 200;
/// Longest time without a look at the signals.
const LOOK: Duration = Duration::from_millis(250);

/// `steward pool`, until a signal ends it.
pub fn pool(socket: &Path, command: &PoolCommand) -> anyhow::Result<()> {
    match command {
        PoolCommand::Apache(arguments) => {
            let prepare = || apache::Apache::open(arguments);
            run(socket, &arguments.pool, &apache::target(arguments), prepare)
        }
        PoolCommand::Haproxy(arguments) => {
            let prepare = || haproxy::Haproxy::open(&arguments.control, arguments.server.clone());
            run(socket, &arguments.pool, &haproxy::target(&arguments.control, &arguments.server), prepare)
        }
    }
}

/// Takes the server over, follows the forecasts, and gives it back.
fn run<S: Server>(
    socket: &Path,
    arguments: &PoolArguments,
    target: &str,
    prepare: impl FnOnce() -> anyhow::Result<S>,
) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let settings = Settings {
        smallest: arguments.min,
        largest: arguments.max,
        slowdown_limit: arguments.max_slowdown,
        ..Settings::default()
    };
    settings.validate()?;
    // First, what a killed predecessor left: the server's own settings are to be read after that.
    let record = undo::Record::claim(&arguments.state_directory, target)?;
    let mut server = prepare()?;
    let patience_ns = u64::try_from(server.patience().as_nanos()).unwrap_or(u64::MAX);
    let settings = Settings { patience_ns, ..settings };
    let pool = WorkerPool::new(settings, arguments.start.or(server.size()).unwrap_or(arguments.max))?;
    let forecasts = watch(socket, arguments)?;
    record.write(&server.undo())?;
    let mut sizing = Sizing {
        server: &mut server,
        record: &record,
        pool,
        has_domain: arguments.domain.is_some(),
        started: Instant::now(),
        without_forecasts: false,
        unseen: false,
    };
    let followed = sizing.follow(&forecasts, &stop);
    let restored = record.undo();
    if restored.is_ok() {
        eprintln!("steward: {} has its own pool size again", server.name());
    }
    followed.and(restored)
}

/// Set by the signals that end the program in order.
fn stop_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // A second one of the same kind ends it at once, should the server not answer.
        let again = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register_conditional_shutdown(signal, 1, again.clone())
            .context("cannot handle signals")?;
        signal_hook::flag::register(signal, again).context("cannot handle signals")?;
        signal_hook::flag::register(signal, stop.clone()).context("cannot handle signals")?;
    }
    Ok(stop)
}

/// Reads forecasts in a thread of its own. A domain that does not exist is an error at once; a daemon that is not there
/// is waited for.
fn watch(socket: &Path, arguments: &PoolArguments) -> anyhow::Result<Receiver<Watched>> {
    if let (Some(domain), Ok(mut client)) = (&arguments.domain, Client::connect(socket))
        && let Err(libsteward::Error::Api(error @ api::ApiError::NoSuchDomain { .. })) =
            client.call(&api::ShowDomain { domain: Some(domain.clone()), pid: None })
    {
        bail!("{error}");
    }
    let request = api::WatchForecasts {
        slowed: None,
        domain: arguments.domain.clone(),
        pid: arguments.pid,
        // Of a process there are only its tasks.
        domains_only: Some(arguments.domain.is_some()),
        every_ms: Some(EVERY_MS),
    };
    let socket = socket.to_owned();
    // One at a time: what waits here would be old when it is looked at.
    let (sender, receiver) = sync_channel(1);
    let body = move || steward_pool::forecasts(&socket, &request, |watched| sender.send(watched).is_ok());
    std::thread::Builder::new().name("forecasts".into()).spawn(body).context("cannot start a thread")?;
    Ok(receiver)
}

/// The controller at work on a server.
struct Sizing<'a, S> {
    server: &'a mut S,
    record: &'a undo::Record,
    pool: WorkerPool,
    /// The workers are a domain, rather than the threads of a process.
    has_domain: bool,
    started: Instant,
    /// It was said that there are no forecasts.
    without_forecasts: bool,
    /// It was said that the server does not answer.
    unseen: bool,
}

impl<S: Server> Sizing<'_, S> {
    fn follow(&mut self, forecasts: &Receiver<Watched>, stop: &AtomicBool) -> anyhow::Result<()> {
        self.server.set(self.pool.size())?;
        self.say("to begin with");
        while !stop.load(Ordering::Relaxed) {
            match forecasts.recv_timeout(LOOK) {
                Ok(Watched::Forecasts(forecasts)) => self.look(&forecasts)?,
                Ok(Watched::Nothing(error)) if !self.without_forecasts => {
                    self.without_forecasts = true;
                    self.say(&format!("and stays so without forecasts: {error}"));
                }
                Ok(Watched::Nothing(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that reads forecasts has ended"),
            }
        }
        Ok(())
    }

    fn look(&mut self, forecasts: &api::Forecasts) -> anyhow::Result<()> {
        self.without_forecasts = false;
        let waiting = match self.server.waiting() {
            Ok(waiting) => waiting,
            Err(error) => {
                if !std::mem::replace(&mut self.unseen, true) {
                    eprintln!("steward: {}: {error:#}; trying again", self.server.name());
                }
                return Ok(());
            }
        };
        if std::mem::replace(&mut self.unseen, false) {
            // It may be another process by now, with the limit of its configuration, which is to be put back then.
            self.record.write(&self.server.undo())?;
            self.server.set(self.pool.size())?;
            self.say("again");
        }
        let before = self.pool.size();
        let observed = match self.has_domain {
            true => Observed::of_domain(forecasts, waiting),
            false => Observed::of_tasks(forecasts, waiting),
        };
        if let Some(size) = self.pool.observe(forecasts.at_ns, &observed) {
            match self.server.set(size) {
                Ok(()) => self.say(&self.pool.reason()),
                Err(error) => {
                    eprintln!("steward: {}: {size} workers refused: {error:#}", self.server.name());
                    self.pool.refused(before);
                }
            }
        }
        Ok(())
    }

    fn say(&self, why: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        eprintln!("steward: {seconds:6.1} s  {}: {} workers: {why}", self.server.name(), self.pool.size());
    }
}
