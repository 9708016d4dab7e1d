//! Compiles the BPF program with clang, against the headers of Steward's own.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const PROGRAM: &str = "src/floor.bpf.c";
const HEADERS: &str = "../../crates/steward-sched/src/bpf";

fn main() {
    println!("cargo:rerun-if-changed={PROGRAM}");
    println!("cargo:rerun-if-changed={HEADERS}/kernel.bpf.h");
    println!("cargo:rerun-if-changed={HEADERS}/compat.bpf.h");
    println!("cargo:rerun-if-env-changed=CLANG");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let headers = format!("-I{}", manifest.join(HEADERS).display());
    let clang = find_clang();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    SkeletonBuilder::new()
        .source(PROGRAM)
        .clang(&clang)
        .clang_args(["-mcpu=v3", "-Wall", "-Wno-missing-declarations", &headers])
        .build_and_generate(out.join("floor.skel.rs"))
        .unwrap_or_else(|error| panic!("cannot build {PROGRAM} with {}: {error:#}", clang.display()));
}

/// `$CLANG`, or the first of the names that Debian gives it.
fn find_clang() -> PathBuf {
    let named = env::var_os("CLANG").map(PathBuf::from);
    let known = ["clang-19", "clang-20", "clang-21", "clang"].iter().map(|name| Path::new(name).to_owned());
    named
        .into_iter()
        .chain(known)
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .unwrap_or_else(|| {
            panic!("no clang found: install clang-19 (`make setup` does it), or set CLANG to one")
        })
}
