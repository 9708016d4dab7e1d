//! Busy tasks that give up the CPU after every slice (Yang 2009, fig 11.1): what switching among many costs.
//!
//! `yielders --tasks 200 --slices 4000 --rounds 20000`
//!
//! `slices` is the total over all tasks and `rounds` the work in one slice, both fixed, so that the time it takes grows
//! only with what the scheduler adds. It counts from when all of them have started and wait for the first slice, until
//! the last one has had its last: how many of 2,000 get as far as the first while the others are still being forked
//! depends on the order, and is up to a tenth of the time; and what it takes to end 2,000 is as much as half of it, and
//! changes by a tenth with what the memory that they free lies beside.

use anyhow::bail;
use steward_lab_workloads::{clock, number, output, process, scheduling, spin};

fn parse() -> Result<(u64, u64, u64), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut tasks, mut slices, mut rounds) = (1, 2_000, 20_000);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("tasks") => tasks = number(&mut parser)?,
            Long("slices") => slices = number(&mut parser)?,
            Long("rounds") => rounds = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    if tasks == 0 { Err("--tasks must be at least 1".into()) } else { Ok((tasks, slices, rounds)) }
}

fn main() -> anyhow::Result<()> {
    let (tasks, slices, rounds) = parse()?;
    let (gate, opener) = process::pipe()?;
    let (readiness, ready) = process::pipe()?;
    let (end, busy) = process::pipe()?;
    let (exit, exit_opener) = process::pipe()?;
    let each = slices.div_ceil(tasks);
    let mut children = Vec::new();
    for _ in 0..tasks {
        children.push(process::fork(|| {
            process::close(opener);
            process::close(exit_opener);
            process::write_byte(ready);
            // So that the stream ends when one of them ends without having written.
            process::close(ready);
            // The end of the stream opens the gate for all at once.
            process::read_byte(gate);
            for _ in 0..each {
                spin(rounds);
                scheduling::yield_now();
            }
            // The last one to close it wakes the parent.
            process::close(busy);
            process::read_byte(exit);
        })?);
    }
    process::close(ready);
    process::close(busy);
    if !(0..tasks).all(|_| process::read_byte(readiness)) {
        bail!("a task ended before its first slice");
    }
    output::line(format_args!("w 0 {:.3}", output::ms(clock::now_ns())));
    process::close(opener);
    process::read_byte(end);
    output::line(format_args!("w {} {:.3}", each * tasks, output::ms(clock::now_ns())));
    process::close(exit_opener);
    children.into_iter().for_each(process::wait);
    Ok(())
}
