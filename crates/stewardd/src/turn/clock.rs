//! The clocks that the daemon goes by.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The CPU time of this thread, in nanoseconds: what is slow because others run costs nothing.
pub(crate) fn cpu_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of `CLOCK_MONOTONIC` but those in which this thread could run and others did: what it takes and what it
/// waits for are somebody's doing, but whom it stands behind is not. Where the kernel does not say how long that was,
/// all counts.
pub(crate) fn own_time_ns() -> u64 {
    // In this order: who is put aside between the two has it counted, and not taken off twice.
    let stood_behind_ns = stood_behind_ns().unwrap_or(0);
    now_ns().saturating_sub(stood_behind_ns)
}

/// How long this thread stood behind others in all, in nanoseconds (`schedstat` of proc(5), the second number).
fn stood_behind_ns() -> Option<u64> {
    thread_local! {
        static SCHEDSTAT: Option<File> = File::open("/proc/thread-self/schedstat").ok();
    }
    let mut bytes = [0; 64];
    let count = SCHEDSTAT.with(|file| file.as_ref()?.read_at(&mut bytes, 0).ok())?;
    std::str::from_utf8(&bytes[..count]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_does_or_waits_for_is_its_own_time_and_no_more_than_all_time() {
        let (began_ns, own_began_ns, cpu_began_ns) = (now_ns(), own_time_ns(), cpu_time_ns());
        for round in 1..=5 {
            let a_while = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            assert_eq!(rustix::event::poll(&mut [], Some(&a_while)), Ok(0));
            while cpu_time_ns() - cpu_began_ns < round * 5_000_000 {}
        }
        let own_ns = own_time_ns() - own_began_ns;
        assert!(own_ns <= now_ns() - began_ns);
        assert!(own_ns >= 100_000_000, "{own_ns}");
    }

    #[test]
    fn while_others_have_the_cpu_own_time_stands_still() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        if stood_behind_ns().is_none() {
            return;
        }
        let all = sched_getaffinity(None).expect("there are CPUs");
        let one = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).expect("there is one");
        let mut only = CpuSet::new();
        only.set(one);
        let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        sched_setaffinity(None, &only).expect("a thread may stay where it may be");
        let (began_ns, own_began_ns) = (now_ns(), own_time_ns());
        let behind_began_ns = stood_behind_ns().expect("it was told before");
        let other = std::thread::spawn({
            let is_over = std::sync::Arc::clone(&is_over);
            move || while !is_over.load(std::sync::atomic::Ordering::Relaxed) {}
        });
        let behind_ns = || stood_behind_ns().map_or(0, |ns| ns - behind_began_ns);
        while behind_ns() < 50_000_000 {}
        let own_ns = own_time_ns() - own_began_ns;
        let all_ns = now_ns() - began_ns;
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        other.join().expect("it ends");
        assert!(own_ns <= all_ns - 50_000_000, "{own_ns} of {all_ns}");
    }
}
