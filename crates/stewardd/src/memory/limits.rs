//! What each domain is to have of the memory, and what became of it. The worker writes it into the kernel: until then a
//! domain says that it is not in force yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use steward_core::memory::limits::{Limits as Wanted, Told};
use steward_core::resource::Resource;
use steward_kernel::cgroup::place::Place;

use super::knobs::Knobs;
use crate::domains::cgroups::Cgroups;
use crate::turn::worker::{About, Job, Progress};

/// What a domain says until the worker has done it.
const NOT_YET: &str = "its memory is being limited: what it uses above its maximum is being taken from it";

/// What the kernel was told, and what it is to be told.
#[derive(Debug, Default)]
pub struct Limits {
    /// By path: the cgroup's id and what it was told last.
    told: BTreeMap<String, (u64, Told)>,
    /// What the worker has not said anything of yet, by path.
    pending: BTreeSet<String>,
    /// Why something is not in force, by path.
    failed: BTreeMap<String, String>,
    jobs: VecDeque<Job>,
    /// The cgroups that hand memory out because of us.
    hand_out: BTreeSet<String>,
}

impl Limits {
    /// Takes in what is wanted, of which `id_of` knows the cgroups; what is to be done for it waits in
    /// [`Limits::take_jobs`].
    pub fn want(&mut self, cgroups: &dyn Cgroups, wanted: &Wanted, id_of: &dyn Fn(&str) -> Option<u64>) {
        let knobs = cgroups.memory_knobs();
        let gone: Vec<String> =
            self.told.keys().filter(|path| !wanted.cgroups.contains_key(*path)).cloned().collect();
        for path in gone {
            let (id, _) = self.told.remove(&path).unwrap_or_default();
            self.failed.remove(&path);
            let is_there = id_of(&path) == Some(id);
            if is_there {
                self.tell(&knobs, &path, id, Told::default())
            } else {
                self.forget(&knobs, &path, id)
            }
        }
        if let Err(sentence) = self.open(cgroups, wanted) {
            self.failed.extend(wanted.cgroups.keys().map(|path| (path.clone(), sentence.clone())));
            return;
        }
        for (path, settings) in &wanted.cgroups {
            let Some(id) = id_of(path) else { continue };
            if self.told.get(path) != Some(&(id, *settings)) {
                self.failed.remove(path);
                self.tell(&knobs, path, id, *settings);
                self.told.insert(path.clone(), (id, *settings));
            }
        }
    }

    /// Has the cgroups above those that are to have something hand memory out.
    fn open(&mut self, cgroups: &dyn Cgroups, wanted: &Wanted) -> Result<(), String> {
        for path in &wanted.hand_out {
            let hands_out = cgroups.hands_out(path, Resource::Memory);
            if !hands_out.map_err(|error| error.to_string())? {
                cgroups.hand_out(path, Resource::Memory, true).map_err(|error| {
                    format!(
                        "{error}; the kernel's memory controller must be in the unified hierarchy (cgroup.controllers), and not in \
                         one of version 1"
                    )
                })?;
                self.hand_out.insert(path.clone());
            }
        }
        Ok(())
    }

    fn tell(&mut self, knobs: &Arc<dyn Knobs>, path: &str, cgroup_id: u64, wanted: Told) {
        let (knobs, place) = (Arc::clone(knobs), Place { path: path.to_owned(), cgroup_id });
        let work = move || knobs.set(&place, wanted);
        self.push(path, Box::new(work));
    }

    fn forget(&mut self, knobs: &Arc<dyn Knobs>, path: &str, cgroup_id: u64) {
        let knobs = Arc::clone(knobs);
        let work = move || {
            knobs.forget(cgroup_id);
            Ok(Progress::Done)
        };
        // Another cgroup may be there by now, about which another job says something.
        self.push(&format!("{path} ({cgroup_id})"), Box::new(work));
    }

    fn push(&mut self, path: &str, work: Box<dyn FnOnce() -> Result<Progress, String> + Send>) {
        self.pending.insert(path.to_owned());
        self.jobs.push_back(Job { about: About::Memory(path.to_owned()), work });
    }

    /// What is to be done, for the worker.
    pub fn take_jobs(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.jobs.drain(..)
    }

    /// Whether the worker still has something to do.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes in what became of a job; what `goes_on` is another one.
    pub fn note(&mut self, cgroups: &dyn Cgroups, path: &str, goes_on: bool, failure: Option<String>) {
        self.pending.remove(path);
        if let Some((id, settings)) = self.told.get(path).copied().filter(|_| goes_on) {
            self.tell(&cgroups.memory_knobs(), path, id, settings);
        }
        if let Some(failure) = failure
            && self.told.contains_key(path)
        {
            self.failed.insert(path.to_owned(), failure);
        }
    }

    /// Why a cgroup does not have what it is to have; `None` when it has.
    pub fn trouble(&self, path: &str) -> Option<&str> {
        let failed = self.failed.get(path).map(String::as_str);
        failed.or_else(|| self.pending.contains(path).then_some(NOT_YET))
    }

    /// All that is not in force for good, by path.
    pub fn failures(&self) -> impl Iterator<Item = (&String, &String)> {
        self.failed.iter()
    }

    /// Puts everything back, at once.
    pub fn stop(&mut self, cgroups: &dyn Cgroups) {
        let knobs = cgroups.memory_knobs();
        for (path, (cgroup_id, _)) in std::mem::take(&mut self.told) {
            // What cannot be put back stays in the journal, for the next daemon or `steward revert`.
            let _ = knobs.set(&Place { path, cgroup_id }, Told::default());
        }
        for path in std::mem::take(&mut self.hand_out).iter().rev() {
            // Where it is gone, or somebody has set something below it since, it stays.
            let _ = cgroups.hand_out(path, Resource::Memory, false);
        }
    }
}
