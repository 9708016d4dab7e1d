//! A task that computes and pauses by turns (Eclipse 1998: 11 ms on, 5 ms off).
//!
//! `onoff --on-ms 11 --off-ms 5 [--delay 2] [--seconds 30]`

use steward_lab_workloads::{clock, number, output};

fn parse() -> Result<(f64, f64, f64, f64), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut on_ms, mut off_ms, mut delay, mut seconds) = (11.0, 5.0, 0.0, 1e9);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("on-ms") => on_ms = number(&mut parser)?,
            Long("off-ms") => off_ms = number(&mut parser)?,
            Long("delay") => delay = number(&mut parser)?,
            Long("seconds") => seconds = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok((on_ms, off_ms, delay, seconds))
}

fn main() -> anyhow::Result<()> {
    let (on_ms, off_ms, delay, seconds) = parse()?;
    clock::wait_seconds(delay);
    let start_ns = clock::now_ns();
    let end_ns = start_ns.saturating_add((seconds * 1e9) as u64);
    output::line(format_args!("w 0 {:.3}", output::ms(start_ns)));
    let mut bursts = 0;
    while clock::now_ns() < end_ns {
        clock::burn_until(clock::thread_cpu_ns() + (on_ms * 1e6) as u64);
        bursts += 1;
        output::line(format_args!("w {bursts} {:.3}", output::ms(clock::now_ns())));
        clock::sleep_until(clock::now_ns() + (off_ms * 1e6) as u64);
    }
    Ok(())
}
