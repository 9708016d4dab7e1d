//! The disk's room: its time, and who is served first.

mod class;
pub mod settings;

pub use class::Class;
pub use settings::Settings;
