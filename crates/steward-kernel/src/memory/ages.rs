//! When pages were last used: the generations of the multi-generational LRU, and making a new one (ageing).
//!
//! The kernel sorts the pages of every cgroup and memory node into at most four generations. Ageing looks at all page
//! tables of the cgroup, moves what was used since the last look into the youngest generation, and opens the next one.
//! So after two ageings everything that was used between them is in the two youngest
//! (Documentation/admin-guide/mm/multigen_lru.rst, Working set estimation). What ageing costs is counted, for it is
//! most of the price of knowing.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::cgroup::tree::Cgroup;
use crate::error::KernelError;
use crate::roots::{Roots, read_if_present};

/// Why page ages cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoPageAges {
    /// The kernel was built without them.
    NotInKernel,
    /// They are turned off.
    TurnedOff,
    /// The file is not there, mostly because debugfs is not mounted.
    NoDebugfs,
    /// The file may not be read: not by this user, or by nobody as long as the kernel is locked down.
    Denied,
}

impl NoPageAges {
    /// In words, to stand behind a colon.
    pub fn why(self) -> &'static str {
        match self {
            NoPageAges::NotInKernel => "the kernel keeps no ages of pages (no /sys/kernel/mm/lru_gen)",
            NoPageAges::TurnedOff => "the ages of pages are turned off in /sys/kernel/mm/lru_gen/enabled",
            NoPageAges::NoDebugfs => {
                "there is no /sys/kernel/debug/lru_gen; debugfs is not mounted, or not in this kernel"
            }
            NoPageAges::Denied => {
                "/sys/kernel/debug/lru_gen may not be read by this user or under this lockdown"
            }
        }
    }

    /// What a person can do about it.
    pub fn what_to_do(self) -> &'static str {
        match self {
            NoPageAges::NotInKernel => "use a kernel built with CONFIG_LRU_GEN",
            NoPageAges::TurnedOff => "write y to /sys/kernel/mm/lru_gen/enabled",
            NoPageAges::NoDebugfs => {
                "mount debugfs (mount -t debugfs debugfs /sys/kernel/debug), or use a kernel built with CONFIG_DEBUG_FS"
            }
            NoPageAges::Denied => "ask as root, and boot without lockdown=integrity or confidentiality",
        }
    }
}

/// One generation of the pages of a cgroup on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Its number; each ageing makes the next one.
    pub sequence: u64,
    /// How long ago it was opened, in milliseconds.
    pub age_ms: u64,
    /// Anonymous pages in it.
    pub anon_pages: u64,
    /// Pages of files in it.
    pub file_pages: u64,
}

/// The pages of a cgroup on one memory node. Those of cgroups below it are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAges {
    /// The node's number.
    pub node: u32,
    /// Oldest first.
    pub generations: Vec<Generation>,
}

/// The pages of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageAges {
    /// The number by which the kernel wants the cgroup named when its pages are to be aged.
    pub memcg_id: u64,
    /// The cgroup's id (the inode number of its directory), which is the same number in kernels that tell it (seen with
    /// 7.3). `None` in those before, where the memory controller has numbers of its own.
    pub cgroup_id: Option<u64>,
    /// From the root of the hierarchy, without a leading slash.
    pub cgroup: String,
    /// By node.
    pub nodes: Vec<NodeAges>,
}

/// What became of an ageing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// Whether the kernel opened the generation; `false` when somebody else had done so meanwhile.
    pub done: bool,
    /// The CPU time that the calling thread spent in it, in nanoseconds.
    pub cpu_ns: u64,
}

/// Which pages an ageing is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeingTarget {
    /// [`PageAges::memcg_id`].
    pub memcg_id: u64,
    /// [`NodeAges::node`].
    pub node: u32,
    /// The youngest generation, as it was read.
    pub sequence: u64,
    /// Whether anonymous pages are to be aged even where there is no swap for them.
    pub with_anon: bool,
    /// Whether all page tables are walked, rather than those that the kernel thinks worth it.
    pub force_scan: bool,
}

/// Why page ages cannot be had here; `None` where they can.
pub fn obstacle(roots: &Roots) -> Option<NoPageAges> {
    let enabled = read_if_present(&roots.sys.join("kernel/mm/lru_gen/enabled")).ok().flatten();
    match enabled.as_deref() {
        None => return Some(NoPageAges::NotInKernel),
        Some("0x0000" | "0") => return Some(NoPageAges::TurnedOff),
        Some(_) => {}
    }
    match open(roots).err()? {
        error if error.is_absent() => Some(NoPageAges::NoDebugfs),
        _ => Some(NoPageAges::Denied),
    }
}

/// The ages of one cgroup's pages; `None` where the kernel lists no such cgroup. Where the kernel tells the cgroup's
/// id, nothing behind it is read; where it does not, it is the last of those with this path, which is the one that was
/// made last.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file; [`obstacle`] says why it cannot be read.
pub fn of(cgroup: &Cgroup, roots: &Roots) -> Result<Option<PageAges>, KernelError> {
    let mut found = None;
    each(roots, |ages| {
        let is_it = ages.cgroup_id.map_or(ages.cgroup == cgroup.path, |id| id == cgroup.id);
        if is_it {
            found = Some(ages.clone());
        }
        if is_it && ages.cgroup_id.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Tells `take` the ages of each cgroup's pages, until it has enough.
///
/// A cgroup that was removed is among them, under the path that it had, as long as anything is charged to it: so there
/// may be several of one path, of which only [`PageAges::cgroup_id`] says which is which. The file is read in pieces,
/// and only one cgroup of it is kept.
///
/// # Errors
/// As [`of`].
pub fn each(roots: &Roots, mut take: impl FnMut(&PageAges) -> ControlFlow<()>) -> Result<(), KernelError> {
    let path = path(roots);
    let mut reader = BufReader::new(open(roots)?);
    let (mut line, mut ages, mut any) = (Vec::new(), PageAges::default(), false);
    let mut own_numbers = false;
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line);
        let length = read.map_err(|source| KernelError::Read { path: path.clone(), source })?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches('\n');
        let begins = text.strip_prefix("memcg ");
        if any && (length == 0 || begins.is_some()) && take(&ages).is_break() {
            return Ok(());
        }
        if length == 0 {
            return Ok(());
        }
        let understood = match begins {
            Some(rest) => begin(&mut ages, rest, !any, &mut own_numbers),
            None => any.then(|| go_on(&mut ages, text)).flatten(),
        };
        let expected = "lines `memcg ID PATH`, `node ID` and `SEQUENCE AGE_MS ANON FILE`";
        understood.ok_or_else(|| KernelError::parse(&path, expected, text))?;
        any = true;
    }
}

/// The first line is the root's, number 1, which stands in a column where the numbers are the memory controller's own:
/// so much of the listing's form changed together with the numbers.
fn begin(ages: &mut PageAges, rest: &str, is_first: bool, own_numbers: &mut bool) -> Option<()> {
    if is_first {
        *own_numbers = rest.starts_with(' ');
    }
    let (id, cgroup) = rest.trim_start().split_once(' ')?;
    ages.memcg_id = id.parse().ok()?;
    ages.cgroup_id = (!*own_numbers).then_some(ages.memcg_id);
    cgroup.trim_start_matches('/').clone_into(&mut ages.cgroup);
    ages.nodes.clear();
    Some(())
}

fn go_on(ages: &mut PageAges, line: &str) -> Option<()> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    if first == "node" {
        let node = words.next()?.parse().ok()?;
        ages.nodes.push(NodeAges { node, generations: Vec::new() });
        return Some(());
    }
    let sequence = first.parse().ok()?;
    let mut number = || words.next()?.parse().ok();
    let (age_ms, anon_pages, file_pages) = (number()?, number()?, number()?);
    let generation = Generation { sequence, age_ms, anon_pages, file_pages };
    ages.nodes.last_mut()?.generations.push(generation);
    Some(())
}

/// Ages the pages of one cgroup on one node. It takes as long as the cgroup has page tables: not for a thread that must
/// not wait.
///
/// # Errors
/// [`KernelError::Write`] naming the file: `EINVAL` where there is no such cgroup, or no such node; so for one
/// that was removed, though it may be listed still.
pub fn age(target: &AgeingTarget, roots: &Roots) -> Result<Ageing, KernelError> {
    let AgeingTarget { memcg_id, node, sequence, with_anon, force_scan } = *target;
    let (with_anon, force_scan) = (u8::from(with_anon), u8::from(force_scan));
    let command = format!("+ {memcg_id} {node} {sequence} {with_anon} {force_scan}");
    let failed = |source| KernelError::Write { path: path(roots), value: command.clone(), source };
    let mut file = OpenOptions::new().write(true).open(path(roots)).map_err(failed)?;
    let before_ns = thread_cpu_ns();
    let outcome = file.write_all(command.as_bytes());
    let cpu_ns = thread_cpu_ns().saturating_sub(before_ns);
    match outcome {
        Ok(()) => Ok(Ageing { done: true, cpu_ns }),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(Ageing { done: false, cpu_ns }),
        Err(error) => Err(failed(error)),
    }
}

/// Which pages are to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// [`PageAges::memcg_id`].
    pub memcg_id: u64,
    /// [`NodeAges::node`].
    pub node: u32,
    /// The youngest generation from which any are taken, two older than the youngest of all at least.
    pub sequence: u64,
    /// How much rather anonymous pages than those of files are taken: 0 (files alone) to 200.
    pub swappiness: u32,
    /// How many pages at most; of anonymous ones more may be on their way into the swap.
    pub pages: u64,
}

/// Has the kernel take pages of old generations alone: it moves those that were used since the last ageing to the
/// youngest, and takes no others in their place, as `memory.reclaim` would (`run_eviction()` of mm/vmscan.c). So less
/// may be taken than was asked for, which the kernel does not tell. It waits for the disk as `memory.reclaim` does.
///
/// # Errors
/// [`KernelError::Write`] naming the file: `EINVAL` where there is no such cgroup or node, or the generation is
/// one of the two youngest.
pub fn evict(eviction: &Eviction, roots: &Roots) -> Result<(), KernelError> {
    let Eviction { memcg_id, node, sequence, swappiness, pages } = *eviction;
    let command = format!("- {memcg_id} {node} {sequence} {swappiness} {pages}");
    let failed = |source| KernelError::Write { path: path(roots), value: command.clone(), source };
    let mut file = OpenOptions::new().write(true).open(path(roots)).map_err(failed)?;
    file.write_all(command.as_bytes()).map_err(failed)
}

/// The CPU time that this thread has used, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn path(roots: &Roots) -> PathBuf {
    roots.sys.join("kernel/debug/lru_gen")
}

fn open(roots: &Roots) -> Result<File, KernelError> {
    let path = path(roots);
    File::open(&path).map_err(|source| KernelError::Read { path, source })
}

#[cfg(test)]
mod tests;
