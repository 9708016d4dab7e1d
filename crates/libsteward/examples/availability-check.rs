//! Programs for the machine's tests: two that say what they are told of how much memory they may use, and when, and one
//! that takes memory.
//!
//!     availability-check watch           # `told DOMAIN BYTES BYTES-AT-ONCE at NANOSECONDS` for each
//!     availability-check poll FILE       # from a control file: `told FILE BYTES at NANOSECONDS`
//!     availability-check take MEBIBYTES  # `takes at NANOSECONDS`, `took at NANOSECONDS`, and keeps it
//!
//! Times are of `CLOCK_MONOTONIC`.

use std::io::Write;
use std::os::unix::fs::FileExt;

use libsteward::availability::Watcher;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};

/// A page, in bytes: one byte in each has the kernel give it.
const PAGE_BYTES: usize = 4096;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A whole line at once, whoever reads on.
fn say(line: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line} at {}", now_ns())?;
    output.flush()
}

fn watch() -> std::io::Result<()> {
    let mut watcher = Watcher::of_own_domain(libsteward::SOCKET_PATH)?;
    while let Some(told) = watcher.wait(None)? {
        say(&format!("told {} {} {}", told.domain, told.available, told.available_at_once))?;
    }
    Ok(())
}

fn poll_file(path: &str) -> std::io::Result<()> {
    let file = std::fs::File::open(path)?;
    loop {
        poll(&mut [PollFd::new(&file, PollFlags::PRI)], None)?;
        let mut text = [0; 100];
        let count = file.read_at(&mut text, 0)?;
        say(&format!("told {path} {}", String::from_utf8_lossy(&text[..count]).trim()))?;
    }
}

fn take(mebibytes: usize) -> std::io::Result<()> {
    say("takes")?;
    let mut taken = vec![0u8; mebibytes << 20];
    taken.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&mut taken);
    say("took")?;
    loop {
        std::thread::park();
    }
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["watch"] => watch(),
        ["poll", path] => poll_file(path),
        ["take", mebibytes] => take(mebibytes.parse().map_err(std::io::Error::other)?),
        _ => Err(std::io::Error::other("say watch, poll FILE, or take MEBIBYTES")),
    }
}
