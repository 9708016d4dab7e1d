//! A task that sleeps and tells how late it was woken (Eclipse 1998, fig 11).
//!
//! `sleeper [--sleep-ms 10] [--cpu-ms 0.1] [--delay 2] --seconds 30`
//!
//! It asks to be woken at a moment, and prints that moment and by how much it was missed. Then it computes a little, as
//! a program that was woken for something does.

use steward_lab_workloads::{clock, number, output};

fn parse() -> Result<(f64, f64, f64, f64), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut sleep_ms, mut cpu_ms, mut delay, mut seconds) = (10.0, 0.1, 0.0, 30.0);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("sleep-ms") => sleep_ms = number(&mut parser)?,
            Long("cpu-ms") => cpu_ms = number(&mut parser)?,
            Long("delay") => delay = number(&mut parser)?,
            Long("seconds") => seconds = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok((sleep_ms, cpu_ms, delay, seconds))
}

fn main() -> anyhow::Result<()> {
    let (sleep_ms, cpu_ms, delay, seconds) = parse()?;
    clock::wait_seconds(delay);
    let (sleep_ns, cpu_ns) = ((sleep_ms * 1e6) as u64, (cpu_ms * 1e6) as u64);
    let end_ns = clock::now_ns() + (seconds * 1e9) as u64;
    loop {
        let due_ns = clock::now_ns() + sleep_ns;
        if due_ns > end_ns {
            return Ok(());
        }
        output::line(format_args!("s {:.3}", output::ms(due_ns)));
        clock::sleep_until(due_ns);
        let delay_ns = clock::now_ns() - due_ns;
        output::line(format_args!("r {:.3}", output::ms(delay_ns)));
        clock::burn_until(clock::thread_cpu_ns() + cpu_ns);
    }
}
