//! What a cgroup was given and what it uses, read from its files, a part for each resource; for how long it stood still
//! for want of one is beside it ([`super::pressure`]).

use std::path::Path;

use super::place::directory;
use crate::error::KernelError;
use crate::roots::{Roots, read_if_present};

/// The share of the CPU that a cgroup was given. `None` where its parent does not hand out the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuShare {
    /// `cpu.weight`: 1 to 10,000, 100 unless set.
    pub weight: Option<u64>,
    /// `cpu.max`: at most this much CPU time in every period.
    pub limit: Option<CpuLimit>,
    /// `cpu.idle`: whether it runs only when nothing else wants to.
    pub idle: Option<bool>,
}

/// `cpu.max`: CPU time per period, over all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit {
    /// CPU time per period in microseconds; `None` for no limit (`max`).
    pub quota_us: Option<u64>,
    /// Length of a period in microseconds.
    pub period_us: u64,
}

/// What CPU a cgroup was given.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file; a file that is not there is no error.
pub fn cpu_share(cgroup: &str, roots: &Roots) -> Result<CpuShare, KernelError> {
    let directory = directory(cgroup, roots);
    Ok(CpuShare {
        weight: number(&directory.join("cpu.weight"))?,
        limit: limit(&directory.join("cpu.max"))?,
        idle: number(&directory.join("cpu.idle"))?.map(|value| value != 0),
    })
}

/// What a cgroup and all below it use of the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// All that is charged to it (`memory.current`).
    pub used_bytes: u64,
    /// What of it is in the swap besides (`memory.swap.current`).
    pub swapped_bytes: u64,
    /// Pages of files, of those that are charged (`file` of `memory.stat`).
    pub file_bytes: u64,
    /// What of these must be written before it can be taken (`file_dirty` and `file_writeback`).
    pub dirty_bytes: u64,
    /// Pages of programs' own (`anon`).
    pub anonymous_bytes: u64,
    /// The most that it may use (`memory.max`); `None` for no limit.
    pub max_bytes: Option<u64>,
    /// Pages that were taken and used again, so far (`workingset_refault_anon` and `_file`).
    pub refaults: u64,
}

/// What memory a cgroup uses; `None` where the one above it does not hand memory out, so that nobody counts it.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file.
pub fn memory_use(cgroup: &str, roots: &Roots) -> Result<Option<MemoryUse>, KernelError> {
    let directory = directory(cgroup, roots);
    let Some(used_bytes) = number(&directory.join("memory.current"))? else { return Ok(None) };
    let statistics = read_if_present(&directory.join("memory.stat"))?.unwrap_or_default();
    let figure = |name: &str| figure(&statistics, name);
    Ok(Some(MemoryUse {
        used_bytes,
        swapped_bytes: number(&directory.join("memory.swap.current"))?.unwrap_or(0),
        file_bytes: figure("file"),
        dirty_bytes: figure("file_dirty").saturating_add(figure("file_writeback")),
        anonymous_bytes: figure("anon"),
        max_bytes: most(&directory.join("memory.max"))?,
        refaults: figure("workingset_refault_anon").saturating_add(figure("workingset_refault_file")),
    }))
}

/// A limit; `None` where there is none (`max`), and where there is no such file.
fn most(path: &Path) -> Result<Option<u64>, KernelError> {
    match read_if_present(path)?.as_deref().map(str::trim) {
        None | Some("max") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| KernelError::parse(path, "a number or max", text)),
    }
}

/// A figure of `memory.stat`; 0 where this kernel has none of that name.
fn figure(statistics: &str, name: &str) -> u64 {
    let lines = statistics.lines().filter_map(|line| line.split_once(' '));
    let value = lines.into_iter().find_map(|(found, value)| (found == name).then_some(value));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn number(path: &Path) -> Result<Option<u64>, KernelError> {
    let Some(text) = read_if_present(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| KernelError::parse(path, "a number", &text))
}

fn limit(path: &Path) -> Result<Option<CpuLimit>, KernelError> {
    let Some(text) = read_if_present(path)? else { return Ok(None) };
    parse_limit(&text).map(Some).ok_or_else(|| KernelError::parse(path, "QUOTA PERIOD or max PERIOD", &text))
}

fn parse_limit(text: &str) -> Option<CpuLimit> {
    let (quota, period) = text.split_once(' ')?;
    let quota_us = if quota == "max" { None } else { Some(quota.parse().ok()?) };
    Some(CpuLimit { quota_us, period_us: period.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, content) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, content).expect("a file");
        }
        let roots = Roots::under(directory.path());
        (directory, roots)
    }

    #[test]
    fn what_is_used_is_read_where_memory_is_counted() {
        let statistics = "anon 300\nfile 200\nfile_mapped 7\nfile_dirty 20\nfile_writeback 5\nworkingset_refault_anon 3\n\
                          workingset_refault_file 4\n";
        let (_keep, roots) = tree(&[
            ("sys/fs/cgroup/a/memory.current", "512\n"),
            ("sys/fs/cgroup/a/memory.swap.current", "64\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.stat", statistics),
            ("sys/fs/cgroup/b/cpu.weight", "100\n"),
        ]);
        let expected = MemoryUse {
            used_bytes: 512,
            swapped_bytes: 64,
            file_bytes: 200,
            dirty_bytes: 25,
            anonymous_bytes: 300,
            max_bytes: None,
            refaults: 7,
        };
        assert_eq!(memory_use("/a", &roots).expect("readable"), Some(expected));
        assert_eq!(memory_use("/b", &roots).expect("nothing to read"), None);
    }

    #[test]
    fn a_share_is_read_from_its_three_files() {
        let (_keep, roots) = tree(&[
            ("sys/fs/cgroup/a/cpu.weight", "250\n"),
            ("sys/fs/cgroup/a/cpu.max", "20000 100000\n"),
            ("sys/fs/cgroup/a/cpu.idle", "0\n"),
            ("sys/fs/cgroup/b/cpu.max", "max 100000\n"),
        ]);
        let limit = CpuLimit { quota_us: Some(20_000), period_us: 100_000 };
        let expected = CpuShare { weight: Some(250), limit: Some(limit), idle: Some(false) };
        assert_eq!(cpu_share("/a", &roots).expect("readable"), expected);
        let unlimited = CpuLimit { quota_us: None, period_us: 100_000 };
        assert_eq!(cpu_share("/b", &roots).expect("readable").limit, Some(unlimited));
        assert_eq!(cpu_share("/none", &roots).expect("nothing to read"), CpuShare::default());
    }

    #[test]
    fn nonsense_in_a_file_is_an_error_with_its_path() {
        let (_keep, roots) = tree(&[("sys/fs/cgroup/a/cpu.weight", "heavy\n")]);
        let error = cpu_share("/a", &roots).expect_err("not a number").to_string();
        assert!(error.contains("a/cpu.weight") && error.contains("heavy"), "{error}");
    }
}
