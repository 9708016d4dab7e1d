//! A token that goes round a ring of processes over pipes (Yang 2009, fig 11.1): every hop is a context switch.
//!
//! `pipe-ring --processes 8 --hops 20000`
//!
//! The number of hops is fixed, so that the time it takes is what the switches cost.

use steward_lab_workloads::{clock, number, output, process};

fn parse() -> Result<(usize, u64), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut processes, mut hops) = (2, 10_000);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("processes") => processes = number(&mut parser)?,
            Long("hops") => hops = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    if processes < 2 { Err("--processes must be at least 2".into()) } else { Ok((processes, hops)) }
}

/// Passes the token on until the ring is closed.
fn pass_on(from: i32, to: i32) {
    while process::read_byte(from) && process::write_byte(to) {}
}

fn main() -> anyhow::Result<()> {
    let (processes, hops) = parse()?;
    let pipes = (0..processes).map(|_| process::pipe()).collect::<Result<Vec<_>, _>>()?;
    let mut children = Vec::new();
    for member in 1..processes {
        children.push(process::fork(|| {
            let (from, to) = (pipes[member - 1].0, pipes[member].1);
            let others = pipes.iter().flat_map(|(read, write)| [*read, *write]);
            others.filter(|end| *end != from && *end != to).for_each(process::close);
            pass_on(from, to);
        })?);
    }
    let (into, out_of) = (pipes[0].1, pipes[processes - 1].0);
    let ends = pipes.iter().flat_map(|(read, write)| [*read, *write]);
    ends.filter(|end| *end != into && *end != out_of).for_each(process::close);

    let rounds = hops / processes as u64;
    // One round before the clock starts: everyone is running and knows their pipes.
    process::write_byte(into);
    process::read_byte(out_of);
    output::line(format_args!("w 0 {:.3}", output::ms(clock::now_ns())));
    for _ in 0..rounds {
        process::write_byte(into);
        process::read_byte(out_of);
    }
    output::line(format_args!("w {} {:.3}", rounds * processes as u64, output::ms(clock::now_ns())));
    process::close(into);
    children.into_iter().for_each(process::wait);
    Ok(())
}
