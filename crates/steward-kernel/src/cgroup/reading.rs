//! What a cgroup was given, read from its files.

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
