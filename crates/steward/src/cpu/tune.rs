//! `steward tune`: finds the reservation that a program or a domain needs by trying. The search itself is
//! [`steward_core::cpu::tune`]; this asks the daemon what was missed, and sets what the search wants next.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use libsteward::{Client, Error, api};
use serde::Serialize;
use steward_core::cpu::reservation::Reservation;
use steward_core::cpu::tune::{Evidence, Settings, Step, Tuner};
use steward_core::quantity::{parse_fraction, percent};
use steward_core::spec::{Class, Origin, Spec, SpecPath, to_toml};

use super::api::to_api;
use crate::arguments::parse_time;
use crate::output::{print, print_json};
use crate::who::{self, Newest, Who};

/// How often the daemon is asked what was missed, at least: four times in a window.
const LOOK_MAX: Duration = Duration::from_millis(250);
/// How long a launcher may take to become the program.
const LAUNCH_MAX: Duration = Duration::from_secs(10);
/// Reservations are whole tenths of a millisecond: finer cannot be enforced.
const GRAIN_NS: u64 = 100_000;

/// Find the reservation that a program or a domain needs
///
/// Tries: raises the reservation at once when frames or deadlines are missed, lowers it slowly while none are, and ends
/// when the two are close. What a program misses it says itself (libsteward's complain); of one that does not, missed
/// deadlines and used up budgets count. Run the load beside it that it is to stand. What was found stays in force; with
/// CMD, until that ends, and is adjusted as long. Exits with 1 when nothing was found in time.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whom").required(true).multiple(true).args(["domain", "pid", "command"])))]
#[command(after_help = "Examples:\n  \
        steward tune -- mplayer film.mkv\n  \
        steward tune --write /etc/steward/specs/60-mine.toml -- mplayer film.mkv\n  \
        steward tune --domain player\n  \
        steward tune --pid mplayer --period 40ms")]
pub struct TuneArguments {
    /// Find the fraction of the CPU that this domain needs, of its parent's. With CMD, it is created when missing, and
    /// CMD runs in it.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "write"])]
    pub domain: Option<String>,
    /// Find C:T for a running process, by number or name.
    #[arg(long, value_name = "PROCESS", value_parser = who::parse, conflicts_with = "command")]
    pub pid: Option<Who>,
    #[command(flatten)]
    pub newest: Newest,
    /// The period T of a process's reservation: about the time between two frames.
    #[arg(long = "period", value_name = "T", default_value = "30ms", value_parser = parse_period)]
    pub period_ns: u64,
    /// The process's other threads and children get the same reservation.
    #[arg(long)]
    pub inherit: bool,
    /// Where to start, unless it has a reservation.
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = parse_fraction)]
    pub start: f64,
    /// The most that may be reserved.
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = parse_fraction)]
    pub max: f64,
    /// How long nothing may be missed before a reservation counts as enough.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub window: Duration,
    /// How long to search.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub within: Duration,
    /// Write the specification found there. Must not exist yet.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print one JSON object, with its "schema", instead of text.
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// What [`parse_time`] has read fits.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn parse_period(text: &str) -> Result<u64, String> {
    let period_ns = nanoseconds(parse_time(text)?);
    let whole = Reservation { budget_ns: period_ns, period_ns };
    whole.validate().map(|()| period_ns).map_err(|error| error.to_string())
}

/// Whose reservation is searched for.
enum Target {
    /// `C:T` of a process; a level is `C / T`.
    Process { pid: i32, period_ns: u64, inherit: bool, executable: Option<PathBuf> },
    /// A fraction of its parent's CPU. `cpus` is what all of that is, in CPUs.
    Domain { name: String, cpus: f64, watched: Option<Watched> },
}

/// A domain and those below it, by name.
struct Watched {
    names: Vec<String>,
    listed: Instant,
}

/// So many domains are asked about one by one. To list all of a machine's ten times a second takes the daemon far more,
/// which then learns late of what programs complain about.
const WATCHED_MAX: usize = 8;
/// How often it is looked which domains there are.
const LIST_EVERY: Duration = Duration::from_secs(5);

impl Target {
    /// A level as people write it.
    fn describe(&self, level: f64) -> String {
        match self {
            Target::Process { period_ns, .. } => {
                format!("{} ({})", reservation(level, *period_ns), percent(level))
            }
            Target::Domain { .. } => percent(level),
        }
    }

    fn name(&self) -> String {
        match self {
            Target::Process { pid, executable, .. } => {
                let name = executable.as_ref().and_then(|path| path.file_name());
                let name = name.map(|name| name.to_string_lossy().into_owned());
                name.unwrap_or_else(|| format!("process {pid}"))
            }
            Target::Domain { name, .. } => format!("domain {name}"),
        }
    }

    /// Puts a level into force.
    fn set(&self, client: &mut Client, level: f64) -> Result<(), Error> {
        match self {
            Target::Process { pid, period_ns, inherit, .. } => {
                let cpu = to_api(reservation(level, *period_ns));
                let (inherit, revocable) = (Some(*inherit), Some(true));
                let keep_if_refused = Some(false);
                client
                    .call(&api::Set {
                        pid: *pid,
                        cpu,
                        inherit,
                        revocable,
                        keep_if_refused,
                        requests_at: None,
                    })
                    .map(drop)
            }
            Target::Domain { name, .. } => {
                let settings = api::DomainSettings { cpu: Some(level), ..api::DomainSettings::default() };
                let domain = name.clone();
                client.call(&api::SetDomain { domain, settings, ..api::SetDomain::default() }).map(drop)
            }
        }
    }

    /// What is counted about it; `None` when it has gone.
    fn look(&mut self, client: &mut Client) -> Result<Option<Evidence>, Error> {
        match self {
            Target::Process { pid, executable, .. } => {
                // A launcher becomes the program while it is looked at: the last one counts.
                *executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok().or(executable.take());
                let status = client.call(&api::Status {})?;
                Ok(of_tasks(status.cpu.tasks.iter().filter(|task| task.pid == *pid)))
            }
            Target::Domain { name, watched, .. } => {
                if watched.as_ref().is_none_or(|watched| watched.listed.elapsed() >= LIST_EVERY) {
                    let domains = client.call(&api::ListDomains {})?.domains;
                    let names = of_whom(&domains, name).map(|domain| domain.name.clone()).collect();
                    *watched = Some(Watched { names, listed: Instant::now() });
                }
                let names = watched.as_ref().map_or(&[][..], |watched| &watched.names);
                let domains = if names.len() <= WATCHED_MAX {
                    let shown = names.iter().filter_map(|name| show_if_there(client, name).transpose());
                    shown.collect::<Result<_, _>>()?
                } else {
                    client.call(&api::ListDomains {})?.domains
                };
                Ok(of_domain(&domains, name))
            }
        }
    }

    /// How many CPUs a level of 1 is.
    fn cpus(&self) -> f64 {
        match self {
            Target::Process { .. } => 1.0,
            Target::Domain { cpus, .. } => *cpus,
        }
    }
}

/// `level * T` in every `T`, rounded up to what can be enforced.
fn reservation(level: f64, period_ns: u64) -> Reservation {
    let grains = (level * period_ns as f64 / GRAIN_NS as f64 - 1e-9).ceil().max(1.0);
    Reservation { budget_ns: (grains as u64 * GRAIN_NS).min(period_ns), period_ns }
}

/// The process's tasks together; its use is that of the one that used most, since each has the whole reservation.
fn of_tasks<'a>(tasks: impl Iterator<Item = &'a api::Task>) -> Option<Evidence> {
    tasks.fold(None, |sum: Option<Evidence>, task| {
        let sum = sum.unwrap_or_default();
        Some(Evidence {
            complaints: sum.complaints.max(task.complaints),
            deadlines_missed: sum.deadlines_missed + task.deadlines_missed,
            budgets_exhausted: sum.budgets_exhausted + task.budgets_exhausted,
            periods: sum.periods + task.periods,
            cpu_ns: sum.cpu_ns.max(Some(task.reserved_time_ns + task.best_effort_time_ns)),
        })
    })
}

/// What there is to know of a domain.
fn show(client: &mut Client, name: &str) -> Result<api::Domain, Error> {
    client.call(&api::ShowDomain { domain: Some(name.to_owned()), pid: None }).map(|shown| shown.domain)
}

/// The same; `None` when it has gone.
fn show_if_there(client: &mut Client, name: &str) -> Result<Option<api::Domain>, Error> {
    match show(client, name) {
        Err(Error::Api(api::ApiError::NoSuchDomain { .. })) => Ok(None),
        shown => shown.map(Some),
    }
}

/// The domain and all below it.
fn of_whom<'a>(domains: &'a [api::Domain], name: &str) -> impl Iterator<Item = &'a api::Domain> {
    let path = domains.iter().find(|domain| domain.name == name).map(|domain| domain.path.clone());
    let below = path.as_ref().map(|path| format!("{}/", path.trim_end_matches('/')));
    domains.iter().filter(move |domain| {
        path.as_ref() == Some(&domain.path)
            || below.as_ref().is_some_and(|below| domain.path.starts_with(below))
    })
}

/// The domain together with all below it: theirs is paid out of its own.
fn of_domain(domains: &[api::Domain], name: &str) -> Option<Evidence> {
    let mut all = of_whom(domains, name).peekable();
    all.peek()?;
    Some(all.fold(Evidence::default(), |sum, domain| {
        let used = domain.usage.map(|usage| usage.best_effort_time_ns + usage.reserved_time_ns);
        Evidence {
            complaints: sum.complaints + domain.complaints,
            cpu_ns: used.map_or(sum.cpu_ns, |used| Some(sum.cpu_ns.unwrap_or(0) + used)),
            ..sum
        }
    }))
}

/// What was done when, for `--json`.
#[derive(Debug, Serialize)]
struct Change {
    after_seconds: f64,
    level: f64,
    reason: String,
}

/// What a search came to.
#[derive(Debug, Default, Serialize)]
struct Found {
    /// Whether it came to an end.
    settled: bool,
    /// The level in force, as a fraction of a CPU or of the domain's parent.
    level: f64,
    /// The highest level known to be too little.
    #[serde(skip_serializing_if = "Option::is_none")]
    complained: Option<f64>,
    /// For a process: the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<api::Reservation>,
    /// For a domain: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// How long the search took.
    seconds: f64,
    changes: Vec<Change>,
}

/// A search with its connection and its clock.
struct Search {
    client: Client,
    target: Target,
    tuner: Tuner,
    started: Instant,
    within: Duration,
    /// How long to wait between two looks.
    pause: Duration,
    /// The last evidence, and when it was seen.
    before: Option<(Evidence, u64)>,
    /// The level that was last said to be too little although no more can be had.
    insufficient: Option<f64>,
    found: Found,
}

/// `steward tune`. False when nothing was found in time, or what was found is not enough.
pub fn tune(socket: &Path, arguments: &TuneArguments) -> anyhow::Result<bool> {
    let mut client = Client::connect(socket)?;
    let (target, mut child) = begin(&mut client, socket, arguments)?;
    let start = starting_level(&mut client, &target, arguments)?;
    let highest = highest(&mut client, &target, arguments.max)?;
    let tuner = Tuner::new(settings(&target, highest, arguments.window), start, 0);
    match (&target, &mut child) {
        // It asked for that itself.
        (Target::Process { .. }, Some(child)) => await_program(child)?,
        _ => target.set(&mut client, tuner.level())?,
    }
    eprintln!("steward: {}: starting with {}", target.name(), target.describe(tuner.level()));
    let mut search = Search {
        client,
        target,
        tuner,
        started: Instant::now(),
        within: arguments.within,
        pause: (arguments.window / 4).min(LOOK_MAX),
        before: None,
        insufficient: None,
        found: Found::default(),
    };
    search.run(&mut child)?;
    search.report(arguments)?;
    let settled = search.found.settled;
    if let Some(child) = &mut child {
        search.watch(child)?;
    }
    Ok(settled)
}

/// Starts the program if there is one.
fn begin(
    client: &mut Client,
    socket: &Path,
    arguments: &TuneArguments,
) -> anyhow::Result<(Target, Option<Child>)> {
    if let Some(name) = &arguments.domain {
        let child = match arguments.command.is_empty() {
            true => None,
            false => {
                make_domain(client, name, arguments.start)?;
                Some(launch(socket, &["--domain", name], &arguments.command)?)
            }
        };
        let cpus = cpus_of_parent(client, name)?;
        return Ok((Target::Domain { name: name.clone(), cpus, watched: None }, child));
    }
    let (period_ns, inherit) = (arguments.period_ns, arguments.inherit);
    let mut child = None;
    let pid = match &arguments.pid {
        Some(process) => who::resolve_process(process, arguments.newest)?,
        None => {
            let cpu = reservation(arguments.start, period_ns).to_string();
            let mut given = vec!["--cpu", &cpu];
            given.extend(inherit.then_some("--inherit"));
            let started = launch(socket, &given, &arguments.command)?;
            child.insert(started).id() as i32
        }
    };
    Ok((Target::Process { pid, period_ns, inherit, executable: None }, child))
}

/// Starts a program through `steward run`, which becomes it.
fn launch(socket: &Path, given: &[&str], command: &[std::ffi::OsString]) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let mut launcher = Command::new(own);
    launcher.arg("--socket").arg(socket).arg("run").args(given).arg("--").args(command);
    launcher.spawn().context("cannot start the program through `steward run`")
}

/// Waits until the launcher has become the program or has ended: what is set before would not outlast that.
fn await_program(child: &mut Child) -> anyhow::Result<()> {
    let executable = |pid: &str| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let (own, pid) = (executable("self"), child.id().to_string());
    let begin = Instant::now();
    // A program that is this one cannot be told from its launcher; nobody tunes it, but it must not be waited for for
    // ever.
    while executable(&pid) == own && begin.elapsed() < LAUNCH_MAX && child.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn make_domain(client: &mut Client, name: &str, start: f64) -> Result<(), Error> {
    let settings = api::DomainSettings { cpu: Some(start), ..api::DomainSettings::default() };
    let request = api::CreateDomain { domain: name.to_owned(), settings, ..api::CreateDomain::default() };
    match client.call(&request) {
        Err(Error::Api(api::ApiError::DomainExists { .. })) => Ok(()),
        other => other.map(drop),
    }
}

/// All that the parent of a domain is guaranteed, in CPUs.
fn cpus_of_parent(client: &mut Client, name: &str) -> Result<f64, Error> {
    let cpus = client.call(&api::Status {})?.cpu.cpus.iter().filter(|cpu| cpu.online).count() as f64;
    let fraction = parent_of(client, name)?.map_or(1.0, |parent| parent.cpu_guaranteed);
    Ok(cpus * if fraction > 0.0 { fraction } else { 1.0 })
}

fn parent_of(client: &mut Client, name: &str) -> Result<Option<api::Domain>, Error> {
    let Some(parent) = show(client, name)?.parent else { return Ok(None) };
    show(client, &parent).map(Some)
}

/// What it has now; otherwise what was asked for.
fn starting_level(client: &mut Client, target: &Target, arguments: &TuneArguments) -> Result<f64, Error> {
    let has = match target {
        Target::Process { pid, .. } => {
            let status = client.call(&api::Status {})?;
            let task = status.cpu.tasks.into_iter().find(|task| task.pid == *pid);
            task.map(|task| task.grant.reservation)
                .map(|cpu| Reservation { budget_ns: cpu.budget_ns, period_ns: cpu.period_ns }.bandwidth())
        }
        Target::Domain { name, .. } => show(client, name)?.cpu.filter(|cpu| *cpu > 0.0),
    };
    Ok(has.unwrap_or(arguments.start))
}

/// The most that can be asked for: what was said, and for a domain what its siblings leave.
fn highest(client: &mut Client, target: &Target, said: f64) -> Result<f64, Error> {
    let Target::Domain { name, .. } = target else { return Ok(said) };
    let Some(parent) = parent_of(client, name)? else { return Ok(said) };
    let own = show(client, name)?.cpu;
    let left = parent.cpu_reservable - (parent.cpu_sum - own.unwrap_or(0.0));
    Ok(said.min(left).max(lowest(target)))
}

/// How is searched for this target's level.
fn settings(target: &Target, highest: f64, window: Duration) -> Settings {
    let (window_ns, aftermath_ns) = (nanoseconds(window), nanoseconds(window));
    Settings { highest, lowest: lowest(target), window_ns, aftermath_ns, ..Settings::default() }
}

/// The least that can be enforced.
fn lowest(target: &Target) -> f64 {
    match target {
        Target::Process { period_ns, .. } => GRAIN_NS as f64 / *period_ns as f64,
        Target::Domain { .. } => Settings::default().lowest,
    }
}

impl Search {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Searches until something is found, the time is over, or the program ends.
    fn run(&mut self, child: &mut Option<Child>) -> anyhow::Result<()> {
        while !self.found.settled && self.started.elapsed() < self.within {
            std::thread::sleep(self.pause);
            if has_ended(child)? || !self.look()? {
                if self.found.changes.is_empty() && self.before.is_none() {
                    bail!("{} has ended before anything could be seen of it", self.target.name());
                }
                eprintln!("steward: {} has ended", self.target.name());
                break;
            }
        }
        self.found.level = self.tuner.level();
        self.found.seconds = self.started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Goes on adjusting until the program has ended.
    fn watch(&mut self, child: &mut Child) -> anyhow::Result<()> {
        while child.try_wait()?.is_none() {
            std::thread::sleep(self.pause);
            // What is last seen of a program that ends is its end.
            if !self.look()? {
                child.wait()?;
            }
        }
        Ok(())
    }

    /// One look and what follows from it; false when the target has gone.
    fn look(&mut self) -> anyhow::Result<bool> {
        let Some(evidence) = self.target.look(&mut self.client)? else { return Ok(false) };
        let now_ns = self.now_ns();
        let Some((before, before_ns)) = self.before.replace((evidence, now_ns)) else { return Ok(true) };
        let seen = evidence.since(&before, now_ns - before_ns, self.target.cpus());
        let last = self.tuner.level();
        match self.tuner.observe(now_ns, seen) {
            Step::Hold => {}
            Step::Set { level, reason } => return self.change(last, level, &reason.to_string()),
            Step::Settled { level, complained } => {
                self.found.settled = true;
                self.found.complained = complained;
                self.say(&format!("settled at {}", self.target.describe(level)));
            }
            Step::Insufficient { level, complaints } if self.insufficient != Some(level) => {
                self.insufficient = Some(level);
                let (s, level) = (if complaints == 1 { "" } else { "s" }, self.target.describe(level));
                self.say(&format!("{complaints} complaint{s} at {level}, and no more can be reserved"));
            }
            Step::Insufficient { .. } => {}
        }
        Ok(true)
    }

    fn change(&mut self, last: f64, level: f64, reason: &str) -> anyhow::Result<bool> {
        match self.target.set(&mut self.client, level) {
            Ok(()) => {}
            Err(Error::Api(
                refusal @ (api::ApiError::AdmissionRefused { .. } | api::ApiError::Overcommitted { .. }),
            )) => {
                self.say(&format!("refused {}: {refusal}", self.target.describe(level)));
                self.tuner.refused(last);
                self.target.set(&mut self.client, last)?;
                return Ok(true);
            }
            Err(Error::Api(api::ApiError::NoSuchTask { .. } | api::ApiError::NoSuchDomain { .. })) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        self.say(&format!("{}: {reason}", self.target.describe(level)));
        let after_seconds = self.started.elapsed().as_secs_f64();
        self.found.changes.push(Change { after_seconds, level, reason: reason.to_owned() });
        Ok(true)
    }

    fn say(&self, text: &str) {
        eprintln!("steward: {:5.1} s  {text}", self.started.elapsed().as_secs_f64());
    }

    /// Prints what was found, and writes the specification if asked to.
    fn report(&mut self, arguments: &TuneArguments) -> anyhow::Result<()> {
        let level = self.found.level;
        let (found, specification) = match &self.target {
            Target::Process { period_ns, inherit, executable, .. } => {
                let cpu = reservation(level, *period_ns);
                self.found.cpu = Some(to_api(cpu));
                let row: Option<String> = executable.as_ref().map(|path| specification(path, cpu, *inherit));
                (format!("{cpu} ({})", percent(level)), row)
            }
            Target::Domain { name, .. } => {
                self.found.domain = Some(name.clone());
                (percent(level), None)
            }
        };
        if arguments.json {
            print_json(&self.found)?;
        } else if self.found.settled {
            print(&format!("{} needs {found}.\n", self.target.name()))?;
            match (&self.target, &specification) {
                (Target::Domain { name, .. }, _) => {
                    let rounded = (level * 1e4).ceil() / 1e2;
                    print(&format!("steward domain set {name} --cpu {rounded}%\n"))?;
                }
                (_, Some(row)) => print(row)?,
                (_, None) => {}
            }
        } else {
            let seconds = self.found.seconds;
            print(&format!("Nothing was found in {seconds:.0} s; {} has {found}.\n", self.target.name()))?;
        }
        match (&arguments.write, specification) {
            (Some(file), Some(row)) if self.found.settled => crate::spec::write_new(file, &row),
            (Some(file), _) => {
                eprintln!("steward: nothing was written to {}", file.display());
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }
}

fn has_ended(child: &mut Option<Child>) -> std::io::Result<bool> {
    Ok(match child {
        Some(child) => child.try_wait()?.is_some(),
        None => false,
    })
}

fn specification(path: &Path, cpu: Reservation, inherit: bool) -> String {
    to_toml(&[Spec {
        path: SpecPath::Executable(path.to_owned()),
        class: Class::Interactive,
        reservation: Some(cpu),
        inherit,
        revocable: true,
        user: None,
        protect: None,
        memory_min: None,
        memory_max: None,
        io: None,
        disk: None,
        io_priority: None,
        io_max: None,
        origin: Origin::command_line(),
    }])
}

#[cfg(test)]
mod tests {
    use steward_sim::cpu::scenario::TaskSpec;
    use steward_sim::{Amount, Machine, Phase, Program, Scenario};

    use super::*;

    #[test]
    fn a_level_becomes_whole_tenths_of_a_millisecond_upwards() {
        assert_eq!(reservation(0.15, 30_000_000).budget_ns, 4_500_000);
        assert_eq!(reservation(0.151, 30_000_000).budget_ns, 4_600_000);
        assert_eq!(reservation(0.000_1, 30_000_000).budget_ns, 100_000);
        assert_eq!(reservation(1.0, 30_000_000).budget_ns, 30_000_000);
    }

    #[test]
    fn what_is_below_a_domain_counts_for_it() {
        let domain = |path: &str, complaints| api::Domain {
            name: path[1..].into(),
            path: path.into(),
            complaints,
            ..api::Domain::default()
        };
        let mut domains = vec![domain("/web", 1), domain("/web/front", 2), domain("/webmail", 4)];
        assert_eq!(of_domain(&domains, "web").map(|sum| (sum.complaints, sum.cpu_ns)), Some((3, None)));
        domains[1].usage = Some(api::DomainUsage { best_effort_time_ns: 7, ..Default::default() });
        assert_eq!(of_domain(&domains, "web").and_then(|sum| sum.cpu_ns), Some(7));
        assert_eq!(of_domain(&domains, "mail"), None);
    }

    const MS: u64 = 1_000_000;

    /// A shell that needs 9 ms for each line, beside 200 busy loops on one CPU, with this reservation.
    fn shell_in_a_storm(reservation: Reservation, seed: u64) -> Machine {
        let task = |name: &str, count, phases: &[Phase], reservation| TaskSpec {
            name: name.to_owned(),
            count,
            domains: vec![None],
            weight: 100,
            starts: vec![Amount::Fixed(0)],
            pinned: None,
            reservation,
            user: 0,
            programs: vec![Program { phases: phases.into(), repeat: None }],
        };
        let line = [Phase::Sleep(Amount::Uniform(150 * MS, 600 * MS)), Phase::Run(Amount::Fixed(9 * MS))];
        let tasks = vec![
            task("shell", 1, &line, Some((reservation, true))),
            task("storm", 200, &[Phase::Run(Amount::Forever)], None),
        ];
        Machine::new(&Scenario { seed, tasks, ..Scenario::default() })
    }

    /// What the scheduler's own counters say of it is all that the search has: it says nothing itself.
    #[test]
    fn a_shell_with_5_ms_that_needs_9_is_found_to_need_8_to_11() {
        const PERIOD_NS: u64 = 100 * MS;
        const LOOK_NS: u64 = 250 * MS;
        let target = Target::Process { pid: 1, period_ns: PERIOD_NS, inherit: false, executable: None };
        for seed in 1..=8 {
            let mut tuner = Tuner::new(settings(&target, 0.8, Duration::from_secs(1)), 0.05, 0);
            let mut machine = shell_in_a_storm(reservation(tuner.level(), PERIOD_NS), seed);
            let (mut base, mut before, mut begun_ns) = (Evidence::default(), Evidence::default(), 0);
            let mut levels = vec![tuner.level()];
            let mut now_ns = 0;
            while !tuner.settled() && now_ns < 120_000 * MS {
                now_ns += LOOK_NS;
                machine.run_until(now_ns - begun_ns);
                machine.account();
                let shell = machine.task_view(0);
                let counted = shell.reservation.expect("it has a reservation");
                let seen = Evidence {
                    complaints: 0,
                    deadlines_missed: base.deadlines_missed + counted.missed,
                    budgets_exhausted: base.budgets_exhausted + counted.exhausted,
                    periods: base.periods + counted.periods,
                    cpu_ns: base.cpu_ns.or(Some(0)).map(|used_ns| used_ns + shell.used_ns),
                };
                if let Step::Set { level, .. } =
                    tuner.observe(now_ns, seen.since(&before, LOOK_NS, target.cpus()))
                {
                    machine = shell_in_a_storm(reservation(level, PERIOD_NS), seed + 8 * levels.len() as u64);
                    levels.push(level);
                    (base, begun_ns) = (seen, now_ns);
                }
                before = seen;
            }
            let found = reservation(tuner.level(), PERIOD_NS);
            assert!(tuner.settled(), "seed {seed}: {levels:?}");
            assert!((8 * MS..=11 * MS).contains(&found.budget_ns), "seed {seed}: {found} after {levels:?}");
        }
    }

    #[test]
    fn percentages_have_their_sign_and_are_of_something() {
        assert_eq!(parse_fraction("20%"), Ok(0.2));
        assert!(
            parse_fraction("20").is_err() && parse_fraction("0%").is_err() && parse_fraction("120%").is_err()
        );
    }

    #[test]
    fn the_specification_found_can_be_read_back() {
        let text = specification(Path::new("/usr/bin/mplayer"), reservation(0.15, 30_000_000), true);
        let parsed = steward_core::spec::parse_toml(Path::new("found.toml"), &text);
        assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
        assert_eq!(parsed.specs[0].reservation, Some(reservation(0.15, 30_000_000)));
    }
}
