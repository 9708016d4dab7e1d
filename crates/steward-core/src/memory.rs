//! The memory's room: who is promised how much of it, and who may use how much.
//!
//! - [`settings`]: what a domain can be given; [`limits`]: what the kernel is told of it.

pub mod limits;
pub mod settings;

pub use settings::Settings;

/// The part of the machine's memory that domains may be promised together unless the configuration says otherwise. The rest is the
/// kernel's own, and everybody's who was promised nothing: minima that leave nothing to reclaim end in the out-of-memory killer.
pub const RESERVABLE: f64 = 0.8;
