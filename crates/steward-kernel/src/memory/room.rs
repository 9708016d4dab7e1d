//! Taking memory from a cgroup.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use crate::error::KernelError;
use crate::roots::read;

/// What a cgroup and all below it are charged (`memory.current`), in bytes.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file.
pub fn current_bytes(directory: &Path) -> Result<u64, KernelError> {
    let path = directory.join("memory.current");
    let text = read(&path)?;
    text.trim().parse().map_err(|_| KernelError::parse(path, "a number of bytes", &text))
}

/// Has the kernel take so much from a cgroup (`memory.reclaim`). The caller waits until that is done: 56 ms for half a
/// mebibyte on a slow disk, and a second under load, were measured.
///
/// # Errors
/// [`KernelError::Write`] naming the file; `EAGAIN` when that much cannot be had.
pub fn reclaim(directory: &Path, bytes: u64) -> Result<(), KernelError> {
    let (path, value) = (directory.join("memory.reclaim"), bytes.to_string());
    let opened = OpenOptions::new().write(true).open(&path);
    let written = opened.and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|source| KernelError::Write { path, value, source })
}
