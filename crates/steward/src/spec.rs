//! `steward spec check` and `steward spec import`: specification files, without the daemon.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use steward_core::problem::{Origin, Problem, Severity};
use steward_core::spec::{self, DirectoryRank, ParsedFile, SpecPath, SpecSet};
use steward_kernel::process::executable;
use steward_kernel::{Roots, files};

use crate::arguments::JsonFlag;
use crate::output::{print, print_json};

/// Where the daemon reads specifications.
const DIRECTORIES: [(DirectoryRank, &str); 3] = [
    (DirectoryRank::Vendor, "/usr/lib/steward/specs"),
    (DirectoryRank::Runtime, "/run/steward/specs"),
    (DirectoryRank::Administrator, "/etc/steward/specs"),
];

#[derive(Debug, Subcommand)]
pub enum SpecCommand {
    Check(SpecCheckArguments),
    /// List the specifications in force, and what is wrong with the others
    List(JsonFlag),
    Import(SpecImportArguments),
}

/// Check specification files, and that the programs they name exist
///
/// Exits with 1 when anything is wrong. Without FILE, checks the directories that the daemon reads; there, a program
/// that is not installed is only noted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward spec check\n  steward spec check my.toml")]
pub struct SpecCheckArguments {
    /// Files of [[spec]] rows; any name that does not end in .toml is read as rows in the one-line form, - is
    /// standard input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print notes too, for example of programs that are not installed.
    #[arg(long, short)]
    pub verbose: bool,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Convert rows in the one-line form (PATH:Iact:C:T:FLAGS:PROTECTION:IO) to TOML
///
/// Rows come from the arguments, from --file, or from standard input.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward spec import '/usr/bin/mplayer:Iact:5:30:IR:-:-'\n  \
        steward spec import --file redline.tab --write /etc/steward/specs/50-mine.toml")]
pub struct SpecImportArguments {
    /// Rows.
    #[arg(value_name = "ROW", conflicts_with = "file")]
    pub rows: Vec<String>,
    /// A file of rows.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Write there instead of standard output. Must not exist yet.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// What `spec check --json` prints.
#[derive(Serialize)]
struct Checked {
    specs: usize,
    problems: Vec<ProblemRow>,
}

#[derive(Serialize)]
struct ProblemRow {
    file: PathBuf,
    line: Option<u32>,
    severity: Severity,
    what: String,
    advice: String,
}

/// `steward spec check`. False when anything is wrong.
pub fn check(arguments: &SpecCheckArguments) -> anyhow::Result<bool> {
    let own_files = !arguments.files.is_empty();
    let files = if own_files { arguments.files.clone() } else { installed_files()? };
    let set = SpecSet::merge(files.iter().map(|file| read(file)).collect());
    let mut problems = set.problems.clone();
    problems.extend(set.specs().iter().filter_map(|spec| check_on_disk(spec, own_files)));
    problems.extend(set.specs().iter().filter_map(|spec| spec::check_served_first(spec, own_files)));
    problems.sort_by(|one, other| one.origin.cmp(&other.origin));
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    if arguments.output.json {
        print_json(&Checked {
            specs: set.specs().len(),
            problems: problems.into_iter().map(problem_row).collect(),
        })?;
        return Ok(errors == 0);
    }
    let mut text = String::new();
    for problem in &problems {
        if problem.severity == Severity::Error || arguments.verbose {
            text.push_str(&format!("{problem}\n"));
        }
    }
    let notes = problems.len() - errors;
    let noted = match notes {
        0 => String::new(),
        _ if arguments.verbose => format!(", {notes} notes"),
        _ => format!(", {notes} notes (--verbose shows them)"),
    };
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    text.push_str(&format!(
        "{} in {}: {}{noted}\n",
        count(set.specs().len(), "specification"),
        count(files.len(), "file"),
        count(errors, "problem")
    ));
    print(&text)?;
    Ok(errors == 0)
}

fn problem_row(problem: Problem) -> ProblemRow {
    ProblemRow {
        line: (problem.origin.line > 0).then_some(problem.origin.line),
        file: problem.origin.file,
        severity: problem.severity,
        what: problem.what,
        advice: problem.advice,
    }
}

/// The files that the daemon would read, lowest precedence first.
fn installed_files() -> anyhow::Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for (rank, directory) in DIRECTORIES {
        let names = match std::fs::read_dir(directory) {
            Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {directory}")),
        };
        directories.push((rank, names));
    }
    let path = |file: &spec::EffectiveFile| {
        let directory = DIRECTORIES.iter().find(|(rank, _)| *rank == file.rank).map_or("", |(_, path)| path);
        Path::new(directory).join(&file.name)
    };
    Ok(spec::effective_files(&directories).files.iter().map(path).collect())
}

fn read(file: &Path) -> ParsedFile {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        let advice = "write text to it";
        std::io::stdin()
            .read_to_string(&mut text)
            .map(|_| text)
            .map_err(|error| (format!("cannot be read: {error}"), advice))
    } else {
        files::read_text(file).map_err(|error| (error.what(), error.advice()))
    };
    match text {
        Ok(text) if file.extension().is_some_and(|extension| extension == "toml") => {
            spec::parse_toml(file, &text)
        }
        Ok(text) if text.lines().any(|line| line.trim() == "[[spec]]") => {
            let advice = "give it a name that ends in .toml, or write rows in the one-line form";
            ParsedFile::unreadable(Problem::error(
                Origin::at(file, 0),
                "looks like TOML and has another name",
                advice,
            ))
        }
        Ok(text) => spec::parse_tab(file, &text),
        Err((what, advice)) => ParsedFile::unreadable(Problem::error(Origin::at(file, 0), what, advice)),
    }
}

fn check_on_disk(spec: &spec::Spec, strict: bool) -> Option<Problem> {
    let SpecPath::Executable(path) = &spec.path else { return None };
    match executable::identify(path, &Roots::default()) {
        Ok(facts) => spec::check_target(spec, &facts, strict),
        Err(error) => Some(Problem::error(spec.origin.clone(), error.to_string(), "check as root")),
    }
}

/// `steward spec import`. False when a row is wrong; the others are printed, but nothing is written to a file.
pub fn import(arguments: &SpecImportArguments) -> anyhow::Result<bool> {
    let parsed = match &arguments.file {
        None if !arguments.rows.is_empty() => {
            spec::parse_tab(Path::new(Origin::COMMAND_LINE), &arguments.rows.join("\n"))
        }
        file => {
            let file = file.clone().unwrap_or_else(|| PathBuf::from("-"));
            read_rows(&file)?
        }
    };
    for problem in &parsed.problems {
        eprintln!("steward: {problem}");
    }
    let text = spec::to_toml(&parsed.specs);
    match &arguments.write {
        None => print(&text)?,
        Some(_) if !parsed.problems.is_empty() => bail!("nothing was written: correct the rows first"),
        Some(file) => write_new(file, &text)?,
    }
    Ok(parsed.problems.is_empty())
}

fn read_rows(file: &Path) -> anyhow::Result<ParsedFile> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        files::read_text(file)?
    };
    Ok(spec::parse_tab(file, &text))
}

/// Writes a file that must not be there yet.
pub fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut created = std::fs::File::create_new(file).with_context(|| {
        format!("cannot create {}; remove it first if it is to be replaced", file.display())
    })?;
    created.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}
