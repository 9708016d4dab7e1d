//! What a process has of memory that is its alone. A cgroup goes on being charged for that when the process is moved to
//! another one (Documentation/admin-guide/cgroup-v2.rst, "Memory Ownership").

use super::{Status, stat};
use crate::error::KernelError;
use crate::roots::Roots;

/// How much it is, and of which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Private {
    /// When the process started: another one that is given its id later has another.
    pub started_ticks: u64,
    /// Anonymous memory, also what of it is in the swap, in bytes (`RssAnon` and `VmSwap` of proc_pid_status(5)).
    pub bytes: u64,
}

/// That of one process.
///
/// # Errors
/// [`KernelError::Read`] (see [`KernelError::is_absent`]: it has ended) or [`KernelError::Parse`].
pub fn of(pid: i32, roots: &Roots) -> Result<Private, KernelError> {
    let started_ticks = stat(pid, roots)?.id.started_ticks;
    let status = Status::read(pid, roots)?;
    // Threads of the kernel, and those that are ending, have no such lines.
    let bytes = ["RssAnon:", "VmSwap:"].iter().filter_map(|key| status.line(key)).map(|line| {
        let kib = line.trim().strip_suffix("kB").and_then(|kib| kib.trim().parse::<u64>().ok());
        kib.map(|kib| kib.saturating_mul(1024)).ok_or_else(|| status.lacks("RssAnon: and VmSwap: in kB"))
    });
    Ok(Private { started_ticks, bytes: bytes.sum::<Result<u64, KernelError>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn what_is_in_memory_and_in_the_swap_is_added_up_and_a_process_without_any_has_none() {
        let stat = |pid: i32| {
            format!("{pid} (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0 {}\n", "0 ".repeat(30))
        };
        let (_keep, roots) = with_files(&[
            ("proc/7/stat", &stat(7)),
            ("proc/7/status", "Name:\ta\nVmRSS:\t     900 kB\nRssAnon:\t     600 kB\nVmSwap:\t      40 kB\n"),
            ("proc/8/stat", &stat(8)),
            ("proc/8/status", "Name:\tb\n"),
            ("proc/9/stat", &stat(9)),
            ("proc/9/status", "Name:\tb\nRssAnon:\tmuch\n"),
        ]);
        assert_eq!(of(7, &roots).expect("it runs"), Private { started_ticks: 77, bytes: 640 << 10 });
        assert_eq!(of(8, &roots).expect("it runs").bytes, 0);
        assert!(of(9, &roots).expect_err("no number").to_string().contains("proc/9/status"));
        assert!(of(10, &roots).expect_err("it has ended").is_absent());
    }
}
