//! All specifications of a machine: which files count, and what happens where two of them name one program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::row::{Spec, SpecPath};
use crate::config::CONFIG_FILE_NAME;
use crate::last_good::{self, About, Mistake};
use crate::problem::{Origin, Problem};

/// What one file gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ParsedFile {
    /// The rows that stand, in the order written; no path twice.
    pub specs: Vec<Spec>,
    /// What is wrong with the others, in the order of lines.
    pub problems: Vec<Problem>,
    /// Those of the problems that cost rows, with the rows.
    pub mistakes: Vec<Mistake<SpecPath>>,
}

impl ParsedFile {
    /// A file of which nothing can be read.
    pub fn unreadable(problem: Problem) -> Self {
        let mistakes = vec![Mistake::new(About::File, problem.clone())];
        ParsedFile { specs: Vec::new(), problems: vec![problem], mistakes }
    }

    /// The same with what the mistakes cost as it was in `before`: the rows that the file of this name gave last (see
    /// [`last_good::keep`]). The problems say so.
    pub fn keep_last_good(mut self, before: &[Spec]) -> Self {
        let ParsedFile { specs, problems, mistakes } = &mut self;
        last_good::keep(specs, mistakes, problems, before, |spec| &spec.path);
        self
    }
}

/// Keeps the first row of each path; the others become problems.
pub(super) fn reject_duplicates(file: ParsedFile) -> ParsedFile {
    let ParsedFile { specs, mut problems, mistakes } = file;
    let mut kept: Vec<Spec> = Vec::with_capacity(specs.len());
    let mut first_lines = std::collections::HashMap::new();
    for spec in specs {
        match first_lines.get(&spec.path) {
            Some(line) => problems.push(Problem::error(
                spec.origin,
                format!("{} has a row already, on line {line}", spec.path),
                "keep one of them; the first one is in force",
            )),
            None => {
                first_lines.insert(spec.path.clone(), spec.origin.line);
                kept.push(spec);
            }
        }
    }
    problems.sort_by(|left, right| left.origin.cmp(&right.origin));
    ParsedFile { specs: kept, problems, mistakes }
}

/// A directory of specification files, by whose it is; a later one has precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryRank {
    /// `/usr/lib/steward`: shipped with packages.
    Vendor,
    /// `/run/steward`: until the next boot.
    Runtime,
    /// `/etc/steward`: the administrator's.
    Administrator,
}

/// A file that counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EffectiveFile {
    /// The directory that it is in.
    pub rank: DirectoryRank,
    /// Its name in that directory.
    pub name: String,
}

/// Which files count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveFiles {
    /// In the order in which to read and [`SpecSet::merge`] them: later ones override.
    pub files: Vec<EffectiveFile>,
    /// Those that a file of the same name in a directory of higher rank hides.
    pub masked: Vec<EffectiveFile>,
}

/// Says which files of the directories count: names that end in `.toml`, without hidden files and the daemon's own
/// configuration. A name in a directory of higher rank masks the same name below (so an empty file in `/etc`
/// switches a shipped one off). The order is by directory first and by name within one, so that what the
/// administrator wrote is never overridden by a shipped file with a later name.
pub fn effective_files(directories: &[(DirectoryRank, Vec<String>)]) -> EffectiveFiles {
    let mut by_name: BTreeMap<&str, Vec<DirectoryRank>> = BTreeMap::new();
    for (rank, names) in directories {
        for name in names.iter().filter(|name| is_specification_file(name)) {
            by_name.entry(name).or_default().push(*rank);
        }
    }
    let mut effective = EffectiveFiles::default();
    for (name, mut ranks) in by_name {
        ranks.sort_unstable();
        ranks.dedup();
        let file = |rank| EffectiveFile { rank, name: name.to_owned() };
        effective.files.extend(ranks.pop().map(file));
        effective.masked.extend(ranks.into_iter().map(file));
    }
    effective.files.sort();
    effective.masked.sort();
    effective
}

fn is_specification_file(name: &str) -> bool {
    name.ends_with(".toml") && !name.starts_with('.') && name != CONFIG_FILE_NAME
}

/// A row that is not in force because a later file has one for the same program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overridden {
    /// The row.
    pub spec: Spec,
    /// The row that is in force in its place.
    pub by: Origin,
}

/// All specifications of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpecSet {
    /// What is in force, ordered by path.
    specs: Vec<Spec>,
    /// What is not, and why; in the order of files.
    pub overridden: Vec<Overridden>,
    /// Everything that is wrong in any file, in the order of files.
    pub problems: Vec<Problem>,
    /// Those of the problems that cost rows, with the rows.
    pub mistakes: Vec<Mistake<SpecPath>>,
}

impl SpecSet {
    /// Merges files, lowest precedence first (the order of [`effective_files`]): the same path in a later file
    /// overrides the earlier one.
    pub fn merge(files: Vec<ParsedFile>) -> Self {
        let mut set = SpecSet::default();
        let mut by_path: BTreeMap<SpecPath, Spec> = BTreeMap::new();
        for file in files {
            set.problems.extend(file.problems);
            set.mistakes.extend(file.mistakes);
            for spec in file.specs {
                let by = spec.origin.clone();
                if let Some(spec) = by_path.insert(spec.path.clone(), spec) {
                    set.overridden.push(Overridden { spec, by });
                }
            }
        }
        // A row that was overridden twice names the one that is in force.
        for overridden in &mut set.overridden {
            if let Some(winner) = by_path.get(&overridden.spec.path) {
                overridden.by = winner.origin.clone();
            }
        }
        set.specs = by_path.into_values().collect();
        set
    }

    /// What is in force, ordered by path.
    pub fn specs(&self) -> &[Spec] {
        &self.specs
    }

    /// The specification of a path, as written in the files.
    pub fn get(&self, path: &SpecPath) -> Option<&Spec> {
        self.specs.binary_search_by(|spec| spec.path.cmp(path)).ok().map(|index| &self.specs[index])
    }

    /// The specification of the kernel thread called `comm`; the longest name that matches wins.
    pub fn kernel_thread(&self, comm: &str) -> Option<&Spec> {
        self.specs
            .iter()
            .filter(|spec| spec.path.matches_kernel_thread(comm))
            .max_by_key(|spec| spec.path.to_string().len())
    }
}
