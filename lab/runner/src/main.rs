//! `steward-lab`: experiments in a virtual machine. Reads its command line ([`LabCommand`]), does what it says, ends
//! with the right code.

use std::process::ExitCode;

use clap::Parser;
use steward_lab::cli::LabCommand;

fn main() -> ExitCode {
    match LabCommand::parse().execute() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("steward-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
