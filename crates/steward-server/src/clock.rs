//! The clocks that requests are measured with.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(time_ns) = simulated::now_ns() {
        return time_ns;
    }
    read(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that the calling thread has had. A system call of some 200 ns: the kernel answers this clock
/// nowhere else.
pub(crate) fn thread_cpu_ns() -> u64 {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(time_ns) = simulated::thread_cpu_ns() {
        return time_ns;
    }
    read(ClockId::ThreadCPUTime)
}

/// Nanoseconds of CPU time that another thread of this process has had; 0 if that cannot be told.
pub(crate) fn cpu_ns_of(tid: i32) -> u64 {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(time_ns) = simulated::cpu_ns_of(tid) {
        return time_ns;
    }
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What the kernel tells of a thread's waiting for a CPU. Opening it takes twice as long as reading it, and who keeps
/// it open needs a descriptor.
#[derive(Debug)]
pub(crate) struct ThreadDelay(File);

impl ThreadDelay {
    /// Of the calling thread; `None` if that cannot be told.
    pub(crate) fn open() -> Option<Self> {
        File::open("/proc/thread-self/schedstat").ok().map(ThreadDelay)
    }

    /// Nanoseconds that the thread has waited for a CPU; `None` if that cannot be told.
    pub(crate) fn read_ns(&self) -> Option<u64> {
        // Three numbers of no more than twenty digits.
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?.parse().ok()
    }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |number| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Clocks that a test or the simulation sets, for its own thread.
#[cfg(any(test, feature = "simulation"))]
pub(crate) mod simulated {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Time {
        now_ns: u64,
        /// The thread that asks, and what each one has had.
        tid: i32,
        cpu_ns: BTreeMap<i32, u64>,
    }

    thread_local! {
        static TIME: RefCell<Option<Time>> = const { RefCell::new(None) };
    }

    /// From now on the calling thread reads these clocks, which begin at 0.
    pub(crate) fn begin() {
        TIME.set(Some(Time::default()));
    }

    /// From now on it reads those of the machine again.
    pub(crate) fn end() {
        TIME.set(None);
    }

    pub(crate) fn set_now(now_ns: u64) {
        with(|time| time.now_ns = now_ns);
    }

    /// The calling thread is taken for that one, which has had so much CPU time.
    pub(crate) fn set_thread(tid: i32, cpu_ns: u64) {
        with(|time| {
            time.tid = tid;
            time.cpu_ns.insert(tid, cpu_ns);
        });
    }

    pub(super) fn now_ns() -> Option<u64> {
        with(|time| time.now_ns)
    }

    pub(super) fn thread_cpu_ns() -> Option<u64> {
        with(|time| time.cpu_ns.get(&time.tid).copied().unwrap_or(0))
    }

    pub(super) fn cpu_ns_of(tid: i32) -> Option<u64> {
        with(|time| time.cpu_ns.get(&tid).copied().unwrap_or(0))
    }

    fn with<T>(change: impl FnOnce(&mut Time) -> T) -> Option<T> {
        TIME.with_borrow_mut(|time| time.as_mut().map(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thread has its own file, which says more when the thread has waited more.
    #[test]
    fn a_threads_delay_is_read_again_from_the_file_that_was_opened_once() {
        let delay = ThreadDelay::open().expect("the kernel tells it");
        let before_ns = delay.read_ns().expect("three numbers");
        let by_name = std::fs::read_to_string("/proc/thread-self/schedstat").expect("it is there");
        let by_name_ns: u64 =
            by_name.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number");
        assert!(before_ns <= by_name_ns && by_name_ns <= delay.read_ns().expect("as before"));
    }
}
