//! Steward's command line: reads it ([`cli`]), does what it says, ends with the right code.
//!
//! 0 success, 1 failure, 2 usage; `steward run` and `steward background` end with the program's own code, or with 125 to 127.

mod account;
mod background;
mod cli;
mod complete;
mod domain;
mod domain_cli;
mod forecast;
mod machine;
mod man;
mod output;
mod pool;
mod record;
mod report;
mod run;
mod sim;
mod spec;
mod status;
mod top;
mod tune;
mod users;
mod who;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use libsteward::{Client, api};
use steward_core::mechanism::Reservation;

use cli::{Cli, Command, Promise, SetArguments, SpecCommand};
use who::{NoAnswer, Who};

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

/// Prints help or what is wrong with the arguments. Those of `run` and `background` that are wrong end with their own code, so that a
/// program's 2 can be told from steward's.
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
        Command::Set(arguments) => set(socket, arguments).map(|()| true),
        Command::Domain(domain_cli::DomainCommand::Check(arguments)) => domain::check(arguments),
        Command::Domain(command) => domain::domain(socket, command).map(|()| true),
        Command::Spec(SpecCommand::Check(arguments)) => spec::check(arguments),
        Command::Spec(SpecCommand::List(output)) => status::list_specs(socket, output.json).map(|()| true),
        Command::Spec(SpecCommand::Import(arguments)) => spec::import(arguments),
        Command::Status(arguments) => status::status(socket, arguments).map(|()| true),
        Command::Explain(arguments) => status::explain(socket, arguments).map(|()| true),
        Command::Events(arguments) => status::events(socket, arguments).map(|()| true),
        Command::Forecast(arguments) => forecast::forecast(socket, arguments).map(|()| true),
        Command::Top(arguments) => top::top(socket, arguments).map(|()| true),
        Command::Report(arguments) => report::report(arguments).map(|()| true),
        Command::Tune(arguments) => tune::tune(socket, arguments),
        Command::Pool(command) => pool::pool(socket, command).map(|()| true),
        Command::Reload(output) => status::reload(socket, output.json),
        Command::Doctor(output) => machine::doctor(output.json),
        Command::Revert(arguments) => machine::revert(socket, arguments),
        Command::Record(arguments) => record::record(arguments).map(|()| true),
        Command::Sim(arguments) => sim::sim(arguments).map(|()| true),
        Command::Lab(lab) => lab.execute(),
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

fn set(socket: &Path, arguments: &SetArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    let is_domain = match (&arguments.target, arguments.cpu) {
        (Who::Number(_), Some(Promise::Fraction(_))) => anyhow::bail!(
            "a process gets CPU time in every period, as in --cpu 5ms/30ms; a fraction is for a domain (steward domain \
             create NAME --cpu 20%, steward domain move PID NAME)"
        ),
        (Who::Number(_), _) | (Who::Name(_), Some(Promise::Reservation(_))) => false,
        (Who::Name(_), Some(Promise::Fraction(_))) => true,
        (Who::Name(name), None) => domain::exists(&mut client, name)?,
    };
    match (&arguments.target, arguments.cpu) {
        (Who::Name(name), cpu) if is_domain => {
            let fraction = cpu.and_then(|cpu| match cpu {
                Promise::Fraction(fraction) => Some(fraction),
                Promise::Reservation(_) => None,
            });
            domain::set_reservation(&mut client, name, fraction).map_err(|error| hint_at_process(error, name))
        }
        (target, cpu) => {
            let pids =
                who::resolve(target, arguments.several).map_err(|error| hint_at_domain(error, target))?;
            pids.into_iter().try_for_each(|pid| match cpu {
                Some(Promise::Reservation(cpu)) => reserve(&mut client, pid, cpu, arguments),
                _ => release(&mut client, pid),
            })
        }
    }
}

/// A name that is no domain's may be a process's.
fn hint_at_process(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(libsteward::Error::Api(api::ApiError::NoSuchDomain { .. })) => anyhow::anyhow!(
            "there is no domain {name}; steward domain list shows all. A process gets CPU time in every period, as in --cpu \
             5ms/30ms"
        ),
        _ => error,
    }
}

/// A name that is no process's may be a domain's.
fn hint_at_domain(error: anyhow::Error, target: &Who) -> anyhow::Error {
    match (error.downcast_ref(), target) {
        (Some(NoAnswer::Nobody(_)), Who::Name(name)) => anyhow::anyhow!(
            "there is no process called {name:?}; a domain gets a fraction of what its parent has, as in --cpu 20%"
        ),
        _ => error,
    }
}

fn release(client: &mut Client, pid: i32) -> anyhow::Result<()> {
    let released = client.call(&api::Release { pid })?.released;
    output::print(&format!("Process {pid} is best-effort now ({released} of its threads were not).\n"))
}

fn reserve(client: &mut Client, pid: i32, cpu: Reservation, arguments: &SetArguments) -> anyhow::Result<()> {
    let reply = client.call(&api::Set {
        pid,
        cpu: run::to_api(cpu),
        inherit: Some(arguments.inherit),
        revocable: Some(!arguments.irrevocable),
        keep_if_refused: Some(arguments.best_effort_if_refused),
    })?;
    let standing = reply.standing.map_or("not decided yet", status::standing_name);
    output::print(&format!("Process {pid} has {cpu}: {standing}.\n"))
}
