//! The CPU time that the daemon itself spends on disks: it is to be less than 0.2 % of a CPU.
//!
//! Each of its threads counts its own, by the thread's clock, which stands still while the thread waits. What the BPF
//! program counts in the kernel is not in it: that is part of whoever hands a request on (docs/disk.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// What was spent on one thing, by whichever threads.
#[derive(Clone, Debug, Default)]
pub struct Spent(Arc<AtomicU64>);

impl Spent {
    /// In nanoseconds of CPU time.
    pub fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Does this, and counts what the calling thread spends on it.
    pub fn on<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut meter = Meter::new(self, thread_ns());
        let done = work();
        meter.note();
        done
    }

    /// Counts what the calling thread has spent since its start, whenever it [notes](Meter::note) that.
    pub fn by_this_thread(&self) -> Meter {
        Meter::new(self, 0)
    }
}

/// What one thread has spent, as far as it was noted.
#[derive(Debug)]
pub struct Meter {
    spent: Spent,
    noted_ns: u64,
}

impl Meter {
    fn new(spent: &Spent, noted_ns: u64) -> Self {
        Meter { spent: spent.clone(), noted_ns }
    }

    /// Counts what was spent since the last call. To be called by the same thread.
    pub fn note(&mut self) {
        let now_ns = thread_ns();
        self.spent.0.fetch_add(now_ns.saturating_sub(self.noted_ns), Ordering::Relaxed);
        self.noted_ns = now_ns;
    }
}

/// What the calling thread has spent since its start, in nanoseconds.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends so much, by the thread's own clock.
    fn spend(ns: u64) {
        let begun_ns = thread_ns();
        while thread_ns() - begun_ns < ns {}
    }

    #[test]
    fn what_a_thread_spends_on_it_is_counted_and_what_it_spends_otherwise_is_not() {
        const MS: u64 = 1_000_000;
        let spent = Spent::default();
        spend(MS);
        assert_eq!(spent.ns(), 0);
        let before_ns = thread_ns();
        spent.on(|| spend(2 * MS));
        let on_it_ns = spent.ns();
        assert!((2 * MS..=thread_ns() - before_ns).contains(&on_it_ns), "{on_it_ns}");
        spend(MS);
        assert_eq!(spent.ns(), on_it_ns);
        // Another thread's are counted with it, each once.
        let of_thread = spent.clone();
        let thread = std::thread::spawn(move || {
            let mut meter = of_thread.by_this_thread();
            spend(MS);
            meter.note();
            spend(MS);
            meter.note();
            thread_ns()
        });
        let most_ns = thread.join().expect("it ends");
        let by_thread_ns = spent.ns() - on_it_ns;
        assert!((2 * MS..=most_ns).contains(&by_thread_ns), "{by_thread_ns} of {most_ns}");
    }
}
