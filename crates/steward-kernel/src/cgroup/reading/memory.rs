//! The memory of a cgroup, as its files say it (Documentation/admin-guide/cgroup-v2.rst, Memory Interface Files).

use std::fmt;

use super::fields::{number, numbers};
use crate::cgroup::directory::CgroupDirectory;
use crate::error::KernelError;

/// What a limit or a protection of memory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// So many bytes. The kernel keeps whole pages, and rounds down.
    Bytes(u64),
    /// `max`: no limit, or protection of everything.
    Max,
}

impl fmt::Display for Bound {
    /// As the kernel takes it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Bytes(bytes) => write!(formatter, "{bytes}"),
            Bound::Max => formatter.write_str("max"),
        }
    }
}

impl Bound {
    /// How many bytes; `None` for all there is.
    pub fn limit_bytes(self) -> Option<u64> {
        match self {
            Bound::Bytes(bytes) => Some(bytes),
            Bound::Max => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "max" { Some(Bound::Max) } else { text.parse().ok().map(Bound::Bytes) }
    }
}

/// All that the files of a cgroup say of its memory, those below it included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// `memory.current`: what is charged, in bytes.
    pub current_bytes: u64,
    /// `memory.swap.current`: what is swapped out, in bytes; `None` where the kernel does not account for swap.
    pub swap_bytes: Option<u64>,
    /// What limits and protects it.
    pub bounds: MemoryBounds,
    /// `memory.stat`.
    pub stat: MemoryStat,
    /// `memory.events`: of the cgroup and all below it.
    pub events: MemoryEvents,
    /// `memory.events.local`: of the cgroup's own limits alone; `None` before Linux 5.2.
    pub events_local: Option<MemoryEvents>,
}

/// `memory.min`, `.low`, `.high` and `.max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Never reclaimed, except by the cgroup's own limit.
    pub min: Bound,
    /// Reclaimed only when nothing unprotected is left.
    pub low: Bound,
    /// Beyond it the cgroup's tasks reclaim, and are slowed.
    pub high: Bound,
    /// Beyond it a task of the cgroup is killed.
    pub max: Bound,
}

/// The fields of `memory.stat` that Steward looks at; a field that this kernel does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
    /// Anonymous memory, in bytes.
    pub anon_bytes: u64,
    /// Pages of files, shared memory among them, in bytes.
    pub file_bytes: u64,
    /// Shared memory and tmpfs, which only swap can take, in bytes.
    pub shmem_bytes: u64,
    /// Pages of files that are mapped, in bytes.
    pub file_mapped_bytes: u64,
    /// Changed pages of files that are not on the way to the disk yet, in bytes.
    pub file_dirty_bytes: u64,
    /// Pages of files on the way to the disk, in bytes.
    pub file_writeback_bytes: u64,
    /// Anonymous and shared memory that is reclaimed first, in bytes.
    pub inactive_anon_bytes: u64,
    /// Anonymous and shared memory that is reclaimed last, in bytes.
    pub active_anon_bytes: u64,
    /// Pages of files that are reclaimed first, in bytes.
    pub inactive_file_bytes: u64,
    /// Pages of files that are reclaimed last, in bytes.
    pub active_file_bytes: u64,
    /// What cannot be reclaimed because it is locked, in bytes.
    pub unevictable_bytes: u64,
    /// The kernel's own objects that it can give back, in bytes.
    pub slab_reclaimable_bytes: u64,
    /// The kernel's own objects that it cannot give back, in bytes.
    pub slab_unreclaimable_bytes: u64,
    /// Anonymous pages that were fetched again soon after they had been reclaimed, so far.
    pub workingset_refault_anon_pages: u64,
    /// As above, pages of files.
    pub workingset_refault_file_pages: u64,
    /// Faults that waited for a disk, so far.
    pub major_faults: u64,
    /// Pages that were taken from it, by whomever and for whatever reason, so far.
    pub reclaimed_pages: u64,
}

impl MemoryStat {
    /// Pages of files that can be taken, in bytes: neither locked nor shared memory.
    pub fn files_bytes(&self) -> u64 {
        self.inactive_file_bytes.saturating_add(self.active_file_bytes)
    }

    /// Of these, such as are like their files on the disk, in bytes.
    pub fn clean_bytes(&self) -> u64 {
        self.files_bytes().saturating_sub(self.file_dirty_bytes).saturating_sub(self.file_writeback_bytes)
    }

    /// Pages of files that were read once and not used since, in bytes, at least so many: those that are taken first,
    /// without as many as are mapped, which stay among them until the kernel looks at them. Where it sorts pages into
    /// generations it counts the older ones so, too: then their ages say more.
    pub fn read_once_bytes(&self) -> u64 {
        self.inactive_file_bytes.saturating_sub(self.file_mapped_bytes)
    }

    /// Anonymous and shared memory that can be taken where there is room in the swap, in bytes.
    pub fn anonymous_bytes(&self) -> u64 {
        self.inactive_anon_bytes.saturating_add(self.active_anon_bytes)
    }

    /// Pages that were fetched again soon after they had been reclaimed, so far.
    pub fn refaulted_pages(&self) -> u64 {
        self.workingset_refault_anon_pages.saturating_add(self.workingset_refault_file_pages)
    }
}

/// `memory.events`: how often it happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// Memory protected by `memory.low` was reclaimed all the same.
    pub low_times: u64,
    /// Tasks were slowed beyond `memory.high`.
    pub high_times: u64,
    /// `memory.max` was about to be passed.
    pub max_times: u64,
    /// An allocation was about to fail at `memory.max`.
    pub oom_times: u64,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
}

/// What a cgroup and all below it use of the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// All that is charged to it (`memory.current`).
    pub used_bytes: u64,
    /// What of it is in the swap besides (`memory.swap.current`).
    pub swapped_bytes: u64,
    /// Of what is charged, pages of files that can be taken ([`MemoryStat::files_bytes`]).
    pub file_bytes: u64,
    /// Of these, such as are like their files on the disk: they can be taken at once.
    pub clean_bytes: u64,
    /// Of what is charged, anonymous and shared memory, which can be taken where there is room in the swap.
    pub anonymous_bytes: u64,
    /// What is charged beside these, and cannot be taken: locked memory, the kernel's own.
    pub fixed_bytes: u64,
    /// What was fetched again soon after it had been reclaimed, so far ([`MemoryStat::refaulted_pages`]).
    pub refaulted_bytes: u64,
    /// The most that it may use (`memory.max`); `None` for no limit.
    pub max_bytes: Option<u64>,
    /// How much more of it may be swapped out (`memory.swap.max`); `None` for no limit.
    pub swap_left_bytes: Option<u64>,
}

pub(super) fn usage(cgroup: &CgroupDirectory) -> Result<Option<MemoryUse>, KernelError> {
    let Some(used_bytes) = number(cgroup, "memory.current")? else { return Ok(None) };
    let stat = stat(cgroup)?.unwrap_or_default();
    let (file_bytes, anonymous_bytes) = (stat.files_bytes(), stat.anonymous_bytes());
    let swapped_bytes = number(cgroup, "memory.swap.current")?.unwrap_or(0);
    let swap_max_bytes = swap_max(cgroup)?.and_then(Bound::limit_bytes);
    Ok(Some(MemoryUse {
        used_bytes,
        swapped_bytes,
        file_bytes,
        clean_bytes: stat.clean_bytes(),
        anonymous_bytes,
        fixed_bytes: used_bytes.saturating_sub(file_bytes).saturating_sub(anonymous_bytes),
        refaulted_bytes: stat.refaulted_pages().saturating_mul(rustix::param::page_size() as u64),
        max_bytes: bound(cgroup, "memory.max")?.and_then(Bound::limit_bytes),
        swap_left_bytes: swap_max_bytes.map(|most_bytes| most_bytes.saturating_sub(swapped_bytes)),
    }))
}

/// All of it; `None` for the root and where the parent does not hand out memory.
pub(super) fn reading(cgroup: &CgroupDirectory) -> Result<Option<MemoryReading>, KernelError> {
    let Some(current_bytes) = number(cgroup, "memory.current")? else { return Ok(None) };
    let (Some(bounds), Some(stat), Some(events)) =
        (bounds(cgroup)?, stat(cgroup)?, events_of(cgroup, "memory.events")?)
    else {
        return Ok(None);
    };
    let events_local = events_of(cgroup, "memory.events.local")?;
    let swap_bytes = number(cgroup, "memory.swap.current")?;
    Ok(Some(MemoryReading { current_bytes, swap_bytes, bounds, stat, events, events_local }))
}

pub(super) fn bounds(cgroup: &CgroupDirectory) -> Result<Option<MemoryBounds>, KernelError> {
    let files = ["memory.min", "memory.low", "memory.high", "memory.max"];
    let mut found = [Bound::Max; 4];
    for (place, file) in found.iter_mut().zip(files) {
        let Some(bound) = bound(cgroup, file)? else { return Ok(None) };
        *place = bound;
    }
    let [min, low, high, max] = found;
    Ok(Some(MemoryBounds { min, low, high, max }))
}

/// `memory.min` alone; `None` where there is no such file.
pub(super) fn min(cgroup: &CgroupDirectory) -> Result<Option<Bound>, KernelError> {
    bound(cgroup, "memory.min")
}

/// `memory.max` alone; `None` where there is no such file.
pub(super) fn max(cgroup: &CgroupDirectory) -> Result<Option<Bound>, KernelError> {
    bound(cgroup, "memory.max")
}

/// `memory.swap.max` alone; `None` where there is no such file.
pub(super) fn swap_max(cgroup: &CgroupDirectory) -> Result<Option<Bound>, KernelError> {
    bound(cgroup, "memory.swap.max")
}

/// A file with one of them; `None` where there is no such file.
fn bound(cgroup: &CgroupDirectory, file: &str) -> Result<Option<Bound>, KernelError> {
    let Some(text) = cgroup.read_if_present(file)? else { return Ok(None) };
    let expected = "a number of bytes or max";
    Bound::parse(&text).map(Some).ok_or_else(|| KernelError::parse(cgroup.path_of(file), expected, &text))
}

pub(super) fn stat(cgroup: &CgroupDirectory) -> Result<Option<MemoryStat>, KernelError> {
    let mut stat = MemoryStat::default();
    let found = numbers(cgroup, "memory.stat", |name, value| {
        let field = match name {
            "anon" => &mut stat.anon_bytes,
            "file" => &mut stat.file_bytes,
            "shmem" => &mut stat.shmem_bytes,
            "file_mapped" => &mut stat.file_mapped_bytes,
            "file_dirty" => &mut stat.file_dirty_bytes,
            "file_writeback" => &mut stat.file_writeback_bytes,
            "inactive_anon" => &mut stat.inactive_anon_bytes,
            "active_anon" => &mut stat.active_anon_bytes,
            "inactive_file" => &mut stat.inactive_file_bytes,
            "active_file" => &mut stat.active_file_bytes,
            "unevictable" => &mut stat.unevictable_bytes,
            "slab_reclaimable" => &mut stat.slab_reclaimable_bytes,
            "slab_unreclaimable" => &mut stat.slab_unreclaimable_bytes,
            "workingset_refault_anon" => &mut stat.workingset_refault_anon_pages,
            "workingset_refault_file" => &mut stat.workingset_refault_file_pages,
            "pgmajfault" => &mut stat.major_faults,
            "pgsteal" => &mut stat.reclaimed_pages,
            _ => return,
        };
        *field = value;
    })?;
    Ok(found.then_some(stat))
}

pub(super) fn events_of(cgroup: &CgroupDirectory, file: &str) -> Result<Option<MemoryEvents>, KernelError> {
    let mut events = MemoryEvents::default();
    let found = numbers(cgroup, file, |name, value| {
        let field = match name {
            "low" => &mut events.low_times,
            "high" => &mut events.high_times,
            "max" => &mut events.max_times,
            "oom" => &mut events.oom_times,
            "oom_kill" => &mut events.oom_kills,
            _ => return,
        };
        *field = value;
    })?;
    Ok(found.then_some(events))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn what_is_used_is_read_where_memory_is_counted() {
        let (_keep, roots) = with_files(&[
            ("sys/fs/cgroup/a/memory.current", "512\n"),
            ("sys/fs/cgroup/a/memory.swap.current", "64\n"),
            ("sys/fs/cgroup/a/memory.swap.max", "100\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "file_mapped 7\nfile_dirty 20\nfile_writeback 4\ninactive_file 100\nactive_file 50\ninactive_anon 200\nactive_anon 30\nworkingset_refault_anon 2\nworkingset_refault_file 3\n",
            ),
            ("sys/fs/cgroup/b/cpu.weight", "100\n"),
        ]);
        let expected = MemoryUse {
            used_bytes: 512,
            swapped_bytes: 64,
            file_bytes: 150,
            clean_bytes: 126,
            anonymous_bytes: 230,
            fixed_bytes: 132,
            refaulted_bytes: 5 * rustix::param::page_size() as u64,
            max_bytes: None,
            swap_left_bytes: Some(36),
        };
        let use_of = |path| usage(&CgroupDirectory::open(path, &roots).expect("it is there"));
        assert_eq!(use_of("/a").expect("readable"), Some(expected));
        assert_eq!(use_of("/b").expect("nothing to read"), None);
    }
}
