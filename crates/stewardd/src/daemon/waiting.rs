//! What the daemon waits for: each part says which descriptors announce something for it, and when it has something to do that
//! none announces.

use std::os::fd::{AsFd, BorrowedFd};

use super::Daemon;
use crate::turn::descriptors::{Source, Wait};

impl Daemon {
    /// The descriptors that announce something for [`Daemon::tick`], or for an answer that waits.
    pub(crate) fn descriptors(&self) -> Vec<Wait<'_>> {
        let own = [
            Wait::readable(Source::Polkit, self.polkit.as_fd()),
            Wait::readable(Source::Worker, self.worker.as_fd()),
        ];
        let mechanism = self.mechanism.as_ref().and_then(|mechanism| mechanism.event_descriptor());
        // SAFETY: the mechanism keeps its descriptor open for as long as it lives, and it is not touched while this is borrowed.
        let mechanism = mechanism.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) });
        let mechanism = mechanism.map(|events| Wait::readable(Source::Mechanism, events));
        let domains = self.domains.descriptor().map(|changes| Wait::readable(Source::Domains, changes));
        own.into_iter().chain(mechanism).chain(domains).collect()
    }

    /// When [`Daemon::tick`] or [`Daemon::sample_if_due`] has something to do that no descriptor announces, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub(crate) fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let scans = self.mechanism.as_ref().is_some_and(|mechanism| mechanism.scan_every().is_some());
        let scan_at_ns = scans.then_some(self.scan_at_ns);
        let sample_at_ns = Some(self.sampler.wake_at_ns(now_ns));
        let moments = [self.loading.retry_at_ns, scan_at_ns, self.audit.wake_at_ns(), sample_at_ns];
        moments.into_iter().flatten().min()
    }
}
