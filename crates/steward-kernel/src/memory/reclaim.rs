//! Takes memory from cgroups (`memory.reclaim`, Documentation/admin-guide/cgroup-v2.rst), in threads of its own.
//!
//! The kernel holds up whoever writes that file until it has reclaimed what was asked for, on a slow disk for seconds.
//! So a job is done in pieces, by a few threads that are there before the machine is full, and the loop that gives jobs
//! waits for none. It is woken (the pool's descriptor is readable) when there are outcomes. Between two pieces a job
//! can be cancelled. Who may wait has [`take_waiting`].
//!
//! The threads allocate nothing for a piece. That they are not swapped out is up to the process: `mlockall` with
//! `MCL_FUTURE` before the pool is made covers their stacks, with `MCL_ONFAULT` as far as they are used. At an ordinary
//! nice value they come too late on a busy machine; see [`PoolOptions::nice`].

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use crate::cgroup::directory::CgroupDirectory;
use crate::error::KernelError;
use crate::roots::Roots;

mod idle;
mod job;
mod queue;

pub use job::{End, ReclaimJob, ReclaimOutcome};
use queue::{Queue, Running, Waiting};

const FILE: &str = "memory.reclaim";
/// The most that is asked of the kernel at once, in bytes: larger pieces hold a thread up for up to a second, and
/// cannot be cancelled meanwhile.
pub const PIECE_BYTES_MAX: u64 = 1 << 20;
/// The stack of a thread, in bytes: all of it is in memory where the process is locked without `MCL_ONFAULT`.
const STACK_BYTES: usize = 128 << 10;

/// Has the kernel take so much from a cgroup. The caller waits until that is done: 56 ms for half a mebibyte on a slow
/// disk, and a second under load, were measured.
///
/// # Errors
/// [`KernelError::Write`] naming the file; `EAGAIN` when that much cannot be had.
pub fn take_waiting(cgroup: &CgroupDirectory, bytes: u64) -> Result<(), KernelError> {
    cgroup.write(FILE, &bytes.to_string())
}

/// How a pool is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// How many threads, at least 1.
    pub threads: usize,
    /// How many jobs wait at most; those in hand do not count.
    pub waiting_max: usize,
    /// The nice value of the threads; `None` for the caller's. One below 0 needs `CAP_SYS_NICE`; see
    /// [`ReclaimPool::nice_failed`].
    pub nice: Option<i32>,
}

/// The threads, as the loop sees them. Dropping it gives up what waits, and waits for the pieces in hand.
#[derive(Debug)]
pub struct ReclaimPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What all threads see.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Counts outcomes that nobody has taken yet.
    bell: OwnedFd,
    roots: Roots,
    nice_failed: AtomicBool,
}

impl ReclaimPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub fn start(options: PoolOptions, roots: &Roots) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(options.waiting_max)),
            changed: Condvar::new(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            roots: roots.clone(),
            nice_failed: AtomicBool::new(false),
        });
        // With those that have started it is a pool, which ends them when it is dropped.
        let mut pool = ReclaimPool { shared, threads: Vec::new() };
        for _ in 0..options.threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name("reclaim".into()).stack_size(STACK_BYTES);
            pool.threads.push(builder.spawn(move || shared.work(options.nice))?);
        }
        Ok(pool)
    }

    /// Has memory taken, after what was given before. The job's number, by which it can be cancelled.
    ///
    /// # Errors
    /// The job, when as many as may wait do so already.
    pub fn give(&self, job: ReclaimJob) -> Result<u64, ReclaimJob> {
        let number = self.shared.lock().push(job)?;
        self.shared.changed.notify_one();
        Ok(number)
    }

    /// Gives a job up: at once if it waits, after its present piece if it is in hand. It has an outcome all the same.
    /// One that has ended is none of anybody's business.
    pub fn cancel(&self, number: u64) {
        if self.shared.lock().cancel(number) {
            self.shared.ring();
        }
    }

    /// What has become of jobs since the last call.
    pub fn take_outcomes(&self) -> Vec<ReclaimOutcome> {
        // First the bell: what comes after this rings it again.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        std::mem::take(&mut self.shared.lock().outcomes)
    }

    /// How many jobs wait or are in hand.
    pub fn unfinished(&self) -> usize {
        self.shared.lock().unfinished()
    }

    /// Whether a thread was not given its nice value, for want of the right to it.
    pub fn nice_failed(&self) -> bool {
        self.shared.nice_failed.load(Ordering::Relaxed)
    }
}

impl AsFd for ReclaimPool {
    /// Readable when there are outcomes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

impl Drop for ReclaimPool {
    fn drop(&mut self) {
        self.shared.lock().end();
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was said by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nobody panics with the lock, and if somebody did: the queue would still be one.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // A counter that is full has woken the loop already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn work(&self, nice: Option<i32>) {
        // Of this thread alone: for Linux it is a process of its own here.
        if nice.is_some_and(|nice| rustix::process::setpriority_process(None, nice).is_err()) {
            self.nice_failed.store(true, Ordering::Relaxed);
        }
        while let Some((Waiting { number, job }, is_cancelled)) = self.next() {
            let outcome = carry_out(number, job, &is_cancelled, &self.roots);
            self.lock().finished(outcome);
            self.ring();
        }
    }

    /// The next job, as soon as there is one; `None` once there will be none.
    fn next(&self) -> Option<(Waiting, Running)> {
        let queue = self.changed.wait_while(self.lock(), |queue| queue.is_idle());
        queue.unwrap_or_else(PoisonError::into_inner).pop()
    }
}

fn carry_out(number: u64, job: ReclaimJob, is_cancelled: &Running, roots: &Roots) -> ReclaimOutcome {
    let begun = Instant::now();
    let (mut taken_bytes, mut pieces) = (0, 0);
    if let Some(idle_ns) = job.idle_ns {
        let end = idle::take(&job, idle_ns, roots, &mut taken_bytes);
        pieces += u64::from(taken_bytes > 0);
        return ReclaimOutcome { number, job, taken_bytes, pieces, duration: begun.elapsed(), end };
    }
    let end = match open(&job, roots) {
        Ok(None) => End::Gone,
        Err(error) if error.is_absent() => End::Gone,
        Err(error) => End::Failed(error),
        Ok(Some((cgroup, mut file))) => {
            let mut told = |bytes| (taken_bytes, pieces) = (taken_bytes + bytes, pieces + 1);
            take(&job, &cgroup, &mut file, is_cancelled, &mut told)
        }
    };
    ReclaimOutcome { number, job, taken_bytes, pieces, duration: begun.elapsed(), end }
}

/// The cgroup with the file that takes its memory; `None` where another cgroup has the name.
fn open(job: &ReclaimJob, roots: &Roots) -> Result<Option<(CgroupDirectory, File)>, KernelError> {
    let Some(cgroup) = CgroupDirectory::open_same(&job.cgroup, job.id, roots)? else { return Ok(None) };
    match cgroup.open_to_write(FILE) {
        Ok(file) => Ok(Some((cgroup, file))),
        Err(_) if !cgroup.is_there() => Ok(None),
        // A kernel before 5.19, or a parent that does not hand out memory: not to be taken for a cgroup that has gone.
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            let expected = "memory.reclaim (Linux 5.19), in a cgroup whose parent hands out memory";
            Err(KernelError::parse(cgroup.path_of(FILE), expected, "no such file"))
        }
        Err(source) => Err(KernelError::Read { path: cgroup.path_of(FILE), source }),
    }
}

fn take(
    job: &ReclaimJob,
    cgroup: &CgroupDirectory,
    file: &mut File,
    is_cancelled: &Running,
    told: &mut impl FnMut(u64),
) -> End {
    let mut left_bytes = job.bytes;
    let mut text = String::with_capacity(48);
    while left_bytes > 0 {
        if is_cancelled.load(Ordering::Relaxed) {
            return End::Cancelled;
        }
        let piece_bytes = left_bytes.min(PIECE_BYTES_MAX);
        text.clear();
        // Writing into a string does not fail.
        let _ = match job.swappiness {
            Some(swappiness) => write!(text, "{piece_bytes} swappiness={swappiness}"),
            None => write!(text, "{piece_bytes}"),
        };
        match file.write(text.as_bytes()) {
            Ok(_) => told(piece_bytes),
            // A signal ended the piece early; the next one asks for as much again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return End::NothingToBeHad,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return End::Gone,
            Err(source) => {
                let path = cgroup.path_of(FILE);
                return End::Failed(KernelError::Write { path, value: text, source });
            }
        }
        left_bytes -= piece_bytes;
    }
    End::Done
}

#[cfg(test)]
mod tests;
