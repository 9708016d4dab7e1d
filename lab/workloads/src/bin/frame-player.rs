//! A film: every frame takes a given amount of CPU time and is to be shown at its own moment.
//!
//! `frame-player --fps 25 --cpu-ms 4.5 --seconds 30 [--demand-factor 3] [--input FILE --chunk BYTES]
//! [--memory-mb 0]`
//!
//! Frame `i` may be worked on from `start + i * period` and is printed when it is completed. A late frame is played
//! at once and none is dropped (as mplayer does without `-framedrop`), so the film catches up when it can.
//! CPU demand is cumulative: what printing a frame costs is part of the next one's time.
//! With `--memory-mb` each frame touches all of so much memory first, as a decoder does its pictures and its code.

use std::io::Read;

use steward_lab_workloads::memory::Anonymous;
use steward_lab_workloads::{clock, number, output};

struct Options {
    fps: f64,
    cpu_ms: f64,
    seconds: f64,
    demand_factor: f64,
    input: Option<String>,
    chunk: usize,
    memory_mb: usize,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let (input, chunk, memory_mb) = (None, 16_384, 0);
    let mut options =
        Options { fps: 25.0, cpu_ms: 4.5, seconds: 30.0, demand_factor: 1.0, input, chunk, memory_mb };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("fps") => options.fps = number(&mut parser)?,
            Long("cpu-ms") => options.cpu_ms = number(&mut parser)?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            Long("demand-factor") => options.demand_factor = number(&mut parser)?,
            Long("input") => options.input = Some(parser.value()?.string()?),
            Long("chunk") => options.chunk = number(&mut parser)?,
            Long("memory-mb") => options.memory_mb = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    if !(options.fps > 0.0 && options.cpu_ms >= 0.0 && options.seconds > 0.0) {
        return Err("--fps and --seconds must be above 0, --cpu-ms at least 0".into());
    }
    Ok(options)
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    let mut input = options.input.as_ref().map(std::fs::File::open).transpose()?;
    let mut chunk = vec![0u8; options.chunk];
    let mut memory = match options.memory_mb {
        0 => None,
        mebibytes => Some(Anonymous::map(mebibytes)?),
    };
    memory.iter_mut().for_each(Anonymous::fill);
    let period_ns = (1e9 / options.fps) as u64;
    let demand_ns = (options.cpu_ms * options.demand_factor * 1e6) as u64;
    let frames = (options.seconds * options.fps).floor() as u64;

    let start_ns = clock::now_ns();
    output::line(format_args!("start {:.3} {:.6} {frames}", output::ms(start_ns), output::ms(period_ns)));
    let mut demand_until_ns = clock::thread_cpu_ns();
    for frame in 0..frames {
        clock::sleep_until(start_ns + frame * period_ns);
        if let Some(file) = &mut input {
            // A film that is shorter than the run plays its last pieces as silence: no read, same CPU.
            let _ = file.read(&mut chunk)?;
        }
        memory.iter_mut().for_each(Anonymous::touch);
        demand_until_ns += demand_ns;
        clock::burn_until(demand_until_ns);
        output::line(format_args!("f {:.3}", output::ms(clock::now_ns())));
    }
    Ok(())
}
