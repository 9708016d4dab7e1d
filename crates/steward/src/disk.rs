//! What the command line says of the disk: options that commands share, and `steward disk`.

pub mod arguments;
pub mod calibrate;
