//! What the loop asks of each part of the daemon before it waits, so that no list of descriptors and of timers has to
//! be kept beside the parts.

use super::descriptors::Wait;

/// A part of the daemon that has something to do when something is announced, or at some time.
pub trait Part {
    /// The descriptors that announce something for it for as long as the daemon runs. The loop asks once.
    fn lasting_descriptors(&self) -> Vec<Wait<'_>> {
        Vec::new()
    }

    /// The one that announces something for it now, and may be another one, or none, in the next turn.
    fn descriptor(&self) -> Option<Wait<'_>> {
        None
    }

    /// When it has something to do that no descriptor announces, in nanoseconds of `CLOCK_MONOTONIC`.
    fn poll_timeout(&self, _now_ns: u64) -> Option<u64> {
        None
    }
}
