//! A program that takes memory steadily, works with all that it has for a while, and gives it back (Walfield, section
//! 5.2).
//!
//! `memory-ramp --mb 170 --rate 5 --hold 60 [--delay 2]`
//!
//! It takes `--rate` MiB a second until it has `--mb`, keeps it for `--hold` seconds, and frees it at the same rate.
//! Once a second it touches all that it has: it is in use, and not there for the taking. With `--mb 0` it ends at once.

use steward_lab_workloads::memory::Anonymous;
use steward_lab_workloads::{clock, number};

struct Options {
    mb: usize,
    rate: usize,
    hold: f64,
    delay: f64,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { mb: 170, rate: 5, hold: 60.0, delay: 0.0 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("mb") => options.mb = number(&mut parser)?,
            Long("rate") => options.rate = number(&mut parser)?,
            Long("hold") => options.hold = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    if options.rate == 0 {
        return Err("--rate must be above 0".into());
    }
    Ok(options)
}

/// What it has, and when it uses it next: once a second, each time all of it.
struct Held {
    memory: Vec<Anonymous>,
    due_ns: u64,
}

impl Held {
    fn use_for_a_second(&mut self) {
        self.memory.iter_mut().for_each(Anonymous::touch);
        // Where that took longer, it goes on at once.
        self.due_ns = (self.due_ns + 1_000_000_000).max(clock::now_ns());
        clock::sleep_until(self.due_ns);
    }
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    clock::wait_seconds(options.delay);
    let mut held = Held { memory: Vec::new(), due_ns: clock::now_ns() };
    let mut mebibytes = 0;
    while mebibytes < options.mb {
        let piece = options.rate.min(options.mb - mebibytes);
        let mut memory = Anonymous::map(piece)?;
        memory.fill();
        held.memory.push(memory);
        mebibytes += piece;
        held.use_for_a_second();
    }
    let end_ns = clock::now_ns() + (options.hold * 1e9) as u64;
    while options.mb > 0 && clock::now_ns() < end_ns {
        held.use_for_a_second();
    }
    while held.memory.pop().is_some() {
        held.use_for_a_second();
    }
    Ok(())
}
