//! A bomb: one process forks a number of children, each of which loops for ever (Yang 2009, 11.2).
//!
//! `busy-loops --count 50 [--delay 2] [--seconds 30] [--exec] [--nice -20] [--deadline 10ms/100ms]
//! [--real-time 50]`
//!
//! The loops begin together, once all are forked: 2,000 would otherwise never be there at once, because each one that
//! loops already slows the parent down.
//!
//! With `--seconds` the parent kills them all after that time; without, they live until somebody does. `--exec` lets
//! each child execute this program again, so that it takes up a specification of its own at exec. `--nice`,
//! `--deadline` and `--real-time` (`SCHED_FIFO`, at that priority) let each child ask the kernel for more than its
//! share; what it was told is printed.

use std::time::Duration;

use steward_lab_workloads::{clock, keep_busy, number, output, process, scheduling};

#[derive(Default)]
struct Options {
    count: u32,
    delay: f64,
    seconds: Option<f64>,
    exec: bool,
    nice: Option<i32>,
    deadline: Option<(Duration, Duration)>,
    real_time: Option<u32>,
    is_loop: bool,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { count: 1, ..Options::default() };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("count") => options.count = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            Long("seconds") => options.seconds = Some(number(&mut parser)?),
            Long("exec") => options.exec = true,
            Long("nice") => options.nice = Some(number(&mut parser)?),
            Long("deadline") => {
                let text = parser.value()?.string()?;
                options.deadline = Some(scheduling::parse_reservation(&text)?);
            }
            Long("real-time") => options.real_time = Some(number(&mut parser)?),
            Long("loop") => options.is_loop = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn loop_for_ever() -> ! {
    loop {
        keep_busy();
    }
}

/// One child, before it loops: asks for what the options say.
fn ask(options: &Options) {
    if let Some(nice) = options.nice {
        report(scheduling::set_nice(nice));
    }
    if let Some((budget, period)) = options.deadline {
        report(scheduling::become_deadline(budget, period));
    }
    if let Some(priority) = options.real_time {
        report(scheduling::become_fifo(priority));
    }
}

fn report(result: std::io::Result<()>) {
    match result {
        Ok(()) => output::line(format_args!("granted")),
        Err(error) => output::line(format_args!("refused {error}")),
    }
}

fn child(options: &Options, gate: i32, opener: i32) {
    process::close(opener);
    ask(options);
    // The end of the stream opens the gate for all at once.
    process::read_byte(gate);
    if options.exec {
        let arguments = [c"/proc/self/exe".as_ptr(), c"--loop".as_ptr(), std::ptr::null()];
        // SAFETY: a null-terminated array of C strings. It returns only when it fails, and then we loop here.
        unsafe { libc::execv(c"/proc/self/exe".as_ptr(), arguments.as_ptr()) };
        output::line(format_args!("refused exec: {}", std::io::Error::last_os_error()));
    }
    loop_for_ever()
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    if options.is_loop {
        loop_for_ever();
    }
    clock::wait_seconds(options.delay);
    let started_ns = clock::now_ns();
    let (gate, opener) = process::pipe()?;
    let mut children = Vec::with_capacity(options.count as usize);
    for _ in 0..options.count {
        match process::fork(|| child(&options, gate, opener)) {
            Ok(pid) => children.push(pid),
            Err(error) => output::line(format_args!("refused fork: {error}")),
        }
    }
    process::close(opener);
    if let Some(seconds) = options.seconds {
        clock::sleep_until(started_ns + (seconds * 1e9) as u64);
        children.iter().for_each(|pid| process::kill(*pid));
    }
    children.iter().for_each(|pid| process::wait(*pid));
    Ok(())
}
