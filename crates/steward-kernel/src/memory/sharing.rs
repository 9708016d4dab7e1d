//! What a process uses of pages of files, whoever is charged for them.
//!
//! The kernel charges a page of a file to the cgroup whose process touched it first. Who has it mapped is told by the
//! proportional set size: of a page that several processes have mapped, each has its part. Over all processes these add
//! up to what is mapped at all, as `file_mapped` in `memory.stat` does over all cgroups that are charged.
//!
//! That costs a walk over the page tables of the process, and waits for its memory map if somebody changes that: not
//! for a thread that may not be late. How much it has mapped at most costs next to nothing.

use crate::error::KernelError;
use crate::roots::{Roots, read_if_present};

/// What of files and shared memory a process has in its page tables, in bytes; `None` where it has ended or has no
/// memory. Pages that others have as well count whole (`/proc/PID/statm`).
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`].
pub fn mapped_bytes(pid: i32, page_bytes: u64, roots: &Roots) -> Result<Option<u64>, KernelError> {
    let path = roots.proc.join(format!("{pid}/statm"));
    let Some(text) = read_if_present(&path)? else { return Ok(None) };
    let shared = text.split_ascii_whitespace().nth(2).and_then(|pages| pages.parse::<u64>().ok());
    let pages = shared.ok_or_else(|| KernelError::parse(path, "seven numbers of pages", &text))?;
    Ok(Some(pages.saturating_mul(page_bytes)))
}

/// Its part of these, in bytes: of a page that n processes have mapped, an n-th (`Pss_File` and `Pss_Shmem` of
/// `/proc/PID/smaps_rollup`). `None` where it has ended or has no memory.
///
/// # Errors
/// [`KernelError::Read`], for example without the right to look at that process, or [`KernelError::Parse`].
pub fn part_bytes(pid: i32, roots: &Roots) -> Result<Option<u64>, KernelError> {
    let path = roots.proc.join(format!("{pid}/smaps_rollup"));
    let Some(text) = read_if_present(&path)? else { return Ok(None) };
    let mut bytes = 0_u64;
    let mut found = 0;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        if !matches!(name, "Pss_File" | "Pss_Shmem") {
            continue;
        }
        let kib = rest.split_ascii_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        let kib = kib.ok_or_else(|| KernelError::parse(&path, "NAME: NUMBER kB", line))?;
        bytes = bytes.saturating_add(kib.saturating_mul(1024));
        found += 1;
    }
    // One that is ending has mappings no longer, and one without any has no line at all.
    if found == 0 && !text.trim().is_empty() {
        return Err(KernelError::parse(path, "a line Pss_File: NUMBER kB", &text));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    const ROLLUP: &str = "5583b000-7ffe9000 ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nPss: 500 kB\nPss_Dirty: 9 kB\n\
                          Pss_Anon: 100 kB\nPss_File: 300 kB\nPss_Shmem: 100 kB\nShared_Clean: 600 kB\n";

    #[test]
    fn what_a_process_has_mapped_and_its_part_of_that_are_read() {
        let (_keep, roots) = with_files(&[
            ("proc/7/statm", "5000 1000 150 40 0 900 0\n"),
            ("proc/7/smaps_rollup", ROLLUP),
            ("proc/8/statm", "much\n"),
            ("proc/8/smaps_rollup", "Rss: 900 kB\n"),
            ("proc/9/smaps_rollup", "Pss_File: many kB\n"),
        ]);
        assert_eq!(mapped_bytes(7, 4096, &roots).expect("readable"), Some(150 * 4096));
        assert_eq!(part_bytes(7, &roots).expect("readable"), Some(400 * 1024));
        assert_eq!(mapped_bytes(6, 4096, &roots).expect("it has ended"), None);
        assert_eq!(part_bytes(6, &roots).expect("it has ended"), None);
        assert!(mapped_bytes(8, 4096, &roots).expect_err("no number").to_string().contains("8/statm"));
        for pid in [8, 9] {
            let said = part_bytes(pid, &roots).expect_err("no such line").to_string();
            assert!(
                said.contains("smaps_rollup") && said.contains("Pss_File") || said.contains("kB"),
                "{said}"
            );
        }
    }

    #[test]
    fn the_process_that_runs_the_tests_uses_no_more_of_files_than_it_has_mapped() {
        let (roots, own) = (Roots::default(), std::process::id() as i32);
        let mapped =
            mapped_bytes(own, rustix::param::page_size() as u64, &roots).expect("its own").expect("it runs");
        let part = part_bytes(own, &roots).expect("its own").expect("it runs");
        // Other threads of the tests map and unmap meanwhile.
        assert!(mapped > 0 && part <= mapped + (16 << 20), "{part} of {mapped}");
    }
}
