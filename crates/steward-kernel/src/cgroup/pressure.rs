//! For how long tasks of a cgroup stood still for want of a resource (the kernel's pressure stall information).
//!
//! Waits for a CPU are no part of what is counted for memory or the disk. The kernel adds up the time in which at least
//! one task of the cgroup, or below it, stood still: so that one among many that do not is seen in full.

use steward_core::resource::Resource;

use super::place;
use crate::error::KernelError;
use crate::roots::{Roots, read_if_present};

/// For how long at least one task of a cgroup or below it stood still so far, in nanoseconds; `None` where the kernel
/// does not count it (`psi=0`, or the cgroup has gone).
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file.
pub fn stalled_ns(cgroup: &str, resource: Resource, roots: &Roots) -> Result<Option<u64>, KernelError> {
    let path = place::directory(cgroup, roots).join(file(resource));
    let Some(text) = read_if_present(&path)? else { return Ok(None) };
    let expected = "a line `some ... total=MICROSECONDS`";
    parse(&text).map(Some).ok_or_else(|| KernelError::parse(path, expected, &text))
}

fn file(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu.pressure",
        Resource::Memory => "memory.pressure",
        Resource::Disk => "io.pressure",
    }
}

fn parse(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
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
