//! An editor after a pause (Edwards & Cao): it holds memory of its own and maps a file, and each key touches all of it.
//!
//! `keystrokes --anonymous-mb 40 [--file PATH] --keys 4 --pause 40 [--grow-mb 5] [--delay 2] [--exit]`
//!
//! It loads its working set, waits, and presses the first key after the first pause; a pause is from an answer to the
//! next key. For each key it prints how long it took, and how many of its pages had to come from a disk meanwhile.
//! With `--grow-mb` the working set grows by so much after each key, outside of what is timed. After the last key it
//! keeps what it holds until it is killed, unless it is told to exit.

use anyhow::Context;
use steward_lab_workloads::memory::{Anonymous, MappedFile, major_faults};
use steward_lab_workloads::{clock, number, output};

struct Options {
    anonymous_mb: usize,
    file: Option<String>,
    keys: u32,
    pause: f64,
    grow_mb: usize,
    delay: f64,
    exit: bool,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options =
        Options { anonymous_mb: 40, file: None, keys: 4, pause: 40.0, grow_mb: 0, delay: 0.0, exit: false };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("anonymous-mb") => options.anonymous_mb = number(&mut parser)?,
            Long("file") => options.file = Some(parser.value()?.string()?),
            Long("keys") => options.keys = number(&mut parser)?,
            Long("pause") => options.pause = number(&mut parser)?,
            Long("grow-mb") => options.grow_mb = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            Long("exit") => options.exit = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

/// What an editor has open.
struct WorkingSet {
    memory: Vec<Anonymous>,
    file: Option<MappedFile>,
}

impl WorkingSet {
    fn grow(&mut self, mebibytes: usize) -> anyhow::Result<()> {
        let mut memory = Anonymous::map(mebibytes).with_context(|| format!("no room for {mebibytes} MiB"))?;
        memory.fill();
        self.memory.push(memory);
        Ok(())
    }

    fn touch(&mut self) {
        self.memory.iter_mut().for_each(Anonymous::touch);
        if let Some(file) = &self.file {
            file.touch();
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    clock::wait_seconds(options.delay);
    let file = options.file.as_deref();
    let file =
        file.map(|path| MappedFile::open(path).with_context(|| format!("cannot map {path}"))).transpose()?;
    let mut set = WorkingSet { memory: Vec::new(), file };
    set.grow(options.anonymous_mb)?;
    set.touch();
    for _ in 0..options.keys {
        clock::wait_seconds(options.pause);
        let (pressed_ns, faults) = (clock::now_ns(), major_faults());
        output::line(format_args!("s {:.3}", output::ms(pressed_ns)));
        set.touch();
        let latency_ns = clock::now_ns() - pressed_ns;
        output::line(format_args!("r {:.3}", output::ms(latency_ns)));
        output::line(format_args!("m {}", major_faults() - faults));
        if options.grow_mb > 0 {
            set.grow(options.grow_mb)?;
        }
    }
    if options.exit {
        return Ok(());
    }
    loop {
        clock::wait_seconds(3600.0);
    }
}
