//! What disks and single processes have read and written.

use std::collections::BTreeMap;

use steward_core::disk::guard::Taken;

use crate::roots::{Roots, read_if_present};

/// The unit of a disk's figures, whatever its own blocks are (Documentation/block/stat.rst).
const SECTOR_BYTES: u64 = 512;

/// What a disk has done, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// What it has read and written, in bytes.
    pub bytes: u64,
    /// With how many requests.
    pub requests: u64,
    /// What it was told to forget, in bytes, and how many requests to forget and to flush there were: neither is
    /// among the others.
    pub discarded_bytes: u64,
    /// See above.
    pub discards_and_flushes: u64,
    /// For how long it had requests, in nanoseconds.
    pub busy_ns: u64,
}

impl DiskUsage {
    /// What it has done since an earlier look.
    pub fn since(&self, before: &DiskUsage) -> DiskUsage {
        let of = |figure: fn(&DiskUsage) -> u64| figure(self).saturating_sub(figure(before));
        DiskUsage {
            bytes: of(|usage| usage.bytes),
            requests: of(|usage| usage.requests),
            discarded_bytes: of(|usage| usage.discarded_bytes),
            discards_and_flushes: of(|usage| usage.discards_and_flushes),
            busy_ns: of(|usage| usage.busy_ns),
        }
    }
}

/// What each of these disks has done, by name. Those that are gone, or say nothing, are left out.
pub fn of_disks<'a>(names: impl Iterator<Item = &'a str>, roots: &Roots) -> BTreeMap<String, DiskUsage> {
    names.filter_map(|name| Some((name.to_owned(), of_disk(name, roots)?))).collect()
}

fn of_disk(name: &str, roots: &Roots) -> Option<DiskUsage> {
    let text = read_if_present(&roots.sys.join("block").join(name).join("stat")).ok()??;
    let fields: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [reads, _, read, _, writes, _, written, _, _, busy_ms, ..] = fields[..] else { return None };
    // Kernels before 4.18 and 5.5 count the one or the other of these not.
    let more = |index: usize| fields.get(index).copied().unwrap_or(0);
    Some(DiskUsage {
        bytes: (read + written) * SECTOR_BYTES,
        requests: reads + writes,
        discarded_bytes: more(13) * SECTOR_BYTES,
        discards_and_flushes: more(11) + more(15),
        busy_ns: busy_ms * 1_000_000,
    })
}

/// What a process has had read and written by disks, ever, and with how many calls, with its threads that have ended
/// and the children that it has waited for (proc_pid_io(5)); `None` where it has ended.
pub fn of_process(pid: i32, roots: &Roots) -> Option<Taken> {
    let text = read_if_present(&roots.proc.join(format!("{pid}/io"))).ok()??;
    let value = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some(Taken {
        bytes: value("read_bytes:")? + value("write_bytes:")?,
        calls: value("syscr:")? + value("syscw:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn disks_and_processes_say_what_they_have_done() {
        let stat = "     100    5   2048   30  10 0 4096 90   0  70  120 3 0 8 5 4 9\n";
        let io = "rchar: 7\nwchar: 8\nsyscr: 1\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n";
        let (_directory, roots) =
            with_files(&[("sys/block/sda/stat", stat), ("sys/block/bad/stat", "1 2\n"), ("proc/7/io", io)]);
        let disks = of_disks(["sda", "bad", "gone"].into_iter(), &roots);
        let expected = DiskUsage {
            bytes: 6144 * 512,
            requests: 110,
            discarded_bytes: 8 * 512,
            discards_and_flushes: 7,
            busy_ns: 70_000_000,
        };
        assert_eq!(disks, BTreeMap::from([("sda".to_owned(), expected)]));
        assert_eq!(
            (of_process(7, &roots), of_process(8, &roots)),
            (Some(Taken { bytes: 12_288, calls: 3 }), None)
        );
    }
}
