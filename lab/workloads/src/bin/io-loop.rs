//! A task that computes a little, then waits for a device, and so on: it needs both in turn (Eclipse 1998, example 1).
//!
//! `io-loop [--cpu-ms 1] [--io-ms 23] [--file PATH] [--delay 2] --seconds 30`
//!
//! Without a file the device is a timer that takes `--io-ms`, whatever the machine's disk does. With one, each round
//! reads a page of it from the disk itself (`O_DIRECT`) after the timer; pages in no order.

use std::os::unix::fs::{FileExt, OpenOptionsExt};

use anyhow::Context;
use steward_lab_workloads::direct::{DirectBuffer, PAGE, next_in_no_order};
use steward_lab_workloads::{clock, number, output};

struct Options {
    cpu_ms: f64,
    io_ms: f64,
    file: Option<String>,
    delay: f64,
    seconds: f64,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { cpu_ms: 1.0, io_ms: 23.0, file: None, delay: 0.0, seconds: 30.0 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("cpu-ms") => options.cpu_ms = number(&mut parser)?,
            Long("io-ms") => options.io_ms = number(&mut parser)?,
            Long("file") => options.file = Some(parser.value()?.string()?),
            Long("delay") => options.delay = number(&mut parser)?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

/// A file that is read past the page cache.
struct Disk {
    file: std::fs::File,
    pages: u64,
    state: u64,
}

impl Disk {
    fn open(path: &str) -> anyhow::Result<Disk> {
        let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        let file = file.with_context(|| format!("cannot open {path} for direct reads"))?;
        let pages = file.metadata()?.len() / PAGE as u64;
        anyhow::ensure!(pages > 0, "{path} is shorter than a page");
        Ok(Disk { file, pages, state: 1 })
    }

    fn read(&mut self, page: &mut DirectBuffer) -> std::io::Result<()> {
        let at = next_in_no_order(&mut self.state, self.pages) * PAGE as u64;
        self.file.read_exact_at(page.bytes(), at)
    }
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    let mut disk = options.file.as_deref().map(Disk::open).transpose()?;
    clock::wait_seconds(options.delay);
    let mut page = DirectBuffer::new(PAGE);
    let start_ns = clock::now_ns();
    let end_ns = start_ns + (options.seconds * 1e9) as u64;
    output::line(format_args!("w 0 {:.3}", output::ms(start_ns)));
    let mut rounds = 0;
    while clock::now_ns() < end_ns {
        clock::burn_until(clock::thread_cpu_ns() + (options.cpu_ms * 1e6) as u64);
        clock::sleep_until(clock::now_ns() + (options.io_ms * 1e6) as u64);
        if let Some(disk) = &mut disk {
            disk.read(&mut page)?;
        }
        rounds += 1;
        output::line(format_args!("w {rounds} {:.3}", output::ms(clock::now_ns())));
    }
    Ok(())
}
