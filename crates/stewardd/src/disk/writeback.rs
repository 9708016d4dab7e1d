//! When the kernel's flusher is to come round often. After a cgroup has begun or ceased to hand out memory or the disk
//! nobody else has it bring to disks what was changed, for seconds ([`steward_kernel::disk::writeback`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::knobs::Knobs;
use crate::turn::part::Part;
use crate::turn::worker::{About, Job, Progress};

/// For how long after that, in nanoseconds.
const OFTEN_FOR_NS: u64 = 5_000_000_000;

/// How long after it is to be over it is looked again whether the worker has begun it, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// Until when, in nanoseconds, where it is.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    often_until_ns: Option<u64>,
    /// Whether the worker has come to it. It may be busy for longer than that, with what waits for disks.
    is_begun: Arc<AtomicBool>,
}

impl Writeback {
    /// A cgroup has begun or ceased to hand out memory or the disk where `has_changed`; a job for the worker where the
    /// flusher is to come round often from now on, or no longer.
    pub(super) fn job(&mut self, now_ns: u64, has_changed: bool, knobs: &Arc<dyn Knobs>) -> Option<Job> {
        let is_over = self.often_until_ns.is_some_and(|until_ns| until_ns <= now_ns);
        if !has_changed && !is_over {
            return None;
        }
        if !has_changed && !self.is_begun.load(Ordering::Acquire) {
            self.often_until_ns = Some(now_ns + LOOK_AGAIN_NS);
            return None;
        }
        self.often_until_ns = has_changed.then_some(now_ns + OFTEN_FOR_NS);
        self.is_begun.store(false, Ordering::Release);
        let (knobs, is_begun) = (Arc::clone(knobs), Arc::clone(&self.is_begun));
        let work = move || {
            is_begun.store(true, Ordering::Release);
            if let Err(why) = knobs.flush_often(has_changed) {
                tracing::debug!(
                    decision = "disk-writeback",
                    "the kernel's flusher comes round as it does: {why}"
                );
            }
            Ok(Progress::Done)
        };
        Some(Job { about: About::Writeback, work: Box::new(work) })
    }
}

impl Part for Writeback {
    fn poll_timeout(&self, _: u64) -> Option<u64> {
        self.often_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::disk::FakeDisk;

    #[test]
    fn it_does_from_each_change_until_seconds_after_the_last() {
        let fake = FakeDisk::default();
        let knobs: Arc<dyn Knobs> = Arc::new(fake.clone());
        let mut writeback = Writeback::default();
        let mut at = |now_ns, has_changed| {
            let job = writeback.job(now_ns, has_changed, &knobs);
            job.into_iter().for_each(|job| assert_eq!((job.work)(), Ok(Progress::Done)));
            (fake.flushes(), writeback.poll_timeout(now_ns))
        };
        assert_eq!(at(0, false), (vec![], None));
        assert_eq!(at(1, true), (vec![true], Some(1 + OFTEN_FOR_NS)));
        assert_eq!(at(OFTEN_FOR_NS, true), (vec![true, true], Some(2 * OFTEN_FOR_NS)));
        assert_eq!(at(1 + OFTEN_FOR_NS, false), (vec![true, true], Some(2 * OFTEN_FOR_NS)));
        assert_eq!(at(2 * OFTEN_FOR_NS, false), (vec![true, true, false], None));
        assert_eq!(at(u64::MAX, false), (vec![true, true, false], None));
    }

    #[test]
    fn it_is_not_over_before_the_worker_has_come_to_it() {
        let fake = FakeDisk::default();
        let knobs: Arc<dyn Knobs> = Arc::new(fake.clone());
        let mut writeback = Writeback::default();
        let begins = writeback.job(0, true, &knobs).expect("it is to come round often");
        assert!(writeback.job(OFTEN_FOR_NS, false, &knobs).is_none());
        assert_eq!(writeback.poll_timeout(OFTEN_FOR_NS), Some(OFTEN_FOR_NS + LOOK_AGAIN_NS));
        assert_eq!((begins.work)(), Ok(Progress::Done));
        let ends = writeback.job(OFTEN_FOR_NS + LOOK_AGAIN_NS, false, &knobs).expect("it is over");
        assert_eq!((ends.work)(), Ok(Progress::Done));
        assert_eq!(fake.flushes(), [true, false]);
    }
}
