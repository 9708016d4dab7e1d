//! `steward record`: writes down who runs, waits and sleeps.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::arguments::{JsonFlag, parse_time};
use crate::output::{print, print_json};

/// Record who runs, waits and sleeps on this machine, to be replayed in the simulator
///
/// It watches the scheduler's tracepoints with a small BPF program, whatever scheduler is in force, and changes
/// nothing. Needs root. Ends early on Ctrl-C, with what it has.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward record --duration 30s -o busy.jsonl\n  \
        steward sim --replay busy.jsonl --spec mplayer=5ms/30ms")]
pub struct RecordArguments {
    /// For how long.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub duration: Duration,
    /// Where to; a file that is there is replaced.
    #[arg(long, short, value_name = "FILE", default_value = "recording.jsonl")]
    pub output_file: PathBuf,
    #[command(flatten)]
    pub output: JsonFlag,
}

#[derive(Serialize)]
struct Report {
    file: String,
    seconds: f64,
    tasks: u64,
    cycles: u64,
    lost: u64,
}

/// Records as the arguments say.
pub fn record(arguments: &RecordArguments) -> anyhow::Result<()> {
    let path = &arguments.output_file;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("watching for Ctrl-C")?;
    }
    // What stood there before is replaced only by a whole recording.
    let mut partial = path.clone().into_os_string();
    partial.push(".part");
    let partial = PathBuf::from(partial);
    let file = File::create(&partial).with_context(|| format!("creating {}", partial.display()))?;
    let recorded =
        steward_record::record(arguments.duration, BufWriter::new(file), || stop.load(Ordering::Relaxed));
    let summary = match recorded {
        Ok(summary) => summary,
        Err(error) => {
            // It holds nothing of use; that it may stay does no harm.
            let _ = std::fs::remove_file(&partial);
            return Err(error.into());
        }
    };
    std::fs::rename(&partial, path)
        .with_context(|| format!("renaming {} to {}", partial.display(), path.display()))?;
    let report = Report {
        file: path.display().to_string(),
        seconds: summary.duration_ns as f64 / 1e9,
        tasks: summary.tasks,
        cycles: summary.cycles,
        lost: summary.lost,
    };
    if arguments.output.json {
        return print_json(&report);
    }
    let lost = match report.lost {
        0 => String::new(),
        lost => format!("; {lost} records came too fast and are missing"),
    };
    print(&format!(
        "{:.1} s of {} threads, {} cycles{lost}. Replay it with: steward sim --replay {}\n",
        report.seconds, report.tasks, report.cycles, report.file
    ))
}
