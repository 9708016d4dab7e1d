//! Did a domain get what it was promised? (CPU Futures, section 3.3)
//!
//! The daemon reads what the scheduler counts about once a second ([`Reading`]). [`Auditor`] says for each domain with
//! a reservation what was promised, wanted, received and missing since the last reading ([`Tally`]); [`crate::record`]
//! keeps that for the last minute, hour and day, and [`text`] says it in sentences.
//!
//! **Promised** is what is reserved: the product, up to the root, of the reservations in force, times the CPUs. What
//! weights add to that depends on who else there is, and is no promise. **Received** is the CPU time of the domain with
//! all below it, whether its tasks had reservations of their own or not.
//!
//! **Wanted.** With `r(t)` runnable tasks at the moment t, a domain that is promised c CPUs can use `min(r, c)` of
//! them. The scheduler counts the integrals of r and of its square, which give the mean and the variance of r, and
//! these a lower bound of the mean of `min(r, c)` ([`wanted_at_least_ns`]). It is exact for an even load, and too low
//! for an uneven one. So the audit errs on one side: it does not say that a promise was broken which was kept. The
//! domain's tasks may be in domains below it; Minkowski's inequality gives an upper bound for the square of the sum
//! from those of the parts.
//!
//! **Broken.** The bounds of docs/scheduler.md, section 5 (Eclipse 1998, definition 1), say that while a domain with
//! the share a wants `s / (a m)` seconds' worth, it gets s up to a constant delay and a factor that depends on the
//! number of waiting domains. So over *every* stretch of time
//!
//! ```text
//! received >= wanted / (1 + (n/m + 1) q/T) - tolerance
//! tolerance = c ((1 - a) 9/8 T + (n/m + 4) q + e) + m q
//! ```
//!
//! with T the service cycle, n the waiting domains, m the CPUs, and q the longest that a task runs at a time; `m q` is
//! what runs at that moment and is not counted yet; e is how long the readings at either end took. What is missing over
//! the worst stretch that ends now is one running sum, never below 0 ([`Auditor::observe`]). A second is broken when it
//! ends with more missing than the tolerance; the sum then goes back to the tolerance, so the next second is broken
//! only if it adds to it.
//!
//! A domain that was made a moment ago, or whose reservation was changed, begins anew; so do all when the scheduler was
//! loaded again. A domain that is held back by choice wants nothing of the scheduler: one that is suspended, has used
//! up its `cpu.max`, or has a `cpu.max` below its promise or below it in the tree. Neither do frozen tasks, which are
//! not runnable. Tasks that may run on few CPUs only can make a domain want more than the scheduler is allowed to give
//! it, which the counters do not show.

mod auditor;
mod tally;
pub mod text;

pub use auditor::{Audited, Auditor, Family, Promise, QUANTUM_NS, Reading, tolerance_ns, wanted_at_least_ns};
pub use tally::Tally;

#[cfg(test)]
mod tests;
