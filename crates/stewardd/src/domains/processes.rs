//! Which processes are in a domain.

use libsteward::api::ApiError;

use super::{Domains, kernel_failed, place};

impl Domains {
    /// The processes of a domain itself.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn processes(&self, path: &str) -> Result<Vec<i32>, ApiError> {
        let cgroups = self.cgroups()?;
        let mut processes = cgroups.processes(path).map_err(|error| kernel_failed(&error))?;
        if let Some(held) = self.held.get(path).filter(|held| held.leaf) {
            processes.extend(cgroups.processes(&place(held)).unwrap_or_default());
        }
        Ok(processes)
    }

    /// The processes of a domain and of all below it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn processes_below(&self, path: &str) -> Result<Vec<i32>, ApiError> {
        let mut processes = self.processes(path)?;
        for cgroup in self.cgroups()?.children(path).map_err(|error| kernel_failed(&error))? {
            processes.extend(self.processes_below(&cgroup.path)?);
        }
        Ok(processes)
    }
}
