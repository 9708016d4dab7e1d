//! A program in C, built with the machine's compiler.

#[path = "../../libsteward-c/tests/built/mod.rs"]
mod built;

use built::{Library, assert_well};

const LIBRARY: Library = Library { name: "stewardserver", directory: env!("CARGO_MANIFEST_DIR") };

#[test]
fn a_program_linked_with_the_shared_library_does_all_that_the_interface_offers() {
    let directory = LIBRARY.installed();
    let source = LIBRARY.file("tests/interface.c");
    let program = LIBRARY.compile_shared(&source, directory.path(), directory.path());
    // Where no daemon is.
    assert_well(&program, &directory.path().join("nobody"));
}

#[test]
fn a_program_linked_with_the_static_library_does_the_same() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = LIBRARY.compile_static(&LIBRARY.file("tests/interface.c"), directory.path());
    assert_well(&program, &directory.path().join("nobody"));
}

#[test]
fn the_program_in_the_documentation_compiles() {
    LIBRARY.compile_page("how-to/server-response-times.md");
}
