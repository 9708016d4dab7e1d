//! What the command line says of the disk.

pub mod arguments;
