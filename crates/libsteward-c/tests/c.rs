//! Programs in C, built with the machine's compiler and run against a daemon in this process.

mod built;
#[path = "../../stewardd/tests/common/mod.rs"]
mod common;

use built::Library;
use common::Machine;

const LIBRARY: Library = Library { name: "steward", directory: env!("CARGO_MANIFEST_DIR") };

#[test]
fn a_program_linked_with_the_shared_library_does_all_that_the_interface_offers() {
    LIBRARY.does_all_shared(&Machine::new().start().socket);
}

#[test]
fn a_program_linked_with_the_static_library_does_the_same() {
    LIBRARY.does_all_static(&Machine::new().start().socket);
}

#[test]
fn the_programs_in_the_documentation_compile() {
    for page in ["how-to/use-the-api.md", "how-to/ask-how-much-memory.md"] {
        LIBRARY.compile_page(page);
    }
}
