//! Reads the directories of specifications and makes the table of what each executable gets.
//!
//! What a file means and which one counts is decided in `steward_core::spec`; this reads and looks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steward_core::authority::Accounts;
use steward_core::problem::{Origin, Problem, Severity};
use steward_core::spec::{
    self, DirectoryRank, EffectiveFile, Mistake, ParsedFile, Spec, SpecPath, SpecSet, TargetFacts, User,
};
use steward_kernel::Roots;
use steward_kernel::executable;
use steward_kernel::files::{self, Unreadable};
use steward_kernel::mounts::MountTable;

use crate::plan::{Entry, Subject, Table};
use crate::rules::{AccountFiles, PASSWD};

/// Where specifications are, lowest precedence first.
pub const DIRECTORIES: [&str; 3] = ["/usr/lib/steward/specs", "/run/steward/specs", "/etc/steward/specs"];

/// How many names of one file a problem lists.
const NAMES_SHOWN_MAX: usize = 3;

/// The ranks that the directories have, in their order. There cannot be more directories than ranks.
const RANKS: [DirectoryRank; 3] =
    [DirectoryRank::Vendor, DirectoryRank::Runtime, DirectoryRank::Administrator];

/// Numbers for specifications that stay the same for as long as the daemon runs. 0 is for what was given by hand.
#[derive(Debug, Default)]
pub struct Ids {
    by_name: BTreeMap<String, u32>,
}

impl Ids {
    /// The number of this specification, a new one if it has none.
    pub fn of(&mut self, name: &str) -> u32 {
        let next = self.by_name.len() as u32 + 1;
        *self.by_name.entry(name.to_owned()).or_insert(next)
    }

    /// The specification with that number, whether or not it still exists.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.by_name.iter().find(|(_, known)| **known == id).map(|(name, _)| name.as_str())
    }
}

/// What the file of a name gave when it was read last, in whichever directory it was: what stays in force when a
/// mistake is written into it, or into one that masks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastGood {
    /// The file's name, without its directory.
    pub name: String,
    /// Its rows.
    pub specs: Vec<Spec>,
}

/// All that the directories hold.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Every specification that stands, ordered by path.
    pub specs: Vec<Spec>,
    /// What they give, with the identity of their executable.
    pub table: Table,
    /// What was left out. A program that is not installed is none.
    pub problems: Vec<Problem>,
    /// Those of them that cost rows.
    pub mistakes: Vec<Mistake<SpecPath>>,
    /// What to keep in force at the next reading, should a file be wrong then; in the order of files.
    pub last_good: Vec<LastGood>,
}

impl Loaded {
    /// The executables that are named, whether they exist or not.
    pub fn paths(&self) -> Vec<PathBuf> {
        let path = |spec: &Spec| match &spec.path {
            SpecPath::Executable(path) => Some(path.clone()),
            SpecPath::KernelThread(_) => None,
        };
        self.specs.iter().filter_map(path).collect()
    }

    /// The mistake because of which the row of this path is not as its file is now.
    pub fn mistake_that_keeps(&self, path: &SpecPath) -> Option<&Problem> {
        self.mistakes.iter().find(|mistake| mistake.kept.contains(path)).map(|mistake| &mistake.problem)
    }

    /// The specification of that name.
    pub fn by_name(&self, name: &str) -> Option<&Spec> {
        self.specs.iter().find(|spec| spec.path.to_string() == name)
    }
}

/// Reads everything. A directory that does not exist is empty; whatever else cannot be read is a problem. What a
/// mistake costs stays as it was in `before`.
pub fn load(directories: &[PathBuf], ids: &mut Ids, roots: &Roots, before: &[LastGood]) -> Loaded {
    let mut unreadable = Vec::new();
    let files = files_in(directories, &mut unreadable);
    let mut last_good = Vec::new();
    let parsed = files.iter().map(|file| {
        let name = name_of(file);
        let earlier = before.iter().find(|earlier| earlier.name == name);
        let parsed = read(file).keep_last_good(earlier.map_or(&[], |earlier| &earlier.specs));
        last_good.push(LastGood { name, specs: parsed.specs.clone() });
        parsed
    });
    let set = SpecSet::merge(parsed.collect());
    let mut specs = set.specs().to_vec();
    look_up_users(&mut specs, &AccountFiles::read(), &mut unreadable);
    let mut loaded = Loaded {
        specs,
        table: Table::default(),
        problems: unreadable.into_iter().chain(set.problems).collect(),
        mistakes: set.mistakes,
        last_good,
    };
    fill_table(&mut loaded, &files, ids, roots);
    loaded
}

/// Replaces users' names by numbers. A name that nobody has is a problem, and leaves the row to root.
fn look_up_users(specs: &mut [Spec], accounts: &dyn Accounts, problems: &mut Vec<Problem>) {
    for spec in specs {
        let Some(User::Name(name)) = &spec.user else { continue };
        match accounts.uid_of(name) {
            Some(uid) => spec.user = Some(User::Uid(uid)),
            None => problems.push(Problem::error(
                spec.origin.clone(),
                format!("{}: user = \"{name}\": {PASSWD} has no such user", spec.path),
                "correct the name, or write the user's number; until then only root's is never revoked",
            )),
        }
    }
}

/// The files that count in these directories, in the order in which to read them: a later one has precedence. A
/// directory that does not exist is empty; one that cannot be read is a problem.
pub(crate) fn files_in(directories: &[PathBuf], problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let names: Vec<(DirectoryRank, Vec<String>)> = RANKS
        .into_iter()
        .zip(directories)
        .map(|(rank, directory)| (rank, list(directory, problems)))
        .collect();
    spec::effective_files(&names).files.iter().map(|file| path_of(file, directories)).collect()
}

fn list(directory: &Path, problems: &mut Vec<Problem>) -> Vec<String> {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            problems.push(unreadable(directory, &error));
            Vec::new()
        }
    }
}

fn path_of(file: &EffectiveFile, directories: &[PathBuf]) -> PathBuf {
    let index = RANKS.iter().position(|rank| *rank == file.rank).unwrap_or_default();
    directories[index].join(&file.name)
}

fn read(file: &Path) -> ParsedFile {
    match files::read_text(file) {
        Ok(text) => spec::parse_toml(file, &text),
        // Removed since it was listed, a link into nowhere (/dev/null masks by being empty, not missing), or no file.
        Err(error) => ParsedFile::unreadable(unreadable_file(&error)),
    }
}

pub(crate) fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What to say about a file that was not read.
pub(crate) fn unreadable_file(error: &Unreadable) -> Problem {
    Problem::error(Origin::at(&error.path, 0), error.what(), error.advice())
}

/// What to say about a directory that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem::error(
        Origin::at(path, 0),
        format!("cannot be read: {error}"),
        "correct its permissions, or remove it",
    )
}

/// Looks at every path. Where two paths name one file, the entry from the file of highest precedence comes first,
/// and in it the one whose path is not a link: many programs may be links to one. When there is not room for all,
/// files come in the order of their names, in whichever directory they are.
fn fill_table(loaded: &mut Loaded, files: &[PathBuf], ids: &mut Ids, roots: &Roots) {
    let mounts = MountTable::of_caller(roots).unwrap_or_else(|error| {
        let advice = "programs on file systems such as btrfs may not be recognised";
        loaded.problems.push(Problem::error(Origin::command_line(), error.to_string(), advice));
        MountTable::default()
    });
    let mut ranked = Vec::new();
    for spec in &loaded.specs {
        let subject = match &spec.path {
            SpecPath::KernelThread(_) => Subject::KernelThread(spec.path.clone()),
            SpecPath::Executable(path) => match look_at(spec, path, &mounts) {
                Ok(subject) => subject,
                Err(problem) => {
                    loaded.problems.push(problem);
                    Subject::Executable(None)
                }
            },
        };
        let name = spec.path.to_string();
        let spec_id = ids.of(&name);
        // By name: what stays in force of an earlier version may be of another directory.
        let is_same = |file: &&PathBuf| file.file_name() == spec.origin.file.file_name();
        let rank = files.iter().position(|file| is_same(&file)).unwrap_or_default();
        let place = (spec.origin.file.file_name(), Reverse(rank), spec.origin.line);
        let entry = Entry { name, subject, spec_id, grant: spec.grant(spec_id), order: 0 };
        ranked.push((place, (Reverse(rank), is_link(&spec.path, &entry.subject)), entry));
    }
    ranked.sort_by_key(|(place, ..)| *place);
    for ((_, _, entry), order) in ranked.iter_mut().zip(1..) {
        entry.order = order;
    }
    ranked.sort_by_key(|(_, precedence, _)| *precedence);
    loaded.table.entries = ranked.into_iter().map(|(_, _, entry)| entry).collect();
    let conflicts = conflicts(loaded);
    loaded.problems.extend(conflicts);
}

fn is_link(path: &SpecPath, subject: &Subject) -> bool {
    match (path, subject) {
        (SpecPath::Executable(path), Subject::Executable(Some(_))) => path.is_symlink(),
        _ => false,
    }
}

/// What is at the path of a specification. A program that is not installed is no problem for the daemon: shipped
/// specifications are for every machine.
fn look_at(spec: &Spec, path: &Path, mounts: &MountTable) -> Result<Subject, Problem> {
    let facts = executable::identify_on(path, mounts)
        .map_err(|error| Problem::error(spec.origin.clone(), error.to_string(), "correct the path"))?;
    match spec::check_target(spec, &facts, false) {
        Some(problem) if problem.severity == Severity::Error => Err(problem),
        _ => Ok(Subject::Executable(match facts {
            TargetFacts::Executable { identity } => Some(identity),
            _ => None,
        })),
    }
}

/// One problem for each file that has several names with specifications that differ, where the first of those is
/// written that are not used.
fn conflicts(loaded: &Loaded) -> Vec<Problem> {
    let mut by_used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (unused, used) in loaded.table.conflicts() {
        by_used.entry(&used.name).or_default().push(&unused.name);
    }
    let conflict = |(used, unused): (&str, Vec<&str>)| {
        let origin = loaded.by_name(unused[0]).map_or_else(Origin::command_line, |spec| spec.origin.clone());
        let others = unused.len().saturating_sub(NAMES_SHOWN_MAX);
        let mut names = unused[..unused.len() - others].join(", ");
        if others > 0 {
            names.push_str(&format!(" (and {others} more)"));
        }
        Problem::error(
            origin,
            format!("{names} and {used} are one file, and their specifications differ"),
            format!("the one of {used} is in force; make them alike, or remove all but one"),
        )
    };
    by_used.into_iter().map(conflict).collect()
}
