//! What the daemon waits for: each part says which descriptors announce something for it, and when it has something to
//! do that none announces.

use std::os::fd::AsFd;

use super::Daemon;
use crate::turn::descriptors::{Source, Wait};

impl Daemon {
    /// The descriptors that announce something for [`Daemon::tick`], or for an answer that waits.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = Wait<'_>> {
        let own = [
            Wait::readable(Source::Polkit, self.polkit.as_fd()),
            Wait::readable(Source::Worker, self.worker.as_fd()),
            Wait::readable(Source::Memory, self.memory.as_fd()),
            Wait::readable(Source::Memory, self.activity.as_fd()),
        ];
        let domains = self.domains.descriptor().map(|changes| Wait::readable(Source::Domains, changes));
        own.into_iter().chain(self.cpu.descriptors()).chain(self.running.descriptors()).chain(domains)
    }

    /// When [`Daemon::tick`] or [`Daemon::sample_if_due`] has something to do that no descriptor announces, in
    /// nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let memory_at_ns = self.memory_audit.wake_at_ns();
        let (running_at_ns, disk_at_ns) = (self.running.poll_timeout(), self.disk.poll_timeout());
        let moments = [self.cpu.poll_timeout(now_ns), running_at_ns, memory_at_ns, disk_at_ns];
        moments.into_iter().flatten().min()
    }
}
