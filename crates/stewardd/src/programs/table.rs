//! What each program that a specification names gets, by the file that is at its path.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use steward_core::cpu::table::{Entry, Subject, Table};
use steward_core::problem::{Origin, Problem, Severity};
use steward_core::spec::{self, Spec, SpecPath, TargetFacts};
use steward_kernel::Roots;
use steward_kernel::mounts::MountTable;
use steward_kernel::process::executable;

/// How many names of one file a problem lists.
const NAMES_SHOWN_MAX: usize = 3;

/// Numbers for specifications that stay the same for as long as the daemon runs. 0 is for what was given by hand.
#[derive(Debug, Default)]
pub struct Ids {
    by_name: BTreeMap<String, u32>,
    /// The name of number 1, of number 2, ...
    names: Vec<String>,
}

impl Ids {
    /// The number of this specification, a new one if it has none.
    pub fn of(&mut self, name: &str) -> u32 {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        self.names.push(name.to_owned());
        let id = self.names.len() as u32;
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The specification with that number, whether or not it still exists.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get((id as usize).checked_sub(1)?).map(String::as_str)
    }
}

/// Looks at every path. Where two paths name one file, the entry from the file of highest precedence comes first,
/// and in it the one whose path is not a link: many programs may be links to one. When there is not room for all,
/// files come in the order of their names, in whichever directory they are.
pub(crate) fn fill_table(
    specs: &[Spec],
    files: &[PathBuf],
    ids: &mut Ids,
    roots: &Roots,
    problems: &mut Vec<Problem>,
) -> Table {
    let mounts = MountTable::of_caller(roots).unwrap_or_else(|error| {
        let advice = "programs on file systems such as btrfs may not be recognised";
        problems.push(Problem::error(Origin::command_line(), error.to_string(), advice));
        MountTable::default()
    });
    // By name: what stays in force of an earlier version may be of another directory.
    let mut rank_of: HashMap<Option<&OsStr>, usize> = HashMap::new();
    for (rank, file) in files.iter().enumerate() {
        rank_of.entry(file.file_name()).or_insert(rank);
    }
    let mut ranked = Vec::new();
    for spec in specs {
        let subject = match &spec.path {
            SpecPath::KernelThread(_) => Subject::KernelThread(spec.path.clone()),
            SpecPath::Executable(path) => match look_at(spec, path, &mounts) {
                Ok(subject) => subject,
                Err(problem) => {
                    problems.push(problem);
                    Subject::Executable(None)
                }
            },
        };
        let name = spec.path.to_string();
        let spec_id = ids.of(&name);
        let rank = rank_of.get(&spec.origin.file.file_name()).copied().unwrap_or_default();
        let place = (spec.origin.file.file_name(), Reverse(rank), spec.origin.line);
        let entry = Entry { name, subject, spec_id, grant: spec.grant(spec_id), order: 0 };
        ranked.push((place, (Reverse(rank), is_link(&spec.path, &entry.subject)), entry));
    }
    ranked.sort_by_key(|(place, ..)| *place);
    for ((_, _, entry), order) in ranked.iter_mut().zip(1..) {
        entry.order = order;
    }
    ranked.sort_by_key(|(_, precedence, _)| *precedence);
    let table = Table { entries: ranked.into_iter().map(|(_, _, entry)| entry).collect() };
    problems.extend(conflicts(&table, specs));
    table
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
fn conflicts(table: &Table, specs: &[Spec]) -> Vec<Problem> {
    let mut by_used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (unused, used) in table.conflicts() {
        by_used.entry(&used.name).or_default().push(&unused.name);
    }
    if by_used.is_empty() {
        return Vec::new();
    }
    let specs: HashMap<String, &Spec> = specs.iter().map(|spec| (spec.path.to_string(), spec)).collect();
    let named = |name: &str| specs.get(name);
    let conflict = |(used, unused): (&str, Vec<&str>)| {
        let origin = named(unused[0]).map_or_else(Origin::command_line, |spec| spec.origin.clone());
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
