//! Controllers: feedback loops that act on forecasts (CPU Futures, sections 3.2 and 5).
//!
//! Each is a small state machine without a clock and without I/O: it is told what was seen and when, and says what to
//! do. Whoever drives it reads the forecasts ([`crate::api::WatchForecasts`]) and carries out what it says. All of
//! them share one way to look for a setting, [`search`].
//!
//! - [`empathy`]: runs background work only while that disturbs nobody.
//! - [`pace`]: keeps background work at a bearable speed, and no faster.

pub mod empathy;
pub mod pace;
pub mod search;
