//! A program that takes memory in bursts: each second it allocates some, touches all of it and frees it.
//!
//! `memory-burst --mb 8 --seconds 30 [--interval 1] [--delay 2]`
//!
//! It prints how long each burst took, counted from when it was due: one that could not begin in time is late, too.

use steward_lab_workloads::memory::Anonymous;
use steward_lab_workloads::{clock, number, output};

struct Options {
    mb: usize,
    seconds: f64,
    interval_seconds: f64,
    delay: f64,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { mb: 8, seconds: 30.0, interval_seconds: 1.0, delay: 0.0 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("mb") => options.mb = number(&mut parser)?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            Long("interval") => options.interval_seconds = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    if options.mb == 0 || options.interval_seconds <= 0.0 {
        return Err("--mb and --interval must be above 0".into());
    }
    Ok(options)
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    clock::wait_seconds(options.delay);
    let interval_ns = (options.interval_seconds * 1e9) as u64;
    let mut due_ns = clock::now_ns();
    let end_ns = due_ns + (options.seconds * 1e9) as u64;
    while due_ns < end_ns {
        clock::sleep_until(due_ns);
        output::line(format_args!("s {:.3}", output::ms(due_ns)));
        let mut memory = Anonymous::map(options.mb)?;
        memory.touch();
        drop(memory);
        let done_ns = clock::now_ns();
        output::line(format_args!("r {:.3}", output::ms(done_ns - due_ns)));
        due_ns += interval_ns;
        while due_ns < done_ns {
            due_ns += interval_ns;
        }
    }
    Ok(())
}
