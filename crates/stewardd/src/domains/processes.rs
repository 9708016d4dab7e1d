//! Which processes are in a domain.

use libsteward::api::ApiError;
use steward_kernel::cgroup::processes::Processes;

use super::{Domains, kernel_failed, place};

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

    /// Whether there may be a process in a domain or below it: where it cannot be known, one may be there.
    pub fn has_processes(&self, path: &str) -> bool {
        self.cgroups().map_or(true, |cgroups| match cgroups.is_populated(path) {
            Ok(populated) => populated,
            Err(error) => !error.is_absent(),
        })
    }
}
