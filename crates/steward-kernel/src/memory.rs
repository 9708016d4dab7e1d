//! How much memory there is, and for those who ask for more; file pages held in it.

pub mod hold;
pub mod room;

use crate::error::KernelError;
use crate::roots::{Roots, read};

/// What programs could still get without anything being swapped out, as the kernel estimates it (`MemAvailable` of
/// proc_meminfo(5)), in bytes.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming meminfo.
pub fn available_bytes(roots: &Roots) -> Result<u64, KernelError> {
    figure(roots, "MemAvailable:")
}

/// All memory that the kernel has to hand out (`MemTotal` of proc_meminfo(5)), in bytes.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming meminfo.
pub fn total_bytes(roots: &Roots) -> Result<u64, KernelError> {
    figure(roots, "MemTotal:")
}

fn figure(roots: &Roots, name: &str) -> Result<u64, KernelError> {
    let path = roots.proc.join("meminfo");
    let text = read(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|value| value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| KernelError::parse(path, "a line NAME: NUMBER kB", line.unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_in_bytes_and_a_file_without_it_is_an_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        std::fs::create_dir_all(&roots.proc).expect("a directory");
        let write = |text: &str| std::fs::write(roots.proc.join("meminfo"), text).expect("a file");
        write("MemTotal:       8048044 kB\nMemFree:  1 kB\nMemAvailable:    4096 kB\n");
        assert_eq!(available_bytes(&roots).expect("it is there"), 4 << 20);
        for text in ["MemTotal: 1 kB\n", "MemAvailable: many kB\n", "MemAvailable: 18446744073709551615 kB\n"]
        {
            write(text);
            assert!(available_bytes(&roots).expect_err("no number").to_string().contains("meminfo"));
        }
    }
}
