//! Experiments on the disk: how it is set before a run, and what it did meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use steward_lab_guest::{DiskSetup, MachineDisk, Run};

use crate::memory;

/// What the timed disk may be called (`lab/machine/timed-disk.sh`), the one that stands before another first.
const DISKS: [&str; 2] = ["sda", "nullb0"];
/// Of the numbers in `stat` (Documentation/block/stat.rst), which count sectors that were read and written.
const SECTORS_READ: usize = 2;
const SECTORS_WRITTEN: usize = 6;
const SECTOR_BYTES: u64 = 512;
/// From `linux/ioprio.h`: whom a priority is for, and its classes. The level is in the bits below.
const IOPRIO_WHO_PROCESS: libc::c_long = 1;
const IOPRIO_REAL_TIME: libc::c_long = 1 << 13;
const IOPRIO_USUAL: libc::c_long = 0;

/// What the timed disk is called.
fn name() -> &'static str {
    let is_there = |name: &&str| Path::new("/sys/block").join(name).exists();
    DISKS.into_iter().find(is_there).unwrap_or("nullb0")
}

/// Sets the disk, in cgroups below `root` that are there.
///
/// # Errors
/// Names the file that the kernel did not take something in.
pub fn prepare(root: &Path, run: &Run, setup: &DiskSetup) -> Result<()> {
    // From the cgroup of all on: what Steward makes for a program is beside the lab's own, and would be handed a part.
    let groups =
        [memory::CGROUPS.into(), root.to_owned(), memory::protected(root, run), root.join(memory::OTHERS)];
    divide(groups, setup.divided)?;
    let numbers =
        fs::read_to_string(format!("/sys/block/{}/dev", name())).context("there is no timed disk")?;
    for setting in &setup.settings {
        let value = setting.value.replace("{disk}", numbers.trim());
        fs::write(&setting.path, &value)
            .with_context(|| format!("cannot write {value} to {}", setting.path))?;
    }
    let priority = if setup.journal_first { IOPRIO_REAL_TIME } else { IOPRIO_USUAL };
    journal_threads().into_iter().try_for_each(|pid| set_priority(pid, priority))
}

/// Hands the controller out, from above, or takes it back, from below: a weight goes with it.
fn divide(mut groups: [PathBuf; 4], divided: bool) -> Result<()> {
    if !divided {
        groups.reverse();
    }
    for group in groups {
        let path = group.join("cgroup.subtree_control");
        let word = if divided { "+io" } else { "-io" };
        fs::write(&path, word).with_context(|| format!("cannot write {word} to {}", path.display()))?;
    }
    Ok(())
}

/// The threads that write the journal of a file system on the timed disk: those of ext4 are called after it.
fn journal_threads() -> Vec<i32> {
    let prefix = format!("jbd2/{}", name());
    let is_journal = |directory: &PathBuf| {
        fs::read_to_string(directory.join("comm")).is_ok_and(|name| name.starts_with(&prefix))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let journals = entries.filter(is_journal);
    journals.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

fn set_priority(pid: i32, priority: libc::c_long) -> Result<()> {
    // SAFETY: plain numbers.
    match unsafe {
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, libc::c_long::from(pid), priority)
    } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error())
            .context("cannot set the I/O priority of the journal's thread"),
    }
}

/// What the disk has done since its start, in `seconds`.
pub fn of_machine(seconds: f64) -> Option<MachineDisk> {
    done(&fs::read_to_string(format!("/sys/block/{}/stat", name())).ok()?, seconds)
}

fn done(stat: &str, seconds: f64) -> Option<MachineDisk> {
    let bytes = |place: usize| {
        let sectors = stat.split_ascii_whitespace().nth(place)?.parse::<u64>().ok()?;
        Some(sectors * SECTOR_BYTES)
    };
    Some(MachineDisk { read_bytes: bytes(SECTORS_READ)?, written_bytes: bytes(SECTORS_WRITTEN)?, seconds })
}

/// What it did between two looks.
pub fn between(before: MachineDisk, after: MachineDisk) -> MachineDisk {
    MachineDisk {
        read_bytes: after.read_bytes - before.read_bytes,
        written_bytes: after.written_bytes - before.written_bytes,
        seconds: after.seconds - before.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_sectors_of_512() {
        let stat = "      19        0      152      191     1917      161  1906800    36773        1    27284    36964\n";
        let done = done(stat, 2.0).unwrap();
        assert_eq!((done.read_bytes, done.written_bytes), (152 * 512, 1_906_800 * 512));
    }
}
