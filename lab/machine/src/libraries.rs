//! Which shared libraries a program of the host needs, so that it also runs in the guest.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared libraries and the loader of the ELF program `program`, as paths on the host; empty for a script or a
/// static program.
///
/// # Errors
/// When the file cannot be read, or when `ldd` cannot find one of the libraries.
pub fn of(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut magic = [0; 4];
    let mut file =
        fs::File::open(program).with_context(|| format!("opening {} for the guest", program.display()))?;
    if file.read_exact(&mut magic).is_err() || &magic != b"\x7fELF" {
        return Ok(BTreeSet::new());
    }
    let output =
        Command::new("ldd").arg(program).output().context("running ldd, which is part of libc-bin")?;
    if !output.status.success() {
        return Ok(BTreeSet::new()); // "not a dynamic executable"
    }
    parse(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("libraries of {}", program.display()))
}

/// Reads ldd's lines: `name => /path (address)`, `/path (address)` for the loader, `linux-vdso...` for what is no file.
fn parse(listing: &str) -> Result<BTreeSet<PathBuf>> {
    let mut libraries = BTreeSet::new();
    for line in listing.lines().map(str::trim) {
        if line.ends_with("not found") {
            bail!("ldd says \"{line}\": install the package that has this library");
        }
        let place = line.split_once("=> ").map_or(line, |(_, place)| place);
        match place.split_once(" (") {
            Some((path, _)) if path.starts_with('/') => libraries.insert(PathBuf::from(path)),
            _ => false,
        };
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_the_libraries_are_found_and_the_vdso_is_not() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = parse(listing).expect("nothing is missing");
        assert_eq!(
            found,
            BTreeSet::from(["/lib/x86_64-linux-gnu/libc.so.6".into(), "/lib64/ld-linux-x86-64.so.2".into()])
        );
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse("\tlibelf.so.1 => not found\n").expect_err("it is missing");
        assert!(error.to_string().contains("libelf.so.1"));
    }
}
