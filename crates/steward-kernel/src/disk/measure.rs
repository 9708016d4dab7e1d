//! How many requests a disk serves in a second, found out on a file of its file system that has no name
//! (`O_TMPFILE`), so that whoever ends the measurement, in whatever way, leaves nothing. Nothing is written to the
//! device itself.
//!
//! Requests go past the page cache, many at once (io_uring).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use steward_core::disk::calibration::Found;
use steward_core::disk::cost::{LARGE_BYTES, PAGE_BYTES};
use steward_core::quantity::format_size;

use self::kind::{Kind, Rate};
use self::quiet::Quiet;
use crate::roots::{Roots, read_if_present};

mod kind;
mod quiet;

/// The most that is written for a measurement, in bytes, and the least: requests that are to be far from each other for
/// the kernel's model are 16 MiB apart (`LCOEF_RANDIO_PAGES`, block/blk-iocost.c).
const BYTES_MAX: u64 = 1 << 30;
const BYTES_MIN: u64 = 48 << 20;
/// How far requests are apart that are to be far from each other, in bytes.
const FAR_BYTES: u64 = 17 << 20;
/// The part of what is free on the file system that may be taken for it.
const PART_OF_FREE: u64 = 2;
/// For how long the file is written at most: what was written until then is measured.
const FILL_AT_MOST: Duration = Duration::from_secs(10);
/// For how long each kind of request is made before it counts, and for how long it counts.
const WARM_UP: Duration = Duration::from_millis(300);
const COUNTED: Duration = Duration::from_secs(2);
/// How many requests are under way at a time: more than a disk needs to be busy, large ones and pages of one thread.
const LARGE_AT_ONCE: u32 = 16;
const PAGES_AT_ONCE: u32 = 64;
/// How many threads hand pages on at most: one comes to some hundred thousand a second.
const THREADS_MAX: usize = 4;
/// For how long it may be that it counts, at most: a request that is under way at the end of it is waited for. Whoever
/// was stopped or frozen meanwhile has seen a disk that did nothing.
const COUNTED_MAX: Duration = Duration::from_secs(3);
/// The part of the time of the threads' CPUs above which these, and not the disk, are what was measured.
const CPU_BOUND: f64 = 0.95;

/// What was found of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Reading.
    pub read: Found,
    /// Writing.
    pub write: Found,
    /// How large the file was, in bytes.
    pub bytes: u64,
    /// Whether the CPU had no time left while pages were read or written: then the disk may do more.
    pub cpu_bound: bool,
}

/// Finds out what the disk of this name does, on a file in a directory that is on it. It takes some 25 s at most.
/// `tell` is called with what is done next.
///
/// # Errors
/// In a sentence.
pub fn measure(
    directory: &Path,
    disk: &str,
    roots: &Roots,
    tell: &mut dyn FnMut(&str),
) -> Result<Measured, String> {
    Quiet::new(disk, roots).held_back()?;
    tell("writing the file to measure on");
    let scratch = Scratch::make(directory)?;
    let mut measured = Measured { bytes: scratch.bytes, ..Measured::default() };
    for writes in [false, true] {
        let what = if writes { "writing" } else { "reading" };
        let large_bytes = large_bytes(disk, roots);
        let mut quiet = Quiet::new(disk, roots);
        let mut rate = |far, bytes, kind: &str| {
            tell(&format!("{what} {kind}"));
            let found = counted(&scratch, Kind { writes, far, bytes }, &mut quiet)?;
            measured.cpu_bound |= found.cpu_bound && bytes == PAGE_BYTES;
            Ok::<f64, String>(found.per_second)
        };
        let found = Found {
            large_per_second: rate(false, large_bytes, "large pieces")?,
            sequential_per_second: rate(false, PAGE_BYTES, "pages near each other")?,
            random_per_second: rate(true, PAGE_BYTES, "pages far from each other")?,
            large_bytes,
        };
        *(if writes { &mut measured.write } else { &mut measured.read }) = found;
    }
    Ok(measured)
}

/// How much a large request has: no more than the kernel hands to this disk at once.
fn large_bytes(disk: &str, roots: &Roots) -> u64 {
    let file = roots.sys.join("block").join(disk).join("queue/max_sectors_kb");
    let most_kib = read_if_present(&file).ok().flatten().and_then(|text| text.parse::<u64>().ok());
    let most = most_kib.map_or(LARGE_BYTES, |kib| kib.saturating_mul(1024));
    (LARGE_BYTES.min(most) / PAGE_BYTES).max(1) * PAGE_BYTES
}

/// The same, where nothing else has had a part in it.
fn counted(scratch: &Scratch, kind: Kind, quiet: &mut Quiet<'_>) -> Result<Rate, String> {
    quiet.begin()?;
    let rate = scratch.rate(kind).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => format!(
            "this kernel lets nobody hand on many requests at once ({error}): it needs io_uring (sysctl kernel.io_uring_disabled=0)"
        ),
        _ => format!("{} cannot be measured: {error}", quiet.disk),
    })?;
    quiet.end(kind, &rate)?;
    Ok(rate)
}

/// A file to measure on.
struct Scratch {
    file: File,
    bytes: u64,
}

impl Scratch {
    fn make(directory: &Path) -> Result<Self, String> {
        let at = directory.display();
        let failed = |error: io::Error| refusal(&at.to_string(), &error);
        let flags = libc::O_TMPFILE | libc::O_DIRECT | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(directory);
        let file = file.map_err(failed)?;
        let room = fstatvfs(&file).map_err(|errno| failed(errno.into()))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        let wanted = (free / PART_OF_FREE).min(BYTES_MAX) / LARGE_BYTES * LARGE_BYTES;
        if wanted < BYTES_MIN {
            return Err(no_room(&at.to_string(), Some(free)));
        }
        // Without it the pieces are where there is room for each.
        let _ = fallocate(&file, FallocateFlags::empty(), 0, wanted);
        let noise = Buffer::of_noise(LARGE_BYTES as usize);
        let begun = Instant::now();
        let mut bytes = 0;
        while bytes < wanted && begun.elapsed() < FILL_AT_MOST {
            file.write_all_at(noise.bytes(), bytes).map_err(failed)?;
            bytes += LARGE_BYTES;
        }
        if bytes < BYTES_MIN {
            return Err(format!(
                "{at} is on a disk that has written {} in {} s: too little to measure on",
                format_size(bytes),
                FILL_AT_MOST.as_secs()
            ));
        }
        file.sync_all().map_err(failed)?;
        Ok(Scratch { file, bytes })
    }

    /// Makes requests of this kind.
    fn rate(&self, kind: Kind) -> io::Result<Rate> {
        let threads = match kind.bytes {
            PAGE_BYTES => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
            _ => 1,
        };
        let (cpu_before, programs_before) = (cpu_seconds(), programs_seconds());
        let begun = Instant::now();
        let outcomes: Vec<io::Result<Worked>> = std::thread::scope(|scope| {
            let places = |index: usize| Places::new(kind, self.bytes, index, threads);
            let worker = |index| scope.spawn(move || work(&self.file, kind, places(index)));
            let workers: Vec<_> = (0..threads).map(worker).collect();
            let gone = || Err(io::Error::other("a thread has ended"));
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| gone())).collect()
        });
        let of_all = begun.elapsed().as_secs_f64() * threads as f64;
        let cpu = (cpu_seconds() - cpu_before) / of_all;
        let programs = (programs_seconds() - programs_before).max(0.0) / begun.elapsed().as_secs_f64();
        let mut rate = Rate { programs, ..Rate::default() };
        for outcome in outcomes {
            let worked = outcome?;
            rate.requests += worked.requests;
            rate.per_second += worked.per_second;
            rate.waited += worked.waited.as_secs_f64() / of_all;
        }
        rate.cpu_bound = cpu + rate.waited > CPU_BOUND;
        Ok(rate)
    }
}

/// Why a file to measure on cannot be had there.
fn refusal(at: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EROFS) => {
            format!("{at} is on a file system that is read-only: nothing can be measured there")
        }
        Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => format!(
            "{at} is on a file system without files that have no name, or whose files cannot be written past the cache \
             (O_TMPFILE, O_DIRECT): name a directory of another file system of this disk"
        ),
        Some(libc::ENOSPC | libc::EDQUOT) => no_room(at, None),
        _ => format!("a file to measure on cannot be written in {at}: {error}"),
    }
}

fn no_room(at: &str, free: Option<u64>) -> String {
    let free = free.map_or_else(String::new, |free| format!(" of which {} are free", format_size(free)));
    format!(
        "{at} is on a file system{free}: half of what is free is taken to measure on for some seconds, and {} are needed",
        format_size(BYTES_MIN)
    )
}

/// What all threads of this process have run, in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How long other programs than this one have run, for each CPU, in seconds: their own instructions, for what the
/// kernel does may be done for this one. Nothing where it is not told.
fn programs_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let user = |line: &str| -> Option<u64> {
        let mut words = line.split_whitespace().skip(1);
        Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
    };
    let cpus = text.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1).max(1);
    let all = text.lines().next().and_then(user).unwrap_or(0) as f64;
    // The name, which may be anything, is in brackets; `utime` is the 14th field (proc_pid_stat(5)).
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let own = after.split_whitespace().nth(11).and_then(|word| word.parse::<f64>().ok()).unwrap_or(all);
    (all - own) / rustix::param::clock_ticks_per_second() as f64 / cpus as f64
}

/// Where in the file the next request is.
struct Places {
    kind: Kind,
    bytes: u64,
    at: u64,
    state: u64,
}

impl Places {
    /// Of one of several threads, each of which begins elsewhere.
    fn new(kind: Kind, bytes: u64, index: usize, threads: usize) -> Self {
        let part = bytes / threads.max(1) as u64 / PAGE_BYTES * PAGE_BYTES;
        Places { kind, bytes, at: part * index as u64, state: 0x9e37_79b9_7f4a_7c15 ^ (index as u64 + 1) }
    }

    /// None follows the one before at once: the kernel would make one request of both.
    fn next(&mut self) -> u64 {
        let step = match self.kind.far {
            true => {
                FAR_BYTES + noise(&mut self.state) % (self.bytes - 2 * FAR_BYTES) / PAGE_BYTES * PAGE_BYTES
            }
            false => 2 * self.kind.bytes,
        };
        self.at = (self.at + step) % self.bytes;
        // The last one may reach over the end.
        if self.at + self.kind.bytes > self.bytes {
            self.at = 0;
        }
        self.at
    }
}

/// Numbers in no order (Marsaglia 2003, xorshift).
fn noise(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Memory as requests past the page cache want it: it begins with a page.
struct Buffer {
    memory: Vec<u8>,
    first: usize,
}

impl Buffer {
    /// Filled with what nothing on the way can make smaller.
    fn of_noise(bytes: usize) -> Self {
        let page = PAGE_BYTES as usize;
        let mut state = 0x2545_f491_4f6c_dd1d;
        let words = (bytes + page).div_ceil(8);
        let memory: Vec<u8> = (0..words).flat_map(|_| noise(&mut state).to_ne_bytes()).collect();
        let first = memory.as_ptr().align_offset(page);
        Buffer { memory, first }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.first..self.memory.len() - (PAGE_BYTES as usize - self.first)]
    }
}

/// What a thread has done.
struct Worked {
    /// How many requests it made, and how many in a second were done while it counted.
    requests: u64,
    per_second: f64,
    /// For how long it could have run and others had its CPU.
    waited: Duration,
}

/// For how long this thread has waited for a CPU, ever (Documentation/scheduler/sched-stats.rst); nothing where the
/// kernel does not count it.
fn waited_for_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited_ns = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(waited_ns.unwrap_or(0))
}

/// Makes requests.
fn work(file: &File, kind: Kind, mut places: Places) -> io::Result<Worked> {
    let at_once = if kind.bytes == PAGE_BYTES { PAGES_AT_ONCE } else { LARGE_AT_ONCE };
    let mut ring = IoUring::new(at_once)?;
    let mut buffer = Buffer::of_noise(kind.bytes as usize * at_once as usize);
    let memory = buffer.memory[buffer.first..].as_mut_ptr();
    let descriptor = types::Fd(file.as_raw_fd());
    let mut entry = |slot: u64| -> squeue::Entry {
        let at = memory.wrapping_add((slot * kind.bytes) as usize);
        let (bytes, place) = (kind.bytes as u32, places.next());
        let entry = match kind.writes {
            true => opcode::Write::new(descriptor, at.cast_const(), bytes).offset(place).build(),
            false => opcode::Read::new(descriptor, at, bytes).offset(place).build(),
        };
        entry.user_data(slot)
    };
    let full = |_| io::Error::other("more requests than there is room for");
    for slot in 0..u64::from(at_once) {
        // SAFETY: the memory and the file outlive the request: all of them are waited for below.
        unsafe { ring.submission().push(&entry(slot)) }.map_err(full)?;
    }
    let (begun, waited_before) = (Instant::now(), waited_for_cpu());
    let (mut requests, mut under_way) = (u64::from(at_once), at_once);
    let (mut counted, mut counts_since, mut counted_for) = (0_u64, None::<Instant>, Duration::ZERO);
    let mut fault = None;
    while under_way > 0 {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // The kernel may still write there.
                std::mem::forget(buffer);
                return Err(error);
            }
            Ok(_) => {}
        }
        let done: Vec<(u64, i32)> = ring.completion().map(|done| (done.user_data(), done.result())).collect();
        let is_over = counts_since.is_some_and(|since: Instant| since.elapsed() >= COUNTED);
        if is_over && counted_for.is_zero() {
            counted_for = counts_since.map(|since| since.elapsed()).unwrap_or_default();
        } else if counts_since.is_some() && !is_over {
            counted += done.len() as u64;
        } else if counts_since.is_none() && begun.elapsed() >= WARM_UP {
            counts_since = Some(Instant::now());
        }
        for (slot, result) in done {
            under_way -= 1;
            if result < 0 {
                fault.get_or_insert(io::Error::from_raw_os_error(-result));
            } else if u64::from(result.unsigned_abs()) != kind.bytes {
                fault.get_or_insert(io::Error::other(format!("{result} of {} bytes were done", kind.bytes)));
            }
            if fault.is_none() && !is_over {
                // SAFETY: as above; the slot's last request is done.
                let pushed = unsafe { ring.submission().push(&entry(slot)) };
                match pushed.map_err(full) {
                    Ok(()) => (requests, under_way) = (requests + 1, under_way + 1),
                    Err(error) => fault = Some(error),
                }
            }
        }
    }
    if fault.is_none() && counted_for > COUNTED_MAX {
        fault = Some(io::Error::other(format!(
            "it was held up for {} s (stopped, frozen, or a request that took as long); try again",
            (counted_for - COUNTED).as_secs()
        )));
    }
    let waited = waited_for_cpu().saturating_sub(waited_before);
    let per_second = counted as f64 / counted_for.as_secs_f64();
    fault.map_or(Ok(Worked { requests, per_second, waited }), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn places_are_in_the_file_and_near_or_far_and_never_one_after_the_other() {
        for (bytes, far) in [(PAGE_BYTES, false), (PAGE_BYTES, true), (LARGE_BYTES, false)] {
            let mut places = Places::new(Kind { writes: false, far, bytes }, BYTES_MIN, 1, 3);
            let mut before = places.next();
            for _ in 0..10_000 {
                let at = places.next();
                assert!(at.is_multiple_of(PAGE_BYTES) && at + bytes <= BYTES_MIN, "{at}");
                let apart = at.abs_diff(before);
                match far {
                    true => assert!(apart > 16 << 20, "{before} and {at}"),
                    false => assert!(at == 0 || at - before == 2 * bytes, "{before} and {at}"),
                }
                before = at;
            }
        }
    }

    #[test]
    fn memory_for_requests_begins_with_a_page() {
        for bytes in [PAGE_BYTES as usize, 8 * PAGE_BYTES as usize] {
            let buffer = Buffer::of_noise(bytes);
            assert_eq!(buffer.bytes().as_ptr().align_offset(PAGE_BYTES as usize), 0);
            assert_eq!(buffer.bytes().len(), bytes);
        }
    }

    #[test]
    fn a_large_request_is_no_larger_than_the_kernel_hands_on_at_once() {
        for (kib, bytes) in
            [("1280", LARGE_BYTES), ("128", 128 << 10), ("7", 4096), ("0", 4096), ("x", LARGE_BYTES)]
        {
            let (_directory, roots) = with_files(&[("sys/block/sda/queue/max_sectors_kb", kib)]);
            assert_eq!(large_bytes("sda", &roots), bytes, "{kib}");
        }
    }

    #[test]
    fn where_nothing_can_be_measured_is_said() {
        for (errno, says) in [
            (libc::EROFS, "/data is on a file system that is read-only"),
            (libc::EOPNOTSUPP, "/data is on a file system without files that have no name"),
            (libc::ENOSPC, "48M are needed"),
            (libc::EACCES, "cannot be written in /data: Permission denied"),
        ] {
            let why = refusal("/data", &io::Error::from_raw_os_error(errno));
            assert!(why.contains(says), "{why}");
        }
        let why = Scratch::make(Path::new("/nowhere")).err().expect("nothing is there");
        assert!(why.contains("a file to measure on cannot be written in /nowhere: No such file"), "{why}");
        let why = no_room("/boot", Some(7 << 20));
        assert!(why.contains("of which 7M are free") && why.contains("48M are needed"), "{why}");
    }
}
