//! The program in the documentation is one that compiles.

use std::path::Path;

#[test]
fn the_program_in_the_documentation_is_the_example_which_compiles() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/ask-how-much-memory.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let (_, program) = page.split_once("```rust\n").expect("it has a program in Rust");
    let (program, _) = program.split_once("```").expect("and that ends");
    let example = include_str!("../examples/availability.rs");
    let (_, example) = example.split_once("\n\n").expect("it says what it is first");
    assert_eq!(program, example);
}
