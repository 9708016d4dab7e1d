//! Keeps the habits of this code base, so that nobody has to argue about them: every finding names the file, the line
//! and what to do.
//!
//! The rules look at lines of text, not at syntax. They are meant to catch the ordinary case and to be understood at
//! a glance; each has a test of its own, below or beside it ([`circles`], [`layout`]).

mod circles;
mod layout;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longer files are hard to see as one thing.
const LINES_MAX: usize = 800;
/// Longer lines are hard to read. What rustfmt sees to for code, a rule of this test sees to for comments.
const COLUMNS_MAX: usize = 120;
/// A test's name says what holds: a subject, a verb and something more.
const TEST_NAME_WORDS_MIN: usize = 3;

/// Something that goes against a habit.
struct Finding {
    file: String,
    line: usize,
    what_to_do: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.what_to_do)
    }
}

/// What kind of text a file holds, which decides the rules that it is held to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rust,
    C,
    Shell,
    Other,
}

/// One file with its lines.
struct Source {
    /// The path from the root of the repository.
    file: String,
    kind: Kind,
    text: String,
}

impl Source {
    fn new(file: &str, text: String) -> Self {
        let kind = match Path::new(file).extension().and_then(|ending| ending.to_str()) {
            Some("rs") => Kind::Rust,
            Some("c" | "h") => Kind::C,
            Some("sh") => Kind::Shell,
            _ if text.starts_with("#!/bin/sh") || text.starts_with("#!/bin/bash") => Kind::Shell,
            _ => Kind::Other,
        };
        Source { file: file.into(), kind, text }
    }

    /// Line numbers from 1, with the lines.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    fn find(&self, line: usize, what_to_do: impl Into<String>) -> Finding {
        Finding { file: self.file.clone(), line, what_to_do: what_to_do.into() }
    }

    /// The first line of test code: 1 in a file of tests, none in a file without.
    fn first_test_line(&self) -> Option<usize> {
        let path = Path::new(&self.file);
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
        if path.components().any(|part| part.as_os_str() == "tests") || name.ends_with("tests") {
            return Some(1);
        }
        let lines: Vec<&str> = self.text.lines().collect();
        let starts_a_module = |after: usize| {
            let rest = lines[after..].iter().map(|line| line.trim_start());
            let mut rest = rest.skip_while(|line| line.starts_with("#["));
            rest.next().is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
        };
        let marks =
            lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("#[cfg(test)]"));
        marks.map(|(index, _)| index).find(|index| starts_a_module(index + 1)).map(|index| index + 1)
    }
}

/// The part of a line that is code: without what follows `//`, and without the text of plain string literals.
fn code(line: &str) -> String {
    let mut result = String::new();
    let mut in_string = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_string => drop(characters.next()),
            '"' => {
                in_string = !in_string;
                result.push('"');
            }
            '/' if !in_string && characters.peek() == Some(&'/') => break,
            _ if in_string => {}
            _ => result.push(character),
        }
    }
    result
}

/// A file opens with what it is for.
fn opens_with_its_purpose(source: &Source) -> Option<Finding> {
    let mut lines = source.text.lines();
    let (is_open, how) = match source.kind {
        Kind::Rust => (lines.next().is_some_and(|line| line.starts_with("//! ")), "//!"),
        Kind::Shell => (lines.nth(1).is_some_and(|line| line.starts_with("# ")), "# (after the first line)"),
        Kind::C => {
            let after_licence: Vec<&str> = lines.skip(1).take(2).collect();
            (
                after_licence.iter().any(|line| line.trim_start_matches(['/', '*', ' ']).len() > 10),
                "/* ... */",
            )
        }
        Kind::Other => return None,
    };
    (!is_open)
        .then(|| source.find(1, format!("say what the file is for, in a comment that starts with {how}")))
}

/// The first line of a C file is its licence, and the right one for its place.
fn names_its_licence(source: &Source) -> Option<Finding> {
    if source.kind != Kind::C {
        return None;
    }
    let place = &source.file;
    let wanted = match place {
        _ if place.contains("/bpf/decide/") => "GPL-2.0-only OR MIT",
        _ if place.contains(".bpf.") => "GPL-2.0-only",
        _ if place.contains("/bpf/") => "GPL-2.0-only OR MIT",
        _ => "MIT OR Apache-2.0",
    };
    let first = source.text.lines().next().unwrap_or("");
    let named =
        first.split_once("SPDX-License-Identifier:").map(|(_, name)| name.trim_end_matches("*/").trim());
    (named != Some(wanted)).then(|| {
        source.find(1, format!("begin with /* SPDX-License-Identifier: {wanted} */ (see LICENSING.md)"))
    })
}

fn is_short_enough(source: &Source) -> Option<Finding> {
    let count = source.text.lines().count();
    (source.kind != Kind::Other && count > LINES_MAX).then(|| {
        source.find(LINES_MAX + 1, format!("split the file: it has {count} lines, {LINES_MAX} are enough"))
    })
}

fn has_clean_white_space(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.lines().filter(|_| source.kind != Kind::Other) {
        if line.ends_with([' ', '\t']) {
            findings.push(source.find(number, "remove the white space at the end of the line"));
        }
        if source.kind == Kind::Rust && line.contains('\t') {
            findings.push(source.find(number, "indent with spaces, and write \\t in a string"));
        }
    }
    findings
}

/// A comment fits the page. A row of a table cannot be broken, and may be longer.
fn has_comments_that_fit(source: &Source) -> Vec<Finding> {
    let marks: &[&str] = match source.kind {
        Kind::Rust => &["//"],
        Kind::C => &["//", "/*", "*"],
        Kind::Shell => &["# "],
        Kind::Other => return Vec::new(),
    };
    let is_comment = |line: &str| marks.iter().any(|mark| line.trim_start().starts_with(mark));
    let is_row =
        |line: &str| line.trim_start().trim_start_matches(['/', '!', '*', '#', ' ']).starts_with('|');
    let long = source.lines().filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
    long.filter(|(_, line)| is_comment(line) && !is_row(line))
        .map(|(number, _)| {
            source.find(number, format!("break the comment: {COLUMNS_MAX} columns are enough"))
        })
        .collect()
}

/// The name of a test is a sentence.
fn names_its_tests_well(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_test = false;
    for (number, line) in source.lines().filter(|_| source.kind == Kind::Rust) {
        let line = line.trim();
        if line == "#[test]" {
            is_test = true;
        }
        let Some(name) = line.strip_prefix("fn ").filter(|_| is_test) else { continue };
        is_test = false;
        let name = name.split(['(', '<']).next().unwrap_or(name);
        if name.split('_').filter(|word| !word.is_empty()).count() < TEST_NAME_WORDS_MIN {
            findings.push(
                source.find(number, format!("name the test {name} with a sentence that says what holds")),
            );
        }
    }
    findings
}

/// A test that sleeps is slow when it is right and wrong when the machine is slow.
fn does_not_sleep_in_tests(source: &Source) -> Vec<Finding> {
    let Some(first) = source.first_test_line().filter(|_| source.kind == Kind::Rust) else {
        return Vec::new();
    };
    // A model's own method of that name waits for nothing.
    let sleeps = |line: &str| code(line).replace(".sleep(", "").contains("sleep(");
    let lines = source.lines().filter(|(number, line)| *number >= first && sleeps(line));
    let advice = "wait for what the test needs (a line of output, a descriptor, an event), not for time";
    lines.map(|(number, _)| source.find(number, advice)).collect()
}

/// A failure that can happen is an error, and one that can not says why it can not.
fn gives_reasons_for_panics(source: &Source) -> Vec<Finding> {
    if source.kind != Kind::Rust {
        return Vec::new();
    }
    let end = source.first_test_line().unwrap_or(usize::MAX);
    let mut findings = Vec::new();
    for (number, line) in source.lines().take_while(|(number, _)| *number < end) {
        let code = code(line);
        if code.contains(".unwrap()") {
            findings.push(
                source.find(number, "return an error, or use expect with the reason why it can not fail"),
            );
        }
        if line.contains(".expect(\"\")") {
            findings.push(source.find(number, "give expect the reason why it can not fail"));
        }
    }
    findings
}

/// Names of hosts go out of date and betray where a thing was built; the machine's own settings know them.
fn names_no_package_host(source: &Source) -> Vec<Finding> {
    // Put together here so that this file does not name them either.
    let hosts = [
        ["deb.", "debian.org"],
        ["ftp.", "debian.org"],
        ["security.", "debian.org"],
        ["archive.", "ubuntu.com"],
        ["security.", "ubuntu.com"],
        ["snapshot.", "debian.org"],
        ["crates", ".io"],
        ["py", "pi.org"],
        ["python", "hosted.org"],
        ["registry.", "npmjs"],
        ["proxy.", "golang.org"],
        ["repo.", "maven.apache"],
    ];
    let hosts: Vec<String> = hosts.iter().map(|parts| parts.concat()).collect();
    let archive_paths = ["/debian/", "/ubuntu/", "/debian-security", "/dists/", "/pool/"];
    let is_archive = |line: &str| {
        let address = line.split_once("://").map(|(_, address)| address);
        address.is_some_and(|address| archive_paths.iter().any(|path| address.contains(path)))
    };
    let names_one = |line: &str| hosts.iter().any(|host| line.contains(host.as_str())) || is_archive(line);
    let advice = "take the address from the machine's own settings (apt, cargo) and name no host";
    source
        .lines()
        .filter(|(_, line)| names_one(line))
        .map(|(number, _)| source.find(number, advice))
        .collect()
}

/// What is left to be done belongs where people look for it.
fn leaves_no_notes_to_self(source: &Source) -> Vec<Finding> {
    let marks = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|parts| parts.concat());
    let is_mark = |word: &str| marks.iter().any(|mark| mark == word);
    let has_mark = |line: &str| line.split(|character: char| !character.is_alphanumeric()).any(is_mark);
    let advice = "do it now, or open an issue and remove the mark";
    source.lines().filter(|(_, line)| has_mark(line)).map(|(number, _)| source.find(number, advice)).collect()
}

/// What decides has no I/O and no clock: it is given what there is, and can be tried with anything.
fn decides_without_looking(source: &Source) -> Vec<Finding> {
    let is_core = source.file.starts_with("crates/steward-core/src/") && source.kind == Kind::Rust;
    if !is_core {
        return Vec::new();
    }
    let end = source.first_test_line().unwrap_or(usize::MAX);
    let names_a_clock = |line: &str| {
        let code = code(line);
        let mut words = code.split(|character| !is_of_name(character));
        words.any(|word| word == "Instant" || word == "SystemTime")
    };
    let lines = source.lines().take_while(|(number, _)| *number < end);
    let mut found: BTreeSet<usize> =
        lines.filter(|(_, line)| names_a_clock(line)).map(|(number, _)| number).collect();
    let paths = circles::paths(&circles::tokens(source), |name| name == "std");
    found.extend(paths.iter().filter(|(path, _)| looks_around(path)).map(|(_, line)| *line));
    let advice = "let the caller read the file, the machine or the clock, and hand over what it says";
    found.into_iter().map(|number| source.find(number, advice)).collect()
}

/// Whether a path leads to what reads or changes something outside. An address alone does not.
fn looks_around(path: &[String]) -> bool {
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    match names[..] {
        ["std", "env" | "fs" | "process" | "thread", ..] => true,
        ["std", "net", .., last] => !last.contains("Addr"),
        ["std", "net"] => true,
        _ => false,
    }
}

/// A number of what? A name, or a type, says its unit.
fn says_its_units(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.lines() {
        let code = code(line);
        let named = match source.kind {
            Kind::Rust => rust_numbers(&code),
            Kind::C => c_numbers(&code),
            _ => continue,
        };
        for name in named.into_iter().filter(|name| lacks_unit(name)) {
            findings.push(
                source.find(
                    number,
                    format!("say of what {name} is a number in its name (_ns, _bytes, _count)"),
                ),
            );
        }
    }
    findings
}

fn lacks_unit(name: &str) -> bool {
    let quantities = ["timeout", "period", "interval", "size", "duration", "latency"];
    let last = name.rsplit('_').next().unwrap_or(name);
    quantities.contains(&last.to_ascii_lowercase().as_str())
}

const RUST_NUMBERS: [&str; 12] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "isize", "f64"];

/// The names in `name: u64`.
fn rust_numbers(code: &str) -> Vec<&str> {
    let parts: Vec<&str> = code.split(':').collect();
    let pairs = parts.windows(2).filter(|pair| {
        let of_type = pair[1].split(|character: char| !is_of_name(character)).find(|word| !word.is_empty());
        pair[1].starts_with(' ') && of_type.is_some_and(|word| RUST_NUMBERS.contains(&word))
    });
    pairs.filter_map(|pair| pair[0].rsplit(|character: char| !is_of_name(character)).next()).collect()
}

/// The names in `u64 name`.
fn c_numbers(code: &str) -> Vec<&str> {
    let types =
        ["u8", "u16", "u32", "u64", "s32", "s64", "int", "long", "unsigned", "size_t", "uint64_t", "int64_t"];
    let words: Vec<&str> =
        code.split(|character: char| !is_of_name(character)).filter(|word| !word.is_empty()).collect();
    words.windows(2).filter(|pair| types.contains(&pair[0])).map(|pair| pair[1]).collect()
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Everything that goes against a habit in one file.
fn findings(source: &Source) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(opens_with_its_purpose(source));
    all.extend(names_its_licence(source));
    all.extend(is_short_enough(source));
    all.extend(has_clean_white_space(source));
    all.extend(has_comments_that_fit(source));
    all.extend(names_its_tests_well(source));
    all.extend(does_not_sleep_in_tests(source));
    all.extend(gives_reasons_for_panics(source));
    all.extend(names_no_package_host(source));
    all.extend(leaves_no_notes_to_self(source));
    all.extend(says_its_units(source));
    all.extend(decides_without_looking(source));
    all.sort_by_key(|finding| finding.line);
    all
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is two levels up")
}

/// The files that git tracks; where there is no git (a released archive), all files.
fn files(root: &Path) -> Vec<String> {
    let git = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let mut files = match git {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            String::from_utf8_lossy(&output.stdout).split('\0').map(str::to_owned).collect()
        }
        _ => {
            let mut found = Vec::new();
            walk(root, root, &mut found);
            found
        }
    };
    // Lock files name the registry by design, and a licence is not ours to format.
    files.retain(|file| !file.is_empty() && !file.ends_with(".lock") && !file.starts_with("LICENSES/"));
    files.sort();
    files
}

fn walk(root: &Path, directory: &Path, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(directory).expect("the repository can be listed");
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(".");
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            walk(root, &path, found);
        } else if path.is_file() {
            let file = path.strip_prefix(root).expect("it is below the root");
            found.push(file.to_string_lossy().into_owned());
        }
    }
}

#[test]
fn every_file_keeps_the_habits() {
    let root = root();
    // A file that is no text (a picture), or was just removed, has no habits.
    let read = |file: String| Some(Source::new(&file, std::fs::read_to_string(root.join(&file)).ok()?));
    let sources: Vec<Source> = files(&root).into_iter().filter_map(read).collect();
    let mut all: Vec<Finding> = sources.iter().flat_map(findings).collect();
    all.extend(circles::findings(&sources));
    all.extend(layout::findings(&sources));
    let page: Vec<String> = all.iter().map(Finding::to_string).collect();
    assert!(page.is_empty(), "{} findings:\n{}\n", page.len(), page.join("\n"));
}

/// The lines at which a file with this text is found to go against a habit.
fn lines_found(file: &str, text: &str) -> Vec<usize> {
    findings(&Source::new(file, text.into())).iter().map(|finding| finding.line).collect()
}

#[test]
fn a_file_without_its_purpose_is_found() {
    assert_eq!(lines_found("a.rs", "use std::fs;\n"), [1]);
    assert_eq!(lines_found("a.rs", "//! Reads files.\n\nuse std::fs;\n"), [0_usize; 0]);
    assert_eq!(lines_found("a.sh", "#!/bin/sh\nset -e\n"), [1]);
    assert_eq!(lines_found("a.sh", "#!/bin/sh\n# Builds the image.\nset -e\n"), [0_usize; 0]);
}

#[test]
fn a_c_file_must_name_the_licence_of_its_place() {
    let purpose = "/*\n * What the program keeps.\n */\n";
    let named = |licence: &str| format!("/* SPDX-License-Identifier: {licence} */\n{purpose}");
    assert_eq!(lines_found("src/bpf/a.bpf.h", &named("GPL-2.0-only")), [0_usize; 0]);
    assert_eq!(lines_found("src/bpf/decide/a.h", &named("GPL-2.0-only")), [1]);
    assert_eq!(lines_found("src/bpf/decide/a.h", &named("GPL-2.0-only OR MIT")), [0_usize; 0]);
    assert_eq!(lines_found("lab/a.c", &format!("\n{purpose}")), [1]);
}

#[test]
fn a_long_file_is_found() {
    let text = format!("//! Long.\n{}", "// more\n".repeat(LINES_MAX));
    assert_eq!(lines_found("a.rs", &text), [LINES_MAX + 1]);
}

#[test]
fn white_space_that_nobody_sees_is_found() {
    assert_eq!(lines_found("a.rs", "//! Text.\nfn a() {} \n\tfn b() {}\n"), [2, 3]);
}

#[test]
fn a_comment_that_does_not_fit_the_page_is_found() {
    let long = "word ".repeat(COLUMNS_MAX / 5);
    let text = format!(
        "//! {long}end\n//! | {long}end |\nfn a() {{}}\nconst B: &str = \"{long}\";\n    /// {long}end\n"
    );
    assert_eq!(lines_found("a.rs", &text), [1, 5]);
    assert_eq!(lines_found("a.sh", &format!("#!/bin/sh\n# {long}end\necho {long}{long}end\n")), [2]);
}

#[test]
fn a_test_whose_name_is_no_sentence_is_found() {
    let text = "//! Tests.\n#[test]\nfn parse() {}\n#[test]\nfn a_blank_is_skipped() {}\nfn helper() {}\n";
    assert_eq!(lines_found("tests/a.rs", text), [3]);
}

#[test]
fn sleeping_is_found_in_tests_only() {
    let text =
        "//! Waits.\nfn a() { sleep(b); }\n#[cfg(test)]\nmod tests {\n    // sleep(b)\n    sleep(b);\n}\n";
    assert_eq!(lines_found("src/a.rs", text), [6]);
    assert_eq!(lines_found("tests/a.rs", "//! Waits.\nfn a() { sleep(b); }\n"), [2]);
    assert_eq!(lines_found("tests/a.rs", "//! A model.\nfn a() { task.sleep(b); }\n"), [0_usize; 0]);
    let elsewhere = "//! Waits.\n#[cfg(test)]\nmod tests;\nfn a() { sleep(b); }\n";
    assert_eq!(lines_found("src/a.rs", elsewhere), [0_usize; 0]);
}

#[test]
fn a_panic_without_a_reason_is_found_outside_of_tests() {
    let text =
        "//! Reads.\nfn a() { b.unwrap(); }\n/// b.unwrap()\n#[cfg(test)]\nmod tests {\n    b.unwrap();\n}\n";
    assert_eq!(lines_found("src/a.rs", text), [2]);
    assert_eq!(lines_found("src/a.rs", "//! Reads.\nfn a() { b.expect(\"\"); }\n"), [2]);
}

#[test]
fn the_address_of_a_package_archive_is_found_in_any_file() {
    let host = ["deb", "debian", "org"].join(".");
    assert_eq!(lines_found("a.md", &format!("first\nsee {host}\n")), [2]);
    let address = ["http:", "", "mirror.example", "debian", "dists", ""].join("/");
    assert_eq!(lines_found("a.toml", &address), [1]);
    assert_eq!(lines_found("a.md", "specs live in /usr/share/debian/ here\n"), [0_usize; 0]);
}

#[test]
fn a_note_to_self_is_found() {
    let note = ["TO", "DO"].concat();
    assert_eq!(lines_found("a.md", &format!("first\n{note}: more\n")), [2]);
    assert_eq!(lines_found("a.md", "To do: boot a newer kernel\n"), [0_usize; 0]);
}

#[test]
fn a_number_without_its_unit_is_found() {
    let text = "//! Waits.\nstruct A { timeout: u64, period_ns: u64, interval: Duration }\nfn a(chunk_size: usize) {}\n";
    assert_eq!(lines_found("a.rs", text), [2, 3]);
    let licence = "/* SPDX-License-Identifier: MIT OR Apache-2.0 */\n/* Keeps what is left. */\n";
    assert_eq!(lines_found("lab/a.h", &format!("{licence}u64 period;\nu64 period_ns;\n")), [3]);
}

#[test]
fn a_decision_that_reads_a_file_or_a_clock_is_found() {
    let text = "//! Decides.\nuse std::fs;\nfn a(b: Instant) { SystemTime::now(); }\n/// An Instant.\nfn b(at: InstantNs) {}\n\
                #[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
    assert_eq!(lines_found("crates/steward-core/src/a.rs", text), [2, 3]);
    assert_eq!(lines_found("crates/steward-kernel/src/a.rs", text), [0_usize; 0]);
    let braces = "//! Decides.\nuse std::{\n    collections::BTreeMap,\n    fs::{self, File},\n    path::Path,\n};\n\
                  use std::net::{IpAddr, SocketAddr};\nuse std::{net::TcpStream, fmt};\n\
                  fn a() { std::env::var(b); crate::process::c(); std::process::exit(1); }\nuse std::net;\n\
                  fn d() { std::thread::yield_now() }\n";
    assert_eq!(lines_found("crates/steward-core/src/a.rs", braces), [4, 8, 9, 10, 11]);
}
