//! Compiles the recorder's BPF program with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const PROGRAM: &str = "src/bpf/record.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = find_clang();
    SkeletonBuilder::new()
        .source(PROGRAM)
        .clang(&clang)
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-declarations"])
        .build_and_generate(out.join("record.skel.rs"))
        .unwrap_or_else(|error| panic!("cannot build {PROGRAM} with {}: {error:#}", clang.display()));
}

/// `$CLANG`, or the newest of the versions that are known to build the program.
fn find_clang() -> PathBuf {
    if let Some(named) = env::var_os("CLANG") {
        return named.into();
    }
    for name in ["clang-19", "clang-20", "clang-21", "clang"] {
        if Command::new(name).arg("--version").output().is_ok() {
            return Path::new(name).into();
        }
    }
    panic!("no clang found: install clang-19 (`make setup` does it), or set CLANG to one")
}
