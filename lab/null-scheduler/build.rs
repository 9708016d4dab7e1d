//! Compiles the BPF program with clang, against the headers of Steward's own.

use std::env;
use std::path::PathBuf;

const HEADERS: &str = "../../crates/steward-sched/src/bpf";

fn main() {
    println!("cargo:rerun-if-changed={HEADERS}/compat.bpf.h");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let headers = format!("-I{}", manifest.join(HEADERS).display());
    steward_bpf_build::compile("src/null.bpf.c", &[&headers]);
}
