//! The table of what each program gets of the CPU.

use std::collections::{BTreeMap, BTreeSet};

use super::reservation::Grant;
use crate::process::{FileIdentity, Process};
use crate::spec::SpecPath;

/// What an entry of the table is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An executable; `None` while there is none at its path.
    Executable(Option<FileIdentity>),
    /// The kernel's threads that this name matches.
    KernelThread(SpecPath),
}

/// One specification, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The path, or `[name]`: what the entry is known by from one table to the next.
    pub name: String,
    /// What it is for.
    pub subject: Subject,
    /// The same for the same name in every table.
    pub spec_id: u32,
    /// What it gives, with that `spec_id`; `None` for best-effort.
    pub grant: Option<Grant>,
    /// Its place, from 1, among those that get room when there is not enough for all: the order of the files' names
    /// and of the rows in them.
    pub order: usize,
}

/// All specifications, the ones that take precedence first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Table {
    /// The entry with that id.
    pub fn by_id(&self, spec_id: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.spec_id == spec_id)
    }

    /// What the mechanism is told: each executable once, with the first entry that names it.
    pub fn executables(&self) -> Vec<(FileIdentity, Option<Grant>)> {
        let mut seen = BTreeSet::new();
        let mut executables = Vec::new();
        for entry in &self.entries {
            if let Subject::Executable(Some(identity)) = entry.subject
                && seen.insert(identity)
            {
                executables.push((identity, entry.grant));
            }
        }
        executables
    }

    /// Pairs of entries that name one file by two paths but give it different things: (unused, used).
    pub fn conflicts(&self) -> Vec<(&Entry, &Entry)> {
        let mut first: BTreeMap<FileIdentity, &Entry> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for entry in &self.entries {
            let Subject::Executable(Some(identity)) = entry.subject else { continue };
            match first.get(&identity) {
                Some(used) if !same_promise(&used.grant, &entry.grant) => conflicts.push((entry, *used)),
                Some(_) => {}
                None => _ = first.insert(identity, entry),
            }
        }
        conflicts
    }

    /// The entry for a running process, if there is one. A fork that has not executed anything is not the
    /// program that its parent executed: it can only inherit.
    pub fn entry_for(&self, process: &Process) -> Option<&Entry> {
        if process.kernel_thread {
            let matching = self.entries.iter().filter(|entry| match &entry.subject {
                Subject::KernelThread(path) => path.matches_kernel_thread(&process.name),
                Subject::Executable(_) => false,
            });
            return matching.max_by_key(|entry| entry.name.len());
        }
        if process.forked_without_exec {
            return None;
        }
        let runs = Subject::Executable(process.executable);
        self.entries.iter().find(|entry| process.executable.is_some() && entry.subject == runs)
    }
}

/// Whether two grants promise the same, whichever specification they come from.
fn same_promise(one: &Option<Grant>, other: &Option<Grant>) -> bool {
    let without_source = |grant: &Option<Grant>| grant.map(|grant| Grant { spec_id: 0, ..grant });
    without_source(one) == without_source(other)
}
