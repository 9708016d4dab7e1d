//! Threads that compute without end and note how long they waited to go on, in memory that a check reads.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use steward_lab_workloads::keep_busy;

/// What a thread notes, in nanoseconds of the clock that the whole machine has.
#[derive(Default)]
pub struct Note {
    /// When it last went on; 0: it is not there yet.
    last_ns: AtomicU64,
    /// The longest that it did not.
    longest_ns: AtomicU64,
}

/// The notes of a process that was started with `watched`.
pub struct Notes(&'static [Note]);

impl Notes {
    /// The notes of so many threads in a file, which is made if it is not there. A note shows zeros until its thread
    /// writes it.
    fn open(path: &str, count: usize) -> std::io::Result<Self> {
        let bytes = count * size_of::<Note>();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(bytes as u64)?;
        // SAFETY: a new mapping, never unmapped; what is in it is atomic numbers, of which any value is one.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping is as long as that.
        Ok(Notes(unsafe { std::slice::from_raw_parts(at.cast(), count) }))
    }

    /// The notes of a process that is about to be started with this file.
    pub fn of_new(path: &str, count: usize) -> Result<Self, String> {
        let _ = fs::remove_file(path);
        Notes::open(path, count).map_err(|error| format!("{path}: {error}"))
    }

    /// Whether all threads could go on at some moment.
    pub fn are_all_there(&self) -> bool {
        self.0.iter().all(|note| note.last_ns.load(Ordering::Relaxed) > 0)
    }

    /// The longest that each thread has waited, up to now, in seconds.
    pub fn longest(&self) -> Vec<f64> {
        let now_ns = now_ns();
        let longest_ns = self.0.iter().map(|note| {
            let waits_ns = now_ns.saturating_sub(note.last_ns.load(Ordering::Relaxed));
            waits_ns.max(note.longest_ns.load(Ordering::Relaxed))
        });
        longest_ns.map(|ns| ns as f64 / 1e9).collect()
    }
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Computes, and notes when.
fn compute(note: &Note) -> ! {
    loop {
        let now_ns = now_ns();
        let waited_ns = now_ns.saturating_sub(note.last_ns.swap(now_ns, Ordering::Relaxed));
        note.longest_ns.fetch_max(waited_ns, Ordering::Relaxed);
        for _ in 0..40 {
            keep_busy();
        }
    }
}

/// So many threads of this nice value. All of them begin at the same moment.
pub fn run(count: usize, nice: i32, path: &str) -> ! {
    // SAFETY: plain system call on ourselves.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    let notes: &'static [Note] = Notes::open(path, count).expect("there are notes").0;
    let begin_ns = Arc::new(AtomicU64::new(0));
    for note in &notes[1..] {
        let begin_ns = begin_ns.clone();
        let thread = move || {
            while begin_ns.load(Ordering::Relaxed) == 0 {
                sleep(Duration::from_secs(1));
            }
            compute(note)
        };
        std::thread::Builder::new().stack_size(1 << 16).spawn(thread).expect("the thread starts");
    }
    let now_ns = now_ns();
    notes.iter().for_each(|note| note.last_ns.store(now_ns, Ordering::Relaxed));
    begin_ns.store(now_ns, Ordering::Relaxed);
    compute(&notes[0])
}
