//! Recordings: one snapshot a line, as JSON, for `steward report`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::model::Snapshot;

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
        let line = super::json_line(&snapshot.to_record())? + "\n";
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write the recording {}", self.path.display()))
    }
}
