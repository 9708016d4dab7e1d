//! `steward pool`: sizes the worker pool of a server that knows nothing of it (CPU Futures, section 5.3).
//!
//! The controller is that of `steward-pool`; here is what lies around it: forecasts come from the daemon in a thread of their own, the
//! server is told through what it offers ([`haproxy`], [`apache`]), and what it had before is written down first ([`undo`]),
//! so that the end of this program, however it comes about, can be undone.

mod apache;
mod backlog;
mod haproxy;
mod undo;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use libsteward::{Client, api};
use steward_pool::{Observed, SLOWDOWN_LIMIT, Settings, Watched, WorkerPool};

pub use undo::revert;

/// Size the worker pool of a running web server by how many workers share each CPU
///
/// As long as the command runs: more workers when requests wait and the CPU is idle at times, fewer when more than --max-slowdown of
/// them share each CPU. What the server had before is put back at the end (Ctrl-C, SIGTERM); after a kill -9, by the next
/// start or by `steward revert`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    Apache(ApacheArguments),
    Haproxy(HaproxyArguments),
}

/// Size the pool of Apache httpd, by MaxRequestWorkers in a file of its own and graceful reloads
///
/// The file is checked by Apache (--check) before each reload; one that Apache refuses is taken away again, and the server goes on as
/// it was. Requests wait in the kernel's queue of the listening port, from where --port takes their number.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward pool apache --max 150 --domain system.slice/apache2.service\n  \
        steward pool apache --drop-in /etc/httpd/conf.d/zz-steward-pool.conf --pid-file /run/httpd/httpd.pid \\\n      \
        --check 'apachectl -t' --max 256 --domain system.slice/httpd.service")]
pub struct ApacheArguments {
    #[command(flatten)]
    pub pool: PoolArguments,
    /// The configuration file to write; Apache must include it after its own limits.
    #[arg(long, value_name = "FILE", default_value = "/etc/apache2/conf-enabled/zz-steward-pool.conf")]
    pub drop_in: PathBuf,
    /// Where Apache keeps the number of its main process.
    #[arg(long, value_name = "FILE", default_value = "/run/apache2/apache2.pid")]
    pub pid_file: PathBuf,
    /// The command that checks Apache's configuration.
    #[arg(long, value_name = "COMMAND", default_value = "apache2ctl -t")]
    pub check: String,
    /// The port that clients connect to.
    #[arg(long, default_value_t = 80)]
    pub port: u16,
}

/// Size the pool of any server behind HAProxy, by the server's maxconn
///
/// HAProxy lets that many connections through to the server and keeps the others in its queue. It is told through its runtime
/// API, which needs a line like `stats socket /run/haproxy/admin.sock level admin` in its `global` section; nothing is reloaded.
/// --domain is that of the server behind it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
        steward pool haproxy --server web/apache1 --domain system.slice/apache2.service --max 150")]
pub struct HaproxyArguments {
    #[command(flatten)]
    pub pool: PoolArguments,
    /// HAProxy's runtime API.
    #[arg(long, value_name = "SOCKET", default_value = "/run/haproxy/admin.sock")]
    pub control: PathBuf,
    /// The server, as HAProxy names it.
    #[arg(long, value_name = "BACKEND/SERVER", value_parser = haproxy::parse_server)]
    pub server: haproxy::ServerName,
}

/// What both have.
#[derive(Clone, Debug, Args)]
pub struct PoolArguments {
    /// The domain that the workers are in, with the programs that they start.
    #[arg(long, value_name = "DOMAIN", required_unless_present = "pid")]
    pub domain: Option<String>,
    /// Or the one process whose threads are the workers.
    #[arg(long, conflicts_with = "domain", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// The fewest workers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min: u32,
    /// The most workers; more than the server's own limit come to nothing.
    #[arg(long, value_name = "N", default_value_t = 150)]
    pub max: u32,
    /// The size to begin with; what the server has unless said, or --max where it has no limit or cannot tell.
    #[arg(long, value_name = "N")]
    pub start: Option<u32>,
    /// How many times slower than on an idle machine the CPU may be for the workers: so many busy ones share each CPU.
    #[arg(long, value_name = "N", default_value_t = SLOWDOWN_LIMIT)]
    pub max_slowdown: f64,
    /// Where to write down what the server had.
    #[arg(long, value_name = "DIR", default_value = libsteward::STATE_DIRECTORY)]
    pub state_directory: PathBuf,
}

/// A server whose pool can be sized.
trait Server {
    /// What it is called in messages.
    fn name(&self) -> String;
    /// The size that it has now; `None` when it has no limit, or that cannot be told.
    fn size(&self) -> Option<u32>;
    /// How many requests wait for a worker; `None` when that cannot be told.
    fn waiting(&mut self) -> anyhow::Result<Option<u64>>;
    /// Puts a size in force.
    fn set(&mut self, workers: u32) -> anyhow::Result<()>;
    /// How long after a change what is seen is due to it.
    fn patience(&self) -> Duration;
    /// How to undo every change.
    fn undo(&self) -> undo::Undo;
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

/// Reads forecasts in a thread of its own. A domain that does not exist is an error at once; a daemon that is not there is
/// waited for.
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
            // It may be another process by now, with the limit of its configuration.
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
