//! Does the shell still answer? Starts a command every second and prints how long it took until it had ended.
//!
//! `probe --seconds 30 [--interval 1] [--command "/bin/sh -c :"]`
//!
//! The command is split at spaces.

use std::process::Command;

use anyhow::Context;
use steward_lab_workloads::{clock, number, output};

fn parse() -> Result<(f64, f64, String), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut seconds, mut interval, mut command) = (30.0, 1.0, "/bin/true".to_owned());
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => seconds = number(&mut parser)?,
            Long("interval") => interval = number(&mut parser)?,
            Long("command") => command = parser.value()?.string()?,
            other => return Err(other.unexpected()),
        }
    }
    Ok((seconds, interval, command))
}

fn main() -> anyhow::Result<()> {
    let (seconds, interval, command) = parse()?;
    let words: Vec<&str> = command.split_ascii_whitespace().collect();
    let (name, arguments) = words.split_first().context("--command is empty")?;
    let interval_ns = (interval * 1e9) as u64;
    let start_ns = clock::now_ns();
    let end_ns = start_ns + (seconds * 1e9) as u64;
    let mut due_ns = start_ns;
    while due_ns < end_ns {
        clock::sleep_until(due_ns);
        // Counted from when it was due: a probe that could not even wake up is a shell that does not answer.
        output::line(format_args!("s {:.3}", output::ms(due_ns)));
        Command::new(name).args(arguments).status()?;
        let answered_ns = clock::now_ns();
        output::line(format_args!("r {:.3}", output::ms(answered_ns - due_ns)));
        due_ns += interval_ns;
        while due_ns < answered_ns {
            due_ns += interval_ns;
        }
    }
    Ok(())
}
