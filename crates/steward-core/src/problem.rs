//! What is wrong with a file or an argument that a person wrote: where, what, and what to do.
//!
//! Specifications ([`crate::spec`]) and the daemon's configuration ([`crate::config`]) report with the same type,
//! so that every message reads alike: `file:line: what is wrong; what to do`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::printable::{printable, printable_path};

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The file, or [`Origin::COMMAND_LINE`].
    pub file: PathBuf,
    /// The line, counted from 1; 0 means the file as a whole, or no file.
    pub line: u32,
}

impl Origin {
    /// Stands in [`Origin::file`] for what was typed rather than read.
    pub const COMMAND_LINE: &'static str = "command line";

    /// A line of a file.
    pub fn at(file: &Path, line: u32) -> Self {
        Origin { file: file.to_owned(), line }
    }

    /// An argument of a command.
    pub fn command_line() -> Self {
        Origin::at(Path::new(Self::COMMAND_LINE), 0)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = printable_path(&self.file);
        match self.line {
            0 => write!(formatter, "{file}"),
            line => write!(formatter, "{file}:{line}"),
        }
    }
}

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; nothing is lost (a shipped specification whose program is not installed).
    Note,
    /// What it concerns is not in force; `spec check` ends with 1.
    Error,
}

/// One thing that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// Where it was written.
    pub origin: Origin,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, with the words that are wrong.
    pub what: String,
    /// What the person can do.
    pub advice: String,
}

impl Problem {
    /// A problem of severity [`Severity::Error`].
    pub fn error(origin: Origin, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Problem { origin, severity: Severity::Error, what: what.into(), advice: advice.into() }
    }

    /// What is wrong and what to do, on one line: the words that are wrong are somebody else's, whatever is in them.
    pub fn message(&self) -> String {
        printable(&format!("{}; {}", self.what, self.advice)).into_owned()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.severity == Severity::Note { "note: " } else { "" };
        write!(formatter, "{}: {note}{}", self.origin, self.message())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_file_is_called_and_has_in_it_its_problem_is_one_line() {
        let origin = Origin::at(Path::new("/etc/a\x1b[2J\n.toml"), 3);
        let text = Problem::error(origin, "\"\x1b]0;x\x07\" is no\ncpu", "correct it").to_string();
        assert_eq!(text, "/etc/a\\u{1b}[2J\\n.toml:3: \"\\u{1b}]0;x\\u{7}\" is no\\ncpu; correct it");
    }
}
