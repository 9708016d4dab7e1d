//! Programs in C, built with the machine's compiler and run against a daemon in this process.

#[path = "../../stewardd/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::Machine;

/// Where cargo has put libsteward.so and libsteward.a: beside the tests.
fn built() -> PathBuf {
    let own = std::env::current_exe().expect("a running test");
    let deps = own.parent().expect("target/PROFILE/deps/TEST");
    let beside = deps.parent().unwrap_or(deps);
    let has = |directory: &&Path| directory.join("libsteward.so").exists();
    [deps, beside].into_iter().find(has).expect("cargo builds the library before its tests").to_owned()
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a program, with warnings as errors, and gives its path.
fn compile(source: &Path, into: &Path, linking: &[&str]) -> PathBuf {
    let program = into.join("program");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-pthread",
        "-o",
    ]);
    compiler.arg(&program).arg(source).arg("-I").arg(here().join("include"));
    let output = compiler.args(linking).output().expect("make setup has installed a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path, machine: &Machine) -> Output {
    let daemon = machine.start();
    let mut command = Command::new(program);
    command.arg(&daemon.socket).env("LD_LIBRARY_PATH", built());
    command.output().expect("it was compiled")
}

#[track_caller]
fn assert_well(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all as it should be\n");
}

#[test]
fn a_program_linked_with_the_shared_library_does_all_that_the_interface_offers() {
    let machine = Machine::new();
    let directory = tempfile::tempdir().expect("a temporary directory");
    // The loader looks for the name of the interface, as it does once this is installed.
    std::os::unix::fs::symlink(built().join("libsteward.so"), directory.path().join("libsteward.so.0"))
        .expect("linked");
    let (library, beside) = (built(), directory.path().display().to_string());
    let search = format!("-L{}", library.display());
    let runpath = format!("-Wl,-rpath,{beside}");
    let source = here().join("tests/interface.c");
    assert_well(&run(&compile(&source, directory.path(), &[&search, "-lsteward", &runpath]), &machine));
}

#[test]
fn a_program_linked_with_the_static_library_does_the_same() {
    let machine = Machine::new();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = built().join("libsteward.a").display().to_string();
    let source = here().join("tests/interface.c");
    assert_well(&run(&compile(&source, directory.path(), &[&library, "-ldl", "-lm"]), &machine));
}

#[test]
fn the_programs_in_the_documentation_compile() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = built().join("libsteward.a").display().to_string();
    for page in ["use-the-api.md", "ask-how-much-memory.md"] {
        let page = std::fs::read_to_string(here().join("../../docs/how-to").join(page)).expect("it is there");
        let (_, program) = page.split_once("```c\n").expect("it has a program in C");
        let (program, _) = program.split_once("```").expect("and that ends");
        let source = directory.path().join("guide.c");
        std::fs::write(&source, program).expect("written");
        compile(&source, directory.path(), &[&library, "-ldl", "-lm"]);
    }
}
