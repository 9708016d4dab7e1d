//! The cgroup tree as the daemon uses it: the kernel's, or one in memory for tests ([`crate::fake`]).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steward_core::disk::explain::Use;
use steward_core::memory::audit::{Counters, Taker, Waits};
use steward_core::memory::seen::Machine;
use steward_core::resource::Resource;
use steward_kernel::cgroup::place;
use steward_kernel::cgroup::processes::Processes;
use steward_kernel::cgroup::reading::{Bound, CgroupReader, CpuShare, MemoryBounds, MemoryUse};
use steward_kernel::cgroup::tree::{Cgroup, CgroupTree};
use steward_kernel::disk::handed_out;
use steward_kernel::memory::machine;
use steward_kernel::process::private::{self, Private};
use steward_kernel::{KernelError, Roots};

use crate::files::journal::OwnJournal;
use crate::memory::knobs::{KernelKnobs, Knobs};
use crate::memory::manager::machine_memory;

/// What is asked of a cgroup tree. Paths have no leading slash; the root's is empty. Errors are the kernel's, with
/// the path, as [`CgroupTree`] describes them method by method.
#[allow(clippy::missing_errors_doc)]
pub trait Cgroups: Send {
    /// All cgroups, parents before children.
    fn list(&self) -> Result<Vec<Cgroup>, KernelError>;
    /// Those directly below one.
    fn children(&self, path: &str) -> Result<Vec<Cgroup>, KernelError>;
    /// The names and ids of those directly below one, so many at most.
    fn names_below(&self, path: &str, names_max: usize) -> Result<Vec<(String, u64)>, KernelError>;
    /// The one at a path.
    fn find(&self, path: &str) -> Result<Cgroup, KernelError>;
    /// The path of the one that a process is in.
    fn path_of(&self, pid: i32) -> Result<String, KernelError>;
    /// Makes one.
    fn create(&self, path: &str) -> Result<Cgroup, KernelError>;
    /// Removes an empty one.
    fn remove(&self, path: &str) -> Result<(), KernelError>;
    /// The processes in one itself, to be read some at a time.
    fn list_processes(&self, path: &str) -> Result<Processes, KernelError>;
    /// Whether a process is in it or below it.
    fn is_populated(&self, path: &str) -> Result<bool, KernelError>;
    /// Whether it is frozen itself.
    fn is_frozen(&self, path: &str) -> Result<bool, KernelError>;
    /// Its `cpu.weight`, where it has one.
    fn weight(&self, path: &str) -> Option<u32>;
    /// Its weight and limit, as far as they can be read.
    fn cpu_share(&self, path: &str) -> CpuShare;
    /// What it uses of the memory, where that is counted and can be read.
    fn memory_use(&self, path: &str) -> Option<MemoryUse>;
    /// How its memory is bounded, where it is.
    fn memory_bounds(&self, path: &str) -> Option<MemoryBounds>;
    /// What a process has of memory that is its alone, where it runs and that can be read.
    fn private(&self, pid: i32) -> Option<Private>;
    /// What it had of the disks, where that is counted and can be read.
    fn disk_use(&self, path: &str) -> Option<Use>;
    /// Whether it has a weight or a limit of the disk.
    fn has_disk_settings(&self, path: &str) -> bool;
    /// How much of what it has changed in files is not on the disk yet, in bytes, where that is counted.
    fn dirty_bytes(&self, path: &str) -> Option<u64>;
    /// What programs could still get of the memory, wherever they are, in bytes.
    fn memory_available(&self) -> Option<u64>;
    /// The machine's memory, where it can be read.
    fn machine_memory(&self) -> Option<Machine>;
    /// What of the memory can be promised to programs, where it can be read; `ours` knows what of the promises of the
    /// cgroups at the top are Steward's: all, or so much.
    fn promisable(&self, ours: &dyn Fn(&str) -> Option<Ours>) -> Option<Promisable>;
    /// For how long its tasks stood still for want of a resource so far, where that is counted, in nanoseconds.
    fn stalled_ns(&self, path: &str, resource: Resource) -> Option<u64>;
    /// What the kernel has counted of its memory so far, where that is counted.
    fn memory_counters(&self, path: &str) -> Option<Counters>;
    /// What it has taken of the memory so far, where that is counted.
    fn memory_taker(&self, path: &str) -> Option<Taker>;
    /// Moves a process there.
    fn move_process(&self, pid: i32, path: &str) -> Result<(), KernelError>;
    /// Moves all processes from one to another; returns how many.
    fn move_all(&self, from: &str, to: &str) -> Result<u64, KernelError>;
    /// Ends all processes in it and below it.
    fn kill(&self, path: &str) -> Result<(), KernelError>;
    /// Whether its children have a part of a resource each.
    fn hands_out(&self, path: &str, resource: Resource) -> Result<bool, KernelError>;
    /// Has its children have a part of a resource each, or no longer.
    fn hand_out(&self, path: &str, resource: Resource, hand_out: bool) -> Result<(), KernelError>;
    /// Whether one has begun or ceased to hand out memory or the disk since the last call, by [`Cgroups::hand_out`].
    /// The kernel writes nothing back then until its flusher comes round ([`steward_kernel::disk::writeback`]).
    fn take_handed_out(&self) -> bool;
    /// What writes the limits of its memory.
    fn memory_knobs(&self) -> Arc<dyn Knobs>;
    /// Has [`Cgroups::take_changes`] name it when its last process goes, or its first comes.
    fn watch(&mut self, path: &str) -> Result<(), KernelError>;
    /// The watched ones whose state may have changed since the last call.
    fn take_changes(&mut self) -> Vec<String>;
    /// A descriptor that is readable when changes wait.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// What of the memory can be promised, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promisable {
    /// What programs can have: all that the kernel does not keep for itself.
    pub programs_bytes: u64,
    /// What others than Steward have the kernel leave to cgroups at the top (`memory.min`). Below these it is paid out
    /// of that.
    pub of_others_bytes: u64,
}

/// What Steward promises below a cgroup at the top that is not its own, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// What the kernel was told of that cgroup for it, where what others promise it is not more.
    pub told_bytes: u64,
    /// What is reserved.
    pub promised_bytes: u64,
}

impl Ours {
    /// What others promise beside it to a cgroup of which the kernel says that it `has` so much. What others promise it
    /// covers what is below.
    fn of_others_bytes(self, has_bytes: u64) -> u64 {
        if has_bytes > self.told_bytes { has_bytes.saturating_sub(self.promised_bytes) } else { 0 }
    }
}

/// The kernel's tree.
struct Kernel {
    tree: CgroupTree,
    roots: Roots,
    memory_knobs: Arc<dyn Knobs>,
    /// See [`Cgroups::take_handed_out`].
    has_handed_out: AtomicBool,
}

impl Kernel {
    fn reader(&self, path: &str) -> Result<CgroupReader, KernelError> {
        CgroupReader::open(path, &self.roots)
    }

    /// What a cgroup is promised, in bytes: of one that is promised all, what it uses. Nothing where it has gone.
    fn promised_bytes(&self, path: &str) -> u64 {
        let promised = |reader: CgroupReader| match reader.memory_min().ok()?? {
            Bound::Bytes(bytes) => Some(bytes),
            Bound::Max => reader.memory_current_bytes().ok()?,
        };
        self.reader(path).ok().and_then(promised).unwrap_or(0)
    }
}

/// Opens the kernel's tree; otherwise says why there are no domains on this machine.
///
/// # Errors
/// A sentence for people.
pub fn open(roots: &Roots, journal: &OwnJournal) -> Result<Box<dyn Cgroups>, String> {
    match CgroupTree::open(roots) {
        Ok(tree) => {
            let memory_knobs = Arc::new(KernelKnobs::new(roots, journal));
            Ok(Box::new(Kernel {
                tree,
                roots: roots.clone(),
                memory_knobs,
                has_handed_out: AtomicBool::new(false),
            }))
        }
        Err(error) => Err(format!(
            "{error}; domains need the unified hierarchy: start the machine with systemd.unified_cgroup_hierarchy=1"
        )),
    }
}

/// As [`open`], of a directory that stands in for the hierarchy.
#[cfg(test)]
pub(crate) fn open_any(roots: &Roots) -> Result<Box<dyn Cgroups>, KernelError> {
    let (tree, journal) = (CgroupTree::open_any(roots)?, Err("there is none in a test".to_owned()));
    let memory_knobs = Arc::new(KernelKnobs::new(roots, &journal));
    Ok(Box::new(Kernel { tree, roots: roots.clone(), memory_knobs, has_handed_out: AtomicBool::new(false) }))
}

/// What is counted of a cgroup's memory, by six files.
fn counters(reader: &CgroupReader) -> Result<Option<Counters>, KernelError> {
    let (Some(used_bytes), Some(stat)) = (reader.memory_current_bytes()?, reader.memory_stat()?) else {
        return Ok(None);
    };
    let waits = reader.stalled(Resource::Memory)?.zip(reader.stalled(Resource::Disk)?);
    let events = reader.memory_events()?.unwrap_or_default();
    let page_bytes = rustix::param::page_size() as u64;
    let refaults = stat.refaulted_pages();
    Ok(Some(Counters {
        used_bytes: used_bytes.saturating_add(reader.memory_swap_bytes()?.unwrap_or(0)),
        file_bytes: stat.file_bytes.saturating_sub(stat.shmem_bytes),
        reclaimed_bytes: stat.reclaimed_pages.saturating_mul(page_bytes),
        stalled: waits.map(|(memory, disk)| Waits { memory_ns: memory.some_ns, disk_ns: disk.some_ns }),
        stopped: waits
            .and_then(|(memory, disk)| Some(Waits { memory_ns: memory.full_ns?, disk_ns: disk.full_ns? })),
        refaults,
        refaulted_bytes: refaults.saturating_mul(page_bytes),
        refaulted_file_bytes: stat.workingset_refault_file_pages.saturating_mul(page_bytes),
        major_faults: stat.major_faults,
        limited_times: events.high_times.saturating_add(events.max_times),
    }))
}

impl Cgroups for Kernel {
    fn list(&self) -> Result<Vec<Cgroup>, KernelError> {
        self.tree.list()
    }

    fn children(&self, path: &str) -> Result<Vec<Cgroup>, KernelError> {
        self.tree.children(path)
    }

    fn names_below(&self, path: &str, names_max: usize) -> Result<Vec<(String, u64)>, KernelError> {
        self.tree.names_below(path, names_max)
    }

    fn find(&self, path: &str) -> Result<Cgroup, KernelError> {
        self.tree.find(path)
    }

    fn path_of(&self, pid: i32) -> Result<String, KernelError> {
        Ok(place::path_of(pid, &self.roots)?.trim_start_matches('/').to_owned())
    }

    fn create(&self, path: &str) -> Result<Cgroup, KernelError> {
        self.tree.create(path)
    }

    fn remove(&self, path: &str) -> Result<(), KernelError> {
        self.tree.remove(path)
    }

    fn list_processes(&self, path: &str) -> Result<Processes, KernelError> {
        self.tree.list_processes(path)
    }

    fn is_populated(&self, path: &str) -> Result<bool, KernelError> {
        self.tree.is_populated(path)
    }

    fn is_frozen(&self, path: &str) -> Result<bool, KernelError> {
        self.tree.is_frozen(path)
    }

    fn weight(&self, path: &str) -> Option<u32> {
        let weight = self.reader(path).and_then(|reader| reader.cpu_weight()).unwrap_or_default();
        weight.and_then(|weight| u32::try_from(weight).ok())
    }

    fn cpu_share(&self, path: &str) -> CpuShare {
        self.reader(path).and_then(|reader| reader.cpu()).unwrap_or_default()
    }

    fn memory_use(&self, path: &str) -> Option<MemoryUse> {
        self.reader(path).and_then(|reader| reader.memory_use()).unwrap_or_default()
    }

    fn memory_bounds(&self, path: &str) -> Option<MemoryBounds> {
        self.reader(path).ok()?.memory_bounds().ok()?
    }

    fn private(&self, pid: i32) -> Option<Private> {
        private::of(pid, &self.roots).ok()
    }

    fn disk_use(&self, path: &str) -> Option<Use> {
        self.reader(path).and_then(|reader| reader.disk_use(&self.roots)).unwrap_or_default()
    }

    fn has_disk_settings(&self, path: &str) -> bool {
        handed_out::has_settings(path, &self.roots)
    }

    fn dirty_bytes(&self, path: &str) -> Option<u64> {
        let stat = self.reader(path).ok()?.memory_stat().ok()??;
        Some(stat.file_dirty_bytes.saturating_add(stat.file_writeback_bytes))
    }

    fn memory_available(&self) -> Option<u64> {
        machine::usage(&self.roots).ok().map(|memory| memory.available_bytes)
    }

    fn machine_memory(&self) -> Option<Machine> {
        machine_memory(&self.roots).ok()
    }

    fn promisable(&self, ours: &dyn Fn(&str) -> Option<Ours>) -> Option<Promisable> {
        let programs_bytes = self.machine_memory()?.programs_bytes();
        let at_top = self.tree.children("").ok()?;
        let of_others = at_top.iter().filter_map(|cgroup| Some((&cgroup.path, ours(&cgroup.path)?)));
        let of_others_bytes = of_others.map(|(path, ours)| ours.of_others_bytes(self.promised_bytes(path)));
        Some(Promisable { programs_bytes, of_others_bytes: of_others_bytes.fold(0, u64::saturating_add) })
    }

    fn stalled_ns(&self, path: &str, resource: Resource) -> Option<u64> {
        let stalled = self.reader(path).and_then(|reader| reader.stalled(resource));
        stalled.unwrap_or_default().map(|stalled| stalled.some_ns)
    }

    fn memory_counters(&self, path: &str) -> Option<Counters> {
        counters(&self.reader(path).ok()?).ok().flatten()
    }

    fn memory_taker(&self, path: &str) -> Option<Taker> {
        let reader = self.reader(path).ok()?;
        let (used_bytes, stat) = (reader.memory_current_bytes().ok()??, reader.memory_stat().ok()??);
        let reclaimed_bytes = stat.reclaimed_pages.saturating_mul(rustix::param::page_size() as u64);
        Some(Taker { path: path.to_owned(), cgroup_id: reader.id(), used_bytes, reclaimed_bytes })
    }

    fn move_process(&self, pid: i32, path: &str) -> Result<(), KernelError> {
        self.tree.move_process(pid, path)
    }

    fn move_all(&self, from: &str, to: &str) -> Result<u64, KernelError> {
        self.tree.move_all(from, to)
    }

    fn kill(&self, path: &str) -> Result<(), KernelError> {
        self.tree.kill(path)
    }

    fn hands_out(&self, path: &str, resource: Resource) -> Result<bool, KernelError> {
        self.tree.hands_out(path, resource)
    }

    fn hand_out(&self, path: &str, resource: Resource, hand_out: bool) -> Result<(), KernelError> {
        self.tree.hand_out(path, resource, hand_out)?;
        if matches!(resource, Resource::Disk | Resource::Memory) {
            self.has_handed_out.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn take_handed_out(&self) -> bool {
        self.has_handed_out.swap(false, Ordering::Relaxed)
    }

    fn memory_knobs(&self) -> Arc<dyn Knobs> {
        Arc::clone(&self.memory_knobs)
    }

    fn watch(&mut self, path: &str) -> Result<(), KernelError> {
        self.tree.watch(path)
    }

    fn take_changes(&mut self) -> Vec<String> {
        self.tree.take_changes()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tree.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_promise_a_slice_counts_though_somebody_is_promised_something_below_it() {
        let of_others = |told_bytes, promised_bytes, has_bytes| {
            Ours { told_bytes, promised_bytes }.of_others_bytes(has_bytes)
        };
        assert_eq!(of_others(0, 0, 600), 600);
        // Promised below it, which is covered.
        assert_eq!(of_others(1, 1, 600), 599);
        assert_eq!(of_others(0, 700, 600), 0);
        // What the kernel was told is all for what is below.
        assert_eq!(of_others(600, 100, 600), 0);
    }
}
