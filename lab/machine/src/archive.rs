//! Writes cpio archives in the "newc" format, which the kernel unpacks as its first file system
//! (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Only what the lab needs: directories and files, all owned by root. Archives can follow one another in one
//! initramfs, so the lab lays a small one for each run over a cached one.

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// An archive being built in memory.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file at `path` (absolute in the guest; missing parent directories are added) with permission bits `mode`.
    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let path = self.parents(path);
        self.entry(&path, REGULAR | (mode & 0o7777), contents);
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) -> String {
        let path = path.trim_start_matches('/').to_owned();
        let ends: Vec<usize> = path.match_indices('/').map(|(end, _)| end).collect();
        for end in ends {
            if self.directories.insert(path[..end].to_owned()) {
                self.entry(&path[..end], DIRECTORY | 0o755, &[]);
            }
        }
        path
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let links = if mode & 0o170_000 == DIRECTORY { 2 } else { 1 };
        let fields = [
            self.entries, // inode
            mode,
            0, // user
            0, // group
            links,
            0, // modification time
            u32::try_from(contents.len()).expect("a file for the guest is under 4 GiB"),
            0, // device, major and minor
            0,
            0, // device of a device file, major and minor
            0,
            u32::try_from(name.len() + 1).expect("a path is short"),
            0, // checksum, unused in this format
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn every_part_of_an_archive_starts_at_a_multiple_of_four_bytes() {
        let mut archive = Archive::new();
        archive.file("/a/b", 0o755, b"x");
        archive.file("/a/cc", 0o644, b"xyz");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let headers: Vec<usize> =
            (0..bytes.len().saturating_sub(5)).filter(|&at| &bytes[at..at + 6] == b"070701").collect();
        assert_eq!(headers.len(), 4, "a, a/b, a/cc and the trailer");
        assert!(headers.iter().all(|at| at % 4 == 0));
    }

    #[test]
    fn the_cpio_program_reads_what_was_written() {
        let mut archive = Archive::new();
        archive.file("/usr/bin/tool", 0o755, b"#!/bin/sh\n");
        let Ok(mut cpio) = Command::new("cpio")
            .args(["--quiet", "-itv"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            return; // no cpio on this machine: nothing to compare with
        };
        cpio.stdin.take().expect("piped").write_all(&archive.finish()).expect("cpio reads its input");
        let output = cpio.wait_with_output().expect("cpio ends");
        let listing = String::from_utf8(output.stdout).expect("a listing is text");
        assert!(output.status.success());
        assert!(listing.lines().any(|line| line.starts_with("-rwxr-xr-x") && line.ends_with("usr/bin/tool")));
        assert!(listing.lines().any(|line| line.starts_with("drwxr-xr-x") && line.ends_with(" usr")));
    }
}
