//! What a cgroup was given and what it uses, read from its files: the one place where all who look at a cgroup read it.
//!
//! A cgroup is read by parts, each of which is `None` where the kernel or the parent does not offer it. One that has
//! gone is an error of which [`KernelError::is_absent`] says so, whichever part was being read.

mod fields;
mod io;
mod kept;
mod memory;

use steward_core::disk::explain::Use;
use steward_core::resource::Resource;

use super::directory::CgroupDirectory;
use super::place::Place;
use super::pressure::{Stalled, stalled};
use crate::disk::devices;
use crate::error::KernelError;
use crate::roots::Roots;

pub use io::IoOfDevice;
pub use kept::KeptCharge;
pub use memory::{Bound, MemoryBounds, MemoryEvents, MemoryReading, MemoryStat, MemoryUse};

/// All parts of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupReading {
    /// The inode number of its directory.
    pub id: u64,
    /// What it was given of the CPU.
    pub cpu: CpuShare,
    /// Its memory; `None` for the root and where the parent does not hand out memory.
    pub memory: Option<MemoryReading>,
    /// What it had of each disk; `None` where the parent does not hand out the disk.
    pub io: Option<Vec<IoOfDevice>>,
    /// For how long its tasks stood still.
    pub pressure: PressureReading,
}

/// For how long tasks of a cgroup stood still, by what they waited for; `None` where the kernel does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureReading {
    /// `cpu.pressure`.
    pub cpu: Option<Stalled>,
    /// `memory.pressure`.
    pub memory: Option<Stalled>,
    /// `io.pressure`.
    pub disk: Option<Stalled>,
}

/// Reads one cgroup, which it holds open: reading again walks no path.
#[derive(Debug)]
pub struct CgroupReader(CgroupDirectory);

impl CgroupReader {
    /// For the cgroup at this place now, named from the root of the hierarchy.
    ///
    /// # Errors
    /// As [`CgroupDirectory::open`].
    pub fn open(cgroup: &str, roots: &Roots) -> Result<Self, KernelError> {
        CgroupDirectory::open(cgroup, roots).map(CgroupReader)
    }

    /// As [`CgroupReader::open`], if the cgroup at this place is still the one that is meant; `None` where another one
    /// has its name now.
    ///
    /// # Errors
    /// As [`CgroupDirectory::open`].
    pub fn open_same(place: &Place, roots: &Roots) -> Result<Option<Self>, KernelError> {
        let directory = CgroupDirectory::open_same(&place.path, place.cgroup_id, roots)?;
        Ok(directory.map(CgroupReader))
    }

    /// The inode number of its directory.
    pub fn id(&self) -> u64 {
        self.0.id()
    }

    /// Its directory, to write what was decided by what was read.
    pub fn directory(&self) -> &CgroupDirectory {
        &self.0
    }

    /// All parts.
    ///
    /// # Errors
    /// [`KernelError::Read`] or [`KernelError::Parse`] naming the file; [`KernelError::is_absent`] when it has gone.
    pub fn read(&self) -> Result<CgroupReading, KernelError> {
        let (cpu, memory) = (self.cpu()?, self.memory()?);
        let (io, pressure) = (self.io()?, self.pressure()?);
        Ok(CgroupReading { id: self.id(), cpu, memory, io, pressure })
    }

    /// What it was given of the CPU.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn cpu(&self) -> Result<CpuShare, KernelError> {
        let limit = self.0.read_if_present("cpu.max")?;
        let limit = limit.map(|text| {
            let parsed = parse_limit(&text);
            parsed.ok_or_else(|| KernelError::parse(self.0.path_of("cpu.max"), LIMIT_EXPECTED, &text))
        });
        Ok(CpuShare {
            weight: self.cpu_weight()?,
            limit: limit.transpose()?,
            idle: fields::number(&self.0, "cpu.idle")?.map(|value| value != 0),
        })
    }

    /// `cpu.weight` alone; `None` where its parent does not hand out the CPU.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn cpu_weight(&self) -> Result<Option<u64>, KernelError> {
        fields::number(&self.0, "cpu.weight")
    }

    /// The CPU time that it has used so far with all below it, in nanoseconds (`cpu.stat`, which every cgroup has);
    /// `None` where the kernel does not count it.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn cpu_used_ns(&self) -> Result<Option<u64>, KernelError> {
        let mut used_us = None;
        fields::numbers(&self.0, "cpu.stat", |name, value| {
            if name == "usage_usec" {
                used_us = Some(value);
            }
        })?;
        Ok(used_us.map(|used_us: u64| used_us.saturating_mul(1_000)))
    }

    /// Its memory, by nine files.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory(&self) -> Result<Option<MemoryReading>, KernelError> {
        memory::reading(&self.0)
    }

    /// What it uses of the memory and the most that it may, by four files; `None` as in [`CgroupReading::memory`].
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_use(&self) -> Result<Option<MemoryUse>, KernelError> {
        memory::usage(&self.0)
    }

    /// `memory.current` alone, in bytes; `None` as in [`CgroupReading::memory`].
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_current_bytes(&self) -> Result<Option<u64>, KernelError> {
        fields::number(&self.0, "memory.current")
    }

    /// `memory.current`, to be read again and again; `None` as in [`CgroupReading::memory`], or where there can be no
    /// more descriptors.
    pub fn keep_charge(&self) -> Option<KeptCharge> {
        self.0.open_to_read("memory.current").ok().map(KeptCharge)
    }

    /// What the kernel is told to leave to it (`memory.min`); `None` as in [`CgroupReading::memory`].
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_min(&self) -> Result<Option<Bound>, KernelError> {
        memory::min(&self.0)
    }

    /// The most that it may use (`memory.max`); `None` as in [`CgroupReading::memory`].
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_max(&self) -> Result<Option<Bound>, KernelError> {
        memory::max(&self.0)
    }

    /// How much of it may be swapped out (`memory.swap.max`); `None` where the kernel does not account for swap.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_swap_max(&self) -> Result<Option<Bound>, KernelError> {
        memory::swap_max(&self.0)
    }

    /// `memory.swap.current` alone, in bytes; `None` where the kernel does not account for swap.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_swap_bytes(&self) -> Result<Option<u64>, KernelError> {
        fields::number(&self.0, "memory.swap.current")
    }

    /// `memory.stat` alone, which the root has too. It is the dearest of the files: the kernel sums over CPUs first.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_stat(&self) -> Result<Option<MemoryStat>, KernelError> {
        memory::stat(&self.0)
    }

    /// `memory.events` alone: of the cgroup and all below it.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_events(&self) -> Result<Option<MemoryEvents>, KernelError> {
        memory::events_of(&self.0, "memory.events")
    }

    /// What limits and protects its memory.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_bounds(&self) -> Result<Option<MemoryBounds>, KernelError> {
        memory::bounds(&self.0)
    }

    /// What it had of each disk.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn io(&self) -> Result<Option<Vec<IoOfDevice>>, KernelError> {
        io::reading(&self.0)
    }

    /// What it had of all disks together; those that stand for others (device-mapper, md, loop) hand on what the disks
    /// below them count. `None` where the parent does not hand out the disk, or nobody counts who stands still for it.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn disk_use(&self, roots: &Roots) -> Result<Option<Use>, KernelError> {
        let (Some(devices), Some(stalled)) = (self.io()?, self.stalled(Resource::Disk)?) else {
            return Ok(None);
        };
        let own = devices.iter().filter(|io| !devices::stands_for_others(io.device, roots));
        let sum = own.fold(Use { stalled_ns: stalled.some_ns, ..Use::default() }, |sum, io| Use {
            read_bytes: sum.read_bytes.saturating_add(io.read_bytes),
            written_bytes: sum.written_bytes.saturating_add(io.written_bytes),
            requests: sum.requests.saturating_add(io.reads).saturating_add(io.writes),
            device_time_ns: match (sum.device_time_ns, io.device_time_us) {
                (sum, Some(us)) => Some(sum.unwrap_or(0).saturating_add(us.saturating_mul(1000))),
                (sum, None) => sum,
            },
            ..sum
        });
        Ok(Some(sum))
    }

    /// For how long its tasks stood still.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn pressure(&self) -> Result<PressureReading, KernelError> {
        Ok(PressureReading {
            cpu: self.stalled(Resource::Cpu)?,
            memory: self.stalled(Resource::Memory)?,
            disk: self.stalled(Resource::Disk)?,
        })
    }

    /// As [`CgroupReader::pressure`], of one resource.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn stalled(&self, resource: Resource) -> Result<Option<Stalled>, KernelError> {
        stalled(&self.0, resource)
    }
}

/// What `cpu.max` has.
const LIMIT_EXPECTED: &str = "QUOTA PERIOD or max PERIOD";

/// The share of the CPU that a cgroup was given. `None` where its parent does not hand out the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuShare {
    /// `cpu.weight`: 1 to 10,000, 100 unless set.
    pub weight: Option<u64>,
    /// `cpu.max`: at most this much CPU time in every period.
    pub limit: Option<CpuLimit>,
    /// `cpu.idle`: whether it runs only when nothing else wants to.
    pub idle: Option<bool>,
}

/// `cpu.max`: CPU time per period, over all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit {
    /// CPU time per period in microseconds; `None` for no limit (`max`).
    pub quota_us: Option<u64>,
    /// Length of a period in microseconds.
    pub period_us: u64,
}

fn parse_limit(text: &str) -> Option<CpuLimit> {
    let (quota, period) = text.split_once(' ')?;
    let quota_us = if quota == "max" { None } else { Some(quota.parse().ok()?) };
    Some(CpuLimit { quota_us, period_us: period.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    fn reader(name: &str, roots: &Roots) -> CgroupReader {
        CgroupReader::open(name, roots).expect("it is there")
    }

    #[test]
    fn a_share_is_read_from_its_three_files() {
        let (_keep, roots) = with_files(&[
            ("sys/fs/cgroup/a/cpu.weight", "250\n"),
            ("sys/fs/cgroup/a/cpu.max", "20000 100000\n"),
            ("sys/fs/cgroup/a/cpu.idle", "0\n"),
            ("sys/fs/cgroup/b/cpu.max", "max 100000\n"),
        ]);
        let limit = CpuLimit { quota_us: Some(20_000), period_us: 100_000 };
        let expected = CpuShare { weight: Some(250), limit: Some(limit), idle: Some(false) };
        assert_eq!(reader("/a", &roots).cpu().expect("readable"), expected);
        let unlimited = CpuLimit { quota_us: None, period_us: 100_000 };
        assert_eq!(reader("/b", &roots).cpu().expect("readable").limit, Some(unlimited));
    }

    #[test]
    fn cpu_time_is_read_in_nanoseconds() {
        let stat = "usage_usec 7250\nuser_usec 5000\nsystem_usec 2250\n";
        let (_keep, roots) =
            with_files(&[("sys/fs/cgroup/a/cpu.stat", stat), ("sys/fs/cgroup/b/cpu.weight", "100\n")]);
        assert_eq!(reader("/a", &roots).cpu_used_ns().expect("readable"), Some(7_250_000));
        assert_eq!(reader("/b", &roots).cpu_used_ns().expect("nothing to read"), None);
    }

    const MEMORY: [(&str, &str); 8] = [
        ("sys/fs/cgroup/a/memory.current", "104857600\n"),
        ("sys/fs/cgroup/a/memory.min", "4096\n"),
        ("sys/fs/cgroup/a/memory.low", "0\n"),
        ("sys/fs/cgroup/a/memory.high", "max\n"),
        ("sys/fs/cgroup/a/memory.max", "max\n"),
        (
            "sys/fs/cgroup/a/memory.stat",
            "anon 8192\nfile 4096\nnew_in_some_kernel 1\npgmajfault 3\npgsteal 7\n",
        ),
        ("sys/fs/cgroup/a/memory.events", "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 0\n"),
        (
            "sys/fs/cgroup/a/io.stat",
            "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.usage=7\n253:1 \n",
        ),
    ];

    #[test]
    fn a_cgroup_is_read_whole_and_what_the_kernel_lacks_is_none() {
        let (_keep, roots) = with_files(&MEMORY);
        let reading = reader("a", &roots).read().expect("readable");
        let memory = reading.memory.expect("it has memory");
        assert_eq!((memory.current_bytes, memory.swap_bytes, memory.events_local), (100 << 20, None, None));
        let (min, high) = (Bound::Bytes(4096), Bound::Max);
        assert_eq!(memory.bounds, MemoryBounds { min, low: Bound::Bytes(0), high, max: Bound::Max });
        assert_eq!(
            (memory.stat.anon_bytes, memory.stat.file_bytes, memory.stat.major_faults),
            (8192, 4096, 3)
        );
        let events = reader("a", &roots).memory_events().expect("readable");
        assert_eq!((memory.stat.reclaimed_pages, events), (7, Some(memory.events)));
        assert_eq!((memory.events.low_times, memory.events.oom_kills), (1, 5));
        let io = reading.io.expect("it has disks");
        let first = IoOfDevice {
            device: (8, 0),
            read_bytes: 1,
            written_bytes: 2,
            reads: 3,
            writes: 4,
            discarded_bytes: 5,
            device_time_us: Some(7),
        };
        assert_eq!(io, [first, IoOfDevice { device: (253, 1), ..IoOfDevice::default() }]);
        assert_eq!((reading.cpu, reading.pressure), (CpuShare::default(), PressureReading::default()));
    }

    #[test]
    fn a_cgroup_that_has_gone_is_told_apart_from_one_without_memory() {
        let (keep, roots) = with_files(&[("sys/fs/cgroup/a/cpu.weight", "100\n")]);
        let reader = reader("/a", &roots);
        assert_eq!(reader.read().expect("readable").memory, None);
        std::fs::remove_dir_all(keep.path().join("sys/fs/cgroup/a")).expect("removed");
        assert!(reader.read().expect_err("it has gone").is_absent());
        assert!(CgroupReader::open("/a", &roots).expect_err("it has gone").is_absent());
    }

    #[test]
    fn a_line_that_is_no_number_is_an_error_with_the_path_and_the_line() {
        let (_keep, roots) = with_files(&[MEMORY[0], ("sys/fs/cgroup/a/memory.stat", "anon much\n")]);
        let error = reader("a", &roots).memory_stat();
        let error = error.expect_err("no number").to_string();
        assert!(error.contains("a/memory.stat") && error.contains("anon much"), "{error}");
    }

    #[test]
    fn nonsense_in_a_file_is_an_error_with_its_path() {
        let (_keep, roots) = with_files(&[("sys/fs/cgroup/a/cpu.weight", "heavy\n")]);
        let error = reader("/a", &roots).cpu().expect_err("not a number").to_string();
        assert!(error.contains("a/cpu.weight") && error.contains("heavy"), "{error}");
    }
}
