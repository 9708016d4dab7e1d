//! A program in C, built with the machine's compiler.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{built, here, installed};

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

/// Runs it where no daemon is.
#[track_caller]
fn assert_well(program: &Path, into: &Path) {
    let output = Command::new(program).arg(into.join("nobody")).output().expect("it was compiled");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all as it should be\n");
}

#[test]
fn a_program_linked_with_the_shared_library_does_all_that_the_interface_offers() {
    let directory = installed();
    let beside = directory.path().display();
    let (search, runpath) = (format!("-L{beside}"), format!("-Wl,-rpath,{beside}"));
    let source = here().join("tests/interface.c");
    let program = compile(&source, directory.path(), &[&search, "-lstewardserver", &runpath]);
    assert_well(&program, directory.path());
}

#[test]
fn a_program_linked_with_the_static_library_does_the_same() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = built().join("libstewardserver.a").display().to_string();
    let source = here().join("tests/interface.c");
    let program = compile(&source, directory.path(), &[&library, "-ldl", "-lm"]);
    assert_well(&program, directory.path());
}

#[test]
fn the_program_in_the_documentation_compiles() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = built().join("libstewardserver.a").display().to_string();
    let page = std::fs::read_to_string(here().join("../../docs/how-to/server-response-times.md"));
    let page = page.expect("it is there");
    let (_, program) = page.split_once("```c\n").expect("it has a program in C");
    let (program, _) = program.split_once("```").expect("and that ends");
    let source = directory.path().join("guide.c");
    std::fs::write(&source, program).expect("written");
    compile(&source, directory.path(), &[&library, "-ldl", "-lm"]);
}
