//! The command line of `steward-lab`, as clap reads it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use steward_machine::KernelChoice;

use crate::outcome::Outcome;
use crate::run::{RunOptions, run_scenario};
use crate::scenario::{Contender, Scenario};
use crate::{published, read, report};

/// Run experiments in a virtual machine.
#[derive(Debug, Parser)]
#[command(
    name = "steward-lab",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 success, 1 failure or a contender without a run that counts, 2 usage."
)]
pub struct LabCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run scenarios under each contender and report.
    Run(RunArguments),
    /// List the scenarios that ship.
    List,
    /// Write the report of a result that `run` has left.
    Report {
        /// A result.json.
        result: PathBuf,
        /// Where to write [default: beside the result].
        #[arg(long, value_name = "DIRECTORY")]
        output: Option<PathBuf>,
    },
    /// Bring the results that `run` has left into README.md, docs/results.md and docs/figures.
    Figures {
        /// Where the results are [default: lab/reports].
        #[arg(long, value_name = "DIRECTORY")]
        reports: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Scenario files, or names of scenarios that ship.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only this contender (stock, stock-nice, deadline, steward, ...); may be repeated.
    #[arg(long, value_name = "NAME")]
    contender: Vec<Contender>,
    /// How often each contender runs [default: what the file says].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// Print the result as JSON on standard output.
    #[arg(long)]
    json: bool,
    /// The kernel to boot: `debian`, `host`, or the path of an image.
    #[arg(long, value_name = "PATH|host", default_value = "debian")]
    kernel: String,
    /// The modules of that kernel.
    #[arg(long, value_name = "DIRECTORY")]
    modules: Option<PathBuf>,
    /// Where results and reports go, one directory for each scenario [default: lab/reports].
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Leave what the programs printed there, a file for each in a directory for each run.
    #[arg(long, value_name = "DIRECTORY")]
    printed: Option<PathBuf>,
}

impl LabCommand {
    /// Carries the command out. `Ok(false)`: it ran, but a contender has no run that counts.
    ///
    /// # Errors
    /// What could not be read, booted or written.
    pub fn execute(&self) -> Result<bool> {
        match &self.action {
            Action::Run(arguments) => run(arguments),
            Action::List => list().map(|()| true),
            Action::Figures { reports } => {
                let root = steward_machine::repository();
                let reports = reports.clone().unwrap_or_else(|| root.join("lab/reports"));
                let written = published::write(&root, &published::read(&reports)?)?;
                written.iter().for_each(|path| println!("{}", path.display()));
                Ok(true)
            }
            Action::Report { result, output } => {
                let text = std::fs::read_to_string(result)
                    .with_context(|| format!("cannot read the result {}", result.display()))?;
                let outcome: Outcome = serde_json::from_str(&text)
                    .with_context(|| format!("{} is not a result of the lab", result.display()))?;
                let beside = result.parent().unwrap_or(Path::new("."));
                let path = report::write(&outcome, output.as_deref().unwrap_or(beside))?;
                println!("{}", path.display());
                Ok(true)
            }
        }
    }
}

fn scenario_directory() -> PathBuf {
    steward_machine::repository().join("lab/scenarios")
}

/// A file as it is given, or a scenario that ships by its name.
fn resolve(given: &Path) -> PathBuf {
    let shipped = scenario_directory().join(given).with_extension("toml");
    if !given.exists() && given.components().count() == 1 && shipped.exists() {
        shipped
    } else {
        given.to_owned()
    }
}

fn run(arguments: &RunArguments) -> Result<bool> {
    let mut complete = true;
    let directory = arguments.output.clone();
    let directory = directory.unwrap_or_else(|| steward_machine::repository().join("lab/reports"));
    for file in &arguments.files {
        let options = RunOptions {
            contenders: arguments.contender.clone(),
            repeat: arguments.repeat,
            kernel: KernelChoice::parse(&arguments.kernel, arguments.modules.as_deref()),
            quiet: false,
            printed: arguments.printed.clone(),
        };
        let outcome = run_scenario(&resolve(file), &options)?;
        let report = report::write(&outcome, &directory.join(&outcome.scenario))?;
        if arguments.json {
            println!("{}", outcome.to_json());
        } else {
            print!("\n{}", outcome.table());
        }
        eprintln!("report: {}", report.display());
        complete &= outcome.is_complete();
    }
    Ok(complete)
}

fn list() -> Result<()> {
    let scenarios = read::files(&scenario_directory())?;
    let scenarios = scenarios.iter().map(|path| Scenario::load(path)).collect::<Result<Vec<_>>>()?;
    let width = scenarios.iter().map(|scenario| scenario.id.len()).max().unwrap_or(0);
    for scenario in scenarios {
        println!("{:width$}  {}", scenario.id, scenario.title);
    }
    Ok(())
}
