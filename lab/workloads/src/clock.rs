//! The two clocks that the programs use: time since boot, and CPU time of the calling thread.

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of CPU time that the calling thread has received.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until `CLOCK_MONOTONIC` reads `at_ns`; returns at once when that has passed.
pub fn sleep_until(at_ns: u64) {
    let at = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `at` outlives the call; the remaining time is not asked for, because the time is absolute.
    while unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut())
    } == libc::EINTR
    {}
}

/// Waits before the work begins, so that many programs can be started while none of them computes.
pub fn wait_seconds(seconds: f64) {
    sleep_until(now_ns() + (seconds * 1e9) as u64);
}

/// Uses the CPU until the calling thread's CPU time reads `until_ns`.
pub fn burn_until(until_ns: u64) {
    while thread_cpu_ns() < until_ns {
        crate::spin(300);
    }
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call. These clocks exist on every kernel that Steward runs on.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "clock_gettime({clock}) failed");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
