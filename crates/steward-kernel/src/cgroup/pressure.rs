//! For how long tasks of a cgroup stood still for want of a resource (the kernel's pressure stall information).
//!
//! Waits for a CPU are no part of what is counted for memory or the disk. The kernel adds up the time in which at least
//! one task of the cgroup, or below it, stood still: so that one among many that do not is seen in full.

use steward_core::resource::Resource;

use super::directory::CgroupDirectory;
use crate::error::KernelError;

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

/// What [`super::reading`] reads; `None` where the kernel does not count it (`psi=0`).
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file; [`KernelError::is_absent`] when the cgroup has
/// gone.
pub(super) fn stalled(cgroup: &CgroupDirectory, resource: Resource) -> Result<Option<Stalled>, KernelError> {
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
    use crate::roots::with_files;

    #[test]
    fn the_total_of_the_line_some_counts_and_a_kernel_without_it_is_no_error() {
        let text = "some avg10=1.20 avg60=0.30 avg300=0.10 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        let (_keep, roots) = with_files(&[("sys/fs/cgroup/a/io.pressure", text)]);
        let cgroup = CgroupDirectory::open("/a", &roots).expect("it is there");
        let disk = stalled(&cgroup, Resource::Disk).expect("readable").expect("it is counted");
        assert_eq!((disk.some_ns, disk.full_ns), (1_234_000, Some(99_000)));
        assert_eq!(stalled(&cgroup, Resource::Memory).expect("nothing to read"), None);
        std::fs::write(cgroup.path_of("memory.pressure"), "full total=1\n").expect("written");
        let error = stalled(&cgroup, Resource::Memory).expect_err("no such line").to_string();
        assert!(error.contains("memory.pressure") && error.contains("some"), "{error}");
    }
}
