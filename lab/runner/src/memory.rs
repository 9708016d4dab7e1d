//! Experiments on memory: a disk in the guest's own time, what root can set by hand, and what memory went through.
//!
//! A scenario is one of these when its machine has a `timed_disk`. What root sets by hand stands in the scenario,
//! because that is what it takes: somebody who knows how large each program is, or who the others are.

use std::fmt;

use anyhow::bail;
use serde::{Deserialize, Deserializer};
use steward_lab_guest::{MachineMemory, MemorySetup, Program, ProgramMemory};

use crate::metrics::Metrics;
use crate::scenario::{Contender, ProgramRow, Scenario};
use crate::size;

/// Where the guest has what makes the disk.
pub const DISK_SCRIPT: &str = "/lab/timed-disk.sh";
/// For the first MiB, which holds the table of partitions.
const TABLE_MIB: u32 = 1;
/// Beside each page the store keeps an entry in a tree and a record of 64 bytes: less than a thirtieth.
const STORE_OVERHEAD: u32 = 30;
const PAGES_PER_MIB: f64 = 256.0;

/// A disk whose speed is in the guest's own time (`lab/machine/timed-disk.sh`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedDisk {
    /// How fast it is.
    pub kind: DiskKind,
    /// Size of its file system, at /timed.
    #[serde(default = "files_usual", deserialize_with = "size::mebibytes", rename = "files")]
    pub files_mib: u32,
    /// Its part for swap, or swap in compressed memory instead.
    pub swap: Swap,
}

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum DiskKind {
    /// 10 ms for each request, 44 MB/s.
    #[serde(rename = "5400rpm")]
    Rotating,
    /// 0.2 ms for each request, 360 MB/s.
    #[serde(rename = "ssd")]
    SolidState,
}

/// Where memory is swapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// A part of the timed disk, of so many MiB.
    Disk(u32),
    /// Compressed memory.
    Zram,
}

impl<'de> Deserialize<'de> for Swap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "zram" => Ok(Swap::Zram),
            text => size::parse(text).map(Swap::Disk),
        }
    }
}

fn files_usual() -> u32 {
    64
}

impl fmt::Display for DiskKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DiskKind::Rotating => "5400rpm",
            DiskKind::SolidState => "ssd",
        })
    }
}

impl fmt::Display for TimedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.swap {
            Swap::Disk(mib) => write!(formatter, "swap of {mib} MiB and files on a {} disk", self.kind),
            Swap::Zram => write!(formatter, "swap in zram, files on a {} disk", self.kind),
        }
    }
}

impl TimedDisk {
    /// The memory that its contents take in the guest, besides what the experiment is to have.
    pub fn store_mib(&self) -> u32 {
        let swap_mib = if let Swap::Disk(mib) = self.swap { mib } else { 0 };
        let disk_mib = TABLE_MIB + self.files_mib + swap_mib;
        disk_mib + disk_mib.div_ceil(STORE_OVERHEAD)
    }

    /// What makes it, in shell quoting.
    pub fn command(&self) -> String {
        let swap = if let Swap::Disk(mib) = self.swap { mib.to_string() } else { "zram".to_owned() };
        format!("sh {DISK_SCRIPT} {} {} {swap}", self.kind, self.files_mib)
    }
}

/// What the agent is to set up for memory under `contender`; nothing in other experiments.
pub fn planned(scenario: &Scenario, contender: Contender) -> Option<MemorySetup> {
    scenario.machine.timed_disk.as_ref()?;
    let ceiling_mib = scenario.ceiling_mib.filter(|_| contender == Contender::HighByHand);
    Some(MemorySetup { ceiling_bytes: ceiling_mib.map(size::bytes) })
}

/// Gives a program what `contender` has for those that are to be protected: a minimum by hand, or Steward's own.
pub fn protect(row: &ProgramRow, contender: Contender, program: Program) -> Program {
    if !row.protect {
        return program;
    }
    let size_bytes = row.memory_size_mib.map(size::bytes);
    let mut program = Program { protected: true, ..program };
    match contender {
        Contender::MinByHand => program.memory_min_bytes = size_bytes,
        // As somebody would guess who looks at it in a quiet moment.
        Contender::MinWrong => program.memory_min_bytes = size_bytes.map(|bytes| bytes / 3),
        _ => {}
    }
    program
}

/// What contenders need to know is there, and what is there means something.
///
/// # Errors
/// Says what is missing.
pub fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let protected: Vec<&ProgramRow> = scenario.programs.iter().filter(|row| row.protect).collect();
    let is_about_memory = scenario.machine.timed_disk.is_some();
    if !is_about_memory && (!protected.is_empty() || scenario.ceiling_mib.is_some()) {
        bail!("protect and ceiling are for experiments on memory, whose machine has a [machine.timed_disk]");
    }
    if let Some(row) = scenario.programs.iter().find(|row| row.memory_size_mib.is_some() && !row.protect) {
        bail!("program `{}` has a memory_size, and nothing protects it (protect = true)", row.name);
    }
    for contender in &scenario.contenders {
        match contender {
            Contender::MinByHand | Contender::MinWrong
                if protected.is_empty() || protected.iter().any(|row| row.memory_size_mib.is_none()) =>
            {
                bail!(
                    "{contender} must be told the memory_size of each program with protect = true, of at least one"
                )
            }
            Contender::HighByHand if scenario.ceiling_mib.is_none() => {
                bail!("{contender} must be told the ceiling of all programs without protect = true")
            }
            _ => {}
        }
    }
    if scenario.machine.timed_disk.is_some() && scenario.machine.icount_shift.is_none_or(|shift| shift > 3) {
        bail!(
            "a timed disk needs icount_shift, at most 3: without it the disk is not in the guest's time, and above it what \
             frees memory is bound by the CPU"
        );
    }
    Ok(())
}

/// `major_faults`: pages that a program waited for a disk for while it was to answer. Nothing where it does not say.
pub fn fault_metrics(text: &str) -> Metrics {
    let told = text.lines().filter_map(|line| line.strip_prefix("m ")?.trim().parse::<f64>().ok());
    told.reduce(|sum, faults| sum + faults)
        .map(|faults| ("major_faults".to_owned(), faults))
        .into_iter()
        .collect()
}

/// `programs_without_faults`: of several programs that tell their faults, how many had none, and answered at all.
pub fn without_faults(programs: &[(String, Metrics)]) -> Metrics {
    let told: Vec<f64> =
        programs.iter().filter_map(|(_, metrics)| metrics.get("major_faults")).copied().collect();
    let without = told.iter().filter(|faults| **faults == 0.0).count() as f64;
    let is_told = programs.len() > 1 && !told.is_empty();
    is_told.then(|| ("programs_without_faults".to_owned(), without)).into_iter().collect()
}

/// What a program's cgroup tells: `cgroup_major_faults_NAME`, `throttled_NAME`, `low_breached_NAME`, `oom_kills_NAME`.
pub fn program_metrics(name: &str, seen: &ProgramMemory) -> Metrics {
    let numbers = [
        ("cgroup_major_faults", seen.major_faults),
        ("throttled", seen.throttled),
        ("low_breached", seen.low_breached),
        ("oom_kills", seen.oom_kills),
    ];
    numbers.iter().map(|(metric, count)| (format!("{metric}_{name}"), *count as f64)).collect()
}

/// What the machine's memory went through: `direct_reclaims`, `oom_kills`, `swapped_in_mib`, `swapped_out_mib`.
pub fn machine_metrics(seen: &MachineMemory) -> Metrics {
    let numbers = [
        ("direct_reclaims", seen.direct_reclaims as f64),
        ("oom_kills", seen.oom_kills as f64),
        ("swapped_in_mib", seen.swapped_in as f64 / PAGES_PER_MIB),
        ("swapped_out_mib", seen.swapped_out as f64 / PAGES_PER_MIB),
    ];
    numbers.iter().map(|(metric, number)| ((*metric).to_owned(), *number)).collect()
}

#[cfg(test)]
mod tests;
