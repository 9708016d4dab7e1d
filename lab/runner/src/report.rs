//! The report.
use crate::outcome::Outcome;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Writes the result and the report; returns the report's path.
///
/// # Errors
/// When a file cannot be written.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join("result.json");
    std::fs::write(&path, serde_json::to_vec(outcome)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
