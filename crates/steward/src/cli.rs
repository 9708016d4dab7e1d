//! The command line, as clap reads it: the one source of usage, completions and man pages.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use clap_complete::Shell;
use steward_core::mechanism::Reservation;

use crate::domain_cli::DomainCommand;
use crate::who::{Several, Who};

/// Give programs the CPU time that they were promised.
#[derive(Debug, Parser)]
#[command(
    name = "steward",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
        steward run --cpu 5ms/30ms -- mplayer film.mkv   5 ms of CPU in every 30 ms, whatever else runs\n  \
        steward domain create batch --cpu 20%            a fifth of the machine for a group of programs\n  \
        steward status                                   what is promised, and how full the CPUs are\n  \
        steward explain mplayer                          what a program has, and why\n  \
        steward doctor                                   what works on this machine, and what does not\n\n\
        Exit codes: 0 success, 1 failure, 2 usage. `steward run` and `steward background` give the program's own, and 125 to \
        127 for their own failures."
)]
pub struct Cli {
    /// The daemon's socket.
    #[arg(long, global = true, value_name = "PATH", env = "STEWARD_SOCKET", hide_env_values = true,
          default_value = libsteward::SOCKET_PATH)]
    pub socket: PathBuf,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArguments),
    Background(crate::background::BackgroundArguments),
    Set(SetArguments),
    #[command(subcommand)]
    Domain(DomainCommand),
    /// Check, list and convert specifications
    #[command(subcommand)]
    Spec(SpecCommand),
    Status(StatusArguments),
    /// Say why a process has what it has
    ///
    /// In sentences: what it is promised, where that comes from, whether it is in force, whether it was kept, and what
    /// would help if not.
    Explain(ExplainArguments),
    Events(EventsArguments),
    Forecast(crate::forecast::ForecastArguments),
    Top(crate::top::TopArguments),
    Report(crate::report::ReportArguments),
    Tune(crate::tune::TuneArguments),
    #[command(subcommand)]
    Pool(crate::pool::PoolCommand),
    /// Have the daemon read its configuration and specifications again
    ///
    /// It does so by itself when a file changes. Exits with 1 when something in them is wrong.
    Reload(JsonFlag),
    /// Say what works and which promises hold on this machine, and what is missing for the rest
    ///
    /// Needs neither root nor the daemon; says what it cannot see without.
    Doctor(JsonFlag),
    Revert(RevertArguments),
    Record(crate::record::RecordArguments),
    Sim(crate::sim::SimArguments),
    /// Run experiments in a virtual machine
    Lab(steward_lab::cli::LabCommand),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  steward completions bash >/etc/bash_completion.d/steward")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write man pages into a directory
    ///
    /// Those of the commands (section 1), or with --files those of the files (section 5).
    #[command(after_help = "Examples:\n  steward man /usr/local/share/man/man1\n  \
                            steward man --files /usr/local/share/man/man5")]
    Man {
        /// The directory; it is created if need be.
        directory: PathBuf,
        /// Write the pages about configuration, specifications and rules.
        #[arg(long)]
        files: bool,
    },
    /// Print what may stand in the last word's place, for the scripts of `completions`
    #[command(hide = true)]
    Complete {
        /// The words so far, without the first.
        #[arg(last = true)]
        words: Vec<String>,
    },
}

/// For commands whose only choice is JSON.
#[derive(Debug, Args)]
pub struct JsonFlag {
    /// Print one JSON object, with its "schema".
    #[arg(long)]
    pub json: bool,
}

/// Show what is promised, to whom, and how full the CPUs are
///
/// Without a domain: what is in force, the load of each CPU, all tasks with a specification, and what is wrong. With one:
/// what it was promised, wanted and got in the last minute, hour and day, and in how many seconds the promise was broken.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward status\n  \
        steward status web\n  \
        steward status --own")]
pub struct StatusArguments {
    /// The domain to be told about.
    pub domain: Option<String>,
    /// The domain that this command runs in.
    #[arg(long, conflicts_with = "domain")]
    pub own: bool,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Start a program with a CPU reservation
///
/// With --cpu the program gets that reservation and keeps it whatever it executes. Without, it gets its own
/// specification, even when started from a program that has none (which otherwise starts no interactive ones).
/// Root and the machine's owner may reserve, and whoever sits at the machine up to half of one CPU for their own programs. Through sudo the
/// program would run as root: name the user with --user.
///
/// Exits with what the program exits with; 125: steward itself failed, 126: the program cannot be executed, 127: there
/// is no such program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward run --cpu 5ms/30ms -- mplayer film.mkv\n  \
        steward run --cpu 10ms/100ms --inherit -- make check\n  \
        steward run --spec '/usr/bin/mplayer:Iact:5:30:IR:-:-' -- mplayer film.mkv\n  \
        sudo steward run --user alice --cpu 60ms/100ms -- mplayer film.mkv\n  \
        steward run -- mplayer film.mkv")]
pub struct RunArguments {
    #[command(flatten)]
    pub reservation: ReservationArguments,
    /// The reservation and flags as a row in the one-line form; its path is not looked at.
    #[arg(long, value_name = "ROW", conflicts_with_all = ["cpu", "inherit", "irrevocable"])]
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
    /// Run the program as this user (a name or a number), with that user's groups, HOME, SHELL, USER and LOGNAME. Root only.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
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

/// Give a running process or a domain a CPU reservation, or take it away
///
/// A process gets time in every period, a domain a fraction of what its parent has. The number of a thread is that thread
/// alone. Root and the machine's owner may reserve, and whoever sits at the machine up to half of one CPU for their own
/// programs; everyone may release what is their own.
///
/// A name is with C/T a process, with a fraction a domain; with --release a domain, where there is one of that name.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["cpu", "release"])))]
#[command(after_help = "Examples:\n  \
        steward set 4321 --cpu 5ms/30ms\n  \
        steward set mplayer --release\n  \
        steward set batch --cpu 20%")]
pub struct SetArguments {
    /// The process or thread, by number or name, or the domain, by name.
    #[arg(value_name = "PROCESS|DOMAIN", value_parser = crate::who::parse)]
    pub target: Who,
    #[command(flatten)]
    pub several: Several,
    /// For a process CPU time and the period in which it is given, as 5ms/30ms; for a domain a fraction, as 20%.
    #[arg(long, value_name = "C/T|FRACTION", value_parser = parse_promise)]
    pub cpu: Option<Promise>,
    /// The process' other threads and their children get the same.
    #[arg(long, requires = "cpu")]
    pub inherit: bool,
    /// Never take it back under overload.
    #[arg(long, requires = "cpu")]
    pub irrevocable: bool,
    /// Make it best-effort.
    #[arg(long)]
    pub release: bool,
    /// When there is no room, let it wait for some as best-effort instead of failing.
    #[arg(long, requires = "cpu")]
    pub best_effort_if_refused: bool,
}

#[derive(Debug, Subcommand)]
pub enum SpecCommand {
    Check(SpecCheckArguments),
    /// List the specifications in force, and what is wrong with the others
    List(JsonFlag),
    Import(SpecImportArguments),
}

/// Check specification files, and that the programs they name exist
///
/// Exits with 1 when anything is wrong. Without FILE, checks the directories that the daemon reads; there, a program
/// that is not installed is only noted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward spec check\n  steward spec check my.toml")]
pub struct SpecCheckArguments {
    /// Files of [[spec]] rows; any name that does not end in .toml is read as rows in the one-line form, - is
    /// standard input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print notes too, for example of programs that are not installed.
    #[arg(long, short)]
    pub verbose: bool,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Convert rows in the one-line form (PATH:Iact:C:T:FLAGS:PROTECTION:IO) to TOML
///
/// Rows come from the arguments, from --file, or from standard input.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward spec import '/usr/bin/mplayer:Iact:5:30:IR:-:-'\n  \
        steward spec import --file redline.tab --write /etc/steward/specs/50-mine.toml")]
pub struct SpecImportArguments {
    /// Rows.
    #[arg(value_name = "ROW", conflicts_with = "file")]
    pub rows: Vec<String>,
    /// A file of rows.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Write there instead of standard output. Must not exist yet.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward explain mplayer\n  steward explain 4321 --json")]
pub struct ExplainArguments {
    /// The process, by number or name, or one of its threads.
    #[arg(value_name = "PROCESS", value_parser = crate::who::parse)]
    pub process: Who,
    #[command(flatten)]
    pub several: Several,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Show decisions: who was admitted, refused, revoked, and why
///
/// With --json each decision is one line with one object.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward events\n  steward events --follow --json")]
pub struct EventsArguments {
    /// Go on with each decision as it is taken.
    #[arg(long, short)]
    pub follow: bool,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Put back what Steward changed in the kernel
///
/// Needed only after a daemon was killed and is not started again: a daemon that stops undoes everything itself, one
/// that starts does this first, and a sched_ext scheduler ends with its daemon. Empty cgroups of domains are removed;
/// those with processes stay, as plain cgroups.
#[derive(Debug, Args)]
pub struct RevertArguments {
    /// The daemon's state directory.
    #[arg(long, value_name = "DIR", default_value = libsteward::STATE_DIRECTORY)]
    pub state_directory: PathBuf,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// What is promised to a process, or to a domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise {
    /// Time in every period.
    Reservation(Reservation),
    /// A fraction of the parent's.
    Fraction(f64),
}

pub fn parse_promise(text: &str) -> Result<Promise, String> {
    if text.ends_with('%') || text.parse::<f64>().is_ok() {
        return crate::domain_cli::fraction(text).map(Promise::Fraction);
    }
    parse_reservation(text).map(Promise::Reservation)
}

pub fn parse_reservation(text: &str) -> Result<Reservation, String> {
    let reservation: Reservation = text.parse().map_err(|error| format!("{error}"))?;
    reservation.validate().map_err(|error| error.to_string())?;
    Ok(reservation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
