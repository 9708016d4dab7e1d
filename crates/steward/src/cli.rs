//! The command line, as clap reads it: the one source of usage, completions and man pages.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::arguments::JsonFlag;
use crate::background::BackgroundArguments;
use crate::cpu::forecast::ForecastArguments;
use crate::cpu::pool::PoolCommand;
use crate::cpu::record::RecordArguments;
use crate::cpu::set::SetArguments;
use crate::cpu::sim::SimArguments;
use crate::cpu::tune::TuneArguments;
use crate::disk::calibrate::DiskCommand;
use crate::domain::arguments::DomainCommand;
use crate::events::EventsArguments;
use crate::explain::ExplainArguments;
use crate::machine::RevertArguments;
use crate::memory::available::AvailableArguments;
use crate::report::ReportArguments;
use crate::run::RunArguments;
use crate::servers::ServersArguments;
use crate::spec::SpecCommand;
use crate::status::StatusArguments;
use crate::top::TopArguments;

/// Give programs the CPU time and the memory that they were promised.
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
          default_value = libsteward::SOCKET_PATH, value_parser = OsStringValueParser::new().try_map(socket))]
    pub socket: PathBuf,
    #[command(subcommand)]
    pub command: Command,
}

/// The path of a socket; also as the environment has it, where nothing is easily left behind.
fn socket(path: OsString) -> Result<PathBuf, &'static str> {
    match path.is_empty() {
        true => Err("it is empty; write a path, or unset STEWARD_SOCKET"),
        false => Ok(path.into()),
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArguments),
    Background(BackgroundArguments),
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
    Forecast(ForecastArguments),
    Available(AvailableArguments),
    Top(TopArguments),
    Servers(ServersArguments),
    Report(ReportArguments),
    Tune(TuneArguments),
    #[command(subcommand)]
    Pool(PoolCommand),
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Have the daemon read its configuration and specifications again
    ///
    /// It does so by itself when a file changes. Exits with 1 when something in them is wrong.
    Reload(JsonFlag),
    /// Say what works and which promises hold on this machine, and what is missing for the rest
    ///
    /// Needs neither root nor the daemon; says what it cannot see without.
    Doctor(JsonFlag),
    Revert(RevertArguments),
    Record(RecordArguments),
    Sim(SimArguments),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
