//! A task that sleeps and tells how late it was woken (Eclipse 1998, fig 11).
//!
//! `sleeper [--sleep-ms 10] [--cpu-ms 0.1] [--delay 2] [--cpu 0] --seconds 30`
//!
//! It asks to be woken at a moment, and prints that moment and by how much it was missed. Then it computes a little, as
//! a program that was woken for something does. With `--cpu` it stays on that CPU whenever that is on: the kernel lets
//! it go anywhere while it is off, and for ever after, so it asks for its place again each time.

use steward_lab_workloads::{clock, number, output, scheduling};

struct Options {
    sleep_ms: f64,
    cpu_ms: f64,
    delay: f64,
    seconds: f64,
    cpu: Option<u32>,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { sleep_ms: 10.0, cpu_ms: 0.1, delay: 0.0, seconds: 30.0, cpu: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("sleep-ms") => options.sleep_ms = number(&mut parser)?,
            Long("cpu-ms") => options.cpu_ms = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            Long("cpu") => options.cpu = Some(number(&mut parser)?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn main() -> anyhow::Result<()> {
    let Options { sleep_ms, cpu_ms, delay, seconds, cpu } = parse()?;
    clock::wait_seconds(delay);
    let (sleep_ns, cpu_ns) = ((sleep_ms * 1e6) as u64, (cpu_ms * 1e6) as u64);
    let end_ns = clock::now_ns() + (seconds * 1e9) as u64;
    loop {
        let due_ns = clock::now_ns() + sleep_ns;
        if due_ns > end_ns {
            return Ok(());
        }
        output::line(format_args!("s {:.3}", output::ms(due_ns)));
        // Refused while that one is off. To wait for it is to be late as well.
        let _ = cpu.map(|cpu| scheduling::set_affinity(&[cpu]));
        clock::sleep_until(due_ns);
        let delay_ns = clock::now_ns() - due_ns;
        output::line(format_args!("r {:.3}", output::ms(delay_ns)));
        clock::burn_until(clock::thread_cpu_ns() + cpu_ns);
    }
}
