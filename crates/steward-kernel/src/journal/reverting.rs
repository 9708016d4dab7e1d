//! All that a journal records is put back.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::change::{Change, Undone};
use super::error::JournalError;
use super::file::Journal;
use super::undo::undo;
use crate::disk::{ioprio, writeback};
use crate::roots::Roots;

/// What [`revert`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What was put back, latest change first.
    pub reverted: Vec<String>,
    /// What was left alone, with the reason: it is gone, it is as it was, or someone else has changed it since.
    pub left: Vec<String>,
    /// What could not be put back, with the reason. It stays in the journal.
    pub failed: Vec<String>,
    /// What was wrong with the journal itself, and where the damaged file is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(sentence) = &self.set_aside {
            writeln!(formatter, "damaged: {sentence}")?;
        }
        if self.reverted.is_empty() && self.left.is_empty() && self.failed.is_empty() {
            return formatter.write_str("nothing to put back\n");
        }
        for (title, lines) in [("put back", &self.reverted), ("left", &self.left), ("failed", &self.failed)] {
            for line in lines {
                writeln!(formatter, "{title}: {line}")?;
            }
        }
        Ok(())
    }
}

/// Puts back everything that the journal at `path` records and that is still as Steward left it, latest first. A
/// journal that is not there, is empty, or is of an earlier boot has nothing to put back.
///
/// # Errors
/// [`JournalError`] when the journal can not be used; what can not be put back is in the report instead.
pub fn revert(path: &Path, roots: &Roots) -> Result<Report, JournalError> {
    let mut report = Report::default();
    if !path.exists() {
        return Ok(report);
    }
    let mut journal = Journal::open(path, roots)?;
    report.set_aside = journal.set_aside().map(str::to_owned);
    let numbers: Vec<u64> = journal.outstanding.keys().rev().copied().collect();
    let mut may_be_handed_on = false;
    let mut has_ceased = false;
    for number in numbers {
        let change = journal.outstanding[&number].clone();
        may_be_handed_on |= matches!(change, Change::DiskPriority { .. });
        match undo(&change, roots) {
            Ok(Undone::PutBack) => {
                has_ceased |= matches!(change, Change::DiskHandedOut { .. });
                report.reverted.push(change.to_string());
            }
            Ok(Undone::Left(why)) => report.left.push(format!("{change}: {why}")),
            Err(error) => {
                report.failed.push(format!("{change}: {error}"));
                continue;
            }
        }
        // On a full disk the record stays open, and the next one to read it finds everything as it was.
        let _ = journal.close(number);
    }
    // Whoever was started meanwhile has the priority of their parents, and nobody has told.
    if may_be_handed_on && let Err(error) = ioprio::take_from_all(&|_, _| false, roots) {
        report.failed.push(format!("the disk priorities that programs were started with: {error}"));
    }
    if has_ceased {
        have_written(&mut journal, roots);
    }
    journal.remove_if_useless();
    Ok(report)
}

/// What was changed below a cgroup that has ceased to hand the disk out is not to wait for the kernel's flusher.
fn have_written(journal: &mut Journal, roots: &Roots) {
    // Where it cannot be had come round often, it does at its time.
    let Ok(Some((file, value))) = writeback::often(roots) else { return };
    let Ok(Some(number)) = journal.write_file(&file, &value) else { return };
    std::thread::sleep(writeback::SETTLES_WITHIN);
    if undo(&journal.outstanding[&number], roots).is_ok() {
        let _ = journal.close(number);
    }
}
