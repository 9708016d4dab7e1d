//! The clocks that requests are measured with.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that the calling thread has had. A system call of some 200 ns: the kernel answers this clock
/// nowhere else.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Nanoseconds of CPU time that another thread of this process has had; 0 if that cannot be told.
pub(crate) fn cpu_ns_of(tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Nanoseconds that the calling thread has waited for a CPU; `None` if that cannot be told. Reads a file: some two
/// microseconds.
pub(crate) fn thread_delay_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |number| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
