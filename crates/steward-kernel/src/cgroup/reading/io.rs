//! What a cgroup reads from and writes to disks (`io.stat`, Documentation/admin-guide/cgroup-v2.rst, IO Interface
//! Files).

use crate::cgroup::directory::CgroupDirectory;
use crate::error::KernelError;

/// What a cgroup and those below it have had of one device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoOfDevice {
    /// The device's major and minor number.
    pub device: (u32, u32),
    /// Read, in bytes.
    pub read_bytes: u64,
    /// Written, in bytes.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Discarded, in bytes.
    pub discarded_bytes: u64,
    /// How long the device was busy for it, in microseconds, as io.cost reckons; `None` where that is off.
    pub device_time_us: Option<u64>,
}

/// By device; `None` where the parent does not hand out the disk.
pub(super) fn reading(cgroup: &CgroupDirectory) -> Result<Option<Vec<IoOfDevice>>, KernelError> {
    let Some(text) = cgroup.read_if_present("io.stat")? else { return Ok(None) };
    let expected = "lines MAJOR:MINOR rbytes=NUMBER ...";
    let parsed = text.lines().map(|line| {
        device(line).ok_or_else(|| KernelError::parse(cgroup.path_of("io.stat"), expected, line))
    });
    parsed.collect::<Result<_, _>>().map(Some)
}

fn device(line: &str) -> Option<IoOfDevice> {
    let mut words = line.split_ascii_whitespace();
    let (major, minor) = words.next()?.split_once(':')?;
    let mut found =
        IoOfDevice { device: (major.parse().ok()?, minor.parse().ok()?), ..IoOfDevice::default() };
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        let field = match name {
            "rbytes" => &mut found.read_bytes,
            "wbytes" => &mut found.written_bytes,
            "rios" => &mut found.reads,
            "wios" => &mut found.writes,
            "dbytes" => &mut found.discarded_bytes,
            "cost.usage" => found.device_time_us.insert(0),
            // Those of io.latency are not all numbers.
            _ => continue,
        };
        *field = value.parse().ok()?;
    }
    Some(found)
}
