//! The header in the tree is the one that the sources give: for this crate, and for each that has this file as a test.

use std::path::{Path, PathBuf};

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

/// The one header that the crate has.
fn header() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let files = std::fs::read_dir(directory).expect("it is in the tree");
    let mut headers = files.map(|file| file.expect("as above").path());
    let header = headers.next().expect("the header is in the tree");
    assert_eq!(headers.next(), None, "one crate has one header");
    header
}

#[test]
fn the_header_is_the_one_that_the_sources_give() {
    let (path, made) = (header(), made());
    if std::env::var_os("STEWARD_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&path).expect("the header is text");
    let advice =
        concat!("run STEWARD_WRITE_HEADER=1 cargo test -p ", env!("CARGO_PKG_NAME"), " --test header");
    assert!(made == kept, "{} is not what the sources give; {advice}", path.display());
}
