//! Looks how memory is divided among the domains that Steward made, and prints it.
//!
//! `memory-shares [--every 0.25] [--seconds 60] [--socket PATH]`
//!
//! For each domain a line `a AT NAME WEIGHT USED AVAILABLE`, both in KiB; those of one look have the same moment.

use std::path::PathBuf;

use anyhow::Context;
use libsteward::Client;
use libsteward::api::ListDomains;
use steward_lab_workloads::{clock, number, output};

fn parse() -> Result<(f64, f64, PathBuf), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut every, mut seconds, mut socket) = (0.25, 60.0, PathBuf::from(libsteward::SOCKET_PATH));
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("every") => every = number(&mut parser)?,
            Long("seconds") => seconds = number(&mut parser)?,
            Long("socket") => socket = parser.value()?.into(),
            other => return Err(other.unexpected()),
        }
    }
    Ok((every, seconds, socket))
}

fn main() -> anyhow::Result<()> {
    let (every, seconds, socket) = parse()?;
    let mut client = Client::connect(&socket).with_context(|| socket.display().to_string())?;
    let mut due_ns = clock::now_ns();
    let end_ns = due_ns + (seconds * 1e9) as u64;
    while due_ns < end_ns {
        clock::sleep_until(due_ns);
        due_ns += (every * 1e9) as u64;
        let at_ms = output::ms(clock::now_ns());
        let list = client.call(&ListDomains::default())?;
        for domain in list.domains.iter().filter(|domain| domain.made) {
            let Some(memory) = &domain.memory else { continue };
            let available =
                memory.available.context("it is told how much domains may use: run it as root")?;
            let (used_kib, available_kib) = (memory.used >> 10, available >> 10);
            let (name, weight) = (&domain.name, domain.weight);
            output::line(format_args!("a {at_ms:.3} {name} {weight} {used_kib} {available_kib}"));
        }
    }
    Ok(())
}
