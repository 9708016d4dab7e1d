//! Forks, and the child executes a program that ends at once, again and again: what a shell does for each command.
//!
//! `fork-exec [--times 1000]`
//!
//! The number is fixed, so that the time it takes is what beginning and ending a process costs. Each child is waited
//! for before the next one. It executes this very program, which is in memory by then.

use std::ffi::CStr;

use steward_lab_workloads::{clock, number, output, process};

/// Before it counts: what is made once, for the first few, is made by then.
const FIRST: u64 = 20;
/// What a child is told, and then ends.
const NOTHING: &CStr = c"nothing";

fn parse() -> Result<Option<u64>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut times = 1_000;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("times") => times = number(&mut parser)?,
            Value(word) if word.as_encoded_bytes() == NOTHING.to_bytes() => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(times))
}

/// Executes this program as one that does nothing.
fn execute() {
    const SELF: &CStr = c"/proc/self/exe";
    let arguments = [SELF.as_ptr(), NOTHING.as_ptr(), std::ptr::null()];
    // SAFETY: a null-terminated array of C strings; it returns only when it fails.
    unsafe { libc::execv(SELF.as_ptr(), arguments.as_ptr()) };
    panic!("cannot execute {}: {}", SELF.to_string_lossy(), std::io::Error::last_os_error());
}

fn run(times: u64) -> anyhow::Result<()> {
    for _ in 0..times {
        process::wait(process::fork(execute)?);
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let Some(times) = parse()? else { return Ok(()) };
    run(FIRST)?;
    output::line(format_args!("w 0 {:.3}", output::ms(clock::now_ns())));
    run(times)?;
    output::line(format_args!("w {times} {:.3}", output::ms(clock::now_ns())));
    Ok(())
}
