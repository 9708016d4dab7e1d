//! What the daemon waits for: each part says which descriptors announce something for it, and when it has something to
//! do that none announces.

use super::Daemon;
use crate::turn::descriptors::Wait;
use crate::turn::part::Part;

impl Daemon {
    /// The descriptors that announce something for [`Daemon::tick`], or for an answer that waits, for as long as this
    /// runs.
    pub(crate) fn lasting_descriptors(&self) -> impl Iterator<Item = Wait<'_>> {
        self.parts().into_iter().flat_map(|part| part.lasting_descriptors())
    }

    /// Those that do so now, and may be others in the next turn.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = Wait<'_>> {
        self.parts().into_iter().filter_map(|part| part.descriptor())
    }

    /// When [`Daemon::tick`] or [`Daemon::sample_if_due`] has something to do that no descriptor announces, in
    /// nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        self.parts().into_iter().filter_map(|part| part.poll_timeout(now_ns)).min()
    }

    /// What all resources share, then each resource.
    fn parts(&self) -> [&dyn Part; 8] {
        [
            &self.polkit,
            &self.worker,
            &self.running,
            &self.domains,
            &self.cpu,
            &self.memory,
            &self.memory.scopes,
            &self.disk,
        ]
    }
}
