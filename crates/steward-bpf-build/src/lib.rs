//! Compiles a BPF program with clang and makes its Rust skeleton: for the build scripts of the crates that have one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// What all programs are compiled with.
const ARGUMENTS: [&str; 5] =
    ["-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-declarations"];

/// Where `kernel.bpf.h` is, which all of them include: what they use of the kernel.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// Compiles `program`, a path from the crate's directory, into `$OUT_DIR/NAME.skel.rs` for `NAME.bpf.c`. clang gets
/// `more_arguments` too.
///
/// # Panics
/// With clang's words when it cannot be compiled, and with advice when there is no clang.
pub fn compile(program: &str, more_arguments: &[&str]) {
    println!("cargo:rerun-if-changed={program}");
    if let Some(directory) = Path::new(program).parent() {
        println!("cargo:rerun-if-changed={}", directory.display());
    }
    println!("cargo:rerun-if-changed={HEADERS}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let file = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program);
    let name = file.strip_suffix(".bpf.c").unwrap_or(file);
    let clang = find_clang();
    let headers = format!("-I{HEADERS}");
    SkeletonBuilder::new()
        .source(program)
        .clang(&clang)
        .clang_args(ARGUMENTS.iter().copied().chain([headers.as_str()]).chain(more_arguments.iter().copied()))
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .unwrap_or_else(|error| panic!("cannot build {program} with {}: {error:#}", clang.display()));
}

/// `$CLANG`, or the newest of the versions that are known to build the programs.
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
