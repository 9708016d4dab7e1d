//! The CPU's room: mechanisms, what people give by hand, forecasts, and the record of promises.

pub mod audit;
mod by_hand;
pub mod herald;
pub(crate) mod lines;
mod loading;
pub(crate) mod lowered;
pub mod mechanisms;
pub(crate) mod real_time;
pub mod reply;
pub mod requests;
pub(crate) mod state;
pub mod suspension;
mod tasks;
