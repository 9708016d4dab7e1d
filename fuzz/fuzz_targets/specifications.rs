//! Specifications, as TOML and in the one-line form: what is read is written so that it is read the same again.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use steward_core::spec::{Spec, SpecSet, format_row, parse_row, parse_tab, parse_toml, to_toml};

/// Without where each was written.
fn contents(specs: &[Spec]) -> Vec<String> {
    let content = |spec: &Spec| {
        format!("{:?}", Spec { origin: steward_core::problem::Origin::command_line(), ..spec.clone() })
    };
    specs.iter().map(content).collect()
}

fuzz_target!(|text: &str| {
    let file = Path::new("50-fuzz.toml");
    let parsed = parse_toml(file, text);
    let again = parse_toml(file, &to_toml(&parsed.specs));
    assert_eq!(contents(&again.specs), contents(&parsed.specs), "{:?}", again.problems);
    let tab = parse_tab(file, text);
    assert!(tab.problems.iter().all(|problem| !problem.to_string().is_empty()));
    if let Ok(spec) = parse_row(text.trim_end_matches('\n')) {
        let row = format_row(&spec);
        let again = parse_row(&row).unwrap_or_else(|problem| panic!("{row}: {problem}"));
        assert_eq!(format_row(&again), row);
    }
    SpecSet::merge(vec![parsed, tab]);
});
