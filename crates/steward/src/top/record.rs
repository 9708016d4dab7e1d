//! Snapshots as JSON, and recordings: one snapshot a line, for `steward report`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use super::model::Snapshot;
use crate::output;

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
}

impl Recorder {
    /// Makes the file; one that is there already is written anew.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write the recording {}", path.display()))?;
        Ok(Recorder { path: path.to_owned(), file })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn write(&mut self, snapshot: &Snapshot) -> anyhow::Result<()> {
        // In one piece, so that what is cut off by a crash is at most the last line.
        let line = json_line(&snapshot.to_record())? + "\n";
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write the recording {}", self.path.display()))
    }
}

/// A snapshot with its schema.
#[derive(Serialize)]
struct Versioned<'a> {
    schema: u32,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

/// One object, indented.
pub fn json(snapshot: &Snapshot) -> anyhow::Result<String> {
    Ok(harmless(&serde_json::to_string_pretty(&Versioned { schema: output::SCHEMA, snapshot })?))
}

/// One object on one line.
pub fn json_line(snapshot: &Snapshot) -> anyhow::Result<String> {
    Ok(harmless(&serde_json::to_string(&Versioned { schema: output::SCHEMA, snapshot })?))
}

/// JSON in which the control characters that JSON allows in strings are escaped too: it may be printed on a terminal.
fn harmless(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() && character != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::testing;

    #[test]
    fn json_can_be_shown_on_a_terminal_and_says_the_same() {
        let mut snapshot = testing::model().snapshot().clone();
        snapshot.tasks[0].task.name = "a\u{9b}31m\u{7f}\u{1b}".to_owned();
        for text in [json(&snapshot).expect("JSON"), json_line(&snapshot).expect("JSON")] {
            assert!(!text.chars().any(|character| character.is_control() && character != '\n'));
            let read: Snapshot = serde_json::from_str(&text).expect("it reads");
            assert_eq!(read.tasks[0].task.name, snapshot.tasks[0].task.name);
        }
    }
}
