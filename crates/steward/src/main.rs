//! Steward's command line: reads it ([`cli`]), does what it says, ends with the right code.
//!
//! 0 success, 1 failure, 2 usage; `steward run` and `steward background` end with the program's own code, or with 125
//! to 127.

mod account;
mod arguments;
mod background;
mod cli;
mod complete;
mod cpu;
mod disk;
mod domain;
mod events;
mod explain;
mod machine;
mod man;
mod memory;
mod output;
mod report;
mod run;
mod servers;
mod spec;
mod status;
mod top;
mod users;
mod who;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use cpu::{forecast, pool, record, set, sim, tune};
use domain::arguments::DomainCommand;
use memory::available;
use spec::SpecCommand;
use who::NoAnswer;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if let Command::Run(arguments) = &cli.command {
        return run::run(&cli.socket, arguments);
    }
    if let Command::Background(arguments) = &cli.command {
        return background::background(&cli.socket, arguments);
    }
    match carry_out(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if error.is::<output::ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steward: {}", describe(&error));
            let is_usage = matches!(error.downcast_ref(), Some(NoAnswer::Several(_)));
            if is_usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// An error with its causes, each said once: many say their cause themselves.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    text
}

/// Prints help or what is wrong with the arguments. Those of `run` and `background` that are wrong end with their own
/// code, so that a program's 2 can be told from steward's.
fn usage(error: &clap::Error) -> ExitCode {
    // Nobody can be told that it cannot be printed.
    let _ = error.print();
    let is_run =
        std::env::args_os().nth(1).is_some_and(|command| command == "run" || command == "background");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_run => ExitCode::from(run::OWN_FAILURE),
        _ => ExitCode::from(2),
    }
}

/// False when it was done and the answer is no.
fn carry_out(cli: &Cli) -> anyhow::Result<bool> {
    let socket = &cli.socket;
    match &cli.command {
        Command::Run(_) | Command::Background(_) => unreachable!("they end in their own way"),
        Command::Set(arguments) => set::set(socket, arguments).map(|()| true),
        Command::Domain(DomainCommand::Check(arguments)) => domain::check(arguments),
        Command::Domain(command) => domain::domain(socket, command).map(|()| true),
        Command::Spec(SpecCommand::Check(arguments)) => spec::check(arguments),
        Command::Spec(SpecCommand::List(output)) => status::list_specs(socket, output.json).map(|()| true),
        Command::Spec(SpecCommand::Import(arguments)) => spec::import(arguments),
        Command::Status(arguments) => status::status(socket, arguments).map(|()| true),
        Command::Explain(arguments) => explain::explain(socket, arguments).map(|()| true),
        Command::Events(arguments) => events::events(socket, arguments).map(|()| true),
        Command::Available(arguments) => available::available(socket, arguments).map(|()| true),
        Command::Forecast(arguments) => forecast::forecast(socket, arguments).map(|()| true),
        Command::Top(arguments) => top::top(socket, arguments).map(|()| true),
        Command::Servers(arguments) => servers::servers(arguments).map(|()| true),
        Command::Report(arguments) => report::report(arguments).map(|()| true),
        Command::Tune(arguments) => tune::tune(socket, arguments),
        Command::Pool(command) => pool::pool(socket, command).map(|()| true),
        Command::Disk(command) => disk::calibrate::disk(socket, command).map(|()| true),
        Command::Reload(output) => status::reload(socket, output.json),
        Command::Doctor(output) => machine::doctor(output.json),
        Command::Revert(arguments) => machine::revert(socket, arguments),
        Command::Record(arguments) => record::record(arguments).map(|()| true),
        Command::Sim(arguments) => sim::sim(arguments).map(|()| true),
        Command::Completions { shell } => {
            output::print(&complete::script(*shell, &mut Cli::command())).map(|()| true)
        }
        Command::Complete { words } => {
            let mut command = Cli::command();
            command.build();
            complete::complete(&command, socket, words)
        }
        Command::Man { directory, files: true } => man::write_files(directory).map(|()| true),
        Command::Man { directory, files: false } => {
            man::write_commands(directory, Cli::command()).map(|()| true)
        }
    }
}
