//! The header in the tree is the one that the sources give.

use std::path::Path;

/// What cbindgen makes of the sources, in C's words.
fn made() -> String {
    let crate_directory = env!("CARGO_MANIFEST_DIR");
    let bindings = cbindgen::generate(crate_directory).expect("the sources are what cbindgen understands");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).expect("text").replace('`', "").replace(" # Safety", " Pointers:");
    // An operator before the constant must not take its minus for one of its own.
    let lines = header.lines().map(|line| match line.split_once(" -") {
        Some((name, digits)) if name.starts_with("#define") => format!("{name} (-{digits})\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[test]
fn the_header_is_the_one_that_the_sources_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/steward_server.h");
    let made = made();
    if std::env::var_os("STEWARD_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&path).expect("the header is in the tree");
    let advice = "run STEWARD_WRITE_HEADER=1 cargo test -p steward-server-c --test header";
    assert!(made == kept, "{} is not what the sources give; {advice}", path.display());
}
