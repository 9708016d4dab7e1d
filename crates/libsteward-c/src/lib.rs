//! The C interface of libsteward; `include/steward.h` is made from this file and the others here.
//!
//! Every function that can fail returns [`STEWARD_OK`] or a negative code, and [`steward_last_error`] has the sentence.
//! No panic leaves the library. What a pointer must be is said in C's terms in the documentation of each function; all
//! of them take null for "none" or answer it with [`STEWARD_ERROR_ARGUMENT`].

mod availability;
mod client;
mod domains;
mod error;
mod events;
mod text;

pub use availability::*;
pub use client::*;
pub use domains::*;
pub use error::*;
pub use events::*;
pub use text::*;
