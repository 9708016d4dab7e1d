//! Where a process stands in the cgroup tree (unified hierarchy), and where a cgroup is among the files.

use std::path::PathBuf;

use crate::error::KernelError;
use crate::roots::{Roots, read, read_if_present};

/// A cgroup, as it was when it was decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From the root of the hierarchy, without a leading slash.
    pub path: String,
    /// The inode number of its directory: a later cgroup of that path has another one.
    pub cgroup_id: u64,
}

/// The cgroup of a process in the unified hierarchy, as the kernel writes it: `/`, `/user.slice/...`.
///
/// # Errors
/// [`KernelError::Read`] ([`KernelError::is_absent`]: it has ended), [`KernelError::Parse`] when it is in none.
pub fn path_of(pid: i32, roots: &Roots) -> Result<String, KernelError> {
    let path = roots.proc.join(format!("{pid}/cgroup"));
    let text = read(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::"));
    line.map(str::to_owned).ok_or_else(|| KernelError::parse(path, "a line 0::PATH (cgroup v2)", &text))
}

/// The directory of a cgroup named as [`path_of`] names it.
pub fn directory(cgroup: &str, roots: &Roots) -> PathBuf {
    roots.cgroup.join(cgroup.trim_start_matches('/'))
}

/// The names of the controllers that the root cgroup offers; `None` where the unified hierarchy is not mounted.
///
/// # Errors
/// [`KernelError::Read`] naming `cgroup.controllers`.
pub fn controllers(roots: &Roots) -> Result<Option<Vec<String>>, KernelError> {
    let listed = read_if_present(&roots.cgroup.join("cgroup.controllers"))?;
    Ok(listed.map(|text| text.split_ascii_whitespace().map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn the_unified_hierarchy_is_found_among_the_old_ones() {
        let (_keep, roots) =
            with_files(&[("proc/7/cgroup", "3:cpuset:/\n1:name=systemd:/x\n0::/user.slice/a.scope\n")]);
        assert_eq!(path_of(7, &roots).expect("it is there"), "/user.slice/a.scope");
        assert!(path_of(8, &roots).expect_err("no such process").is_absent());
        assert!(directory("/user.slice/a.scope", &roots).ends_with("sys/fs/cgroup/user.slice/a.scope"));
    }

    #[test]
    fn controllers_are_none_without_the_unified_hierarchy() {
        let (_keep, roots) = with_files(&[("sys/fs/cgroup/cpu/tasks", "")]);
        assert_eq!(controllers(&roots).expect("readable"), None);
        let (_keep, roots) = with_files(&[("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n")]);
        assert_eq!(
            controllers(&roots).expect("readable"),
            Some(vec!["cpuset".into(), "cpu".into(), "io".into()])
        );
    }
}
