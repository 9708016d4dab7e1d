//! The memory room on a real kernel: prints what it reads, ages, takes, sets and holds, and fails when something that
//! must hold does not.
//!
//!     memory-probe room [DIRECTORY]
//!     memory-probe hold DIRECTORY
//!
//! as root, on a machine that may be disturbed (the lab's), with a directory on a disk. room.rs and hold.rs say what
//! each looks at.

mod hold;
mod program;
mod room;

use std::error::Error;
use std::path::{Path, PathBuf};

type Outcome = Result<String, Box<dyn Error>>;

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [program::ARGUMENT] => program::serve(),
        ["room"] => run(room::Probe::start(None)?, &room::CHECKS),
        ["room", directory] => run(room::Probe::start(Some(PathBuf::from(directory)))?, &room::CHECKS),
        ["hold", directory] => run(hold::Probe::start(Path::new(directory))?, &hold::CHECKS),
        _ => Err("memory-probe room [DIRECTORY], or memory-probe hold DIRECTORY".into()),
    }
}

/// What is looked at, and what looks: what it saw, or what was wrong.
type Check<Probe> = (&'static str, fn(&mut Probe) -> Outcome);

/// Makes all checks, and fails when one of them did.
fn run<Probe>(mut probe: Probe, checks: &[Check<Probe>]) -> Result<(), Box<dyn Error>> {
    let mut failed = 0;
    for (name, check) in checks {
        match check(&mut probe) {
            Ok(figures) => println!("ok {name}: {figures}"),
            Err(error) => {
                println!("failed {name}: {error}");
                failed += 1;
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} checks failed").into()) }
}

/// An error unless it holds.
fn must(holds: bool, what: impl Into<String>) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

/// As MiB, with two digits behind the point.
fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / MIB as f64)
}
