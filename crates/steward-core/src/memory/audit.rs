//! Was the promise of memory kept? Whose stalls broke it, and who took the memory?
//!
//! About once a second the daemon reads what the kernel has counted for each domain that is promised memory
//! ([`Counters`]). [`Auditor`] says what happened since the last reading ([`Tally`]); [`crate::record`] keeps that for
//! the last minute, hour and day, and [`text`] says it in sentences.
//!
//! **Promised** is that what a protected domain used within its period is in memory, and what one with a minimum uses
//! up to that. So nobody in it waits for memory.
//!
//! **Broken** is a second in which tasks of it stood still for want of memory for more than [`STALL_MAX_NS`]: while at
//! least one waited for a page that was taken from it, or had to take memory from others itself. The kernel's pressure
//! of memory has the latter, and of the former only pages that it thought active; other pages that are fetched again
//! (refaults) show in the pressure of the disk alone. So of that the part counts that refaults have in all that was
//! read meanwhile: waiting for what was never in memory is none of it. Readings that are further apart may have as much
//! for each second. Where the kernel counts no pressure, each fault that waited for a disk counts as [`FAULT_NS`].
//!
//! Nothing is judged while a domain wants more than it was promised: beyond its minimum, where it is not protected, or
//! at its own maximum. So the audit errs on one side, with one exception: a domain that comes back to pages which it
//! has not used for longer than its period may wait for them, and the counters do not tell these from the others.
//!
//! **The culprit** of a broken second is who took the most memory meanwhile: by how much it grew, and what was taken
//! from it all the same ([`Taker`]). To know that all cgroups have to be read, which is done in seconds in which
//! somebody stalls, and otherwise every [`LOOK_AROUND_NS`], so that there is something to compare with.

mod auditor;
mod tally;
pub mod text;

pub use auditor::{Audited, Auditor, Counters, Culprit, Promise, Reading, Taker, Waits};
pub use tally::{Blame, FAULT_NS, LOOK_AROUND_NS, STALL_MAX_NS, Tally, blame_key, culprit_of};

#[cfg(test)]
mod tests;
