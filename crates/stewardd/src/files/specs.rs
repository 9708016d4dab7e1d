//! Reads the directories of specifications and makes the table of what each executable gets.
//!
//! What a file means and which one counts is decided in `steward_core::spec`; this reads and looks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steward_core::accounts::Accounts;
use steward_core::cpu::table::Table;
use steward_core::problem::Problem;
use steward_core::spec::{self, Mistake, ParsedFile, Spec, SpecPath, SpecSet, User};
use steward_kernel::Roots;
use steward_kernel::files;

use super::directory::{files_in, name_of, unreadable_file};
use super::state::Kept;
use crate::files::accounts::{AccountFiles, PASSWD};
use crate::health::Topic;
use crate::programs::table::{Ids, fill_table};

/// Where specifications are, lowest precedence first.
pub const DIRECTORIES: [&str; 3] = ["/usr/lib/steward/specs", "/run/steward/specs", "/etc/steward/specs"];

/// What the file of a name gave when it was read last, in whichever directory it was: what stays in force when a
/// mistake is written into it, or into one that masks it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastGood {
    /// The file's name, without its directory.
    pub name: String,
    /// Its rows.
    pub specs: Vec<Spec>,
}

impl Kept for LastGood {
    const FILE_NAME: &'static str = "specs.json";
    const REMEDY: &'static str = "rows of specifications that are wrong now are out of force: correct them";
    const TOPIC: Topic = Topic::SaveSpecs;
    const OTHERWISE: &'static str = "after a restart, a row with a mistake will be out of force";
    // Somebody may find the typing error after the weekend.
    const OF_ITS_BOOT_ALONE: bool = false;
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
    /// The place of each among the specifications, by its name.
    places: HashMap<String, usize>,
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
        self.specs.get(*self.places.get(name)?)
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
    let mut problems: Vec<Problem> = unreadable.into_iter().chain(set.problems).collect();
    let table = fill_table(&specs, &files, ids, roots, &mut problems);
    let places = specs.iter().enumerate().map(|(place, spec)| (spec.path.to_string(), place)).collect();
    Loaded { specs, table, problems, mistakes: set.mistakes, last_good, places }
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

fn read(file: &Path) -> ParsedFile {
    match files::read_text(file) {
        Ok(text) => spec::parse_toml(file, &text),
        // Removed since it was listed, a link into nowhere (/dev/null masks by being empty, not missing), or no file.
        Err(error) => ParsedFile::unreadable(unreadable_file(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU time of this thread, in nanoseconds: what else the machine does is not in it.
    fn thread_time_ns() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
        text.split(' ').next().and_then(|first| first.parse().ok()).expect("the first number of three")
    }

    /// Reads a file of so many rows, which all stand, then one in which all are wrong, and finds each by its name.
    /// Returns what that took of the CPU, in nanoseconds.
    fn load_ns(rows: usize) -> u64 {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let directories = [directory.path().to_owned()];
        let mut ids = Ids::default();
        let begun_ns = thread_time_ns();
        let mut before = Vec::new();
        for cpu in ["1ms/30ms", "31ms/30ms"] {
            let row = |number| format!("[[spec]]\npath = \"/opt/absent/{number}\"\ncpu = \"{cpu}\"\n");
            let text: String = (0..rows).map(row).collect();
            std::fs::write(directory.path().join("a.toml"), text).expect("written");
            let loaded = load(&directories, &mut ids, &Roots::default(), &before);
            assert_eq!(loaded.specs.len(), rows);
            for entry in &loaded.table.entries {
                assert!(loaded.by_name(&entry.name).is_some());
                assert_eq!(ids.name(entry.spec_id), Some(entry.name.as_str()));
            }
            before = loaded.last_good;
        }
        thread_time_ns() - begun_ns
    }

    #[test]
    fn twice_as_many_rows_take_about_twice_as_long_though_all_have_a_mistake() {
        const ROWS: usize = 8000;
        let times: Vec<(u64, u64)> = (0..3).map(|_| (load_ns(ROWS), load_ns(2 * ROWS))).collect();
        // The least of three: a neighbour on the same core costs time as well.
        let least = |times: &mut dyn Iterator<Item = u64>| times.min().expect("there are three");
        let half_ns = least(&mut times.iter().map(|(half_ns, _)| *half_ns));
        let whole_ns = least(&mut times.iter().map(|(_, whole_ns)| *whole_ns));
        assert!(whole_ns < 3 * half_ns, "{ROWS} rows took {half_ns} ns, twice as many {whole_ns} ns");
    }
}
