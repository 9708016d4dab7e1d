//! The program that runs inside the lab machine.

fn main() {}
