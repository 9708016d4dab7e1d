//! `steward background`: runs a program in a domain of its own and controls it with the daemon's forecasts.
//!
//! What is decided is decided in [`libsteward::control`]; here are the domain, the two connections (one brings forecasts, one
//! carries out), the program and its signals. Without the daemon the program goes on, uncontrolled: a suspension belongs to
//! the connection.

mod ending;

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use libsteward::api::{self, ApiError, DomainSettings, Forecasts};
use libsteward::control::empathy::{self, Action, Empathy, Look};
use libsteward::control::pace::Pace;
use libsteward::{Client, Error, Events};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::ending::LetOut;
use crate::run::OWN_FAILURE;

/// The domain that all work of the first policy is in, so that two such programs do not take each other for those to be
/// spared.
const SHARED: &str = "background";
/// How often the domain that others share may go away between being seen and being used.
const ATTEMPTS: usize = 10;
/// Time between two forecasts, in milliseconds.
const EVERY_MS: u64 = 100;
/// Without a forecast for so long, the daemon is taken for gone.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to reach a daemon that has gone.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// After a signal that asks the program to end, it is left alone for so long, so that it can.
const LEAVE_ALONE: Duration = Duration::from_secs(10);

/// Run a program on what is idle, so that it disturbs nobody
///
/// The program runs in a domain of its own, with all that it forks. Without --max-slowdown it comes after everything
/// else and is suspended while others are slower because of it. With --max-slowdown it gets as little as
/// keeps it at that slowdown or better.
///
/// It takes the daemon, and the right to make a domain (root, the owner; others in a domain of their own, with --in).
/// When this command or the daemon is killed, the program goes on.
///
/// Exits with what the program exits with; 125: steward itself failed, 126: the program cannot be executed, 127: there
/// is no such program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward background -- ffmpeg -i in.mkv out.webm\n  \
        steward background --max-slowdown 5 -- ffmpeg -i in.mkv out.webm\n  \
        steward background --in mine -- make -j8")]
pub struct BackgroundArguments {
    /// Keep the program at this slowdown or better: 5 is a CPU that seems five times slower than an idle one.
    #[arg(long, value_name = "X", value_parser = parse_factor)]
    pub max_slowdown: Option<f64>,
    /// Suspend the program when others are slower than this by its doing: 1.05 is 5 % slower.
    #[arg(long, value_name = "Y", value_parser = parse_factor, default_value = "1.05",
          conflicts_with = "max_slowdown")]
    pub threshold: f64,
    /// Call its domain so; otherwise after the program and the number of this process.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Make its domain in this one [default: background, which is made if need be; with --max-slowdown at the top].
    #[arg(long = "in", value_name = "DOMAIN")]
    pub within: Option<String>,
    /// Say on standard error what is decided, and why.
    #[arg(long, short)]
    pub verbose: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 1.0 && factor.is_finite() => Ok(factor),
        _ => Err("write how many times slower, above 1, for example 5 or 1.05".to_owned()),
    }
}

/// Runs the program to its end; the exit code is the program's.
pub fn background(socket: &Path, arguments: &BackgroundArguments) -> ExitCode {
    match start(socket, arguments).and_then(|mut controller| controller.run()) {
        Ok(status) => {
            let code = status.code().or(status.signal().map(|signal| 128 + signal));
            ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE))
        }
        Err(error) => {
            eprintln!("steward: {}", crate::describe(&error));
            ExitCode::from(OWN_FAILURE)
        }
    }
}

/// What decides.
#[derive(Debug)]
enum Policy {
    Empathy(Empathy),
    Pace(Pace),
}

/// The two connections.
struct Link {
    forecasts: Events<Forecasts>,
    client: Client,
    heard: Instant,
}

struct Controller<'arguments> {
    socket: &'arguments Path,
    arguments: &'arguments BackgroundArguments,
    /// The program's domain.
    domain: String,
    /// The domain outside of which everybody is another.
    watched: String,
    policy: Policy,
    link: Option<Link>,
    retry_at: Instant,
    started: Instant,
    child: Child,
    signals: Signals,
    leave_alone_until: Option<Instant>,
    /// Where the program is while it is left alone.
    let_out: Option<LetOut>,
}

fn start<'arguments>(
    socket: &'arguments Path,
    arguments: &'arguments BackgroundArguments,
) -> anyhow::Result<Controller<'arguments>> {
    let mut client = Client::connect(socket)?;
    let (domain, watched) = make_domain(&mut client, arguments)?;
    let signals = Signals::take().context("cannot take signals")?;
    let child = match launch(socket, &domain, &arguments.command) {
        Ok(child) => child,
        Err(error) => {
            let _ = client.call(&api::RemoveDomain { domain, kill: None });
            return Err(error);
        }
    };
    let policy = policy(arguments);
    let now = Instant::now();
    let mut controller = Controller {
        socket,
        arguments,
        domain,
        watched,
        policy,
        link: None,
        retry_at: now,
        started: now,
        child,
        signals,
        leave_alone_until: None,
        let_out: None,
    };
    if let Err(error) = controller.connect() {
        controller.lose(&error);
    }
    Ok(controller)
}

fn policy(arguments: &BackgroundArguments) -> Policy {
    let settings = empathy::Settings { threshold: arguments.threshold, ..empathy::Settings::default() };
    match arguments.max_slowdown {
        // The weight of a domain that nobody gave one.
        Some(limit) => Policy::Pace(Pace::new(limit, 100, settings.window_ns)),
        None => Policy::Empathy(Empathy::new(settings)),
    }
}

/// Makes the program's domain, and says which one is to be watched.
fn make_domain(client: &mut Client, arguments: &BackgroundArguments) -> anyhow::Result<(String, String)> {
    let name = arguments.name.clone().unwrap_or_else(|| default_name(&arguments.command[0]));
    if arguments.max_slowdown.is_some() {
        let name = match &arguments.within {
            Some(within) => format!("{within}/{name}"),
            None => name,
        };
        create(client, &name, DomainSettings::default())?;
        return Ok((name.clone(), name));
    }
    let Some(within) = &arguments.within else {
        let name = format!("{SHARED}/{name}");
        make_in_shared(client, &name)?;
        return Ok((name, SHARED.to_owned()));
    };
    let name = format!("{within}/{name}");
    create_lowest(client, &name)?;
    Ok((name.clone(), name))
}

/// After the program, in characters that a domain's name can have.
fn default_name(program: &std::ffi::OsStr) -> String {
    let base = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let plain: String = base.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    let plain = match plain.trim_start_matches(['.', '-']) {
        // A number alone would be a process.
        "" => "program",
        plain => plain,
    };
    format!("{plain}-{}", std::process::id())
}

fn create(client: &mut Client, domain: &str, settings: DomainSettings) -> anyhow::Result<()> {
    let request = api::CreateDomain { domain: domain.to_owned(), settings, ..api::CreateDomain::default() };
    match client.call(&request) {
        Ok(_) => Ok(()),
        Err(Error::Api(ApiError::PermissionDenied { reason })) => anyhow::bail!(
            "no domain can be made for the program: {reason}; have the owner make one for you (sudo steward domain create \
             NAME --priority 0 --user YOU --keep) and say --in NAME"
        ),
        Err(error) => Err(error.into()),
    }
}

/// A domain that comes after all its siblings: by priority, and where nobody knows priorities by weight.
fn create_lowest(client: &mut Client, domain: &str) -> anyhow::Result<()> {
    let by_priority = DomainSettings { priority: Some(0), ..DomainSettings::default() };
    let outcome = create(client, domain, by_priority);
    let is_unsupported = outcome.as_ref().is_err_and(|error| {
        matches!(error.downcast_ref(), Some(Error::Api(ApiError::MechanismFailed { .. })))
    });
    if !is_unsupported {
        return outcome;
    }
    let by_weight = DomainSettings { weight: Some(1), ..DomainSettings::default() };
    create(client, domain, by_weight)
}

/// The shared domain may end with somebody else's last process before ours is in it.
fn make_in_shared(client: &mut Client, domain: &str) -> anyhow::Result<()> {
    let is = |outcome: &anyhow::Result<()>, wanted: fn(&ApiError) -> bool| {
        let error = outcome.as_ref().err().and_then(|error| error.downcast_ref());
        matches!(error, Some(Error::Api(error)) if wanted(error))
    };
    for _ in 0..ATTEMPTS {
        let made = create_lowest(client, SHARED);
        if is(&made, |error| matches!(error, ApiError::DomainExists { .. })) {
            check_shared(client)?;
        } else {
            made?;
        }
        let made = create(client, domain, DomainSettings::default());
        if !is(&made, |error| matches!(error, ApiError::NoSuchDomain { .. })) {
            return made;
        }
    }
    anyhow::bail!("the domain {SHARED} goes away as fast as it is made; try again")
}

/// The program's domain in the shared one went with its last process, unless it did not yet.
fn make_again(client: &mut Client, domain: &str) -> anyhow::Result<()> {
    match make_in_shared(client, domain) {
        Err(error) => match error.downcast_ref() {
            Some(Error::Api(ApiError::DomainExists { .. })) => Ok(()),
            _ => Err(error),
        },
        made => made,
    }
}

/// Somebody may have made a domain of that name for something else.
fn check_shared(client: &mut Client) -> anyhow::Result<()> {
    let request = api::ShowDomain { domain: Some(SHARED.to_owned()), pid: None };
    match client.call(&request) {
        Ok(shown) if shown.domain.priority == 0 || shown.domain.weight == 1 => Ok(()),
        Ok(shown) => anyhow::bail!(
            "there is a domain {SHARED} with priority {}, which does not come last; give it priority 0 (steward domain set \
             {SHARED} --priority 0) or say --in another one",
            shown.domain.priority
        ),
        // Gone again: the caller makes a new one.
        Err(Error::Api(ApiError::NoSuchDomain { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Starts the program through `steward run`, which becomes it, so that its first instruction is in the domain already.
fn launch(socket: &Path, domain: &str, command: &[std::ffi::OsString]) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let mut launcher = Command::new(own);
    launcher.arg("--socket").arg(socket).args(["run", "--domain", domain, "--"]).args(command);
    launcher.spawn().context("cannot start the program through `steward run`")
}

impl Controller<'_> {
    fn run(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            self.wait()?;
            if let Some(status) = self.child.try_wait()? {
                self.finish();
                return Ok(status);
            }
            self.heed_signals();
            if self.link.is_none() && Instant::now() >= self.retry_at && self.connect().is_err() {
                self.retry_at = Instant::now() + RETRY_EVERY;
            }
            if let Err(error) = self.take_forecasts() {
                self.lose(&error);
            }
        }
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let mut descriptors = vec![PollFd::new(&self.signals.wake, PollFlags::IN)];
        if let Some(link) = &self.link {
            descriptors.push(PollFd::from_borrowed_fd(link.forecasts.as_fd(), PollFlags::IN));
        }
        let timeout = Timespec { tv_sec: RETRY_EVERY.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
        self.signals.drain();
        Ok(())
    }

    /// Connects twice: a connection that streams takes no more calls. A daemon that is starting is not waited for, because signals
    /// are: it is tried again.
    fn connect(&mut self) -> Result<(), Error> {
        let request = api::WatchForecasts {
            domain: Some(self.watched.clone()),
            domains_only: Some(true),
            every_ms: Some(EVERY_MS),
            ..api::WatchForecasts::default()
        };
        let connect = || Client::connect_within(self.socket, Duration::ZERO);
        let client = connect()?;
        let forecasts = connect()?.stream(&request)?;
        self.forget();
        self.link = Some(Link { forecasts, client, heard: Instant::now() });
        Ok(())
    }

    /// Goes on without the daemon: what was suspended goes on with the connection's end.
    fn lose(&mut self, error: &Error) {
        if self.link.take().is_some() || self.retry_at <= self.started {
            eprintln!(
                "steward: {error}\nsteward: {} goes on uncontrolled until stewardd is back",
                self.domain
            );
        }
        self.retry_at = Instant::now() + RETRY_EVERY;
    }

    /// A signal for this process is for the program: it has to run in order to end.
    fn heed_signals(&mut self) {
        let Some(signal) = self.signals.take_ending() else {
            if self.leave_alone_until.is_some_and(|until| Instant::now() >= until) {
                self.leave_alone_until = None;
                self.put_back();
            }
            return;
        };
        self.leave_alone_until = Some(Instant::now() + LEAVE_ALONE);
        self.let_go();
        self.let_out();
        // Ctrl-C reaches the program by itself.
        if signal != signal_hook::consts::SIGINT {
            let pid = rustix::process::Pid::from_child(&self.child);
            if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
                // It may have ended.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }

    /// Lets the program go on, and begins anew.
    fn let_go(&mut self) {
        let suspended = matches!(&self.policy, Policy::Empathy(empathy) if empathy.is_suspended());
        self.forget();
        if suspended && let Err(error) = self.suspend(false) {
            self.lose(&error);
        }
    }

    /// Gives the program an ordinary place, so that it gets the CPU that it needs in order to end. Without the daemon, and
    /// where it refuses, it ends where it is.
    fn let_out(&mut self) {
        let shared = (self.watched != self.domain).then_some(self.watched.as_str());
        let settings = match &self.policy {
            Policy::Empathy(_) => DomainSettings { priority: Some(0), ..DomainSettings::default() },
            Policy::Pace(pace) => DomainSettings { weight: Some(pace.weight()), ..DomainSettings::default() },
        };
        let (Some(link), None) = (&mut self.link, &self.let_out) else { return };
        match ending::let_out(&mut link.client, &self.domain, shared, settings) {
            Ok(let_out) => self.let_out = Some(let_out),
            Err(error) => self.say(&format!("it has to end where it is: {error}")),
        }
    }

    /// It did not end.
    fn put_back(&mut self) {
        let (Some(link), Some(let_out)) = (&mut self.link, self.let_out.take()) else { return };
        let is_moved = matches!(let_out, LetOut::Moved(_));
        let made = if is_moved { make_again(&mut link.client, &self.domain) } else { Ok(()) };
        let outcome = made.and_then(|()| Ok(ending::put_back(&mut link.client, &self.domain, let_out)?));
        if let Err(error) = outcome {
            eprintln!("steward: the program did not end, and is not put back to where it was: {error:#}");
        }
    }

    /// What was seen before counts no more. A weight stays as it is in force.
    fn forget(&mut self) {
        match &mut self.policy {
            Policy::Empathy(_) => self.policy = policy(self.arguments),
            Policy::Pace(pace) => pace.begin_again(),
        }
    }

    fn take_forecasts(&mut self) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let mut latest = None;
        while let Some(forecasts) = link.forecasts.next_ready()? {
            latest = Some(forecasts);
        }
        let Some(forecasts) = latest else {
            return if link.heard.elapsed() < SILENCE_MAX { Ok(()) } else { Err(Error::Closed) };
        };
        link.heard = Instant::now();
        if self.leave_alone_until.is_some() {
            return Ok(());
        }
        self.decide(&forecasts)
    }

    fn decide(&mut self, forecasts: &Forecasts) -> Result<(), Error> {
        match &mut self.policy {
            Policy::Empathy(empathy) => {
                let look = Look::of(forecasts);
                match empathy.observe(forecasts.at_ns, look) {
                    None => Ok(()),
                    Some(action) => {
                        let others = look.others_slowdown.unwrap_or(1.0);
                        let done = if action == Action::Suspend { "suspended" } else { "goes on" };
                        self.say(&format!(
                            "{done}: others are {others:.2} times slower, and use {:.0} %",
                            look.others_used * 100.0
                        ));
                        self.suspend(action == Action::Suspend)
                    }
                }
            }
            Policy::Pace(pace) => {
                let own = forecasts.domains.iter().find(|domain| domain.name == self.domain);
                let Some(own) = own else { return Ok(()) };
                let before = pace.weight();
                let changed = pace.observe(forecasts.at_ns, own, forecasts.cpus);
                let Some(weight) = changed else { return Ok(()) };
                let slowdown = pace.slowdown(own).unwrap_or(1.0);
                self.say(&format!("weight {weight}: with {before} it is {slowdown:.2} times slower"));
                self.set_weight(before, weight)
            }
        }
    }

    /// A domain or a scheduler that has gone ends nothing: the program runs, and is looked at again.
    fn suspend(&mut self, suspended: bool) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let request = api::SuspendDomain { domain: self.domain.clone(), suspended };
        match link.client.call(&request) {
            Ok(_) => Ok(()),
            Err(Error::Api(error)) => {
                self.say(&error.to_string());
                self.forget();
                if !suspended {
                    // What this connection suspended goes on when it ends.
                    self.link = None;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn set_weight(&mut self, before: i64, weight: i64) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let settings = DomainSettings { weight: Some(weight), ..DomainSettings::default() };
        let request = api::SetDomain { domain: self.domain.clone(), settings, ..api::SetDomain::default() };
        match link.client.call(&request) {
            Ok(_) => Ok(()),
            Err(Error::Api(error)) => {
                eprintln!("steward: weight {weight} was refused, and {before} is kept: {error}");
                if let Policy::Pace(pace) = &mut self.policy {
                    pace.refused(before);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn say(&self, text: &str) {
        if self.arguments.verbose {
            eprintln!("steward: {:6.1} s  {}: {text}", self.started.elapsed().as_secs_f64(), self.domain);
        }
    }

    /// The domain goes with its last process; where that was the program, at once, so that its name is free.
    fn finish(&mut self) {
        let Some(link) = &mut self.link else { return };
        let mut domains = vec![self.domain.clone()];
        if let Some(LetOut::Moved(domain)) = self.let_out.take() {
            domains.push(domain);
        }
        for domain in domains {
            let request = api::ShowDomain { domain: Some(domain.clone()), pid: None };
            if link.client.call(&request).is_ok_and(|shown| shown.processes.is_empty()) {
                // It may have gone by itself.
                let _ = link.client.call(&api::RemoveDomain { domain, kill: None });
            }
        }
    }
}

/// Signals as things to wait for: the end of the program, and what asks this process to end.
struct Signals {
    wake: UnixStream,
    ending: Arc<AtomicUsize>,
}

impl Signals {
    fn take() -> std::io::Result<Self> {
        use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let ending = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, Arc::clone(&ending), signal as usize)?;
        }
        for signal in [SIGCHLD, SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Signals { wake, ending })
    }

    fn drain(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(count) if count > 0) {}
    }

    fn take_ending(&self) -> Option<i32> {
        let signal = self.ending.swap(0, Ordering::SeqCst);
        (signal > 0).then_some(signal as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_named_after_its_program_in_characters_that_it_can_have() {
        let id = std::process::id();
        for (program, name) in [
            ("ffmpeg", format!("ffmpeg-{id}")),
            ("/usr/bin/x y", format!("xy-{id}")),
            ("./.hidden", format!("hidden-{id}")),
            ("/", format!("program-{id}")),
            ("日本", format!("program-{id}")),
            ("-.x", format!("x-{id}")),
        ] {
            assert_eq!(default_name(program.as_ref()), name);
            steward_core::domain::Names::default().path_to_make(&name).expect("it can be made");
        }
    }

    #[test]
    fn a_factor_is_a_number_above_one() {
        assert_eq!(parse_factor("1.05"), Ok(1.05));
        for wrong in ["1", "0.5", "-2", "inf", "NaN", "five", ""] {
            assert!(parse_factor(wrong).is_err(), "{wrong}");
        }
    }
}
