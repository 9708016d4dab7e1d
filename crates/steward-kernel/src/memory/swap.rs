//! Where memory can be swapped out to (`/proc/swaps`, proc_swaps(5)).

use std::path::PathBuf;

use crate::error::KernelError;
use crate::roots::{Roots, read_if_present};

/// One place for swapped memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// The device or file, with the kernel's escapes (`\040` for a space) resolved.
    pub path: PathBuf,
    /// `partition` or `file`.
    pub kind: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// What is in it, in bytes.
    pub used_bytes: u64,
    /// The one with the highest is filled first.
    pub priority: i32,
}

/// All places, in the kernel's order; none where there is no swap, or the kernel knows none.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file.
pub fn areas(roots: &Roots) -> Result<Vec<SwapArea>, KernelError> {
    let path = roots.proc.join("swaps");
    let text = read_if_present(&path)?.unwrap_or_default();
    // The first line has titles.
    let lines = text.lines().skip(1);
    lines
        .map(|line| area(line).ok_or_else(|| KernelError::parse(&path, "NAME TYPE SIZE USED PRIORITY", line)))
        .collect()
}

fn area(line: &str) -> Option<SwapArea> {
    let mut words = line.split_ascii_whitespace();
    let (name, kind) = (words.next()?, words.next()?);
    let mut kib = || words.next()?.parse::<u64>().ok()?.checked_mul(1024);
    let (size_bytes, used_bytes) = (kib()?, kib()?);
    let priority = words.next()?.parse().ok()?;
    let path = PathBuf::from(unescaped(name));
    Some(SwapArea { path, kind: kind.to_owned(), size_bytes, used_bytes, priority })
}

fn unescaped(name: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(name.to_owned(), |name, (escape, character)| name.replace(escape, character))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn swap_is_listed_in_bytes_and_a_machine_without_has_none() {
        let (_keep, roots) = with_files(&[("proc/meminfo", "")]);
        assert_eq!(areas(&roots).expect("nothing to read"), []);
        let write = |text: &str| std::fs::write(roots.proc.join("swaps"), text).expect("a file");
        write("Filename\tType\tSize\tUsed\tPriority\n/a\\040b  file\t\t2048\t\t1024\t\t-2\n");
        let (kind, size_bytes, used_bytes) = ("file".to_owned(), 2 << 20, 1 << 20);
        let expected = SwapArea { path: "/a b".into(), kind, size_bytes, used_bytes, priority: -2 };
        assert_eq!(areas(&roots).expect("readable"), [expected]);
        write("Filename\nnonsense\n");
        assert!(areas(&roots).expect_err("no area").to_string().contains("swaps"));
    }
}
