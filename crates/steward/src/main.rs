//! Steward's command line.

fn main() {}
