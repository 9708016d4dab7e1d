//! The forms in which a cgroup's files hold numbers.

use crate::cgroup::directory::CgroupDirectory;
use crate::error::KernelError;

/// A file with one number; `None` where there is no such file.
pub(super) fn number(cgroup: &CgroupDirectory, file: &str) -> Result<Option<u64>, KernelError> {
    let Some(text) = cgroup.read_if_present(file)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| KernelError::parse(cgroup.path_of(file), "a number", &text))
}

/// A file with lines `NAME NUMBER`, each of which `take` is told; whether there is such a file.
pub(super) fn numbers(
    cgroup: &CgroupDirectory,
    file: &str,
    mut take: impl FnMut(&str, u64),
) -> Result<bool, KernelError> {
    let Some(text) = cgroup.read_if_present(file)? else { return Ok(false) };
    for line in text.lines() {
        let parsed = line.split_once(' ').and_then(|(name, value)| Some((name, value.trim().parse().ok()?)));
        let (name, value) =
            parsed.ok_or_else(|| KernelError::parse(cgroup.path_of(file), "lines NAME NUMBER", line))?;
        take(name, value);
    }
    Ok(true)
}
