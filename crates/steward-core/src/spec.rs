//! Specifications: what a program gets when it starts (Yang 2009, chapter 7).
//!
//! A specification is written as a TOML row ([`parse_toml`], [`to_toml`]) or in the paper's one-line form
//! ([`parse_row`], [`parse_tab`], [`format_row`]). Both make a `Draft`, and one set of rules turns a draft into a
//! [`Spec`] or says what is wrong with it. [`SpecSet`] merges the files of all directories, and [`check_target`]
//! judges what was found at a path. Nothing here looks at a file system.

mod row;
mod row_form;
mod set;
mod target;
mod toml_form;

pub use crate::last_good::{About, Mistake};
pub use crate::problem::{Origin, Problem, Severity};
pub use row::{COMM_LENGTH, Class, Fault, Spec, SpecPath, User, check_admissible, check_served_first};
pub use row_form::{format_row, parse_row, parse_tab};
pub use set::{
    DirectoryRank, EffectiveFile, EffectiveFiles, Overridden, ParsedFile, SpecSet, effective_files,
};
pub use target::{TargetFacts, check_target};
pub use toml_form::{parse_toml, to_toml};

#[cfg(test)]
mod tests;
