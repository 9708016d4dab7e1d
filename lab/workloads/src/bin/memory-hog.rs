//! A program that needs more memory than there is: it cycles through its own, again and again, a fixed amount of work.
//!
//! `memory-hog --mb 300 --rounds 1.5 [--dirty-file PATH --dirty-mb 50] [--move-to CGROUP --move-after 1] [--delay 2]`
//!
//! The first round fills each page, each further one changes a word of each page. With `--dirty-file` each round also
//! writes so much of a file anew. It reports its progress ten times a round and ends after the last one, which need
//! not be whole: a page is a unit of work, those of the file too. Hogs that began together slow each other until the
//! first has ended, so compare the slowest.
//!
//! With `--move-to` it goes into another cgroup after so many rounds (making it first) and takes new memory there, as a
//! program that was started anew by another manager would: what it held before was charged to where it came from.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::Path;

use anyhow::Context;
use steward_lab_workloads::memory::{Anonymous, MIB, PAGE_BYTES};
use steward_lab_workloads::{clock, number, output};

const REPORTS_PER_ROUND: usize = 10;

struct Options {
    mb: usize,
    rounds: f64,
    dirty_file: Option<String>,
    dirty_mb: usize,
    move_to: Option<String>,
    move_after: usize,
    delay: f64,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let (mb, rounds, dirty_mb, move_after, delay) = (300, 3.0, 50, 1, 0.0);
    let mut options = Options { mb, rounds, dirty_file: None, dirty_mb, move_to: None, move_after, delay };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("mb") => options.mb = number(&mut parser)?,
            Long("rounds") => options.rounds = number(&mut parser)?,
            Long("dirty-file") => options.dirty_file = Some(parser.value()?.string()?),
            Long("dirty-mb") => options.dirty_mb = number(&mut parser)?,
            Long("move-to") => options.move_to = Some(parser.value()?.string()?),
            Long("move-after") => options.move_after = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    if options.mb == 0 || options.rounds <= 0.0 {
        return Err("--mb and --rounds must be above 0".into());
    }
    Ok(options)
}

/// Units of work that are done, and their reports.
#[derive(Default)]
struct Progress {
    units: usize,
}

impl Progress {
    fn add(&mut self, units: usize) {
        self.units += units;
        output::line(format_args!("w {} {:.3}", self.units, output::ms(clock::now_ns())));
    }
}

/// Joins a cgroup, which is made where it is not there.
fn move_to(cgroup: &str) -> anyhow::Result<()> {
    fs::create_dir_all(cgroup).with_context(|| format!("cannot make the cgroup {cgroup}"))?;
    let path = Path::new(cgroup).join("cgroup.procs");
    fs::write(&path, "0").with_context(|| format!("cannot write 0 to {}", path.display()))
}

/// Writes the first `mebibytes` of a file anew; they stay dirty until the kernel writes them back.
fn dirty(file: &mut File, mebibytes: usize, progress: &mut Progress) -> std::io::Result<()> {
    let chunk = vec![0x5a_u8; MIB];
    file.rewind()?;
    for _ in 0..mebibytes {
        file.write_all(&chunk)?;
    }
    progress.add(mebibytes * MIB / PAGE_BYTES);
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    clock::wait_seconds(options.delay);
    let path = options.dirty_file.as_deref();
    let mut file =
        path.map(|path| File::create(path).with_context(|| format!("cannot write {path}"))).transpose()?;
    let mut progress = Progress::default();
    progress.add(0);
    let mut memory = None;
    for round in 0..options.rounds.ceil() as usize {
        if let Some(cgroup) = options.move_to.as_deref().filter(|_| round == options.move_after) {
            move_to(cgroup)?;
            memory = None;
        }
        let is_new = memory.is_none();
        let held: &mut Anonymous = match &mut memory {
            Some(held) => held,
            none => none.insert(Anonymous::map(options.mb)?),
        };
        let piece = held.pages().div_ceil(REPORTS_PER_ROUND);
        let end = (held.pages() as f64 * (options.rounds - round as f64).min(1.0)) as usize;
        for first in (0..end).step_by(piece) {
            let pages = first..end.min(first + piece);
            let count = pages.len();
            for page in pages {
                if is_new { held.fill_page(page) } else { held.touch_page(page) }
            }
            progress.add(count);
        }
        if let Some(file) = &mut file {
            dirty(file, options.dirty_mb, &mut progress)?;
        }
    }
    Ok(())
}
