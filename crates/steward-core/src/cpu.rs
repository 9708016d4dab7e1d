//! The CPU's room: who is promised what of it, what the mechanism is told, and what came of it.
//!
//! - [`mechanism`]: what whatever enforces reservations takes and gives; [`reservation`], [`event`], [`thresholds`],
//!   [`best_effort`] and [`policy`] are its words.
//! - [`config`]: what is set for the whole machine; [`settings`]: what a domain can be given.
//! - [`policies`]: what the mechanism is told about domains; [`guarantee`]: what each domain can rely on.
//! - [`table`] and [`plan`]: what each program gets, and what becomes of those that run when that changes; [`waiting`]:
//!   who waits for room; [`retry`]: how often a scheduler that was lost is loaded again.
//! - [`forecast`]: what each task and domain will get.
//! - [`audit`]: whether a domain got what it was promised; [`tune`]: how much a program needs.
//! - [`explain`]: decisions in sentences.

pub mod audit;
pub mod best_effort;
pub mod config;
pub mod event;
pub mod explain;
pub mod forecast;
pub mod guarantee;
pub mod mechanism;
pub mod nice;
pub mod plan;
pub mod policies;
pub mod policy;
pub mod reservation;
pub mod retry;
pub mod settings;
pub mod table;
pub mod thresholds;
pub mod tune;
pub mod waiting;
