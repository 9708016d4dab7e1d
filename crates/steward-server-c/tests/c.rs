//! A program in C, built with the machine's compiler, where no daemon is.

#[path = "../../libsteward-c/tests/built/mod.rs"]
mod built;

use std::path::Path;

use built::Library;

const LIBRARY: Library = Library { name: "stewardserver", directory: env!("CARGO_MANIFEST_DIR") };
const NOBODY: &str = "/nobody/listens/here";

#[test]
fn a_program_linked_with_the_shared_library_does_all_that_the_interface_offers() {
    LIBRARY.does_all_shared(Path::new(NOBODY));
}

#[test]
fn a_program_linked_with_the_static_library_does_the_same() {
    LIBRARY.does_all_static(Path::new(NOBODY));
}

#[test]
fn the_program_in_the_documentation_compiles() {
    LIBRARY.compile_page("how-to/server-response-times.md");
}
