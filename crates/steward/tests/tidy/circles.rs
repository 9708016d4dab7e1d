//! No circle of imports between the files of a crate: who reads one file must not have to read all others first.
//!
//! An import is a `use`, or a path in the code, of another module of the crate; `mod x;` is none, and neither is what a
//! crate's root (`lib.rs`, `main.rs`) takes from the modules that it lists. Tests may import what they like.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Finding, Kind, Source};

/// The crates that are held to it.
const CRATES: [&str; 21] = [
    "crates/libsteward",
    "crates/libsteward-c",
    "crates/steward",
    "crates/steward-core",
    "crates/steward-figure",
    "crates/steward-files",
    "crates/steward-kernel",
    "crates/steward-pool",
    "crates/steward-record",
    "crates/steward-sched",
    "crates/steward-server",
    "crates/steward-server-c",
    "crates/steward-sim",
    "crates/steward-tasks",
    "crates/steward-waits",
    "crates/stewardd",
    "lab/null-scheduler",
    "lab/guest",
    "lab/machine",
    "lab/runner",
    "lab/workloads",
];

/// A module of a crate: the names on the way to it, none for the root.
type Module = Vec<String>;

/// A name or a sign, and its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    text: String,
    line: usize,
}

/// All circles in the crates that have none.
pub fn findings(sources: &[Source]) -> Vec<Finding> {
    CRATES.iter().flat_map(|directory| circles(directory, sources)).collect()
}

/// The circles among the files below `directory/src`, each once.
fn circles(directory: &str, sources: &[Source]) -> Vec<Finding> {
    let mut modules: BTreeMap<Module, &Source> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.kind == Kind::Rust) {
        if let Some(module) = module_of(directory, &source.file) {
            modules.insert(module, source);
        }
    }
    let imports: BTreeMap<&Module, BTreeMap<Module, usize>> =
        modules.iter().map(|(module, source)| (module, imports(module, source, &modules))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in modules.keys() {
        let Some(circle) = shortest_circle(module, &imports) else { continue };
        if circle.iter().any(|module| seen.contains(module)) {
            continue;
        }
        let files: Vec<&str> = circle.iter().map(|module| modules[module].file.as_str()).collect();
        let line = imports[module][circle.get(1).unwrap_or(module)];
        found.push(modules[module].find(
            line,
            format!(
                "break the circle of imports {} -> {}: move what both need into a file that imports neither",
                files.join(" -> "),
                files[0]
            ),
        ));
        seen.extend(circle);
    }
    found
}

/// The module that a file below `directory/src` is; `None` for tests and for programs of their own.
fn module_of(directory: &str, file: &str) -> Option<Module> {
    let path = file.strip_prefix(directory)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if parts[0] == "bin" || parts.iter().any(|part| part.ends_with("tests")) {
        return None;
    }
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    Some(parts)
}

/// What a module imports, with the line.
fn imports(module: &Module, source: &Source, modules: &BTreeMap<Module, &Source>) -> BTreeMap<Module, usize> {
    let is_child = |name: &str| {
        let child: Module = module.iter().cloned().chain([name.to_owned()]).collect();
        !module.is_empty() && modules.contains_key(&child)
    };
    let mut imports = BTreeMap::new();
    for (path, line) in paths(&tokens(source), is_child) {
        let target = resolve(module, &path, modules);
        if target != *module {
            imports.entry(target).or_insert(line);
        }
    }
    imports
}

/// The module that a path leads to: as far as there are modules of these names.
fn resolve(module: &Module, path: &[String], modules: &BTreeMap<Module, &Source>) -> Module {
    let mut target = if path[0] == "crate" { Module::new() } else { module.clone() };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => drop(target.pop()),
            name => {
                target.push(name.to_owned());
                if !modules.contains_key(&target) {
                    target.pop();
                    break;
                }
            }
        }
    }
    target
}

/// The names and signs of what is no test, without comments and the text of strings.
pub fn tokens(source: &Source) -> Vec<Token> {
    let end = source.first_test_line().unwrap_or(usize::MAX);
    let mut tokens: Vec<Token> = Vec::new();
    let (mut in_string, mut in_raw_string) = (false, false);
    for (line, text) in source.lines().take_while(|(line, _)| *line < end) {
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '"' if in_raw_string => in_raw_string = characters.peek() != Some(&'#'),
                _ if in_raw_string => {}
                '\\' => drop(characters.next()),
                '"' => in_string = !in_string,
                _ if in_string => {}
                '/' if characters.peek() == Some(&'/') => break,
                // A quotation mark as a character begins no string.
                '\'' if characters.peek() == Some(&'"') => drop(characters.next()),
                ':' if characters.peek() == Some(&':') => {
                    characters.next();
                    tokens.push(Token { text: "::".into(), line });
                }
                _ if crate::is_of_name(character) => {
                    let mut name = String::from(character);
                    while let Some(next) = characters.next_if(|next| crate::is_of_name(*next)) {
                        name.push(next);
                    }
                    in_raw_string =
                        matches!(name.as_str(), "r" | "br") && characters.clone().take(2).eq(['#', '"']);
                    if in_raw_string {
                        characters.nth(1);
                    } else {
                        tokens.push(Token { text: name, line });
                    }
                }
                _ if character.is_whitespace() => {}
                _ => tokens.push(Token { text: character.into(), line }),
            }
        }
    }
    tokens
}

/// All paths that begin in this crate, or with what `is_child` says, as far as they are names, with their lines.
pub fn paths(tokens: &[Token], is_child: impl Fn(&str) -> bool) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut place = 0;
    while place < tokens.len() {
        let text = |place: usize| tokens.get(place).map_or("", |token| token.text.as_str());
        let is_start = matches!(text(place), "crate" | "self" | "super") || is_child(text(place));
        // In a type, use<..> says what is captured.
        if text(place) == "use" && text(place + 1) != "<" {
            // What only tests use is no import of the code.
            let before: String =
                tokens[place.saturating_sub(8)..place].iter().map(|token| &*token.text).collect();
            let is_test = before.trim_end_matches("pub").ends_with("#[cfg(test)]");
            let mut tree = Vec::new();
            place = use_tree(tokens, place + 1, &[], &mut tree);
            let starts = |name: &str| matches!(name, "crate" | "self" | "super") || is_child(name);
            tree.retain(|(path, _): &(Vec<String>, usize)| !is_test && starts(&path[0]));
            found.extend(tree);
        } else if is_start && text(place + 1) == "::" && (place == 0 || text(place - 1) != "::") {
            let line = tokens[place].line;
            let mut path = vec![text(place).to_owned()];
            while text(place + 1) == "::" && text(place + 2).starts_with(crate::is_of_name) {
                path.push(text(place + 2).to_owned());
                place += 2;
            }
            found.push((path, line));
            place += 1;
        } else {
            place += 1;
        }
    }
    found
}

/// Reads one tree of a `use` from `place` on, and gives the place after it.
fn use_tree(
    tokens: &[Token],
    mut place: usize,
    before: &[String],
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let mut path = before.to_vec();
    let mut line = 0;
    while let Some(token) = tokens.get(place) {
        match token.text.as_str() {
            "{" => {
                place += 1;
                while tokens.get(place).is_some_and(|token| token.text != "}") {
                    place = use_tree(tokens, place, &path, found);
                    if tokens.get(place).is_some_and(|token| token.text != "}") {
                        place += 1;
                    }
                }
                return place + 1;
            }
            "," | ";" | "}" => break,
            "::" | "*" => {}
            "as" => place += 1,
            name => {
                path.push(name.to_owned());
                line = token.line;
            }
        }
        place += 1;
    }
    if !path.is_empty() {
        found.push((path, line));
    }
    place
}

/// The shortest way from a module back to it.
fn shortest_circle(
    start: &Module,
    imports: &BTreeMap<&Module, BTreeMap<Module, usize>>,
) -> Option<Vec<Module>> {
    let mut came_from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(module) = waiting.pop_front() {
        for next in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let mut way = vec![module.clone()];
                let mut at = module;
                while at != start {
                    at = came_from[at];
                    way.push(at.clone());
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(next) {
                came_from.insert(next, module);
                waiting.push_back(next);
            }
        }
    }
    None
}

/// The findings in a crate of these files.
#[cfg(test)]
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> =
        files.iter().map(|(file, text)| Source::new(&format!("a/src/{file}"), (*text).to_owned())).collect();
    circles("a", &sources).iter().map(Finding::to_string).collect()
}

#[test]
fn two_files_that_import_each_other_are_a_circle_and_are_named_in_order() {
    let circle = found(&[
        ("main.rs", "mod one;\nmod two;\nuse one::One;\n"),
        ("one.rs", "//! One.\n\nuse crate::two::Two;\n"),
        ("two.rs", "use std::fmt;\n\nfn two() {\n    crate::one::one();\n}\n"),
    ]);
    assert_eq!(circle.len(), 1, "{circle:?}");
    assert!(circle[0].starts_with("a/src/one.rs:3: "), "{circle:?}");
    assert!(circle[0].contains("a/src/one.rs -> a/src/two.rs -> a/src/one.rs: move"), "{circle:?}");
}

#[test]
fn a_circle_of_three_and_one_between_parent_and_child_are_found() {
    let circle = found(&[
        ("lib.rs", "mod one;\n"),
        ("one.rs", "use crate::{four::{self, Four}, two as other};\n"),
        ("two.rs", "use super::three::{Three};\n"),
        ("three.rs", "use crate::one;\n"),
        ("four.rs", "mod child;\nuse child::Child;\n"),
        ("four/child.rs", "use super::Four;\n"),
    ]);
    assert_eq!(circle.len(), 2, "{circle:?}");
    assert!(circle[0].contains("four.rs -> a/src/four/child.rs -> a/src/four.rs"), "{circle:?}");
    assert!(circle[1].contains("one.rs -> a/src/two.rs -> a/src/three.rs -> a/src/one.rs"), "{circle:?}");
}

#[test]
fn what_goes_one_way_is_none_and_neither_is_what_is_said_or_tested() {
    let none = found(&[
        ("lib.rs", "pub mod one;\npub mod two;\npub use one::One;\n"),
        ("one.rs", "use crate::two::Two;\nuse crate::three;\nuse std::path::{self, Path};\n"),
        (
            "two.rs",
            "//! See crate::one.\nconst A: char = '\"'; // crate::one::A\nconst B: &str = \"\n crate::one::B\";\n\
                    const C: &str = r#\"\"crate::one::C\"\n\"#;\n\n\
                    #[cfg(test)]\nuse crate::one::One;\n\n#[cfg(test)]\nmod tests {\n    use crate::one::One;\n}\n",
        ),
        ("three.rs", "use crate::two;\nfn three<'a>(a: &'a u8) -> impl Fn() + use<'a> {\n    a;\n}\n"),
        ("two/tests.rs", "use crate::one::One;\n"),
    ]);
    assert_eq!(none, [""; 0]);
}
