//! A film player with read-ahead threads: pieces are read by several threads and decoded by one (Eclipse 1998, section
//! 7).
//!
//! `read-ahead-player --fps 25 --seconds 30 [--threads 10] [--read-ms 2] [--decode-ms 5] [--device-ms 10] [--buffer 1]
//! [--input FILE] [--chunk BYTES] [--delay 2]
//! [--drop] [--complain SOCKET]`
//!
//! A piece is a frame. The threads are at most as many frames ahead as there are threads; each takes the next piece,
//! waits for the device (a timer), reads the file if there is one, and computes. The decoder takes the pieces in their
//! order, and may be `--buffer` frames ahead of the moment at which a frame is due: that is what the card's buffer
//! holds. A late frame is played at once and none is dropped.
//!
//! With `--drop` a frame that is not begun a period after its moment is not decoded, and not shown. With `--complain` a
//! thread tells Steward's daemon, four times a second at most, how many frames were dropped or late.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use steward_lab_workloads::{clock, number, output};

struct Options {
    fps: f64,
    seconds: f64,
    threads: usize,
    read_ms: f64,
    decode_ms: f64,
    device_ms: f64,
    buffer: u64,
    delay: f64,
    input: Option<String>,
    chunk: usize,
    drop: bool,
    complain: Option<String>,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        fps: 25.0,
        seconds: 30.0,
        threads: 10,
        read_ms: 2.0,
        decode_ms: 5.0,
        device_ms: 10.0,
        buffer: 1,
        delay: 0.0,
        input: None,
        chunk: 16_384,
        drop: false,
        complain: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("fps") => options.fps = number(&mut parser)?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            Long("threads") => options.threads = number(&mut parser)?,
            Long("read-ms") => options.read_ms = number(&mut parser)?,
            Long("decode-ms") => options.decode_ms = number(&mut parser)?,
            Long("device-ms") => options.device_ms = number(&mut parser)?,
            Long("buffer") => options.buffer = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            Long("input") => options.input = Some(parser.value()?.string()?),
            Long("drop") => options.drop = true,
            Long("complain") => options.complain = Some(parser.value()?.string()?),
            Long("chunk") => options.chunk = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    if !(options.fps > 0.0 && options.seconds > 0.0 && options.threads > 0) {
        return Err("--fps, --seconds and --threads must be above 0".into());
    }
    Ok(options)
}

/// Which pieces are taken, read and decoded. Piece numbers count from 0.
struct Pieces {
    state: Mutex<State>,
    /// There is room for one more piece: wakes one reader.
    room: Condvar,
    /// A piece was read: wakes the decoder.
    arrived: Condvar,
}

struct State {
    /// The next piece that nobody reads yet.
    next: u64,
    /// How many pieces are decoded: pieces up to this plus the number of threads may be read.
    decoded: u64,
    /// Whether piece `i` is read, at index `i` modulo the number of threads.
    ready: Vec<bool>,
}

impl Pieces {
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    /// The next piece to read, when there is room for it; none when the film is over.
    fn take(&self, frames: u64) -> Option<u64> {
        let mut state = self.locked();
        loop {
            if state.next >= frames {
                return None;
            }
            if state.next < state.decoded + state.ready.len() as u64 {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.room.wait(state).expect("no thread panics while it holds the lock");
        }
    }

    fn put(&self, piece: u64) {
        let mut state = self.locked();
        let slot = piece as usize % state.ready.len();
        state.ready[slot] = true;
        self.arrived.notify_one();
    }

    fn wait_for(&self, piece: u64) {
        let mut state = self.locked();
        let slot = piece as usize % state.ready.len();
        while !state.ready[slot] {
            state = self.arrived.wait(state).expect("no thread panics while it holds the lock");
        }
    }

    fn finish(&self, piece: u64) {
        let mut state = self.locked();
        let slot = piece as usize % state.ready.len();
        state.ready[slot] = false;
        state.decoded = piece + 1;
        self.room.notify_one();
    }
}

/// One read-ahead thread, until the film is over.
fn read(options: &Options, pieces: &Pieces, frames: u64) -> std::io::Result<()> {
    let input = options.input.as_ref().map(std::fs::File::open).transpose()?;
    let mut chunk = vec![0u8; options.chunk];
    while let Some(piece) = pieces.take(frames) {
        clock::sleep_until(clock::now_ns() + (options.device_ms * 1e6) as u64);
        if let Some(file) = &input {
            // A film that is shorter than the run plays its last pieces as silence: no read, same CPU.
            let _ = file.read_at(&mut chunk, piece * options.chunk as u64)?;
        }
        clock::burn_until(clock::thread_cpu_ns() + (options.read_ms * 1e6) as u64);
        pieces.put(piece);
    }
    Ok(())
}

/// Tells the daemon what was missed since the last time, for ever. A film goes on without a daemon.
fn complain(socket: &str, missed: &AtomicU64) -> Result<(), libsteward::Error> {
    let mut client = libsteward::Client::connect(socket)?;
    loop {
        clock::wait_seconds(0.25);
        let since = missed.swap(0, Ordering::Relaxed);
        if since > 0 {
            client.complain(since)?;
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Arc::new(parse()?);
    clock::wait_seconds(options.delay);
    let frames = (options.seconds * options.fps).floor() as u64;
    let period_ns = (1e9 / options.fps) as u64;
    let state = State { next: 0, decoded: 0, ready: vec![false; options.threads] };
    let pieces = Arc::new(Pieces { state: Mutex::new(state), room: Condvar::new(), arrived: Condvar::new() });
    for _ in 0..options.threads {
        let (options, pieces) = (options.clone(), pieces.clone());
        std::thread::spawn(move || read(&options, &pieces, frames));
    }
    // The film begins when its first piece is there and the card's buffer is full.
    pieces.wait_for(0);
    let start_ns = clock::now_ns() + (options.buffer + 1) * period_ns;
    output::line(format_args!("start {:.3} {:.6} {frames}", output::ms(start_ns), output::ms(period_ns)));
    let missed = Arc::new(AtomicU64::new(0));
    if let Some(socket) = options.complain.clone() {
        let missed = missed.clone();
        std::thread::spawn(move || complain(&socket, &missed).map_err(|error| eprintln!("{error}")));
    }
    let mut demand_until_ns = clock::thread_cpu_ns();
    for frame in 0..frames {
        pieces.wait_for(frame);
        clock::sleep_until(start_ns + frame * period_ns - options.buffer * period_ns);
        let deadline_ns = start_ns + (frame + 1) * period_ns;
        let is_dropped = options.drop && clock::now_ns() > deadline_ns;
        if !is_dropped {
            demand_until_ns += (options.decode_ms * 1e6) as u64;
            clock::burn_until(demand_until_ns);
        }
        pieces.finish(frame);
        let now_ns = clock::now_ns();
        if now_ns > deadline_ns {
            missed.fetch_add(1, Ordering::Relaxed);
        }
        if !is_dropped {
            output::line(format_args!("f {:.3}", output::ms(now_ns)));
        }
    }
    Ok(())
}
