//! The disk of a scenario's machine whose speed is in the guest's own time.

use std::fmt;

use serde::{Deserialize, Deserializer};

use crate::size;

/// Where the guest has what makes the disk.
pub const DISK_SCRIPT: &str = "/lab/timed-disk.sh";
/// For the first MiB, which holds the table of partitions.
const TABLE_MIB: u32 = 1;
/// Beside each page the store keeps an entry in a tree and a record of 64 bytes: less than a thirtieth.
const STORE_OVERHEAD: u32 = 30;

/// A disk whose speed is in the guest's own time (`lab/machine/timed-disk.sh`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedDisk {
    /// How fast it is.
    pub kind: DiskKind,
    /// Size of its file system, at /timed.
    #[serde(default = "files_usual", deserialize_with = "size::mebibytes", rename = "files")]
    pub files_mib: u32,
    /// Its part for swap, or swap in compressed memory instead; none if left out.
    #[serde(default = "swap_none")]
    pub swap: Swap,
    /// The elevator that it has unless a contender chooses another: the experiment is about the disk.
    pub elevator: Option<Elevator>,
    /// What its file system is.
    #[serde(default)]
    pub file_system: FileSystem,
}

/// What puts a disk's requests in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Elevator {
    /// Nothing: first come, first served.
    None,
    /// Deadlines.
    MqDeadline,
    /// Budgets by weight.
    Bfq,
}

impl fmt::Display for Elevator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Elevator::None => "none",
            Elevator::MqDeadline => "mq-deadline",
            Elevator::Bfq => "bfq",
        })
    }
}

/// A file system on the timed disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// ext4, which the host can make.
    #[default]
    Ext4,
    /// XFS, whose tools are in the Debian package xfsprogs.
    Xfs,
}

impl fmt::Display for FileSystem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        })
    }
}

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum DiskKind {
    /// 10 ms for each request, 44 MB/s.
    #[serde(rename = "5400rpm")]
    Rotating,
    /// The same for each request, of which it takes 32 and serves them in turn.
    #[serde(rename = "ncq")]
    RotatingQueue,
    /// 1 ms for each request, four at a time, 200 MB/s: less than one emulated CPU moves.
    #[serde(rename = "flash")]
    Flash,
    /// 0.1 ms for each request, four at a time, 500 MB/s.
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

fn swap_none() -> Swap {
    Swap::Disk(0)
}

impl DiskKind {
    /// What the guest's kernel calls the disk.
    pub fn device_name(self) -> &'static str {
        match self {
            DiskKind::RotatingQueue => "sda",
            _ => "nullb0",
        }
    }

    /// Whether it rotates.
    pub fn rotates(self) -> bool {
        matches!(self, DiskKind::Rotating | DiskKind::RotatingQueue)
    }
}

impl fmt::Display for DiskKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DiskKind::Rotating => "5400rpm",
            DiskKind::RotatingQueue => "ncq",
            DiskKind::Flash => "flash",
            DiskKind::SolidState => "ssd",
        })
    }
}

impl fmt::Display for TimedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.swap {
            Swap::Disk(0) => write!(formatter, "files ({}) on a {} disk", self.file_system, self.kind),
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
        format!("sh {DISK_SCRIPT} {} {} {swap} {}", self.kind, self.files_mib, self.file_system)
    }
}
