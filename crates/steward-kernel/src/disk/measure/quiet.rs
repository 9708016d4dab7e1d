//! Whether what was measured of a disk was all its own: nobody else had it or the CPU meanwhile, nothing held the
//! measurement back, and its requests went to the disk.

use std::path::{Path, PathBuf};

use steward_core::disk::cost::PAGE_BYTES;
use steward_core::quantity::format_size;

use super::kind::{Kind, Rate};
use crate::disk::usage::{self, DiskUsage};
use crate::disk::{cost, limit};
use crate::roots::{Roots, read_if_present};

/// The part of the device's time that may be somebody else's.
const OTHERS_MAX: f64 = 0.05;
/// The part of the requests that is to be seen at the disk: what is missing has been answered on the way.
const ARRIVED_MIN: f64 = 0.95;
/// The part of the time in which the measurement may have waited for a CPU, and that in which other programs may have
/// run, each where the other is more too: the kernel's own threads, which work for the requests, have half of one CPU.
const WAITED_MAX: f64 = 0.25;
const PROGRAMS_MAX: f64 = 0.25;

/// Looks at a disk before and after each kind of request.
pub(super) struct Quiet<'a> {
    pub(super) disk: &'a str,
    roots: &'a Roots,
    before: DiskUsage,
    /// What it carries in a second in large pieces, in bytes, as soon as that is known.
    bytes_per_second: f64,
}

impl<'a> Quiet<'a> {
    pub(super) fn new(disk: &'a str, roots: &'a Roots) -> Self {
        Quiet { disk, roots, before: DiskUsage::default(), bytes_per_second: f64::INFINITY }
    }

    /// # Errors
    /// What holds the requests back, in a sentence.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.held_back()?;
        self.before = self.usage()?;
        Ok(())
    }

    /// # Errors
    /// What else has had a part in it, in a sentence.
    pub(super) fn end(&mut self, kind: Kind, rate: &Rate) -> Result<(), String> {
        self.held_back()?;
        let seen = self.usage()?.since(&self.before);
        if kind.bytes > PAGE_BYTES {
            self.bytes_per_second = rate.per_second * kind.bytes as f64;
        }
        alone(self.disk, kind, rate, &seen, self.bytes_per_second)
    }

    fn usage(&self) -> Result<DiskUsage, String> {
        let usage = usage::of_disks([self.disk].into_iter(), self.roots).remove(self.disk);
        usage.ok_or_else(|| format!("{} has gone", self.disk))
    }

    /// Whatever is charged, or limited, is measured as it is charged and limited.
    ///
    /// # Errors
    /// By what, in a sentence.
    pub(super) fn held_back(&self) -> Result<(), String> {
        let disk = self.disk;
        let number = read_if_present(&self.roots.sys.join("block").join(disk).join("dev")).ok().flatten();
        let number = number.ok_or_else(|| format!("{disk} has gone"))?;
        let lines = cost::lines(self.roots).map_err(|error| error.to_string())?.map(|all| all.of(&number));
        if let Some(lines) = lines.filter(|lines| lines.is_on()) {
            return Err(format!(
                "requests of {disk} are charged just now (io.cost.qos: {}), so that it could not be found out what it does; try again when no \
                 domain has a class or a fraction of the disk, or turn off what has set it",
                lines.quality
            ));
        }
        match limited(&number, self.roots) {
            None => Ok(()),
            Some((cgroup, line)) => Err(format!(
                "{} limits {disk} for this command ({line}), so that it could not be found out what it does; start it in another \
                 cgroup",
                cgroup.join(limit::FILE).display()
            )),
        }
    }
}

/// The cgroup that this process is in, or one above it, that is limited on the device of this number, and how.
fn limited(device_number: &str, roots: &Roots) -> Option<(PathBuf, String)> {
    let all = read_if_present(&roots.proc.join("self/cgroup")).ok()??;
    let path = all.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let cgroups = Path::new(path).ancestors().map(|cgroup| roots.cgroup.join(cgroup));
    cgroups.into_iter().find_map(|cgroup| {
        let limits = read_if_present(&cgroup.join(limit::FILE)).ok()??;
        let line = limits.lines().find(|line| line.split(' ').next() == Some(device_number))?;
        Some((cgroup, line.to_owned()))
    })
}

/// Whether a disk that was `seen` to do this has done it for the measurement alone.
fn alone(disk: &str, kind: Kind, rate: &Rate, seen: &DiskUsage, bytes_per_second: f64) -> Result<(), String> {
    let (made, all) = (rate.requests, seen.requests + seen.discards_and_flushes);
    if (seen.requests as f64) < ARRIVED_MIN * made as f64 {
        return Err(format!(
            "{made} requests were made and {disk} has seen {}: what answers them on the way, a cache or the file of a loop device, \
             would be measured; name a directory on a file system of the disk itself",
            seen.requests
        ));
    }
    // A request of others is taken for one of the measurement's, and what it carries for as long as the disk takes.
    let (others, bytes) =
        (all.saturating_sub(made), (seen.bytes + seen.discarded_bytes).saturating_sub(made * kind.bytes));
    let part = others as f64 / made as f64;
    let carried = bytes as f64 * rate.per_second / (made as f64 * bytes_per_second);
    if part.max(carried) > OTHERS_MAX {
        return Err(format!(
            "somebody else has used {disk} meanwhile, with {others} requests and {} beside the {made} of the measurement; try again \
             when it is quiet",
            format_size(bytes)
        ));
    }
    if rate.waited > WAITED_MAX && rate.programs > PROGRAMS_MAX {
        return Err(format!(
            "other programs have had the CPUs for {:.0} % of the time in which {disk} was to be measured; try again when the machine \
             is quiet",
            100.0 * rate.programs
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    const PAGES: Kind = Kind { writes: false, far: false, bytes: PAGE_BYTES };
    const DISK_BYTES_PER_SECOND: f64 = 200e6;

    fn rate(waited: f64, programs: f64) -> Rate {
        Rate { requests: 8_000, per_second: 3_500.0, cpu_bound: false, waited, programs }
    }

    /// What a disk is seen to do when it has done this much besides.
    fn seen(requests: u64, bytes: u64) -> DiskUsage {
        DiskUsage { requests: 8_000 + requests, bytes: 8_000 * PAGE_BYTES + bytes, ..DiskUsage::default() }
    }

    #[test]
    fn what_others_had_counts_by_requests_and_by_what_these_carry() {
        let judged = |seen: &DiskUsage| alone("sda", PAGES, &rate(0.0, 0.0), seen, DISK_BYTES_PER_SECOND);
        assert_eq!(judged(&seen(0, 0)), Ok(()));
        assert_eq!(judged(&seen(300, 300 * PAGE_BYTES)), Ok(()));
        let flushes = DiskUsage { discards_and_flushes: 1_000, ..seen(0, 0) };
        let discard = DiskUsage { discards_and_flushes: 1, discarded_bytes: 1 << 30, ..seen(0, 0) };
        // One in thirty of the requests, and two fifths of what the disk carries.
        for seen in [seen(500, 500 * PAGE_BYTES), seen(270, 270 * (512 << 10)), flushes, discard] {
            let why = judged(&seen).expect_err("somebody else had it");
            assert!(why.contains("somebody else has used sda meanwhile"), "{why}");
        }
    }

    #[test]
    fn requests_that_do_not_come_to_the_disk_say_nothing_of_it() {
        let seen = DiskUsage { requests: 3_000, bytes: 3_000 << 19, ..DiskUsage::default() };
        let why = alone("sda", PAGES, &rate(0.0, 0.0), &seen, DISK_BYTES_PER_SECOND).expect_err("a cache");
        assert!(why.contains("8000 requests were made and sda has seen 3000"), "{why}");
    }

    #[test]
    fn other_programs_make_it_void_where_the_cpus_are_what_was_measured() {
        let judged = |rate: Rate| alone("sda", PAGES, &rate, &seen(0, 0), DISK_BYTES_PER_SECOND);
        // The kernel's threads have it; other programs have other CPUs.
        assert_eq!((judged(rate(0.6, 0.02)), judged(rate(0.02, 0.6))), (Ok(()), Ok(())));
        let why = judged(rate(0.4, 0.6)).expect_err("others had the CPU");
        assert!(why.contains("other programs have had the CPUs for 60 % of the time"), "{why}");
    }

    #[test]
    fn a_disk_that_is_charged_or_limited_for_this_process_is_not_measured() {
        let stat = ("sys/block/sda/stat", "1 0 8 1 1 0 8 1 0 2 2\n");
        let files = [
            ("sys/block/sda/dev", "8:0\n"),
            stat,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/io.cost.model", "8:0 ctrl=auto\n"),
            ("sys/fs/cgroup/io.cost.qos", "8:16 enable=1 ctrl=user\n8:0 enable=0 ctrl=auto\n"),
            ("sys/fs/cgroup/a/io.max", "8:16 rbps=1 wbps=max riops=max wiops=max\n"),
            ("sys/fs/cgroup/a/b/io.max", ""),
        ];
        let (_directory, roots) = with_files(&files);
        assert_eq!(Quiet::new("sda", &roots).begin(), Ok(()));
        let begin = |file: &str, text: &str| {
            let before = std::fs::read(roots.cgroup.join(file)).expect("a file");
            std::fs::write(roots.cgroup.join(file), text).expect("a file");
            let outcome = Quiet::new("sda", &roots).begin();
            std::fs::write(roots.cgroup.join(file), before).expect("a file");
            outcome.expect_err("it is held back")
        };
        let why = begin("io.cost.qos", "8:0 enable=1 ctrl=user rpct=1\n");
        assert!(why.contains("requests of sda are charged just now (io.cost.qos: 8:0 enable=1"), "{why}");
        let why = begin("a/io.max", "8:0 rbps=max wbps=max riops=9 wiops=max\n");
        assert!(why.contains("/a/io.max limits sda for this command (8:0 rbps=max"), "{why}");
        // It was pulled.
        std::fs::remove_dir_all(roots.sys.join("block/sda")).expect("it goes");
        assert_eq!(Quiet::new("sda", &roots).begin(), Err("sda has gone".to_owned()));
    }
}
