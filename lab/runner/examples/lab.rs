//! The lab's command line by itself, for working on the lab: `cargo run --release -p steward-lab --example lab -- list`.

use std::process::ExitCode;

use clap::Parser;
use steward_lab::cli::LabCommand;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    lab: LabCommand,
}

fn main() -> anyhow::Result<ExitCode> {
    let complete = Arguments::parse().lab.execute()?;
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
