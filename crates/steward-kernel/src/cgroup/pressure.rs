//! For how long tasks of a cgroup stood still for want of a resource (the kernel's pressure stall information).
//!
//! Waits for a CPU are no part of what is counted for memory or the disk. The kernel adds up the time in which at least
//! one task of the cgroup, or below it, stood still: so that one among many that do not is seen in full.

use steward_core::resource::Resource;

use super::directory::CgroupDirectory;
use super::place;
use crate::error::KernelError;
use crate::roots::{Roots, read_if_present};

/// What a file of pressure has.
const EXPECTED: &str = "a line `some ... total=MICROSECONDS`";

/// For how long tasks of a cgroup or below it stood still so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalled {
    /// While at least one stood still, in nanoseconds.
    pub some_ns: u64,
    /// While all that were not idle stood still at once, in nanoseconds; `None` where the kernel does not count it for
    /// this resource (the CPU before Linux 5.13).
    pub full_ns: Option<u64>,
}

/// For how long at least one task of a cgroup or below it stood still so far, in nanoseconds; `None` where the kernel
/// does not count it (`psi=0`, or the cgroup has gone).
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file.
pub fn stalled_ns(cgroup: &str, resource: Resource, roots: &Roots) -> Result<Option<u64>, KernelError> {
    let path = place::directory(cgroup, roots).join(file(resource));
    let Some(text) = read_if_present(&path)? else { return Ok(None) };
    parse(&text).map(|stalled| Some(stalled.some_ns)).ok_or_else(|| KernelError::parse(path, EXPECTED, &text))
}

/// As [`stalled_ns`], both totals of a cgroup that is held open; `None` where the kernel does not count them.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file; [`KernelError::is_absent`] when the cgroup has
/// gone.
pub fn stalled(cgroup: &CgroupDirectory, resource: Resource) -> Result<Option<Stalled>, KernelError> {
    let name = file(resource);
    let Some(text) = cgroup.read_if_present(name)? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| KernelError::parse(cgroup.path_of(name), EXPECTED, &text))
}

fn file(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu.pressure",
        Resource::Memory => "memory.pressure",
        Resource::Disk => "io.pressure",
    }
}

fn parse(text: &str) -> Option<Stalled> {
    Some(Stalled { some_ns: total_ns(text, "some ")?, full_ns: total_ns(text, "full ") })
}

fn total_ns(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse::<u64>().ok()?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_the_line_some_counts_and_a_kernel_without_it_is_no_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let cgroup = place::directory("/a", &roots);
        std::fs::create_dir_all(&cgroup).expect("a directory");
        let text = "some avg10=1.20 avg60=0.30 avg300=0.10 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        std::fs::write(cgroup.join("io.pressure"), text).expect("written");
        assert_eq!(stalled_ns("/a", Resource::Disk, &roots).expect("readable"), Some(1_234_000));
        assert_eq!(stalled_ns("/a", Resource::Memory, &roots).expect("nothing to read"), None);
        std::fs::write(cgroup.join("memory.pressure"), "full total=1\n").expect("written");
        let error = stalled_ns("/a", Resource::Memory, &roots).expect_err("no such line").to_string();
        assert!(error.contains("memory.pressure") && error.contains("some"), "{error}");
    }
}
