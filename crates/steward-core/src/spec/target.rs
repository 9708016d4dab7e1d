//! Judges what was found at the path of a specification. Somebody else looks; this decides what it means.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::row::{Spec, SpecPath};
use crate::printable::printable_path;
use crate::problem::{Problem, Severity};
use crate::process::FileIdentity;

/// What is at a path, after following symbolic links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetFacts {
    /// Nothing.
    Missing,
    /// A directory.
    Directory,
    /// A file that nobody may execute.
    NotExecutable,
    /// Symbolic links that lead to each other.
    SymlinkLoop,
    /// The path was not absolute, so nobody looked.
    NotAbsolute,
    /// A script.
    Script {
        /// The program on its `#!` line.
        interpreter: PathBuf,
    },
    /// A program, by the identity of the file that the links end at.
    Executable {
        /// What the kernel will see at `exec`.
        identity: FileIdentity,
    },
}

/// Holds a specification against what is at its path; `None` when it can be in force. Kernel threads have no file
/// and are never a problem here.
///
/// `strict` is for a person's own files (`spec check`): there a missing program is an error. In sets that ship for
/// every machine it is only a note, since nobody has all programs installed; so is a script, because another
/// distribution may wrap what is a program where the set was made.
pub fn check_target(spec: &Spec, facts: &TargetFacts, strict: bool) -> Option<Problem> {
    let SpecPath::Executable(path) = &spec.path else { return None };
    let path = printable_path(path);
    let lenient = if strict { Severity::Error } else { Severity::Note };
    let (severity, what, advice) = match facts {
        TargetFacts::Executable { .. } => return None,
        TargetFacts::Missing => {
            (lenient, format!("there is no {path}"), "install the program, or correct the path".to_owned())
        }
        TargetFacts::Directory => {
            (Severity::Error, format!("{path} is a directory"), "name the program in it".to_owned())
        }
        TargetFacts::NotExecutable => {
            let advice = format!("name a program, or make it one with `chmod +x {path}`");
            (Severity::Error, format!("{path} may not be executed"), advice)
        }
        TargetFacts::SymlinkLoop => {
            let advice = format!("`namei {path}` shows the loop; name the program itself");
            (Severity::Error, format!("{path} is a symbolic link that leads back to itself"), advice)
        }
        TargetFacts::NotAbsolute => {
            (Severity::Error, format!("{path} is not an absolute path"), "write it from the root".to_owned())
        }
        TargetFacts::Script { interpreter } => {
            let interpreter = printable_path(interpreter);
            let what = format!("{path} is a script, which runs as its interpreter {interpreter}");
            let advice = format!(
                "name the program that the script starts, or start it with `steward run`; a row for {interpreter} \
                 would be for every script of that kind"
            );
            (lenient, what, advice)
        }
    };
    Some(Problem { origin: spec.origin.clone(), severity, what, advice })
}
