//! How a worker says that it begins with another request, for which it is to have a fresh start time and period.
//!
//! A worker that has slept gets that anyway when it wakes. One that goes on without having slept says so, by a number
//! in its own memory that the scheduler reads there: one store, and no system call. Where nobody reads the number, it
//! sleeps for as short as it can, which the kernel takes for what it is: the same rule decides about a worker that
//! wakes.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

thread_local! {
    /// The number of this thread's request. It stays where it is for as long as the thread lives.
    static REQUEST: AtomicU32 = const { AtomicU32::new(0) };
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// A thread that serves requests, as the kernel knows it.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) tid: i32,
    /// Where the number of its request stands in memory.
    pub(super) requests_at: u64,
    /// Its request is done, and it is about to say so: what it uses meanwhile is not the request's.
    pub(super) is_done: Arc<AtomicBool>,
}

impl Task {
    /// The calling thread.
    pub(super) fn own() -> Self {
        let requests_at = REQUEST.with(|request| request.as_ptr() as usize as u64);
        let is_done = Arc::new(AtomicBool::new(false));
        Task { tid: rustix::thread::gettid().as_raw_nonzero().get(), requests_at, is_done }
    }
}

/// Whether the scheduler reads the numbers of the workers that have a reservation.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    are_read: AtomicBool,
}

impl Announcements {
    /// The daemon says whether they are.
    pub(super) fn set_read(&self, are_read: bool) {
        self.are_read.store(are_read, Ordering::Relaxed);
    }

    /// The calling thread, which has a reservation, begins with a request.
    pub(super) fn begins(&self) {
        if !SERVES.replace(true) {
            return;
        }
        if self.are_read.load(Ordering::Relaxed) {
            announce();
        } else {
            std::thread::sleep(Duration::from_nanos(1));
        }
    }

    /// The calling thread is about to sleep until there is another request.
    pub(super) fn sleeps(&self) {
        SERVES.set(false);
    }
}

/// Some nanoseconds. Nobody but this thread writes the number, and nothing else is to be seen together with it.
fn announce() {
    REQUEST.with(|request| request.store(request.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number() -> u32 {
        REQUEST.with(|request| request.load(Ordering::Relaxed))
    }

    #[test]
    fn only_a_worker_that_has_not_slept_announces_its_next_request() {
        let announcements = Announcements::default();
        announcements.set_read(true);
        announcements.sleeps();
        let before = number();
        announcements.begins();
        assert_eq!(number(), before);
        announcements.begins();
        announcements.begins();
        assert_eq!(number(), before + 2);
        announcements.sleeps();
        announcements.begins();
        assert_eq!(number(), before + 2);
    }

    #[test]
    fn what_nobody_reads_is_not_written_and_the_worker_sleeps_instead() {
        let announcements = Announcements::default();
        let (before, slept) = (number(), sleeps());
        (0..3).for_each(|_| announcements.begins());
        assert_eq!(number(), before);
        assert!(sleeps() >= slept + 2, "{slept} sleeps before, {} after", sleeps());
    }

    /// How often this thread has given up the CPU of its own will.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("there is one");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse().ok()).expect("a number")
    }

    #[test]
    fn the_number_stands_where_the_task_says() {
        let task = Task::own();
        let announcements = Announcements::default();
        announcements.set_read(true);
        (0..2).for_each(|_| announcements.begins());
        // SAFETY: the number of this thread, which lives.
        let read = unsafe { AtomicU32::from_ptr(task.requests_at as usize as *mut u32) };
        assert_eq!(read.load(Ordering::Relaxed), number());
        let other = std::thread::spawn(Task::own).join().expect("no panic");
        assert!(other.tid != task.tid);
    }
}
