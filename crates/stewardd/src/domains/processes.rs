//! Which processes are in a domain.

use libsteward::api::ApiError;
use steward_kernel::cgroup::processes::Processes;

use super::{Domains, kernel_failed, place};

/// How deep it is looked below a domain for its processes: as deep as the kernel's programs look up for it
/// (`MARK_LEVELS` of crates/steward-waits/src/bpf/first.bpf.h).
const LEVELS_BELOW_MAX: usize = 15;
/// How many cgroups below a domain that are no domains are looked at for its processes.
const BELOW_MAX: usize = 128;
/// How many cgroups are listed directly below one.
const NAMES_MAX: usize = 3072;

impl Domains {
    /// The processes of a domain itself: none of one that has gone.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn processes(&self, path: &str) -> Result<Vec<i32>, ApiError> {
        let mut processes = Vec::new();
        for list in self.list_processes(path)? {
            match list.all() {
                // Its cgroup has gone meanwhile.
                Err(error) if error.is_absent() => {}
                all => processes.extend(all.map_err(|error| kernel_failed(&error))?),
            }
        }
        Ok(processes)
    }

    /// The same, to be read some at a time.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn list_processes(&self, path: &str) -> Result<Vec<Processes>, ApiError> {
        let cgroups = self.cgroups()?;
        let leaf = self.held.get(path).filter(|held| held.leaf).map(place);
        let places = std::iter::once(path).chain(leaf.as_deref());
        let lists = places.map(|place| match cgroups.list_processes(place) {
            Err(error) if error.is_absent() => Ok(None),
            list => list.map(Some).map_err(|error| kernel_failed(&error)),
        });
        lists.filter_map(Result::transpose).collect()
    }

    /// The cgroups of a domain: its own, and those below it that are no domains, which programs make; by path, with
    /// their ids. Of these there are no more than 128, and none that is more than 15 levels below.
    pub fn cgroups_of(&self, path: &str) -> Vec<(String, u64)> {
        let (Ok(cgroups), Some(held)) = (self.cgroups(), self.held.get(path)) else { return Vec::new() };
        let is_domain = |path: &str| self.held.get(path).is_some_and(|held| held.made);
        let own = Some(place(held)).filter(|_| held.leaf);
        let below = |path: &str| -> Vec<(String, u64)> {
            let names = cgroups.names_below(path, NAMES_MAX).unwrap_or_default();
            let found = names.into_iter().map(|(name, id)| (format!("{path}/{name}"), id));
            found.filter(|(path, _)| !is_domain(path) && Some(path) != own.as_ref()).collect()
        };
        let leaf = own.as_ref().and_then(|own| Some((own.clone(), cgroups.find(own).ok()?.id)));
        let mut level = vec![(path.to_owned(), held.cgroup_id)];
        level.extend(leaf);
        let (mut all, mut room) = (level.clone(), BELOW_MAX);
        for _ in 0..LEVELS_BELOW_MAX {
            level = level.iter().flat_map(|(path, _)| below(path)).take(room).collect();
            room -= level.len();
            all.extend_from_slice(&level);
        }
        all
    }

    /// The processes in the [cgroups](Self::cgroups_of) of a domain, as far as they can be read.
    pub fn processes_in(&self, of_domain: Vec<(String, u64)>) -> Vec<i32> {
        let Ok(cgroups) = self.cgroups() else { return Vec::new() };
        // One that cannot be read has gone meanwhile, or its threads are told of above it.
        let listed = |(path, _): (String, u64)| cgroups.list_processes(&path).and_then(Processes::all);
        of_domain.into_iter().filter_map(|cgroup| listed(cgroup).ok()).flatten().collect()
    }

    /// Whether there may be a process in a domain or below it: where it cannot be known, one may be there.
    pub fn has_processes(&self, path: &str) -> bool {
        self.cgroups().map_or(true, |cgroups| match cgroups.is_populated(path) {
            Ok(populated) => populated,
            Err(error) => !error.is_absent(),
        })
    }
}
