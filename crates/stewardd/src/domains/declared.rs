//! Domains that files declare: made when the daemon starts, kept while they are empty, changed when their file changes,
//! and let go when it goes.
//!
//! What a row means is decided in `steward_core::domain::declared`, which file counts in `steward_core::spec`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use libsteward::api::ApiError;
use steward_core::accounts::Accounts;
use steward_core::domain::declared::{Declared, ParsedDomains, parse_domains};
use steward_core::domain::{Change, Names, Settings};
use steward_core::problem::Problem;
use steward_kernel::files;

use super::{Asker, Domains, Given};
use crate::cpu::mechanisms::InForce;
use crate::files::directory::{files_in, name_of, unreadable_file};

/// Where declarations are, lowest precedence first. `/run/steward/domains` is a part of the control files.
pub const DIRECTORIES: [&str; 3] =
    ["/usr/lib/steward/domains", "/run/steward/domains.d", "/etc/steward/domains"];

/// What the files declare.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    /// Every domain once, by its name; in the order of names, so that parents come before their children.
    pub domains: BTreeMap<String, Declared>,
    /// What is wrong in the files.
    pub problems: Vec<Problem>,
}

/// Reads everything. Where two files declare one domain, the later one counts. What a mistake costs stays as it was in
/// `before`.
pub fn load(
    directories: &[PathBuf],
    names: &Names,
    accounts: &dyn Accounts,
    before: &[Declared],
) -> Declarations {
    let mut declarations = Declarations::default();
    for file in files_in(directories, &mut declarations.problems) {
        let is_of_file = |declared: &&Declared| name_of(&declared.origin.file) == name_of(&file);
        let earlier: Vec<Declared> = before.iter().filter(is_of_file).cloned().collect();
        let parsed = read(&file, names, accounts).keep_last_good(&earlier);
        declarations.problems.extend(parsed.problems);
        let rows = parsed.domains.into_iter().map(|declared| (declared.name.clone(), declared));
        declarations.domains.extend(rows);
    }
    declarations
}

fn read(file: &Path, names: &Names, accounts: &dyn Accounts) -> ParsedDomains {
    match files::read_text(file) {
        Ok(text) => parse_domains(file, &text, names, accounts),
        Err(error) => ParsedDomains::unreadable(unreadable_file(&error)),
    }
}

impl Domains {
    /// What was declared of the domains that there are, as it was put in force.
    pub fn declared(&self) -> Vec<Declared> {
        self.held.values().filter_map(|held| held.declared.clone()).collect()
    }

    /// Makes, changes and lets go, so that there is what is declared now. A domain whose declaration is as it was is
    /// left alone: what somebody gave it since stays. Returns what could not be done, with file and line.
    pub fn declare(&mut self, wanted: &BTreeMap<String, Declared>, mechanism: &mut InForce) -> Vec<Problem> {
        let gone: Vec<String> = self
            .held
            .values()
            .filter(|held| {
                held.declared.as_ref().is_some_and(|declared| !wanted.contains_key(&declared.name))
            })
            .map(|held| held.path.clone())
            .collect();
        // Children before their parents, which go with them.
        for path in gone.iter().rev() {
            self.let_go(path);
        }
        self.apply(mechanism);
        // What gives something up makes room for what gets more.
        let mut wanted: Vec<&Declared> = wanted.values().collect();
        wanted.sort_by_key(|declared| !self.gives_up(declared));
        let failed = |declared: &Declared, error| {
            Problem::error(
                declared.origin.clone(),
                format!("the domain {} is not as declared: {error}", declared.name),
                "correct that and run systemctl reload stewardd",
            )
        };
        wanted
            .into_iter()
            .filter_map(|declared| {
                self.fulfil(declared, mechanism).err().map(|error| failed(declared, error))
            })
            .collect()
    }

    /// It ends when it is empty, as those that were not declared.
    fn let_go(&mut self, path: &str) {
        if let Some(held) = self.held.get_mut(path) {
            held.declared = None;
            held.keep = false;
            held.used = true;
            self.changed = true;
        }
        self.end_if_empty(path);
    }

    fn gives_up(&self, declared: &Declared) -> bool {
        let held = self.names.path_to_make(&declared.name).ok().and_then(|path| self.held.get(&path));
        let reserved = |settings: &Settings| settings.cpu.reserved.unwrap_or(0.0);
        let promised = |settings: &Settings| settings.memory.min_bytes.unwrap_or(0);
        held.is_some_and(|held| {
            reserved(&declared.settings) < reserved(&held.settings)
                || promised(&declared.settings) < promised(&held.settings)
        })
    }

    fn fulfil(&mut self, declared: &Declared, mechanism: &mut InForce) -> Result<(), ApiError> {
        let path = self.names.path_to_make(&declared.name).map_err(super::invalid_name)?;
        let given = Given { user: Some(declared.user), keep: Some(true) };
        let change = Change::to(&declared.settings);
        match self.held.get(&path).filter(|held| held.made) {
            None => {
                let path = self.path_to_make(&declared.name)?;
                self.create(&path, &change, given, Asker::default(), mechanism)?;
            }
            Some(held) if !held.declared.as_ref().is_some_and(|before| is_same(before, declared)) => {
                let cgroup = self.resolve(&declared.name)?;
                self.set(&cgroup, &change, given, Asker::default(), mechanism)?;
            }
            Some(_) => {}
        }
        if let Some(held) = self.held.get_mut(&path)
            && held.declared.as_ref() != Some(declared)
        {
            held.declared = Some(declared.clone());
            self.changed = true;
        }
        Ok(())
    }
}

/// Whether two declarations say the same, wherever they are written.
fn is_same(one: &Declared, other: &Declared) -> bool {
    (&one.settings, one.user) == (&other.settings, other.user)
}
