//! Experiments on memory: who has which cgroup, what root sets by hand there, and what memory went through.
//!
//! Below the lab's cgroup there is one for all programs that are to be protected, and one for all others, so that a
//! ceiling can be put on those together. The memory controller is handed out down to each program's own.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use steward_lab_guest::{FreeMemory, MachineMemory, MemorySetup, Program, ProgramMemory, Run};

/// Where all cgroups are.
pub const CGROUPS: &str = "/sys/fs/cgroup";
const PROTECTED: &str = "protected";
const PROTECTED_APART: &str = "lab-protected";
/// All others.
pub const OTHERS: &str = "others";
/// A huge page takes 2 to this many pages.
const HUGE_ORDER: u32 = 9;

/// Makes the cgroups of a run below `root`, and forgets what earlier runs left in memory.
///
/// # Errors
/// Names the file that the kernel did not take something in.
pub fn prepare(root: &Path, run: &Run, setup: &MemorySetup) -> Result<()> {
    // What an earlier run has read is charged to nobody any more, and would be found in memory.
    // SAFETY: no arguments.
    unsafe { libc::sync() };
    write(Path::new("/proc/sys/vm/drop_caches"), "3")?;
    bring_back_from_swap()?;
    let promised: u64 = run.programs.iter().filter_map(|program| program.memory_min_bytes).sum();
    for (path, min_bytes) in
        [(root.to_owned(), promised), (protected(root, run), promised), (root.join(OTHERS), 0)]
    {
        fs::create_dir_all(&path).with_context(|| format!("cannot make the cgroup {}", path.display()))?;
        // What is promised to one is promised to none of those above it (cgroup-v2.rst, memory.min).
        write(&path.join("memory.min"), &min_bytes.to_string())?;
        write(&path.join("cgroup.subtree_control"), "+memory")?;
    }
    let ceiling = setup.ceiling_bytes.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
    write(&root.join(OTHERS).join("memory.high"), &ceiling)
}

/// What an earlier run has pushed out, the programs' own files among it, is in memory again, as it was when the machine
/// had booted.
fn bring_back_from_swap() -> Result<()> {
    let swaps = fs::read_to_string("/proc/swaps").context("reading /proc/swaps")?;
    // A line of headings comes first (proc(5)).
    let places = swaps.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    for place in places {
        let path = CString::new(place)?;
        // SAFETY: both calls read the path.
        let is_back = unsafe { libc::swapoff(path.as_ptr()) == 0 && libc::swapon(path.as_ptr(), 0) == 0 };
        if !is_back {
            bail!("swap on {place} could not be emptied: {}", std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// What is free now.
pub fn free() -> Option<FreeMemory> {
    free_blocks(&fs::read_to_string("/proc/buddyinfo").ok()?)
}

/// For each zone a line: `Node 0, zone Normal`, and how many blocks of 1, 2, 4, 8 ... pages are free (proc(5)).
fn free_blocks(buddyinfo: &str) -> Option<FreeMemory> {
    let mut free = FreeMemory::default();
    for line in buddyinfo.lines() {
        for (order, count) in (0_u32..).zip(line.split_ascii_whitespace().skip(4)) {
            let pages = count.parse::<u64>().ok()?.checked_shl(order)?;
            free.pages += pages;
            free.huge_pages += if order < HUGE_ORDER { 0 } else { pages };
        }
    }
    (free.pages > 0).then_some(free)
}

/// Below which directory a program's cgroup is.
pub fn place(root: &Path, run: &Run, program: &Program) -> PathBuf {
    if program.protected { protected(root, run) } else { root.join(OTHERS) }
}

/// The cgroup above all programs that are to be protected, or that the person at the machine looks at. In an experiment
/// on the disk it is beside the lab's own: BFQ has one go before another at once only where the cgroups below the root
/// that they are in differ (`next_queue_may_preempt`).
pub fn protected(root: &Path, run: &Run) -> PathBuf {
    match run.disk {
        Some(_) => root.with_file_name(PROTECTED_APART),
        None => root.join(PROTECTED),
    }
}

/// Promises a program in the cgroup `group` its memory.
///
/// # Errors
/// Names the file.
pub fn promise(group: &Path, program: &Program) -> Result<()> {
    match program.memory_min_bytes {
        Some(bytes) => write(&group.join("memory.min"), &bytes.to_string()),
        None => Ok(()),
    }
}

/// The cgroup that a process is in now: whoever started it may have moved it.
pub fn cgroup_of(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(CGROUPS).join(path))
}

/// What the memory of the programs in a cgroup went through; `None` when it has none of these files.
pub fn of_group(group: &Path) -> Option<ProgramMemory> {
    let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
    let events = fs::read_to_string(group.join("memory.events")).ok()?;
    Some(ProgramMemory {
        major_faults: number(&stat, "pgmajfault")?,
        throttled: number(&events, "high")?,
        low_breached: number(&events, "low")?,
        oom_kills: number(&events, "oom_kill")?,
    })
}

/// What the machine's memory went through since its start.
pub fn of_machine() -> Option<MachineMemory> {
    machine(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn machine(vmstat: &str) -> Option<MachineMemory> {
    let stalls = vmstat.lines().filter_map(|line| line.strip_prefix("allocstall_")?.split_once(' '));
    Some(MachineMemory {
        direct_reclaims: stalls.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum(),
        oom_kills: number(vmstat, "oom_kill")?,
        swapped_in: number(vmstat, "pswpin")?,
        swapped_out: number(vmstat, "pswpout")?,
    })
}

/// What came to pass between two looks.
pub fn between(before: MachineMemory, after: MachineMemory) -> MachineMemory {
    MachineMemory {
        direct_reclaims: after.direct_reclaims - before.direct_reclaims,
        oom_kills: after.oom_kills - before.oom_kills,
        swapped_in: after.swapped_in - before.swapped_in,
        swapped_out: after.swapped_out - before.swapped_out,
    }
}

/// Keeps the agent itself in memory: it must be on time when nobody else is.
///
/// # Errors
/// The kernel's.
pub fn stay() -> std::io::Result<()> {
    // SAFETY: plain flags.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The number behind a name in lines of `NAME NUMBER`.
fn number(text: &str, name: &str) -> Option<u64> {
    let of_name = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(of_name)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_reclaims_are_those_of_all_zones() {
        let vmstat =
            "pswpin 7\npswpout 9\nallocstall_dma 0\nallocstall_normal 30\nallocstall_movable 4\noom_kill 1\n";
        let counted = MachineMemory { direct_reclaims: 34, oom_kills: 1, swapped_in: 7, swapped_out: 9 };
        assert_eq!(machine(vmstat), Some(counted));
        assert_eq!(machine("pswpin 7\n"), None);
    }

    #[test]
    fn what_lies_together_is_counted_in_pages_of_all_zones() {
        let buddyinfo = "Node 0, zone      DMA      1      0      0      0      0      0      0      0      0      1      3\n\
            Node 0, zone    DMA32      5      2      0      0      0      0      0      0      1      0      2\n";
        let together = 512 + 3 * 1024 + 2 * 1024;
        let free = FreeMemory { pages: 1 + 5 + 4 + 256 + together, huge_pages: together };
        assert_eq!(free_blocks(buddyinfo), Some(free));
        assert_eq!(free_blocks(""), None);
        assert_eq!(free_blocks("Node 0, zone Normal many\n"), None);
    }

    #[test]
    fn a_name_is_not_taken_for_one_that_begins_like_it() {
        let events = "low 3\nhigh 4\nmax 0\noom 9\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(number(events, "oom_kill"), Some(2));
        assert_eq!(number(events, "oom_"), None);
    }

    #[test]
    fn what_a_cgroup_tells_is_read_from_its_files() {
        let group = tempfile::tempdir().expect("a directory");
        assert_eq!(of_group(group.path()), None);
        fs::write(group.path().join("memory.stat"), "anon 5\npgmajfault 12\n").expect("written");
        fs::write(group.path().join("memory.events"), "low 1\nhigh 2\nmax 0\noom 0\noom_kill 3\n")
            .expect("written");
        let seen = ProgramMemory { major_faults: 12, throttled: 2, low_breached: 1, oom_kills: 3 };
        assert_eq!(of_group(group.path()), Some(seen));
    }
}
