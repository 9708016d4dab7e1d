//! What one run brings into the guest: files, the libraries they need, the command.

use crate::archive::Archive;
use crate::libraries;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file to be present in the guest.
#[derive(Debug, Clone)]
pub struct GuestFile {
    /// Absolute path in the guest.
    pub guest_path: String,
    /// What is in it.
    pub source: GuestSource,
    /// Permission bits, such as 0o755.
    pub mode: u32,
}

/// Where the contents of a [`GuestFile`] come from.
#[derive(Debug, Clone)]
pub enum GuestSource {
    /// A file of the host. A program's shared libraries come along by themselves.
    HostPath(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}

impl GuestFile {
    /// A file of the host, with the permissions that it has there.
    ///
    /// # Errors
    /// When the file does not exist.
    pub fn from_host(host: impl Into<PathBuf>, guest_path: impl Into<String>) -> Result<Self> {
        let host = host.into();
        let metadata =
            fs::metadata(&host).with_context(|| format!("reading {} for the guest", host.display()))?;
        let mode = metadata.permissions().mode() & 0o7777;
        Ok(Self { guest_path: guest_path.into(), source: GuestSource::HostPath(host), mode })
    }

    /// A file with these contents.
    pub fn from_bytes(contents: impl Into<Vec<u8>>, guest_path: impl Into<String>, mode: u32) -> Self {
        Self { guest_path: guest_path.into(), source: GuestSource::Bytes(contents.into()), mode }
    }
}

/// Where the guest's root will be, which decides where files are put for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// The initramfs itself: quick to boot, every file in memory.
    Memory,
    /// The disk image made of Debian packages.
    Disk,
}

/// The per-run archive: `files` with their libraries, the command and the settings that /init reads.
pub(crate) fn archive(
    files: &[GuestFile],
    command: &[String],
    root: Root,
    settings: &str,
) -> Result<Vec<u8>> {
    let (for_files, for_libraries) = match root {
        Root::Memory => ("", ""),
        Root::Disk => ("/lab/files", "/lab/libraries"),
    };
    let mut archive = Archive::new();
    let mut needed = BTreeSet::new();
    for file in files {
        if !file.guest_path.starts_with('/') || file.guest_path.ends_with('/') {
            bail!("the guest path \"{}\" must be absolute and name a file", file.guest_path);
        }
        let place = format!("{for_files}{}", merged(&file.guest_path));
        match &file.source {
            GuestSource::Bytes(bytes) => archive.file(&place, file.mode, bytes),
            GuestSource::HostPath(path) => {
                let bytes =
                    fs::read(path).with_context(|| format!("reading {} for the guest", path.display()))?;
                archive.file(&place, file.mode, &bytes);
                needed.append(&mut libraries::of(path)?);
            }
        }
    }
    for library in &needed {
        let bytes =
            fs::read(library).with_context(|| format!("reading the library {}", library.display()))?;
        archive.file(&format!("{for_libraries}{}", merged(&place_of_library(library))), 0o755, &bytes);
    }
    let command: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    archive.file("/lab/command", 0o755, format!("exec {}\n", command.join(" ")).as_bytes());
    archive.file("/lab/settings", 0o644, settings.as_bytes());
    Ok(archive.finish())
}

/// Where the guest's loader looks for a library: the host's place, unless that is one of a single user's or a build's,
/// which only an environment variable or a run path of the host would find.
fn place_of_library(library: &Path) -> String {
    let path = library.to_string_lossy();
    if path.starts_with("/lib") || path.starts_with("/usr/lib") {
        return path.into_owned();
    }
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    format!("/usr/lib/x86_64-linux-gnu/{name}")
}

/// Debian's /bin, /sbin, /lib and /lib64 are links into /usr; a directory of that name in an archive would replace the
/// link.
fn merged(path: &str) -> String {
    let first = path.split('/').nth(1).unwrap_or_default();
    if ["bin", "sbin", "lib", "lib32", "lib64", "libx32"].contains(&first) {
        format!("/usr{path}")
    } else {
        path.to_owned()
    }
}

/// `word` as one word of a shell command.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_quotes_stays_one_word() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn paths_follow_the_merged_usr() {
        assert_eq!(merged("/bin/tool"), "/usr/bin/tool");
        assert_eq!(merged("/lib64/ld.so"), "/usr/lib64/ld.so");
        assert_eq!(merged("/library/x"), "/library/x");
        assert_eq!(merged("/usr/bin/tool"), "/usr/bin/tool");
    }

    #[test]
    fn a_relative_guest_path_is_refused_by_name() {
        let file = GuestFile::from_bytes("x", "tmp/x", 0o644);
        let error = archive(&[file], &[], Root::Memory, "").expect_err("it is relative");
        assert!(error.to_string().contains("tmp/x"));
    }
}
