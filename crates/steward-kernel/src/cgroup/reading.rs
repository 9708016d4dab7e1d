//! What a cgroup was given and what it uses, read from its files: the one place where all who look at a cgroup read it.
//!
//! A cgroup is read by parts, each of which is `None` where the kernel or the parent does not offer it. One that has
//! gone is an error of which [`KernelError::is_absent`] says so, whichever part was being read.

mod fields;
mod io;
mod memory;

use std::path::Path;

use steward_core::resource::Resource;

use super::directory::CgroupDirectory;
use super::place::directory;
use super::pressure::{Stalled, stalled};
use crate::error::KernelError;
use crate::roots::{Roots, read_if_present};

pub use io::IoOfDevice;
pub use memory::{Bound, MemoryBounds, MemoryEvents, MemoryReading, MemoryStat};

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

    /// The inode number of its directory.
    pub fn id(&self) -> u64 {
        self.0.id()
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
            weight: fields::number(&self.0, "cpu.weight")?,
            limit: limit.transpose()?,
            idle: fields::number(&self.0, "cpu.idle")?.map(|value| value != 0),
        })
    }

    /// Its memory, by nine files.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory(&self) -> Result<Option<MemoryReading>, KernelError> {
        memory::reading(&self.0)
    }

    /// `memory.current` alone, in bytes; `None` as in [`CgroupReading::memory`].
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_current_bytes(&self) -> Result<Option<u64>, KernelError> {
        fields::number(&self.0, "memory.current")
    }

    /// `memory.stat` alone, which the root has too. It is the dearest of the files: the kernel sums over CPUs first.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn memory_stat(&self) -> Result<Option<MemoryStat>, KernelError> {
        memory::stat(&self.0)
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

    /// For how long its tasks stood still.
    ///
    /// # Errors
    /// As [`CgroupReader::read`].
    pub fn pressure(&self) -> Result<PressureReading, KernelError> {
        Ok(PressureReading {
            cpu: stalled(&self.0, Resource::Cpu)?,
            memory: stalled(&self.0, Resource::Memory)?,
            disk: stalled(&self.0, Resource::Disk)?,
        })
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

/// What CPU a cgroup was given.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file; a file that is not there is no error.
pub fn cpu_share(cgroup: &str, roots: &Roots) -> Result<CpuShare, KernelError> {
    let directory = directory(cgroup, roots);
    Ok(CpuShare {
        weight: number(&directory.join("cpu.weight"))?,
        limit: limit(&directory.join("cpu.max"))?,
        idle: number(&directory.join("cpu.idle"))?.map(|value| value != 0),
    })
}

/// What a cgroup and all below it use of the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// All that is charged to it (`memory.current`).
    pub used_bytes: u64,
    /// What of it is in the swap besides (`memory.swap.current`).
    pub swapped_bytes: u64,
    /// Pages of files, of those that are charged (`file` of `memory.stat`).
    pub file_bytes: u64,
    /// What of these must be written before it can be taken (`file_dirty` and `file_writeback`).
    pub dirty_bytes: u64,
    /// Pages of programs' own (`anon`).
    pub anonymous_bytes: u64,
    /// The most that it may use (`memory.max`); `None` for no limit.
    pub max_bytes: Option<u64>,
    /// Pages that were taken and used again, so far (`workingset_refault_anon` and `_file`).
    pub refaults: u64,
}

/// What memory a cgroup uses; `None` where the one above it does not hand memory out, so that nobody counts it.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming the file.
pub fn memory_use(cgroup: &str, roots: &Roots) -> Result<Option<MemoryUse>, KernelError> {
    let directory = directory(cgroup, roots);
    let Some(used_bytes) = number(&directory.join("memory.current"))? else { return Ok(None) };
    let statistics = read_if_present(&directory.join("memory.stat"))?.unwrap_or_default();
    let figure = |name: &str| figure(&statistics, name);
    Ok(Some(MemoryUse {
        used_bytes,
        swapped_bytes: number(&directory.join("memory.swap.current"))?.unwrap_or(0),
        file_bytes: figure("file"),
        dirty_bytes: figure("file_dirty").saturating_add(figure("file_writeback")),
        anonymous_bytes: figure("anon"),
        max_bytes: most(&directory.join("memory.max"))?,
        refaults: figure("workingset_refault_anon").saturating_add(figure("workingset_refault_file")),
    }))
}

/// A limit; `None` where there is none (`max`), and where there is no such file.
fn most(path: &Path) -> Result<Option<u64>, KernelError> {
    match read_if_present(path)?.as_deref().map(str::trim) {
        None | Some("max") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| KernelError::parse(path, "a number or max", text)),
    }
}

/// A figure of `memory.stat`; 0 where this kernel has none of that name.
fn figure(statistics: &str, name: &str) -> u64 {
    let lines = statistics.lines().filter_map(|line| line.split_once(' '));
    let value = lines.into_iter().find_map(|(found, value)| (found == name).then_some(value));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn number(path: &Path) -> Result<Option<u64>, KernelError> {
    let Some(text) = read_if_present(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| KernelError::parse(path, "a number", &text))
}

fn limit(path: &Path) -> Result<Option<CpuLimit>, KernelError> {
    let Some(text) = read_if_present(path)? else { return Ok(None) };
    parse_limit(&text).map(Some).ok_or_else(|| KernelError::parse(path, LIMIT_EXPECTED, &text))
}

fn parse_limit(text: &str) -> Option<CpuLimit> {
    let (quota, period) = text.split_once(' ')?;
    let quota_us = if quota == "max" { None } else { Some(quota.parse().ok()?) };
    Some(CpuLimit { quota_us, period_us: period.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, content) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, content).expect("a file");
        }
        let roots = Roots::under(directory.path());
        (directory, roots)
    }

    #[test]
    fn what_is_used_is_read_where_memory_is_counted() {
        let statistics = "anon 300\nfile 200\nfile_mapped 7\nfile_dirty 20\nfile_writeback 5\nworkingset_refault_anon 3\n\
                          workingset_refault_file 4\n";
        let (_keep, roots) = tree(&[
            ("sys/fs/cgroup/a/memory.current", "512\n"),
            ("sys/fs/cgroup/a/memory.swap.current", "64\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.stat", statistics),
            ("sys/fs/cgroup/b/cpu.weight", "100\n"),
        ]);
        let expected = MemoryUse {
            used_bytes: 512,
            swapped_bytes: 64,
            file_bytes: 200,
            dirty_bytes: 25,
            anonymous_bytes: 300,
            max_bytes: None,
            refaults: 7,
        };
        assert_eq!(memory_use("/a", &roots).expect("readable"), Some(expected));
        assert_eq!(memory_use("/b", &roots).expect("nothing to read"), None);
    }

    #[test]
    fn a_share_is_read_from_its_three_files() {
        let (_keep, roots) = tree(&[
            ("sys/fs/cgroup/a/cpu.weight", "250\n"),
            ("sys/fs/cgroup/a/cpu.max", "20000 100000\n"),
            ("sys/fs/cgroup/a/cpu.idle", "0\n"),
            ("sys/fs/cgroup/b/cpu.max", "max 100000\n"),
        ]);
        let limit = CpuLimit { quota_us: Some(20_000), period_us: 100_000 };
        let expected = CpuShare { weight: Some(250), limit: Some(limit), idle: Some(false) };
        assert_eq!(cpu_share("/a", &roots).expect("readable"), expected);
        let unlimited = CpuLimit { quota_us: None, period_us: 100_000 };
        assert_eq!(cpu_share("/b", &roots).expect("readable").limit, Some(unlimited));
        assert_eq!(cpu_share("/none", &roots).expect("nothing to read"), CpuShare::default());
    }

    const MEMORY: [(&str, &str); 8] = [
        ("sys/fs/cgroup/a/memory.current", "104857600\n"),
        ("sys/fs/cgroup/a/memory.min", "4096\n"),
        ("sys/fs/cgroup/a/memory.low", "0\n"),
        ("sys/fs/cgroup/a/memory.high", "max\n"),
        ("sys/fs/cgroup/a/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.stat", "anon 8192\nfile 4096\nnew_in_some_kernel 1\npgmajfault 3\n"),
        ("sys/fs/cgroup/a/memory.events", "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 0\n"),
        (
            "sys/fs/cgroup/a/io.stat",
            "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.usage=7\n253:1 \n",
        ),
    ];

    #[test]
    fn a_cgroup_is_read_whole_and_what_the_kernel_lacks_is_none() {
        let (_keep, roots) = tree(&MEMORY);
        let reading = CgroupReader::open("a", &roots).expect("it is there").read().expect("readable");
        let memory = reading.memory.expect("it has memory");
        assert_eq!((memory.current_bytes, memory.swap_bytes, memory.events_local), (100 << 20, None, None));
        let (min, high) = (Bound::Bytes(4096), Bound::Max);
        assert_eq!(memory.bounds, MemoryBounds { min, low: Bound::Bytes(0), high, max: Bound::Max });
        assert_eq!(
            (memory.stat.anon_bytes, memory.stat.file_bytes, memory.stat.major_faults),
            (8192, 4096, 3)
        );
        assert_eq!((memory.events.low_times, memory.events.oom_kills), (1, 5));
        let io = reading.io.expect("it has disks");
        let first = IoOfDevice {
            device: (8, 0),
            read_bytes: 1,
            written_bytes: 2,
            reads: 3,
            writes: 4,
            discarded_bytes: 5,
        };
        assert_eq!(io, [first, IoOfDevice { device: (253, 1), ..IoOfDevice::default() }]);
        assert_eq!((reading.cpu, reading.pressure), (CpuShare::default(), PressureReading::default()));
    }

    #[test]
    fn a_cgroup_that_has_gone_is_told_apart_from_one_without_memory() {
        let (keep, roots) = tree(&[("sys/fs/cgroup/a/cpu.weight", "100\n")]);
        let reader = CgroupReader::open("/a", &roots).expect("it is there");
        assert_eq!(reader.read().expect("readable").memory, None);
        std::fs::remove_dir_all(keep.path().join("sys/fs/cgroup/a")).expect("removed");
        assert!(reader.read().expect_err("it has gone").is_absent());
        assert!(CgroupReader::open("/a", &roots).expect_err("it has gone").is_absent());
    }

    #[test]
    fn a_line_that_is_no_number_is_an_error_with_the_path_and_the_line() {
        let (_keep, roots) = tree(&[MEMORY[0], ("sys/fs/cgroup/a/memory.stat", "anon much\n")]);
        let error = CgroupReader::open("a", &roots).expect("it is there").memory_stat();
        let error = error.expect_err("no number").to_string();
        assert!(error.contains("a/memory.stat") && error.contains("anon much"), "{error}");
    }

    #[test]
    fn nonsense_in_a_file_is_an_error_with_its_path() {
        let (_keep, roots) = tree(&[("sys/fs/cgroup/a/cpu.weight", "heavy\n")]);
        let error = cpu_share("/a", &roots).expect_err("not a number").to_string();
        assert!(error.contains("a/cpu.weight") && error.contains("heavy"), "{error}");
    }
}
