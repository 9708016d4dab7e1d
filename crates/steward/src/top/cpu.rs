//! What the screen says of CPU time alone.

pub mod promise;
