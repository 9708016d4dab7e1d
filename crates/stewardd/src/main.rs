//! Steward's daemon: asks steward-core and carries its decisions out.

fn main() {}
