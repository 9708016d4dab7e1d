//! `steward run`: asks the daemon for this process, then becomes the program.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use libsteward::{Client, api};
use steward_core::cpu::reservation::Reservation;
use steward_core::disk::Limit;
use steward_core::disk::priority::Priority;
use steward_core::{disk, spec};
use steward_kernel::disk::priority;

use crate::account::{Account, Environment};
use crate::arguments::parse_reservation;
use crate::cpu::api::to_api;
use crate::disk::arguments::{DiskArguments, per_second};
use crate::memory::arguments::MemoryArguments;

/// Start a program with a CPU reservation
///
/// With --cpu the program gets that reservation and keeps it whatever it executes. Without, it gets its own
/// specification, even when started from a program that has none (which otherwise starts no interactive ones). Root and
/// the machine's owner may reserve, and whoever sits at the machine up to half of one CPU for their own programs.
/// Through sudo the program would run as root: name the user with --user.
///
/// A program that is put into a domain is told by systemd's pressure protocol (MEMORY_PRESSURE_WATCH) when it should
/// give memory back.
///
/// Exits with what the program exits with; 125: steward itself failed, 126: the program cannot be executed, 127: there
/// is no such program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward run --cpu 5ms/30ms -- mplayer film.mkv\n  \
        steward run --cpu 10ms/100ms --inherit -- make check\n  \
        steward run --memory-min 64M --memory-max 1G -- gimp\n  \
        steward run --protect -- gimp\n  \
        steward run --io background -- make -j8\n  \
        steward run --spec '/usr/bin/mplayer:Iact:5:30:IR:-:-' -- mplayer film.mkv\n  \
        sudo steward run --user alice --cpu 60ms/100ms -- mplayer film.mkv\n  \
        steward run -- mplayer film.mkv")]
pub struct RunArguments {
    #[command(flatten)]
    pub reservation: ReservationArguments,
    /// The reservation, flags, protection and I/O class as a row in the one-line form; its path is not looked at. With
    /// a protection or a class a domain is made for the program.
    #[arg(long, value_name = "ROW", conflicts_with_all = ["cpu", "inherit", "irrevocable", "MemoryArguments", "DiskArguments"])]
    pub spec: Option<String>,
    /// Start the program as best-effort when the reservation is refused or the daemon does not run, with a word on
    /// standard error. Refused for lack of room, it gets its reservation once there is some.
    #[arg(long)]
    pub best_effort_if_refused: bool,
    /// Run in this domain; without --cpu, as best-effort in it.
    #[arg(long, value_name = "DOMAIN", conflicts_with = "spec")]
    pub domain: Option<String>,
    /// Make the domain first if there is none; it goes away with its last process.
    #[arg(long, requires = "domain")]
    pub create: bool,
    /// Run the program as this user (a name or a number), with that user's groups, HOME, SHELL, USER and LOGNAME. Root
    /// only.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
    /// What is asked of memory. Last, with the disk: what follows a heading of the help is under it.
    #[command(
        flatten,
        next_help_heading = "Memory and disk (makes a domain for the program, below --domain where that is given)"
    )]
    pub memory: MemoryArguments<i64>,
    /// What is asked of the disk.
    #[command(flatten)]
    pub disk: DiskArguments<api::IoClass, f64, Limit>,
}

/// What is reserved.
#[derive(Clone, Debug, Args)]
pub struct ReservationArguments {
    /// CPU time, and the period in which it is given: 5ms/30ms is 5 ms in every 30 ms.
    #[arg(long, value_name = "C/T", value_parser = parse_reservation)]
    pub cpu: Option<Reservation>,
    /// Children get the same (for a running process: its other threads too).
    #[arg(long, requires = "cpu")]
    pub inherit: bool,
    /// Never take it back under overload.
    #[arg(long, requires = "cpu")]
    pub irrevocable: bool,
}

/// steward itself failed.
pub const OWN_FAILURE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// For how long the program is kept from starting while its disk requests have not their priority: the daemon looks ten
/// times a second at most.
const DISK_PATIENCE: Duration = Duration::from_millis(250);
/// Between two looks.
const DISK_LOOK: Duration = Duration::from_millis(1);

/// Runs the program in place of this one; returns only when that failed.
pub fn run(socket: &Path, arguments: &RunArguments) -> ExitCode {
    let mut request = match request(arguments) {
        Ok(request) => request,
        Err(message) => return fail(&message),
    };
    let has_domain = request.domain.is_some() || request.needs_domain();
    request.memory_pressure = (has_domain && !is_pressure_unwanted()).then_some(true);
    let account = match arguments.user.as_deref().map(Account::of).transpose() {
        Ok(account) => account,
        Err(message) => return fail(&message),
    };
    if account.is_none()
        && let Some(warning) = root_through_sudo(arguments)
    {
        eprintln!("steward: {warning}");
    }
    let ran = match ask(socket, &request, arguments.create) {
        Ok(reply) => reply,
        Err(error) if arguments.best_effort_if_refused => {
            eprintln!("steward: {error}\nsteward: running as best-effort");
            api::Ran::default()
        }
        Err(error) => {
            return fail(&format!("{error}{}", way_out(&error, &request)));
        }
    };
    if ran.standing == Some(api::Standing::Refused) {
        eprintln!("steward: there is no room for the reservation now: running as best-effort until there is");
    }
    if ran.served_first == Some(true) {
        await_disk_priority(Instant::now() + DISK_PATIENCE, own_disk_priority);
    }
    let mut environment = match account.as_ref().map(Account::become_it).transpose() {
        Ok(environment) => environment.unwrap_or_default(),
        Err(message) => return fail(&message),
    };
    environment.extend(ran.memory_pressure.iter().flat_map(|fifo| pressure_variables(fifo)));
    execute(&arguments.command, &environment)
}

/// Waits until requests of this process have a priority. The daemon has it written after its answer, which takes a few
/// milliseconds; and an elevator goes by what a process had at its first request for as long as it has others under
/// way, up to an eighth of a second. Whoever gets none starts all the same.
fn await_disk_priority(until: Instant, read: impl Fn() -> Option<Priority>) {
    while read() == Some(Priority::Unset) && Instant::now() < until {
        std::thread::sleep(DISK_LOOK);
    }
}

fn own_disk_priority() -> Option<Priority> {
    priority::read(i32::try_from(std::process::id()).ok()?).ok()
}

/// What to say to somebody whose program would run as root because steward does.
fn root_through_sudo(arguments: &RunArguments) -> Option<String> {
    let user = std::env::var("SUDO_USER").ok().filter(|user| user != "root" && !user.is_empty())?;
    let program = Path::new(arguments.command.first()?).file_name()?.to_string_lossy().into_owned();
    let (user, program) = (user.escape_debug(), program.escape_debug());
    rustix::process::geteuid().is_root().then(|| {
        format!(
            "{program} will run as root, because sudo started steward; sudo steward run --user {user} ... runs it as {user}"
        )
    })
}

/// What to say beside a refusal: how the program can be started all the same.
fn way_out(error: &libsteward::Error, request: &api::Run) -> &'static str {
    match error {
        libsteward::Error::Api(api::ApiError::NoSuchDomain { .. }) => "\n(--create makes the domain first)",
        // Nothing is reserved that could be done without.
        libsteward::Error::Api(_)
            if request.cpu.is_none() && request.domain.is_some() && !request.needs_domain() =>
        {
            ""
        }
        _ => "\n(--best-effort-if-refused runs the program without a reservation)",
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("steward: {message}");
    ExitCode::from(OWN_FAILURE)
}

fn request(arguments: &RunArguments) -> Result<api::Run, String> {
    let keep_if_refused = Some(arguments.best_effort_if_refused);
    if let Some(row) = &arguments.spec {
        let spec = spec::parse_row(row).map_err(|problem| problem.to_string())?;
        let reservation = spec.reservation.ok_or("the row is best-effort: there is nothing to reserve")?;
        if spec.io_priority.is_some() {
            return Err(
                "io_priority counts in a file of specifications only; leave out the number after io".into()
            );
        }
        return Ok(api::Run {
            cpu: Some(to_api(reservation)),
            inherit: Some(spec.inherit),
            revocable: Some(spec.revocable),
            keep_if_refused,
            protect: spec.protect.map(|period| i64::try_from(period.as_nanos()).unwrap_or(i64::MAX)),
            // The normal class is what it has without one, and asks for no domain.
            io: spec.io.filter(|class| *class != disk::Class::Normal).map(to_io),
            ..api::Run::default()
        });
    }
    let reservation = &arguments.reservation;
    let placed = api::Run {
        domain: arguments.domain.clone(),
        memory_min: arguments.memory.memory_min,
        memory_max: arguments.memory.memory_max,
        protect: arguments.memory.protect,
        io: arguments.disk.io,
        disk: arguments.disk.io_fraction,
        io_max_bytes: per_second(arguments.disk.io_max.and_then(|limit| limit.bytes_per_second)),
        io_max_requests: per_second(arguments.disk.io_max.and_then(|limit| limit.requests_per_second)),
        ..api::Run::default()
    };
    Ok(match reservation.cpu {
        Some(cpu) => api::Run {
            cpu: Some(to_api(cpu)),
            inherit: Some(reservation.inherit),
            revocable: Some(!reservation.irrevocable),
            keep_if_refused,
            ..placed
        },
        None => placed,
    })
}

fn to_io(class: disk::Class) -> api::IoClass {
    match class {
        disk::Class::Interactive => api::IoClass::Interactive,
        disk::Class::Normal => api::IoClass::Normal,
        disk::Class::Background => api::IoClass::Background,
    }
}

/// Where systemd's pressure protocol (<https://systemd.io/PRESSURE/>) says what a program is to watch, and what to
/// write to it first, in Base64.
const PRESSURE_WATCH: &str = "MEMORY_PRESSURE_WATCH";
const PRESSURE_WRITE: &str = "MEMORY_PRESSURE_WRITE";
/// An empty line. What it says does not matter: with it, the FIFO is opened for writing too, and then has no end when
/// the daemon has.
const PRESSURE_LINE: &str = "Cg==";

/// Whether whoever started us has turned off that the program is told of pressure.
fn is_pressure_unwanted() -> bool {
    std::env::var_os(PRESSURE_WATCH).is_some_and(|watch| watch == "/dev/null")
}

/// What the program's manager has set is about the cgroup that the program would have been in without us.
fn pressure_variables(fifo: &str) -> Environment {
    vec![(PRESSURE_WATCH, Some(fifo.into())), (PRESSURE_WRITE, Some(PRESSURE_LINE.into()))]
}

/// Asks the daemon.
fn ask(socket: &Path, request: &api::Run, create: bool) -> Result<api::Ran, libsteward::Error> {
    let mut client = Client::connect(socket)?;
    if let Some(domain) = request.domain.as_ref().filter(|_| create) {
        match client.call(&api::CreateDomain { domain: domain.clone(), ..api::CreateDomain::default() }) {
            Ok(_) | Err(libsteward::Error::Api(api::ApiError::DomainExists { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    client.call(request)
}

fn execute(command: &[OsString], environment: &Environment) -> ExitCode {
    let (program, arguments) = command.split_first().expect("clap asks for at least one");
    let mut command = Command::new(program);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let error = command.args(arguments).exec();
    eprintln!("steward: cannot execute {}: {error}", program.to_string_lossy());
    ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn the_program_waits_for_its_disk_priority_and_not_for_ever() {
        let looks = std::cell::Cell::new(0);
        let later = || {
            looks.set(looks.get() + 1);
            Some(if looks.get() < 3 { Priority::Unset } else { Priority::RealTime(4) })
        };
        await_disk_priority(Instant::now() + Duration::from_secs(60), later);
        assert_eq!(looks.get(), 3);
        await_disk_priority(Instant::now(), || Some(Priority::Unset));
        await_disk_priority(Instant::now() + Duration::from_secs(60), || Some(Priority::Idle));
        await_disk_priority(Instant::now() + Duration::from_secs(60), || None);
        assert!(own_disk_priority().is_some());
    }

    fn of_row(row: &str) -> api::Run {
        let line = Line::try_parse_from(["run", "--spec", row, "true"]).expect("it can be read");
        request(&line.run).expect("it asks for something")
    }

    #[test]
    fn all_that_a_row_says_is_asked_for() {
        let asked = of_row("/usr/bin/vi:Iact:5:30:IR:10:interactive");
        assert_eq!(asked.cpu, Some(api::Reservation { budget_ns: 5_000_000, period_ns: 30_000_000 }));
        assert_eq!((asked.inherit, asked.revocable), (Some(true), Some(true)));
        assert_eq!((asked.io, asked.protect), (Some(api::IoClass::Interactive), Some(600_000_000_000)));
        assert!(asked.needs_domain());
        let line = ["run", "--spec", "/usr/bin/vi:Iact:5:30:IR:10:interactive/2", "true"];
        let line = Line::try_parse_from(line).expect("it can be read");
        assert!(request(&line.run).is_err_and(|why| why.contains("io_priority")));
        for row in ["/usr/bin/vi:Iact:5:30:IR:-:-", "/usr/bin/vi:Iact:5:30:IR:-:normal"] {
            assert!(!of_row(row).needs_domain(), "{row}");
        }
    }
}
