//! Where the files of a crate are: one form for modules, and no file that nothing names.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::{Finding, Kind, Source, code};

/// The crates whose modules do not all have the one form: the daemon writes its man page with a file of the command
/// line's.
const OTHER_FORM: [&str; 1] = ["crates/stewardd"];

/// What is wrong with where these files are.
pub fn findings(sources: &[Source]) -> Vec<Finding> {
    let rust: Vec<&Source> = sources.iter().filter(|source| source.kind == Kind::Rust).collect();
    let mut findings: Vec<Finding> = rust.iter().flat_map(|source| has_the_form(source)).collect();
    let named = named(sources);
    let advice = "nothing names this file: declare it with mod, or remove it";
    findings.extend(
        rust.iter()
            .filter(|source| !is_root(&source.file) && !named.contains(&source.file))
            .map(|source| source.find(1, advice)),
    );
    findings
}

/// A module is in `name.rs`, and what is below it in `name/`.
fn has_the_form(source: &Source) -> Vec<Finding> {
    let Some((directory, _)) = source.file.split_once("/src/") else { return Vec::new() };
    if OTHER_FORM.contains(&directory) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if let Some(module) = source.file.strip_suffix("/mod.rs") {
        findings.push(source.find(1, format!("call this file {module}.rs: modules have one form here")));
    }
    for (number, _) in source.lines().filter(|(_, line)| line.trim_start().starts_with("#[path")) {
        let advice = "put the module where mod looks for it, in place of #[path] (tests in name/tests.rs)";
        findings.push(source.find(number, advice));
    }
    findings
}

/// Whether cargo finds the file by itself: the root of a library, a program, a test, an example.
fn is_root(file: &str) -> bool {
    let parts: Vec<&str> = file.rsplit('/').collect();
    match parts[..] {
        ["build.rs", ..] | ["lib.rs" | "main.rs", "src", ..] => true,
        [_, "bin", "src", ..] | [_, "tests" | "examples" | "benches" | "fuzz_targets", ..] => {
            !file.contains("/src/") || parts[1] == "bin"
        }
        ["main.rs", _, "tests" | "examples", ..] | ["main.rs", _, "bin", "src", ..] => true,
        _ => false,
    }
}

/// All files that a `mod` or a `#[path]` names.
fn named(sources: &[Source]) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for source in sources.iter().filter(|source| source.kind == Kind::Rust) {
        let file = Path::new(&source.file);
        let beside = file.parent().unwrap_or(Path::new(""));
        let is_mod = is_root(&source.file) || source.file.ends_with("/mod.rs");
        let below = if is_mod { beside.to_owned() } else { file.with_extension("") };
        let mut path = None;
        for line in source.text.lines().map(str::trim) {
            if let Some(given) = line.strip_prefix("#[path = \"").and_then(|rest| rest.split('"').next()) {
                path = Some(given.to_owned());
            }
            let Some(name) = declared(line) else { continue };
            match path.take() {
                Some(path) => drop(named.insert(plain(&beside.join(path)))),
                None => {
                    named.insert(plain(&below.join(format!("{name}.rs"))));
                    named.insert(plain(&below.join(name).join("mod.rs")));
                }
            }
        }
    }
    named
}

/// The name in `pub mod name;`.
fn declared(line: &str) -> Option<String> {
    let code = code(line);
    let declaration = code.trim().strip_suffix(';')?;
    let (visibility, name) = declaration.split_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then(|| name.trim().to_owned())
}

/// The path without `..`.
fn plain(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain.to_string_lossy().into_owned()
}

/// The places at which files with these texts are found to be wrong.
#[cfg(test)]
fn places(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> =
        files.iter().map(|(file, text)| Source::new(file, (*text).to_owned())).collect();
    findings(&sources).iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect()
}

#[test]
fn a_file_that_nothing_names_is_found() {
    let files = [
        ("a/src/lib.rs", "pub mod one;\npub(crate) mod two;\n// mod four;\n"),
        ("a/src/one.rs", "#[cfg(test)]\nmod tests;\n"),
        ("a/src/one/tests.rs", ""),
        ("a/src/two.rs", "mod one;\n"),
        ("a/src/two/one.rs", ""),
        ("a/src/three.rs", "mod three;\n"),
        ("a/src/four.rs", ""),
        ("a/build.rs", ""),
        ("a/src/bin/other.rs", ""),
    ];
    assert_eq!(places(&files), ["a/src/three.rs:1", "a/src/four.rs:1"]);
}

#[test]
fn a_test_finds_its_modules_beside_it_or_by_their_path() {
    let files = [
        ("a/tests/one.rs", "mod common;\n#[path = \"one/screen.rs\"]\nmod screen;\n"),
        ("a/tests/common/mod.rs", ""),
        ("a/tests/one/screen.rs", ""),
        ("a/tests/one/other.rs", ""),
        ("b/tests/two/main.rs", "mod help;\n#[path = \"../../../a/src/help.rs\"]\nmod more;\n"),
        ("b/tests/two/help.rs", ""),
        ("a/src/help.rs", ""),
    ];
    assert_eq!(places(&files), ["a/tests/one/other.rs:1"]);
}

#[test]
fn a_module_in_another_form_is_found() {
    let files = [
        ("a/src/lib.rs", "mod one;\nmod two;\n"),
        ("a/src/one/mod.rs", ""),
        ("a/src/two.rs", "#[cfg(test)]\n#[path = \"two_tests.rs\"]\nmod tests;\n"),
        ("a/src/two_tests.rs", ""),
    ];
    assert_eq!(places(&files), ["a/src/one/mod.rs:1", "a/src/two.rs:2"]);
}
