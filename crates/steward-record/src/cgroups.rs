//! The names of cgroups by their id, which is their directory's inode number.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use steward_sim::cpu::recording::DomainLine;

/// Where cgroup2 is mounted.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// `cpu.weight` of a cgroup that has none.
const WEIGHT_DEFAULT: u32 = 100;

/// All cgroups that exist, by id, without the root.
pub(crate) fn all() -> HashMap<u64, DomainLine> {
    let mut found = HashMap::new();
    for root in ROOTS {
        let root = Path::new(root);
        if root.join("cgroup.controllers").exists() {
            below(root, "", &mut found);
            break;
        }
    }
    found
}

/// Cgroups come and go while they are read: what has gone is left out.
fn below(directory: &Path, path: &str, found: &mut HashMap<u64, DomainLine>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if !metadata.is_dir() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let child = if path.is_empty() { name } else { format!("{path}/{name}") };
        let weight = fs::read_to_string(entry.path().join("cpu.weight"));
        let weight = weight.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(WEIGHT_DEFAULT);
        found.insert(metadata.ino(), DomainLine { path: child.clone(), weight });
        below(&entry.path(), &child, found);
    }
}
