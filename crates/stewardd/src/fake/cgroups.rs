//! A cgroup tree in memory, for tests, with the kernel's rules as far as domains meet them: a cgroup that hands out
//! the CPU holds no processes, one that is not empty is not removed, ids are never given out again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use steward_core::disk::explain::Use;
use steward_core::domain::name::{is_at_or_below, parent_of};
use steward_core::memory::audit::{Counters, Taker};
use steward_core::memory::limits::Told;
use steward_core::memory::seen::Machine;
use steward_core::resource::Resource;
use steward_kernel::KernelError;
use steward_kernel::cgroup::place::Place;
use steward_kernel::cgroup::processes::Processes;
use steward_kernel::cgroup::reading::{Bound, CpuShare, MemoryBounds, MemoryUse};
use steward_kernel::cgroup::tree::Cgroup;
use steward_kernel::process::private::Private;

use crate::domains::cgroups::{Cgroups, Ours, Promisable};
use crate::memory::knobs::Knobs;
use crate::turn::worker::Progress;

/// The tree; shared between the test and every daemon on it.
#[derive(Debug)]
pub struct Tree {
    groups: BTreeMap<String, Group>,
    /// Which cgroup each process is in; one that is not named is in the root.
    pub members: BTreeMap<i32, String>,
    next_id: u64,
    has_handed_out: bool,
    watched: BTreeMap<String, bool>,
    changed: BTreeSet<String>,
    /// Directories and files that cannot be read.
    pub unreadable: BTreeSet<String>,
    /// Processes that were ended with `cgroup.kill`.
    pub killed: Vec<i32>,
    /// What others let cgroups use at most, by path, in bytes.
    pub maxima: BTreeMap<String, u64>,
    /// What the kernel says to whoever limits memory, if it does not do it.
    pub refuses_memory: Option<String>,
    /// How often memory is still to be taken before a maximum can be written.
    pub memory_goes_on: u32,
    /// What programs could still get of the memory, in bytes.
    pub memory_available: u64,
    /// The machine's memory, beside how much there is of it and how much is free.
    pub machine: Machine,
    /// What of it can be promised; `None` where that cannot be read.
    pub promisable: Option<Promisable>,
    /// What cgroups use of the memory, by path.
    pub used: BTreeMap<String, MemoryUse>,
    /// What processes have of memory that is theirs alone.
    pub private: BTreeMap<i32, Private>,
    /// How often somebody read that of any of them.
    pub memory_reads: u64,
    /// What cgroups had of the disks, by path.
    pub disk_used: BTreeMap<String, Use>,
    /// How much of what each has changed is not on the disk yet, by path.
    pub dirty_bytes: BTreeMap<String, u64>,
    /// What the kernel has counted of their memory, by path.
    pub memory_counters: BTreeMap<String, Counters>,
    /// What was taken of it so far, by path, in bytes.
    pub reclaimed_bytes: BTreeMap<String, u64>,
    /// Those for whom somebody has set something of the disk.
    pub disk_settings: BTreeSet<String>,
    /// How many times it was asked for them.
    pub disk_settings_asked: u64,
    /// Those that cannot hand the disk out.
    pub refuses_disk: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    id: u64,
    uid: u32,
    weight: Option<u32>,
    hands_out: BTreeSet<Resource>,
    /// The minimum and maximum of its memory.
    memory: Told,
    frozen: bool,
}

impl Default for Tree {
    /// The root, with a slice of the system and one of user 1000 below it.
    fn default() -> Self {
        let mut tree = Tree {
            has_handed_out: false,
            groups: BTreeMap::from([(String::new(), Group { id: 1, ..Group::default() })]),
            members: BTreeMap::new(),
            next_id: 2,
            watched: BTreeMap::new(),
            changed: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            killed: Vec::new(),
            maxima: BTreeMap::new(),
            refuses_memory: None,
            memory_goes_on: 0,
            memory_available: 0,
            machine: Machine::default(),
            promisable: None,
            used: BTreeMap::new(),
            private: BTreeMap::new(),
            memory_reads: 0,
            disk_used: BTreeMap::new(),
            dirty_bytes: BTreeMap::new(),
            memory_counters: BTreeMap::new(),
            reclaimed_bytes: BTreeMap::new(),
            disk_settings: BTreeSet::new(),
            disk_settings_asked: 0,
            refuses_disk: BTreeSet::new(),
        };
        for path in ["system.slice", "user.slice", "user.slice/user-1000.slice"] {
            tree.add(path, 0);
        }
        tree
    }
}

impl Tree {
    /// Makes a cgroup as somebody else than Steward would.
    pub fn add(&mut self, path: &str, uid: u32) {
        let id = self.next_id;
        self.next_id += 1;
        self.groups.insert(path.to_owned(), Group { id, uid, ..Group::default() });
    }

    /// Limits and promises memory as somebody else than Steward would.
    pub fn limit(&mut self, path: &str, memory: Told) {
        if let Some(group) = self.groups.get_mut(path) {
            group.memory = memory;
        }
    }

    /// Removes a cgroup as somebody else than Steward would.
    pub fn delete(&mut self, path: &str) {
        self.groups.remove(path);
    }

    /// Freezes a cgroup, or thaws it, as somebody else than Steward would.
    pub fn freeze(&mut self, path: &str, frozen: bool) {
        if let Some(group) = self.groups.get_mut(path) {
            group.frozen = frozen;
        }
    }

    /// Whether there is such a cgroup.
    pub fn has(&self, path: &str) -> bool {
        self.groups.contains_key(path)
    }

    /// The minimum and the maximum of its memory.
    pub fn memory(&self, path: &str) -> Told {
        self.groups.get(path).map(|group| group.memory).unwrap_or_default()
    }

    /// Whether its children have a part of a resource each.
    pub fn hands_out(&self, path: &str, resource: Resource) -> bool {
        self.groups.get(path).is_some_and(|group| group.hands_out.contains(&resource))
    }

    /// Has its children have a part of a resource no longer, as whoever else writes into the tree may.
    pub fn close(&mut self, path: &str, resource: Resource) {
        if let Some(group) = self.groups.get_mut(path) {
            group.hands_out.remove(&resource);
        }
    }

    /// Its id, 0 when it is not there.
    pub fn id(&self, path: &str) -> u64 {
        self.groups.get(path).map_or(0, |group| group.id)
    }

    fn get(&self, path: &str) -> Result<&Group, KernelError> {
        self.groups.get(path).ok_or_else(|| failed(path, libc::ENOENT))
    }

    fn read(&self, path: &str) -> Result<(), KernelError> {
        if self.unreadable.contains(path) { Err(failed(path, libc::EIO)) } else { Ok(()) }
    }

    fn cgroup(&self, path: &str) -> Result<Cgroup, KernelError> {
        let group = self.get(path)?;
        Ok(Cgroup { path: path.to_owned(), id: group.id, uid: group.uid })
    }

    fn processes(&self, path: &str) -> Vec<i32> {
        let members = self.members.iter().filter(|(pid, place)| *place == path && is_alive(**pid));
        members.map(|(pid, _)| *pid).collect()
    }

    fn is_populated(&self, path: &str) -> bool {
        self.members.iter().any(|(pid, place)| is_at_or_below(place, path) && is_alive(*pid))
    }

    fn put(&mut self, pid: i32, path: &str) -> Result<(), KernelError> {
        if !self.get(path)?.hands_out.is_empty() && !path.is_empty() {
            return Err(failed(path, libc::EBUSY));
        }
        if !is_alive(pid) {
            return Err(failed(path, libc::ESRCH));
        }
        let from = self.members.insert(pid, path.to_owned());
        for place in [Some(path.to_owned()), from].into_iter().flatten() {
            let mut above = Some(place.as_str());
            while let Some(cgroup) = above {
                self.changed.insert(cgroup.to_owned());
                above = parent_of(cgroup);
            }
        }
        Ok(())
    }
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, after)| !after.trim_start().starts_with(['Z', 'X']))
}

fn failed(path: &str, errno: i32) -> KernelError {
    let source = io::Error::from_raw_os_error(errno);
    KernelError::Cgroup { path: path.into(), action: "use", source }
}

/// A handle on a [`Tree`].
#[derive(Clone, Debug, Default)]
pub struct FakeCgroups(Arc<Mutex<Tree>>);

impl FakeCgroups {
    /// Looks at the tree, or changes it.
    ///
    /// # Panics
    /// When a test panicked while it looked.
    pub fn tree(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().expect("no test panicked while it held the tree")
    }
}

impl Knobs for FakeCgroups {
    fn set(&self, place: &Place, wanted: Told) -> Result<Progress, String> {
        let mut tree = self.tree();
        let refusal = tree.refuses_memory.clone();
        let above = parent_of(&place.path).unwrap_or("");
        let handed_out = tree.get(above).is_ok_and(|group| group.hands_out.contains(&Resource::Memory));
        let group = tree.groups.get(&place.path).filter(|group| group.id == place.cgroup_id && handed_out);
        group.ok_or_else(|| format!("the cgroup {} is gone", place.path))?;
        if let Some(refusal) = refusal.filter(|_| wanted != Told::default()) {
            return Err(refusal);
        }
        if tree.memory_goes_on > 0 && wanted.max_bytes.is_some() {
            tree.memory_goes_on -= 1;
            return Ok(Progress::GoesOn);
        }
        if let Some(group) = tree.groups.get_mut(&place.path) {
            group.memory = wanted;
        }
        Ok(Progress::Done)
    }

    fn forget(&self, _: u64) {}
}

impl Cgroups for FakeCgroups {
    fn list(&self) -> Result<Vec<Cgroup>, KernelError> {
        let tree = self.tree();
        tree.groups.keys().map(|path| tree.cgroup(path)).collect()
    }

    fn children(&self, path: &str) -> Result<Vec<Cgroup>, KernelError> {
        let tree = self.tree();
        tree.read(path)?;
        let children = tree.groups.keys().filter(|other| parent_of(other) == Some(path));
        children.map(|path| tree.cgroup(path)).collect()
    }

    fn names_below(&self, path: &str, names_max: usize) -> Result<Vec<(String, u64)>, KernelError> {
        let tree = self.tree();
        let children = tree.groups.iter().filter(|(other, _)| parent_of(other) == Some(path));
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(children.map(|(path, group)| (name(path), group.id)).take(names_max).collect())
    }

    fn find(&self, path: &str) -> Result<Cgroup, KernelError> {
        self.tree().cgroup(path)
    }

    fn path_of(&self, pid: i32) -> Result<String, KernelError> {
        if !is_alive(pid) {
            return Err(failed("", libc::ESRCH));
        }
        Ok(self.tree().members.get(&pid).cloned().unwrap_or_default())
    }

    fn create(&self, path: &str) -> Result<Cgroup, KernelError> {
        let mut tree = self.tree();
        tree.get(parent_of(path).unwrap_or(""))?;
        if tree.has(path) {
            return Err(failed(path, libc::EEXIST));
        }
        tree.add(path, 0);
        tree.cgroup(path)
    }

    fn remove(&self, path: &str) -> Result<(), KernelError> {
        let mut tree = self.tree();
        tree.get(path)?;
        let has_children = tree.groups.keys().any(|other| parent_of(other) == Some(path));
        if has_children || tree.is_populated(path) {
            return Err(failed(path, libc::EBUSY));
        }
        tree.groups.remove(path);
        Ok(())
    }

    fn list_processes(&self, path: &str) -> Result<Processes, KernelError> {
        let tree = self.tree();
        tree.get(path)?;
        tree.read(&format!("{path}/cgroup.procs"))?;
        let lines: String = tree.processes(path).iter().map(|pid| format!("{pid}\n")).collect();
        Ok(Processes::new(Cursor::new(lines.into_bytes()), PathBuf::from(path)))
    }

    fn is_populated(&self, path: &str) -> Result<bool, KernelError> {
        let tree = self.tree();
        tree.get(path)?;
        Ok(tree.is_populated(path))
    }

    fn is_frozen(&self, path: &str) -> Result<bool, KernelError> {
        Ok(self.tree().get(path)?.frozen)
    }

    fn weight(&self, path: &str) -> Option<u32> {
        self.tree().get(path).ok()?.weight
    }

    fn cpu_share(&self, path: &str) -> CpuShare {
        let weight = self.weight(path).map(u64::from);
        CpuShare { weight, ..CpuShare::default() }
    }

    fn memory_use(&self, path: &str) -> Option<MemoryUse> {
        let mut tree = self.tree();
        tree.memory_reads += 1;
        tree.used.get(path).copied()
    }

    fn memory_bounds(&self, path: &str) -> Option<MemoryBounds> {
        let tree = self.tree();
        let memory = tree.memory(path);
        let of_others = tree.maxima.get(path).copied();
        let max_bytes = memory.max_bytes.into_iter().chain(of_others).min();
        let bound = |bytes: Option<u64>| bytes.map_or(Bound::Max, Bound::Bytes);
        Some(MemoryBounds {
            min: Bound::Bytes(memory.min_bytes.unwrap_or(0)),
            low: Bound::Bytes(0),
            high: bound(memory.high_bytes),
            max: bound(max_bytes),
        })
    }

    fn private(&self, pid: i32) -> Option<Private> {
        self.tree().private.get(&pid).copied()
    }

    fn disk_use(&self, path: &str) -> Option<Use> {
        self.tree().disk_used.get(path).copied()
    }

    fn has_disk_settings(&self, path: &str) -> bool {
        let mut tree = self.tree();
        tree.disk_settings_asked += 1;
        tree.disk_settings.contains(path)
    }

    fn dirty_bytes(&self, path: &str) -> Option<u64> {
        self.tree().dirty_bytes.get(path).copied()
    }

    fn memory_available(&self) -> Option<u64> {
        Some(self.tree().memory_available)
    }

    fn machine_memory(&self) -> Option<Machine> {
        let tree = self.tree();
        let machine = Machine { total_bytes: u64::MAX, free_bytes: tree.memory_available, ..tree.machine };
        Some(machine)
    }

    fn promisable(&self, _: &dyn Fn(&str) -> Option<Ours>) -> Option<Promisable> {
        self.tree().promisable
    }

    fn stalled_ns(&self, _: &str, _: Resource) -> Option<u64> {
        Some(0)
    }

    fn memory_counters(&self, path: &str) -> Option<Counters> {
        self.tree().memory_counters.get(path).copied()
    }

    fn memory_taker(&self, path: &str) -> Option<Taker> {
        let tree = self.tree();
        let used_bytes = tree.used.get(path)?.used_bytes;
        let reclaimed_bytes = tree.reclaimed_bytes.get(path).copied().unwrap_or(0);
        Some(Taker { path: path.to_owned(), cgroup_id: tree.id(path), used_bytes, reclaimed_bytes })
    }

    fn move_process(&self, pid: i32, path: &str) -> Result<(), KernelError> {
        self.tree().put(pid, path)
    }

    fn move_all(&self, from: &str, to: &str) -> Result<u64, KernelError> {
        let mut tree = self.tree();
        tree.get(from)?;
        let processes = tree.processes(from);
        for pid in &processes {
            tree.put(*pid, to)?;
        }
        Ok(processes.len() as u64)
    }

    fn kill(&self, path: &str) -> Result<(), KernelError> {
        let mut tree = self.tree();
        tree.get(path)?;
        let members: Vec<i32> = tree
            .members
            .iter()
            .filter(|(_, place)| is_at_or_below(place, path))
            .map(|(pid, _)| *pid)
            .collect();
        // They end, for all that the daemon can see.
        tree.members.retain(|pid, _| !members.contains(pid));
        tree.killed.extend(members);
        Ok(())
    }

    fn memory_knobs(&self) -> Arc<dyn Knobs> {
        Arc::new(self.clone())
    }

    fn hands_out(&self, path: &str, resource: Resource) -> Result<bool, KernelError> {
        Ok(self.tree().get(path)?.hands_out.contains(&resource))
    }

    fn hand_out(&self, path: &str, resource: Resource, hand_out: bool) -> Result<(), KernelError> {
        let mut tree = self.tree();
        if hand_out && !path.is_empty() && !tree.processes(path).is_empty() {
            return Err(failed(path, libc::EBUSY));
        }
        if hand_out && resource == Resource::Disk && tree.refuses_disk.contains(path) {
            return Err(failed(path, libc::EBUSY));
        }
        tree.get(path)?;
        if let Some(group) = tree.groups.get_mut(path) {
            if hand_out {
                group.hands_out.insert(resource)
            } else {
                group.hands_out.remove(&resource)
            };
        }
        tree.has_handed_out |= matches!(resource, Resource::Disk | Resource::Memory);
        Ok(())
    }

    fn take_handed_out(&self) -> bool {
        std::mem::take(&mut self.tree().has_handed_out)
    }

    fn watch(&mut self, path: &str) -> Result<(), KernelError> {
        let mut tree = self.tree();
        tree.get(path)?;
        let populated = tree.is_populated(path);
        tree.watched.insert(path.to_owned(), populated);
        Ok(())
    }

    fn take_changes(&mut self) -> Vec<String> {
        let mut tree = self.tree();
        let moved = std::mem::take(&mut tree.changed);
        let watched: Vec<(String, bool)> =
            tree.watched.iter().map(|(path, was)| (path.clone(), *was)).collect();
        let mut changes = Vec::new();
        for (path, was) in watched {
            let is = tree.is_populated(&path);
            if is != was || moved.contains(&path) {
                tree.watched.insert(path.clone(), is);
                changes.push(path);
            }
        }
        changes
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
