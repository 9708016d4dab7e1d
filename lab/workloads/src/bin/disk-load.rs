//! A program that keeps a disk busy, in one of the ways that programs do.
//!
//! `disk-load KIND --file PATH [--mb 64] [--piece-kb N] (--seconds 30 | --work-mb N) [--delay 5] [--threads 1]
//! [--think-ms 0]`
//!
//! | kind | what it does, over and over | piece |
//! |---|---|---|
//! | `buffered` | truncates its file and writes all of it through the page cache | 64 KiB |
//! | `direct` | writes its file in place, past the page cache | 1 MiB |
//! | `fsync` | writes a piece through the page cache and waits until it is on the disk | 4 KiB |
//! | `read` | reads its file, past the page cache | 20 MiB |
//! | `random-read` | the same, pieces in no order | 4 KiB |
//!
//! Before the delay it makes its file of `--mb`, unless there is one of that size, and has all of it on the disk: those
//! kinds that do not truncate it change nothing but its contents. One unit of its work is a KiB. Several threads each
//! go through the file in an order of their own, and pause after each piece for the time that is given as thinking.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Context;
use steward_lab_workloads::direct::{DirectBuffer, PAGE, next_in_no_order};
use steward_lab_workloads::{clock, number, output};

const KIB: usize = 1024;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Buffered,
    Direct,
    Fsync,
    Read,
    RandomRead,
}

impl Kind {
    fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "buffered" => Kind::Buffered,
            "direct" => Kind::Direct,
            "fsync" => Kind::Fsync,
            "read" => Kind::Read,
            "random-read" => Kind::RandomRead,
            _ => return None,
        })
    }

    fn usual_piece_kib(self) -> usize {
        match self {
            Kind::Buffered => 64,
            Kind::Direct => 1024,
            Kind::Fsync | Kind::RandomRead => 4,
            Kind::Read => 20 * 1024,
        }
    }

    fn past_the_cache(self) -> bool {
        matches!(self, Kind::Direct | Kind::Read | Kind::RandomRead)
    }
}

struct Options {
    kind: Kind,
    file: PathBuf,
    mb: usize,
    piece_kib: usize,
    seconds: f64,
    work_kib: u64,
    delay: f64,
    threads: u64,
    think: Duration,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut kind, mut file, mut mb, mut piece_kib) = (None, PathBuf::new(), 64, None);
    let (mut seconds, mut work_kib, mut delay) = (f64::INFINITY, u64::MAX, 0.0);
    let (mut threads, mut think) = (1, Duration::ZERO);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Value(name) if kind.is_none() => {
                let name = name.string()?;
                kind =
                    Some(Kind::named(&name).ok_or_else(|| format!("there is no load of the kind {name}"))?);
            }
            Long("file") => file = parser.value()?.into(),
            Long("mb") => mb = number(&mut parser)?,
            Long("piece-kb") => piece_kib = Some(number(&mut parser)?),
            Long("seconds") => seconds = number(&mut parser)?,
            Long("work-mb") => work_kib = number::<u64>(&mut parser)? * KIB as u64,
            Long("delay") => delay = number(&mut parser)?,
            Long("threads") => threads = number(&mut parser)?,
            Long("think-ms") => think = Duration::from_millis(number(&mut parser)?),
            other => return Err(other.unexpected()),
        }
    }
    let kind = kind.ok_or("what kind of load?")?;
    let piece_kib = piece_kib.unwrap_or(kind.usual_piece_kib());
    if file.as_os_str().is_empty() || piece_kib == 0 || piece_kib % (PAGE / KIB) != 0 || mb * KIB < piece_kib
    {
        return Err("--file is needed, and a piece of whole pages that is no larger than the file".into());
    }
    if seconds.is_infinite() && work_kib == u64::MAX {
        return Err("--seconds or --work-mb is needed".into());
    }
    Ok(Options { kind, file, mb, piece_kib, seconds, work_kib, delay, threads, think })
}

/// Writes the whole file, unless it is there, and waits until the disk has it.
fn fill(path: &Path, mib: usize) -> anyhow::Result<()> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == (mib * KIB * KIB) as u64) {
        return Ok(());
    }
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let piece = vec![b'x'; KIB * KIB];
    for index in 0..mib {
        file.write_all_at(&piece, (index * KIB * KIB) as u64)?;
    }
    file.sync_all()?;
    Ok(())
}

/// A file, and where in it the next piece is.
struct Load {
    kind: Kind,
    file: File,
    buffer: DirectBuffer,
    pieces: u64,
    next: u64,
    state: u64,
}

impl Load {
    fn open(options: &Options, thread: u64) -> anyhow::Result<Load> {
        let flags = if options.kind.past_the_cache() { libc::O_DIRECT } else { 0 };
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&options.file);
        let file = file.with_context(|| format!("cannot open {}", options.file.display()))?;
        let buffer = DirectBuffer::new(options.piece_kib * KIB);
        let pieces = (options.mb * KIB / options.piece_kib) as u64;
        let state = u64::from(std::process::id()) + (thread << 32);
        let next = pieces / options.threads.max(1) * thread;
        Ok(Load { kind: options.kind, file, buffer, pieces, next, state })
    }

    /// The number of the piece that is due. Some kinds do something first where the file begins again.
    fn due(&mut self) -> std::io::Result<u64> {
        if self.kind == Kind::RandomRead {
            return Ok(next_in_no_order(&mut self.state, self.pieces));
        }
        let due = self.next;
        self.next = (due + 1) % self.pieces;
        if due == 0 && self.kind == Kind::Buffered {
            self.file.set_len(0)?;
        }
        Ok(due)
    }

    fn piece(&mut self) -> std::io::Result<()> {
        let at = self.due()? * self.buffer.bytes().len() as u64;
        match self.kind {
            Kind::Buffered | Kind::Direct => self.file.write_all_at(self.buffer.bytes(), at),
            Kind::Fsync => {
                self.file.write_all_at(self.buffer.bytes(), at).and_then(|()| self.file.sync_all())
            }
            Kind::Read | Kind::RandomRead => self.file.read_exact_at(self.buffer.bytes(), at),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    fill(&options.file, options.mb)?;
    let loads: Vec<Load> =
        (0..options.threads).map(|thread| Load::open(&options, thread)).collect::<anyhow::Result<_>>()?;
    clock::wait_seconds(options.delay);
    let start_ns = clock::now_ns();
    let end_ns = start_ns as f64 + options.seconds * 1e9;
    output::line(format_args!("w 0 {:.3}", output::ms(start_ns)));
    let (done_kib, told_ns) = (AtomicU64::new(0), AtomicU64::new(start_ns));
    let work = |mut load: Load| -> anyhow::Result<()> {
        while done_kib.load(Relaxed) < options.work_kib && (clock::now_ns() as f64) < end_ns {
            load.piece()?;
            let done_kib = done_kib.fetch_add(options.piece_kib as u64, Relaxed) + options.piece_kib as u64;
            let (now_ns, told_before_ns) = (clock::now_ns(), told_ns.load(Relaxed));
            // Once in 100 ms is often enough, and at the end.
            let is_due = now_ns.saturating_sub(told_before_ns) >= 100_000_000;
            if is_due || done_kib >= options.work_kib || now_ns as f64 >= end_ns {
                output::line(format_args!("w {done_kib} {:.3}", output::ms(now_ns)));
                told_ns.store(now_ns, Relaxed);
            }
            if !options.think.is_zero() {
                std::thread::sleep(options.think);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = loads.into_iter().map(|load| scope.spawn(|| work(load))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a panic was said by the thread itself"))
    })
}
