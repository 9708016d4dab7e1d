//! Holds the daemon's forecasts against what then happens (CPU Futures, figure 4).
//!
//! `forecast-check [--processes 10] [--every 4] [--on-ms 10] [--off-ms 10] [--sleepers 0] [--seconds 45] [--socket
//! PATH]`
//!
//! It starts a process that computes and sleeps by turns, lengths varying by a fifth, and another one like it every few
//! seconds, up to so many. Of the first it prints what the daemon forecasts, ten times a second. With `--sleepers` so
//! many threads sleep beside them all the time, to be read and forecast too: all begins when they have slept for some
//! seconds. What the daemon itself uses is printed as well.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anyhow::{Context, Result};
use libsteward::Client;
use libsteward::api::WatchForecasts;
use steward_lab_workloads::{clock, number, output, process};

/// From when the last of the sleepers was there until all begins: more than the second that forecasts look back on.
const SETTLE_NS: u64 = 3_000_000_000;
/// A sleeping thread needs no more.
const STACK_BYTES: usize = 64 * 1024;

struct Arguments {
    processes: u32,
    every: f64,
    on_ms: f64,
    off_ms: f64,
    sleepers: u32,
    seconds: f64,
    socket: String,
}

fn parse() -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::*;
    let mut arguments = Arguments {
        processes: 10,
        every: 4.0,
        on_ms: 10.0,
        off_ms: 10.0,
        sleepers: 0,
        seconds: 45.0,
        socket: libsteward::SOCKET_PATH.to_owned(),
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("processes") => arguments.processes = number(&mut parser)?,
            Long("every") => arguments.every = number(&mut parser)?,
            Long("on-ms") => arguments.on_ms = number(&mut parser)?,
            Long("off-ms") => arguments.off_ms = number(&mut parser)?,
            Long("sleepers") => arguments.sleepers = number(&mut parser)?,
            Long("seconds") => arguments.seconds = number(&mut parser)?,
            Long("socket") => arguments.socket = parser.value()?.parse()?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(arguments)
}

fn main() -> Result<()> {
    let arguments = parse()?;
    let mut children = vec![];
    if arguments.sleepers > 0 {
        let sleepers = process::fork(|| sleep_in_threads(arguments.sleepers)).context("the sleepers")?;
        children.push(sleepers);
        await_threads(sleepers, arguments.sleepers)?;
    }
    let start_ns = clock::now_ns();
    let mut next_ns = start_ns;
    let mut processes = 0;
    let mut start_next = |now_ns: u64, children: &mut Vec<i32>| -> Result<()> {
        while processes < arguments.processes && now_ns >= next_ns {
            let (on_ms, off_ms, seed) = (arguments.on_ms, arguments.off_ms, u64::from(processes) + 1);
            children
                .push(process::fork(|| compute_and_sleep(on_ms, off_ms, seed)).context("another process")?);
            processes += 1;
            next_ns += (arguments.every * 1e9) as u64;
            output::line(format_args!("n {processes} {:.3}", output::ms(clock::now_ns())));
        }
        Ok(())
    };
    start_next(start_ns, &mut children)?;
    let first = children[usize::from(arguments.sleepers > 0)];
    let client = Client::connect(&arguments.socket).with_context(|| arguments.socket.clone())?;
    let daemon = peer(&client)?;
    let replies =
        client.stream(&WatchForecasts { pid: Some(first), every_ms: Some(100), ..Default::default() })?;
    let end_ns = start_ns + (arguments.seconds * 1e9) as u64;
    for reply in replies {
        let reply = reply?;
        let now_ns = clock::now_ns();
        if let Some(task) = reply.tasks.first() {
            let forecast = task.forecast;
            output::line(format_args!(
                "p {:.3} {:.1} {:.1} {:.1} {:.1}",
                output::ms(reply.at_ns),
                forecast.actual_ms_per_s,
                forecast.desired_ms_per_s,
                forecast.predicted_ms_per_s,
                forecast.potential_ms_per_s
            ));
        }
        output::line(format_args!("c {:.3} {:.3}", output::ms(cpu_ns_of(daemon)?), output::ms(now_ns)));
        start_next(now_ns, &mut children)?;
        if now_ns > end_ns {
            break;
        }
    }
    for child in children {
        process::kill(child);
        process::wait(child);
    }
    Ok(())
}

/// Works and sleeps for ever, each time for up to a fifth more or less.
fn compute_and_sleep(on_ms: f64, off_ms: f64, seed: u64) {
    let mut state = seed;
    let mut vary = |ms: f64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (ms * 1e6 * (0.8 + 0.4 * (state >> 40) as f64 / (1u64 << 24) as f64)) as u64
    };
    loop {
        clock::burn_until(clock::thread_cpu_ns() + vary(on_ms));
        clock::sleep_until(clock::now_ns() + vary(off_ms));
    }
}

fn sleep_in_threads(count: u32) {
    for _ in 1..count {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(|| clock::sleep_until(u64::MAX / 2)) {
            eprintln!("forecast-check: not all {count} threads: {error}");
            std::process::exit(1);
        }
    }
    clock::sleep_until(u64::MAX / 2);
}

/// Waits until a process has so many threads, and they have slept for some seconds.
fn await_threads(pid: i32, count: u32) -> Result<()> {
    let directory = format!("/proc/{pid}/task");
    while Path::new(&directory).read_dir().with_context(|| directory.clone())?.count() < count as usize {
        anyhow::ensure!(!process::has_ended(pid), "the process of the sleepers has ended");
        clock::sleep_until(clock::now_ns() + SETTLE_NS / 100);
    }
    clock::sleep_until(clock::now_ns() + SETTLE_NS);
    Ok(())
}

/// The process at the other end of the connection.
fn peer(client: &Client) -> Result<i32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, a `ucred`, into `credentials`.
    let status = unsafe {
        libc::getsockopt(
            client.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut length,
        )
    };
    anyhow::ensure!(status == 0, "SO_PEERCRED: {}", std::io::Error::last_os_error());
    Ok(credentials.pid)
}

/// CPU time of all threads of a process, in nanoseconds.
fn cpu_ns_of(pid: i32) -> Result<u64> {
    let directory = format!("/proc/{pid}/task");
    let mut sum_ns = 0;
    for thread in Path::new(&directory).read_dir().with_context(|| directory.clone())? {
        let path = thread?.path().join("schedstat");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let first = text.split_ascii_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        sum_ns +=
            first.with_context(|| format!("{}: {text:?} does not begin with a number", path.display()))?;
    }
    Ok(sum_ns)
}
