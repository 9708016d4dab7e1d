//! `steward background`: runs a program in a domain of its own and controls it with the daemon's forecasts.
//!
//! What is decided is decided in [`libsteward::control`]; here are the domain, the two connections (one brings
//! forecasts, one carries out), the program and its signals. Without the daemon the program goes on, uncontrolled: its
//! place behind everybody and a suspension belong to the connection.

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
use libsteward::api::{self, ApiError, DomainSettings, Forecasts, Lack};
use libsteward::control::empathy::{self, Action, Empathy, Look, Whom};
use libsteward::control::pace::Pace;
use libsteward::{Client, Error, Events};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::run::OWN_FAILURE;

/// Time between two forecasts at first, in milliseconds.
const EVERY_MS: u64 = 100;
/// After the daemon refused another time between two, that one is kept for so long.
const PACE_RETRY: Duration = Duration::from_secs(10);
/// Without a forecast for so long, the daemon is taken for gone.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to reach a daemon that has gone.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// After a signal that asks the program to end, it is left alone for so long, so that it can.
const LEAVE_ALONE: Duration = Duration::from_secs(10);

/// Run a program on what is idle, so that it disturbs nobody
///
/// The program runs in a domain of its own, with all that it forks. Without --max-slowdown it comes after everything
/// else, and is suspended while somebody is slower because of it for want of memory or the disk; where Steward's own
/// scheduler is not in force, for want of a CPU, too. With --max-slowdown it gets as little as keeps it at that
/// slowdown or better.
///
/// It takes the daemon, and the right to make a domain (root, the owner; others in a domain of their own, with --in).
/// When this command or the daemon is killed, the program goes on like any other.
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
    /// Suspend the program when somebody is slower than this by its doing: 1.05 is 5 % slower.
    #[arg(long, value_name = "Y", value_parser = parse_factor, default_value = "1.05",
          conflicts_with = "max_slowdown")]
    pub threshold: f64,
    /// Call its domain so; otherwise after the program and the number of this process.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Make its domain in this one [default: beside all others].
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
    /// Time between two of them, in milliseconds.
    every_ms: u64,
    /// A stream of another time between two, which takes the place of that one with its first forecast.
    next: Option<(Events<Forecasts>, u64)>,
    /// When another one may be tried.
    pace_at: Instant,
    client: Client,
    heard: Instant,
}

struct Controller<'arguments> {
    socket: &'arguments Path,
    arguments: &'arguments BackgroundArguments,
    /// The program's domain.
    domain: String,
    policy: Policy,
    link: Option<Link>,
    retry_at: Instant,
    started: Instant,
    child: Child,
    signals: Signals,
    /// While it is left alone, the program has an ordinary place.
    leave_alone_until: Option<Instant>,
}

fn start<'arguments>(
    socket: &'arguments Path,
    arguments: &'arguments BackgroundArguments,
) -> anyhow::Result<Controller<'arguments>> {
    let mut client = Client::connect(socket)?;
    let domain = make_domain(&mut client, arguments)?;
    let begun = begin(socket, arguments, &domain);
    let (signals, link, child) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let _ = client.call(&api::RemoveDomain { domain, kill: None });
            return Err(error);
        }
    };
    let now = Instant::now();
    Ok(Controller {
        socket,
        arguments,
        domain,
        policy: policy(arguments),
        link: Some(link),
        retry_at: now,
        started: now,
        child,
        signals,
        leave_alone_until: None,
    })
}

/// Has the domain in its place before the program starts in it.
fn begin(
    socket: &Path,
    arguments: &BackgroundArguments,
    domain: &str,
) -> anyhow::Result<(Signals, Link, Child)> {
    let signals = Signals::take().context("cannot take signals")?;
    let is_last = arguments.max_slowdown.is_none();
    let link = Link::open(socket, domain, is_last, is_last)?;
    let child = launch(socket, domain, &arguments.command)?;
    Ok((signals, link, child))
}

fn policy(arguments: &BackgroundArguments) -> Policy {
    let settings = empathy::Settings { threshold: arguments.threshold, ..empathy::Settings::default() };
    match arguments.max_slowdown {
        // The weight of a domain that nobody gave one.
        Some(limit) => Policy::Pace(Pace::new(limit, 100, settings.window_ns)),
        None => Policy::Empathy(Empathy::new(settings)),
    }
}

/// Makes the program's domain.
fn make_domain(client: &mut Client, arguments: &BackgroundArguments) -> anyhow::Result<String> {
    let name = arguments.name.clone().unwrap_or_else(|| default_name(&arguments.command[0]));
    let name = match &arguments.within {
        Some(within) => format!("{within}/{name}"),
        None => name,
    };
    create(client, &name)?;
    Ok(name)
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

fn create(client: &mut Client, domain: &str) -> anyhow::Result<()> {
    let request = api::CreateDomain { domain: domain.to_owned(), ..api::CreateDomain::default() };
    match client.call(&request) {
        Ok(_) => Ok(()),
        Err(Error::Api(ApiError::PermissionDenied { reason })) => anyhow::bail!(
            "no domain can be made for the program: {reason}; have the owner make one for you (sudo steward domain create \
             NAME --priority 0 --user YOU --keep) and say --in NAME"
        ),
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

impl Link {
    /// Connects twice: a connection that streams takes no more calls. The other one holds the domain behind all others,
    /// if it `is_last`. With `slowed` it is told who is slowed. A daemon that is starting is not waited for, because
    /// signals are: it is tried again.
    fn open(socket: &Path, domain: &str, is_last: bool, slowed: bool) -> Result<Link, Error> {
        let connect = || Client::connect_within(socket, Duration::ZERO);
        let mut client = connect()?;
        if is_last {
            match client.call(&api::LowerDomain { domain: domain.to_owned(), lowered: true }) {
                Err(Error::Api(ApiError::MechanismFailed { reason })) => {
                    eprintln!("steward: {domain} keeps an ordinary place, and is only suspended: {reason}");
                }
                outcome => _ = outcome?,
            }
        }
        let forecasts = watch(connect()?, domain, slowed, EVERY_MS)?;
        let now = Instant::now();
        Ok(Link { forecasts, every_ms: EVERY_MS, next: None, pace_at: now, client, heard: now })
    }

    /// Has forecasts come as often as that from now on: a stream keeps its pace, so that it takes a new one. Who is
    /// slowed is told as before.
    fn pace(&mut self, socket: &Path, domain: &str, every_ms: u64) {
        let is_asked = self.next.as_ref().map_or(self.every_ms, |(_, next_ms)| *next_ms) == every_ms;
        if every_ms == self.every_ms {
            self.next = None;
        } else if !is_asked && Instant::now() >= self.pace_at {
            let opened = Client::connect_within(socket, Duration::ZERO);
            self.next_is(opened.and_then(|client| watch(client, domain, true, every_ms)), every_ms);
        }
    }

    /// Where a new stream is refused forecasts come as they did; if the daemon has gone, the one that there is says so.
    fn next_is(&mut self, opened: Result<Events<Forecasts>, Error>, every_ms: u64) {
        self.next = opened.ok().map(|forecasts| (forecasts, every_ms));
        if self.next.is_none() {
            self.pace_at = Instant::now() + PACE_RETRY;
        }
    }

    /// The next forecast that is there.
    fn next_ready(&mut self) -> Result<Option<Forecasts>, Error> {
        if let Some((mut forecasts, every_ms)) = self.next.take() {
            match forecasts.next_ready() {
                Ok(Some(first)) => {
                    (self.forecasts, self.every_ms) = (forecasts, every_ms);
                    return Ok(Some(first));
                }
                outcome => self.next_is(outcome.map(|_| forecasts), every_ms),
            }
        }
        self.forecasts.next_ready()
    }
}

/// Forecasts of the domain, one every so many milliseconds. With `slowed` they say who is slowed.
fn watch(client: Client, domain: &str, slowed: bool, every_ms: u64) -> Result<Events<Forecasts>, Error> {
    client.stream(&api::WatchForecasts {
        domain: Some(domain.to_owned()),
        domains_only: Some(true),
        every_ms: Some(every_ms),
        slowed: slowed.then_some(true),
        ..api::WatchForecasts::default()
    })
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
            let streams = [Some(&link.forecasts), link.next.as_ref().map(|(next, _)| next)];
            let streams = streams.into_iter().flatten();
            descriptors.extend(streams.map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)));
        }
        let timeout = Timespec { tv_sec: RETRY_EVERY.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
        self.signals.drain();
        Ok(())
    }

    fn connect(&mut self) -> Result<(), Error> {
        let slowed = matches!(self.policy, Policy::Empathy(_));
        let is_last = slowed && self.leave_alone_until.is_none();
        let link = Link::open(self.socket, &self.domain, is_last, slowed)?;
        self.forget();
        self.link = Some(link);
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
                // It did not end.
                if let Err(error) = self.set_place(false) {
                    self.lose(&error);
                }
            }
            return;
        };
        self.leave_alone_until = Some(Instant::now() + LEAVE_ALONE);
        self.let_go();
        if let Err(error) = self.set_place(true) {
            self.lose(&error);
        }
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

    /// Gives the program an ordinary place, so that it gets the CPU that it needs in order to end, or its own place
    /// again. Without the daemon, and where it refuses, it stays where it is.
    fn set_place(&mut self, ordinary: bool) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let domain = self.domain.clone();
        let outcome = match &self.policy {
            Policy::Empathy(_) => {
                link.client.call(&api::LowerDomain { domain, lowered: !ordinary }).map(drop)
            }
            Policy::Pace(pace) => {
                let settings = match ordinary {
                    true => DomainSettings { reset: vec!["weight".to_owned()], ..DomainSettings::default() },
                    false => DomainSettings { weight: Some(pace.weight()), ..DomainSettings::default() },
                };
                let request = api::SetDomain { domain, settings, ..api::SetDomain::default() };
                link.client.call(&request).map(drop)
            }
        };
        match outcome {
            Err(Error::Api(error)) if ordinary => self.say(&format!("it has to end where it is: {error}")),
            Err(Error::Api(error)) => {
                eprintln!("steward: the program did not end, and is not put back to where it was: {error}");
            }
            outcome => return outcome,
        }
        Ok(())
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
        while let Some(forecasts) = link.next_ready()? {
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
        let own = forecasts.domains.iter().find(|domain| domain.name == self.domain);
        let Some(own) = own.filter(|own| own.tasks > 0) else {
            // The program is not there yet: it is not to blame for what is slow, and would be stopped on its way.
            return Ok(());
        };
        match &mut self.policy {
            Policy::Empathy(empathy) => {
                let look = Look::of(forecasts);
                let action = empathy.observe(forecasts.at_ns, &look);
                let every_ms = empathy.looks_again_in_ns(forecasts.at_ns) / 1_000_000;
                if let Some(link) = &mut self.link {
                    link.pace(self.socket, &self.domain, every_ms);
                }
                let Some(action) = action else { return Ok(()) };
                let done = if action == Action::Suspend { "suspended" } else { "goes on" };
                let whom = whom(empathy.hurt_most(&look), forecasts);
                let used = look.others_used * 100.0;
                self.say(&format!("{done}: {whom}; others use {used:.0} % of the CPU"));
                self.suspend(action == Action::Suspend)
            }
            Policy::Pace(pace) => {
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
        let request = api::ShowDomain { domain: Some(self.domain.clone()), pid: None };
        if link.client.call(&request).is_ok_and(|shown| shown.processes.is_empty()) {
            // It may have gone by itself.
            let _ = link.client.call(&api::RemoveDomain { domain: self.domain.clone(), kill: None });
        }
    }
}

/// Who is slower because of the program, in words.
fn whom(hurt: Option<(Whom, f64)>, forecasts: &Forecasts) -> String {
    let Some((whom, factor)) = hurt else { return "nobody is slower because of it".to_owned() };
    let lack = match whom.by {
        Lack::Cpu => "a CPU",
        Lack::Memory => "memory",
        Lack::Disk => "the disk",
    };
    let named = forecasts.slowed.iter().find(|slowed| (slowed.by, slowed.id) == (whom.by, whom.id));
    let who = match named.and_then(|slowed| slowed.name.as_deref()) {
        Some(name) if whom.by == Lack::Cpu => format!("{name} (thread {})", whom.id),
        Some(name) => format!("the domain {name}"),
        None if whom == Whom::ALL => "others together".to_owned(),
        None => "somebody".to_owned(),
    };
    format!(
        "{who} {} {factor:.2} times slower for want of {lack}",
        if whom == Whom::ALL { "are" } else { "is" }
    )
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
