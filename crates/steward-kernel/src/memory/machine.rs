//! The machine's memory: one method per file of procfs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::KernelError;
use crate::roots::{Roots, read, text_of};

/// `/proc/meminfo` (Documentation/filesystems/proc.rst), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// What the kernel hands out.
    pub total_bytes: u64,
    /// What nothing is in. Pages in the per-CPU lists are not counted: see [`Zones::per_cpu_pages`].
    pub free_bytes: u64,
    /// What programs could still get without anything being swapped out, as the kernel estimates it.
    pub available_bytes: u64,
    /// Pages of files that can be taken (`Active(file)` and `Inactive(file)`).
    pub file_bytes: u64,
    /// Anonymous and shared memory that can be taken where there is swap (`Active(anon)` and `Inactive(anon)`).
    pub anonymous_bytes: u64,
    /// Room for what is swapped out.
    pub swap_total_bytes: u64,
    /// Of it, what is empty.
    pub swap_free_bytes: u64,
    /// Changed pages of files that are not on the way to the disk yet.
    pub dirty_bytes: u64,
    /// Pages on the way to the disk.
    pub writeback_bytes: u64,
}

/// Sums over all zones of `/proc/zoneinfo`, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// Below this a task that allocates reclaims by itself.
    pub min_pages: u64,
    /// Below this kswapd wakes.
    pub low_pages: u64,
    /// Up to this kswapd goes on.
    pub high_pages: u64,
    /// In the lists of the CPUs, where reclaimed pages hide from `MemFree`.
    pub per_cpu_pages: u64,
    /// Free beyond the high watermark of a zone that withholds it from allocations that could be had from a higher
    /// zone (`vm.lowmem_reserve_ratio`): it is counted in `MemFree`, and programs are not given it. On most PCs, the
    /// 15 MiB of zone DMA.
    pub withheld_pages: u64,
}

impl Zones {
    /// With less than so many pages counted as free, kswapd wakes up to take more: the high watermarks, and what is
    /// free and is withheld.
    pub fn high_with_withheld_pages(&self) -> u64 {
        self.high_pages.saturating_add(self.withheld_pages)
    }
}

/// One zone, as far as it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    free_pages: u64,
    high_pages: u64,
    /// What it withholds from those whom the highest zone could serve.
    protection_pages: u64,
}

impl Zone {
    fn withheld_pages(self) -> u64 {
        self.free_pages.saturating_sub(self.high_pages).min(self.protection_pages)
    }
}

/// Counters of `/proc/vmstat` since the machine started; one that this kernel does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// Times that a task had to reclaim before it was given memory (all of `allocstall*`).
    pub direct_reclaims: u64,
    /// Pages that tasks reclaimed so.
    pub reclaimed_direct_pages: u64,
    /// Pages that kswapd reclaimed.
    pub reclaimed_kswapd_pages: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// Anonymous pages that were fetched again soon after they had been reclaimed.
    pub refault_anon_pages: u64,
    /// As above, pages of files.
    pub refault_file_pages: u64,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Pages that came back from swap.
    pub swapped_in_pages: u64,
    /// Pages that went to swap.
    pub swapped_out_pages: u64,
}

/// Lines of `/proc/meminfo` that count: those of [`usage_field`].
const USAGE_LINES: usize = 11;
/// Longer than `/proc/meminfo`.
const USAGE_LENGTH_MAX: usize = 8192;

/// Reads `/proc/meminfo`.
///
/// # Errors
/// [`KernelError::Read`], or [`KernelError::Parse`] where a line that every kernel has is missing or holds no number.
pub fn usage(roots: &Roots) -> Result<MachineMemory, KernelError> {
    let path = roots.proc.join("meminfo");
    parse_usage(&path, &read(&path)?)
}

/// `/proc/meminfo` for who reads it again and again: the file stays open, which saves most of what a reading costs
/// beside what the kernel has to count.
#[derive(Debug)]
pub struct KeptUsage {
    path: PathBuf,
    file: File,
}

impl KeptUsage {
    /// # Errors
    /// [`KernelError::Read`] where it cannot be opened.
    pub fn open(roots: &Roots) -> Result<Self, KernelError> {
        let path = roots.proc.join("meminfo");
        let file = File::open(&path).map_err(|source| KernelError::Read { path: path.clone(), source })?;
        Ok(KeptUsage { path, file })
    }

    /// What it says now.
    ///
    /// # Errors
    /// Those of [`usage`].
    pub fn read(&self) -> Result<MachineMemory, KernelError> {
        let mut bytes = vec![0; USAGE_LENGTH_MAX];
        let failed = |source| KernelError::Read { path: self.path.clone(), source };
        // From the start of the file the kernel says what is so now.
        let length = self.file.read_at(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(length);
        parse_usage(&self.path, &text_of(bytes))
    }
}

/// The lines that count are among the first: most of the others are not looked at.
fn parse_usage(path: &Path, text: &str) -> Result<MachineMemory, KernelError> {
    let mut usage = MachineMemory::default();
    let mut seen = 0;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let Some(field) = usage_field(&mut usage, name) else { continue };
        let bytes = value
            .trim()
            .strip_suffix(" kB")
            .and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024));
        *field += bytes.ok_or_else(|| KernelError::parse(path, "a line NAME: NUMBER kB", line))?;
        seen += 1;
        if seen == USAGE_LINES {
            return Ok(usage);
        }
    }
    let expected = "MemTotal, MemFree, MemAvailable, Active and Inactive of anon and file, SwapTotal, SwapFree, Dirty, Writeback";
    Err(KernelError::parse(path, expected, text))
}

fn usage_field<'a>(usage: &'a mut MachineMemory, name: &str) -> Option<&'a mut u64> {
    Some(match name {
        "MemTotal" => &mut usage.total_bytes,
        "MemFree" => &mut usage.free_bytes,
        "MemAvailable" => &mut usage.available_bytes,
        "Active(file)" | "Inactive(file)" => &mut usage.file_bytes,
        "Active(anon)" | "Inactive(anon)" => &mut usage.anonymous_bytes,
        "SwapTotal" => &mut usage.swap_total_bytes,
        "SwapFree" => &mut usage.swap_free_bytes,
        "Dirty" => &mut usage.dirty_bytes,
        "Writeback" => &mut usage.writeback_bytes,
        _ => return None,
    })
}

/// Reads `/proc/zoneinfo`.
///
/// # Errors
/// [`KernelError::Read`], or [`KernelError::Parse`] where a number is none, or there is no watermark at all.
pub fn zones(roots: &Roots) -> Result<Zones, KernelError> {
    let path = roots.proc.join("zoneinfo");
    let text = read(&path)?;
    let mut zones = Zones::default();
    let mut zone = Zone::default();
    let mut any = false;
    for line in text.lines() {
        let trimmed = line.trim();
        // Nearly all lines are counters (`nr_...`), of which none is asked for.
        if !trimmed.starts_with(['N', 'p', 'm', 'l', 'h', 'c']) {
            continue;
        }
        let pages_of = |value: &str| {
            value.parse::<u64>().map_err(|_| KernelError::parse(&path, "a number of pages", line))
        };
        if trimmed.starts_with("Node ") && trimmed.contains(", zone ") {
            let last = std::mem::take(&mut zone);
            zones.withheld_pages = zones.withheld_pages.saturating_add(last.withheld_pages());
        } else if let Some(value) = trimmed.strip_prefix("pages free ") {
            zone.free_pages = pages_of(value.trim())?;
        } else if let Some(values) = trimmed.strip_prefix("protection:") {
            // One for each zone that an allocation may begin at. A higher one withholds no less.
            let values = values.trim().trim_start_matches('(').trim_end_matches(')');
            for value in values.split(',') {
                zone.protection_pages = zone.protection_pages.max(pages_of(value.trim())?);
            }
        }
        // The watermarks have a name without a colon; those of the lists, which are called the same, have one.
        let mut words = trimmed.split_ascii_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else { continue };
        let sum = match name {
            "min" => &mut zones.min_pages,
            "low" => &mut zones.low_pages,
            "high" => &mut zones.high_pages,
            "count:" => &mut zones.per_cpu_pages,
            _ => continue,
        };
        let pages = pages_of(value)?;
        if name == "high" {
            any = true;
            zone.high_pages = pages;
        }
        *sum = sum.saturating_add(pages);
    }
    zones.withheld_pages = zones.withheld_pages.saturating_add(zone.withheld_pages());
    if any { Ok(zones) } else { Err(KernelError::parse(path, "a line high NUMBER", &text)) }
}

/// Reads `/proc/vmstat`.
///
/// # Errors
/// [`KernelError::Read`], or [`KernelError::Parse`] where a number is none.
pub fn counters(roots: &Roots) -> Result<MemoryCounters, KernelError> {
    let path = roots.proc.join("vmstat");
    let text = read(&path)?;
    let mut counters = MemoryCounters::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let sum = match name {
            "pgsteal_direct" => &mut counters.reclaimed_direct_pages,
            "pgsteal_kswapd" => &mut counters.reclaimed_kswapd_pages,
            "pgmajfault" => &mut counters.major_faults,
            "workingset_refault_anon" => &mut counters.refault_anon_pages,
            "workingset_refault_file" => &mut counters.refault_file_pages,
            "oom_kill" => &mut counters.oom_kills,
            "pswpin" => &mut counters.swapped_in_pages,
            "pswpout" => &mut counters.swapped_out_pages,
            // One a zone.
            _ if name.starts_with("allocstall") => &mut counters.direct_reclaims,
            _ => continue,
        };
        let count: u64 = value.trim().parse().map_err(|_| KernelError::parse(&path, "NAME NUMBER", line))?;
        *sum = sum.saturating_add(count);
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn watermarks_are_summed_over_zones_and_not_taken_for_those_of_the_lists() {
        let zone = "Node 0, zone   Normal\n  pages free     2000\n        boost    0\n        min      10\n        low      20\n\
                    \x20       high     30\n        protection: (0, 0, 0)\n      nr_free_pages 2000\n\
                    \x20     nr_mlock     many\n  pagesets\n    cpu: 0\n              count:    7\n\
                    \x20             high:     300\n              high_min: 300\n              batch:    63\n    cpu: 1\n\
                    \x20             count:    5\n              high:     300\n";
        let (_keep, roots) = with_files(&[("proc/zoneinfo", &format!("{zone}{zone}"))]);
        let expected =
            Zones { min_pages: 20, low_pages: 40, high_pages: 60, per_cpu_pages: 24, withheld_pages: 0 };
        assert_eq!(zones(&roots).expect("readable"), expected);
        std::fs::write(roots.proc.join("zoneinfo"), "        high     many\n").expect("a file");
        assert!(zones(&roots).expect_err("no number").to_string().contains("zoneinfo"));
    }

    #[test]
    fn what_a_low_zone_withholds_from_programs_is_no_reserve() {
        let zone = |name: &str, free: u64, high: u64, protection: &str| {
            format!(
                "Node 0, zone {name}\n  pages free     {free}\n        min      1\n        high     {high}\n        managed  {free}\n\
                 \x20       protection: ({protection})\n"
            )
        };
        // The first withholds all that it has, the second a part, the last nothing; of what is below its watermark, a
        // zone withholds nothing more.
        let text = zone("DMA", 3840, 16, "0, 3019, 24090, 24090")
            + &zone("DMA32", 300_000, 3660, "0, 0, 21071, 21071")
            + &zone("Normal", 20_109, 25_557, "0, 0, 0, 0");
        let (_keep, roots) = with_files(&[("proc/zoneinfo", &text)]);
        let found = zones(&roots).expect("readable");
        assert_eq!((found.high_pages, found.withheld_pages), (16 + 3660 + 25_557, 3824 + 21_071));
        assert_eq!(found.high_with_withheld_pages(), found.high_pages + 3824 + 21_071);
        let full = zone("DMA", 10, 16, "0, 3019") + &zone("Normal", 9, 30, "0, 0");
        std::fs::write(roots.proc.join("zoneinfo"), full).expect("a file");
        assert_eq!(zones(&roots).expect("readable").withheld_pages, 0);
        std::fs::write(roots.proc.join("zoneinfo"), zone("DMA", 10, 16, "0, much")).expect("a file");
        assert!(zones(&roots).expect_err("no number").to_string().contains("zoneinfo"));
    }

    #[test]
    fn stalls_of_all_zones_are_one_number_and_what_a_kernel_lacks_is_none() {
        let text = "allocstall_dma32 1\nallocstall_normal 2\npgsteal_direct 5\npgsteal_direct_throttle 9\noom_kill 1\n";
        let (_keep, roots) = with_files(&[("proc/vmstat", text)]);
        let expected = MemoryCounters {
            direct_reclaims: 3,
            reclaimed_direct_pages: 5,
            oom_kills: 1,
            ..Default::default()
        };
        assert_eq!(counters(&roots).expect("readable"), expected);
    }

    #[test]
    fn the_use_of_memory_is_read_in_bytes_and_a_missing_line_is_an_error() {
        let names = "MemTotal MemFree MemAvailable Active(anon) Inactive(anon) Active(file) Inactive(file) SwapTotal SwapFree \
                     Dirty Writeback";
        // As there, others stand between those that count, and behind them.
        let lines = names
            .split(' ')
            .zip(1..)
            .map(|(name, number)| format!("{name}:    {number} kB\nAnonPages: 9 kB\n"));
        let text: String = lines.collect::<String>() + "HugePages_Total:   0\nDirectMap4k:   many\n";
        let (_keep, roots) = with_files(&[("proc/meminfo", &text)]);
        let found = usage(&roots).expect("readable");
        let kept = KeptUsage::open(&roots).expect("it is there");
        assert_eq!(kept.read().expect("readable"), found);
        let of_programs = (found.anonymous_bytes, found.file_bytes);
        assert_eq!((found.total_bytes, of_programs), (1024, ((4 + 5) * 1024, (6 + 7) * 1024)));
        let refused = |text: &str| {
            std::fs::write(roots.proc.join("meminfo"), text).expect("a file");
            let said = usage(&roots).expect_err("it is not whole").to_string();
            assert_eq!(kept.read().expect_err("it is not whole").to_string(), said);
            said
        };
        assert!(refused(&text.replace("SwapFree", "Other")).contains("SwapFree"));
        for nonsense in ["many", "18446744073709551615"] {
            let said = refused(&text.replace("   3 kB", &format!("   {nonsense} kB")));
            assert!(said.contains("meminfo") && said.contains("MemAvailable"), "{said}");
        }
    }

    #[test]
    fn the_machine_that_runs_the_tests_has_all_three() {
        let roots = Roots::default();
        let usage = usage(&roots).expect("meminfo");
        let kept = KeptUsage::open(&roots).and_then(|kept| kept.read()).expect("meminfo");
        assert_eq!((kept.total_bytes, kept.swap_total_bytes), (usage.total_bytes, usage.swap_total_bytes));
        assert!(usage.total_bytes > usage.free_bytes && usage.available_bytes > 0);
        assert!(zones(&roots).expect("zoneinfo").high_pages > 0);
        counters(&roots).expect("vmstat");
    }
}
