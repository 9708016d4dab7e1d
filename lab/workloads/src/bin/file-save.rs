//! A program that saves a document as editors do: into a new file, which is brought to the disk and put in the old
//! one's place.
//!
//! `file-save --file PATH --kb 30 --seconds 60 [--interval 2] [--delay 5] [--while FILE=DURING:ELSE]...`
//!
//! A first save, before the delay, reads what the file system needs to know, and is not told. Then it prints how long
//! each took, from the first byte until the new name is in place. The next one follows an interval after the last was
//! due, or at once where that has passed. With `--while` it writes `DURING` into a file of the kernel before each save,
//! and `ELSE` after it, the last one first: what can be had at best where the program itself says when it waits.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use steward_lab_workloads::{clock, number, output};

/// How much is written at a time.
const PIECE_KIB: usize = 32;

struct Options {
    file: PathBuf,
    kb: usize,
    interval_seconds: f64,
    seconds: f64,
    delay: f64,
    settings: Vec<Setting>,
}

/// A setting that differs while the program saves.
struct Setting {
    path: PathBuf,
    during: String,
    otherwise: String,
}

impl Setting {
    /// From `FILE=DURING:ELSE`.
    fn parse(text: &str) -> Option<Setting> {
        let (path, values) = text.split_once('=')?;
        let (during, otherwise) = values.split_once(':')?;
        Some(Setting { path: path.into(), during: during.into(), otherwise: otherwise.into() })
    }

    fn write(&self, value: &str) -> anyhow::Result<()> {
        std::fs::write(&self.path, value)
            .with_context(|| format!("cannot write {value} to {}", self.path.display()))
    }
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        file: PathBuf::new(),
        kb: 30,
        interval_seconds: 2.0,
        seconds: 30.0,
        delay: 0.0,
        settings: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("file") => options.file = parser.value()?.into(),
            Long("kb") => options.kb = number(&mut parser)?,
            Long("interval") => options.interval_seconds = number(&mut parser)?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            Long("while") => {
                let text = parser.value()?.string()?;
                let setting =
                    Setting::parse(&text).ok_or_else(|| format!("--while {text}: write FILE=DURING:ELSE"))?;
                options.settings.push(setting);
            }
            other => return Err(other.unexpected()),
        }
    }
    if options.file.as_os_str().is_empty() || options.kb == 0 || options.interval_seconds <= 0.0 {
        return Err("--file is needed, and --kb and --interval must be above 0".into());
    }
    Ok(options)
}

/// Writes `kib` into a new file beside `path`, brings it to the disk and gives it that name.
fn save(path: &Path, kib: usize) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new).with_context(|| format!("cannot create {}", new.display()))?;
    let piece = vec![b'x'; PIECE_KIB * 1024];
    let mut left = kib * 1024;
    while left > 0 {
        let length = left.min(piece.len());
        file.write_all(&piece[..length])?;
        left -= length;
    }
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    save(&options.file, options.kb)?;
    clock::wait_seconds(options.delay);
    let interval_ns = (options.interval_seconds * 1e9) as u64;
    let mut due_ns = clock::now_ns();
    let end_ns = due_ns + (options.seconds * 1e9) as u64;
    while due_ns < end_ns {
        clock::sleep_until(due_ns);
        let begin_ns = clock::now_ns();
        output::line(format_args!("s {:.3}", output::ms(begin_ns)));
        options.settings.iter().try_for_each(|setting| setting.write(&setting.during))?;
        save(&options.file, options.kb)?;
        options.settings.iter().rev().try_for_each(|setting| setting.write(&setting.otherwise))?;
        let done_ns = clock::now_ns();
        output::line(format_args!("r {:.3}", output::ms(done_ns - begin_ns)));
        due_ns = (due_ns + interval_ns).max(done_ns);
    }
    Ok(())
}
