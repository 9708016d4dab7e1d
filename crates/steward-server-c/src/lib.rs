//! The C interface of steward-server; `include/steward_server.h` is made from this file and the others here.
//!
//! Every function that can fail returns [`STEWARD_SERVER_OK`] or a negative code, and [`steward_server_last_error`] has
//! the sentence. No panic leaves the library. All functions answer a null pointer with
//! [`STEWARD_SERVER_ERROR_ARGUMENT`], where null does not stand for "none".

mod error;
mod log;
mod serve;
mod settings;

pub use error::*;
pub use log::*;
pub use serve::*;
pub use settings::*;
