//! The undo journal: what Steward changed in the kernel, and what was there before.
//!
//! Each change is written here with its old value, and the file is synced, before the change is made. So whatever
//! happens afterwards - a stop, a crash, `kill -9` - [`revert`] can put back what is still Steward's: it changes
//! nothing that someone else has written since, and running it twice does no more than running it once.
//!
//! The file is one JSON object a line. A crash can tear only the last line, and the change of a torn line was never
//! made, so that line is dropped. The first line holds the identity of the boot: after a reboot nothing is left to
//! put back. The file is locked while it is in use, so that nobody reverts under a running daemon.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::KernelError;
use crate::processes::TaskId;
use crate::rescheduling::{self, Real, Tasks};
use crate::roots::{Roots, read, read_if_present};
use crate::scheduling::Scheduling;

/// The version of the file's format.
const SCHEMA: u32 = 1;
/// The file is rewritten when it has this many lines more than there are changes to undo.
const SPARE_LINES_MAX: usize = 512;

/// A change of the kernel's state, with what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A file of the kernel was written.
    File {
        /// The file.
        path: PathBuf,
        /// What it said before.
        old: String,
        /// What it says once written, if the kernel shows it as it was written.
        new: String,
    },
    /// The scheduling of a task was changed.
    Task {
        /// Which task.
        task: TaskId,
        /// How it was scheduled before.
        old: Scheduling,
        /// How it is scheduled by the change.
        new: Scheduling,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::File { path, old, .. } => write!(formatter, "{} to {old:?}", path.display()),
            Change::Task { task, .. } => write!(formatter, "the scheduling of task {}", task.tid),
        }
    }
}

/// Why the journal itself can not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file can not be opened, read, written or synced.
    #[error("cannot {action} the undo journal {}: {source}; nothing was changed in the kernel", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The journal.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the undo journal {} is in use by a running daemon; stop the daemon first", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error(
        "the undo journal {} has format {found}, and this version of Steward reads format {SCHEMA}; \
         revert with the version that wrote it",
        path.display()
    )]
    Schema {
        /// The journal.
        path: PathBuf,
        /// The format that it says it has.
        found: u32,
    },
    /// What was to be changed could not be looked at or written.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Start { schema: u32, boot: String },
    Made { number: u64, change: Change },
    Shown { number: u64, value: String },
    Closed { number: u64 },
}

/// An open undo journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    _lock: Lock,
    boot: String,
    lines: usize,
    next_number: u64,
    outstanding: BTreeMap<u64, Change>,
}

impl Journal {
    /// Opens the journal at `path`, or starts one. Changes recorded earlier in this boot stay
    /// [`outstanding`](Journal::outstanding).
    ///
    /// # Errors
    /// [`JournalError`], in every case with the path.
    pub fn open(path: &Path, roots: &Roots) -> Result<Self, JournalError> {
        let boot = boot_identity(roots)?;
        let lock = lock(path)?;
        let mut past = Past::read(path)?;
        if past.boot.as_ref() != Some(&boot) {
            past = Past { next_number: 1, ..Past::default() };
        }
        let Past { next_number, outstanding, .. } = past;
        // Writing it anew drops a torn line, closed changes and those of an earlier boot.
        let (file, lines) = start_over(path, &boot, &outstanding)?;
        Ok(Journal { path: path.into(), file, _lock: lock, boot, lines, next_number, outstanding })
    }

    /// The changes that are in force, oldest first, by number.
    pub fn outstanding(&self) -> &BTreeMap<u64, Change> {
        &self.outstanding
    }

    /// Records a change that is about to be made, and returns its number. Once this returns the record is on the
    /// file's device.
    ///
    /// # Errors
    /// [`JournalError::File`]; the change must then not be made.
    pub fn record(&mut self, change: Change) -> Result<u64, JournalError> {
        let number = self.next_number;
        self.append(&Line::Made { number, change: change.clone() })?;
        self.next_number += 1;
        self.outstanding.insert(number, change);
        Ok(number)
    }

    /// Records that a change was undone, was never made, or has nothing left to be undone.
    ///
    /// # Errors
    /// [`JournalError::File`].
    pub fn close(&mut self, number: u64) -> Result<(), JournalError> {
        if self.outstanding.remove(&number).is_none() {
            return Ok(());
        }
        self.append(&Line::Closed { number })?;
        if self.lines > self.outstanding.len() + SPARE_LINES_MAX {
            (self.file, self.lines) = start_over(&self.path, &self.boot, &self.outstanding)?;
        }
        Ok(())
    }

    /// Writes `value` into a file of the kernel, with its old value recorded first; returns the change's number, or
    /// `None` when the file says so already.
    ///
    /// # Errors
    /// [`JournalError`]; the file is then as it was.
    pub fn write_file(&mut self, path: &Path, value: &str) -> Result<Option<u64>, JournalError> {
        let old = read(path)?.trim().to_owned();
        if old == value {
            return Ok(None);
        }
        let number = self.record(Change::File { path: path.into(), old, new: value.into() })?;
        if let Err(error) = write(path, value) {
            self.close(number)?;
            return Err(error.into());
        }
        self.note_shown(number, path, value)?;
        Ok(Some(number))
    }

    /// The kernel may show a value in another form (`max` as `max 100000`); that form is then what is ours.
    fn note_shown(&mut self, number: u64, path: &Path, value: &str) -> Result<(), JournalError> {
        let shown = read(path)?.trim().to_owned();
        if shown == value {
            return Ok(());
        }
        self.append(&Line::Shown { number, value: shown.clone() })?;
        if let Some(Change::File { new, .. }) = self.outstanding.get_mut(&number) {
            *new = shown;
        }
        Ok(())
    }

    fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let text = encode(line);
        self.lines += 1;
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| JournalError::File { action: "write", path: self.path.clone(), source })
    }
}

/// What [`revert`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What was put back, latest change first.
    pub reverted: Vec<String>,
    /// What was left alone, with the reason: it is gone, it is as it was, or someone else has changed it since.
    pub left: Vec<String>,
    /// What could not be put back, with the reason. It stays in the journal.
    pub failed: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    let numbers: Vec<u64> = journal.outstanding.keys().rev().copied().collect();
    for number in numbers {
        let change = journal.outstanding[&number].clone();
        match undo(&change, roots) {
            Ok(Undone::PutBack) => report.reverted.push(change.to_string()),
            Ok(Undone::Left(why)) => report.left.push(format!("{change}: {why}")),
            Err(error) => {
                report.failed.push(format!("{change}: {error}"));
                continue;
            }
        }
        journal.close(number)?;
    }
    Ok(report)
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The old value is in place again.
    PutBack,
    /// Nothing was done, for this reason.
    Left(String),
}

/// Undoes one change if it is still as Steward left it.
///
/// # Errors
/// [`KernelError`] with the path or the task.
pub fn undo(change: &Change, roots: &Roots) -> Result<Undone, KernelError> {
    match change {
        Change::File { path, old, new } => undo_file(path, old, new),
        Change::Task { task, old, new } => undo_task(*task, old, new, &Real(roots)),
    }
}

fn undo_file(path: &Path, old: &str, new: &str) -> Result<Undone, KernelError> {
    let Some(current) = read_if_present(path)? else { return Ok(Undone::Left("it is gone".into())) };
    if current == old {
        return Ok(Undone::Left("it is as it was".into()));
    }
    if current != new {
        return Ok(Undone::Left(format!("someone else has written {current:?} since")));
    }
    write(path, old)?;
    Ok(Undone::PutBack)
}

pub(crate) fn undo_task(
    task: TaskId,
    old: &Scheduling,
    new: &Scheduling,
    kernel: &impl Tasks,
) -> Result<Undone, KernelError> {
    if !kernel.is_alive(task) {
        return Ok(Undone::Left("it has ended".into()));
    }
    let current = match kernel.read(task.tid) {
        Err(error) if error.is_absent() => return Ok(Undone::Left("it has ended".into())),
        other => other?,
    };
    if current == *old {
        return Ok(Undone::Left("it is as it was".into()));
    }
    if !current.is_same_choice(new) {
        return Ok(Undone::Left("someone else has changed it since".into()));
    }
    // Read before, so that it is the task's own even if its id changed hands since the first look.
    if !kernel.is_alive(task) {
        return Ok(Undone::Left("it has ended".into()));
    }
    match rescheduling::leave(kernel, task.tid, &current, old) {
        Err(error) if error.is_absent() => Ok(Undone::Left("it has ended".into())),
        outcome => outcome.map(|()| Undone::PutBack),
    }
}

fn write(path: &Path, value: &str) -> Result<(), KernelError> {
    // One write, as the kernel's files want it, and never a new file.
    let opened = OpenOptions::new().write(true).truncate(true).open(path);
    opened.and_then(|mut file| file.write_all(value.as_bytes())).map_err(|source| KernelError::Write {
        path: path.into(),
        value: value.into(),
        source,
    })
}

fn boot_identity(roots: &Roots) -> Result<String, KernelError> {
    Ok(read(&roots.proc.join("sys/kernel/random/boot_id"))?.trim().to_owned())
}

fn encode(line: &Line) -> String {
    let mut text = serde_json::to_string(line).expect("a journal line has only strings and numbers");
    text.push('\n');
    text
}

/// Writes the journal anew with what is outstanding; returns it open for more, and its number of lines.
fn start_over(
    path: &Path,
    boot: &str,
    outstanding: &BTreeMap<u64, Change>,
) -> Result<(File, usize), JournalError> {
    let mut text = encode(&Line::Start { schema: SCHEMA, boot: boot.into() });
    for (number, change) in outstanding {
        text += &encode(&Line::Made { number: *number, change: change.clone() });
    }
    let file = replace(path, &text).map_err(|source| {
        let path = path.into();
        JournalError::File { action: "start", path, source }
    })?;
    Ok((file, outstanding.len() + 1))
}

/// Holds the lock beside the journal; the journal itself is replaced now and then, and a lock would go with it.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// Closing would do, were it not for a child between `fork` and `exec`, which holds the file open a while longer.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn lock(path: &Path) -> Result<Lock, JournalError> {
    let lock_path = beside(path, ".lock");
    let failed = |source| JournalError::File { action: "lock", path: path.into(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(lock_path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(Errno::WOULDBLOCK) => Err(JournalError::InUse { path: path.into() }),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Puts `text` in place of the file so that a crash leaves either the old content or the new.
fn replace(path: &Path, text: &str) -> io::Result<File> {
    let next = beside(path, ".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    std::fs::rename(&next, path)?;
    Ok(file)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// What a journal says.
#[derive(Default)]
struct Past {
    boot: Option<String>,
    next_number: u64,
    outstanding: BTreeMap<u64, Change>,
}

impl Past {
    fn read(path: &Path) -> Result<Self, JournalError> {
        match std::fs::read(path) {
            Ok(content) => Past::parse(&String::from_utf8_lossy(&content), path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Past::default()),
            Err(source) => Err(JournalError::File { action: "read", path: path.into(), source }),
        }
    }

    fn parse(content: &str, path: &Path) -> Result<Self, JournalError> {
        let mut past = Past { next_number: 1, ..Past::default() };
        // What follows the last line's end was torn by a crash, and what it was to record never happened.
        let whole = content.rfind('\n').map_or("", |end| &content[..end]);
        for text in whole.lines() {
            let line = serde_json::from_str(text)
                .map_err(|_| KernelError::parse(path, "a line of an undo journal", text))?;
            past.take(line, path)?;
        }
        Ok(past)
    }

    fn take(&mut self, line: Line, path: &Path) -> Result<(), JournalError> {
        match line {
            Line::Start { schema: SCHEMA, boot } => self.boot = Some(boot),
            Line::Start { schema, .. } => {
                return Err(JournalError::Schema { path: path.into(), found: schema });
            }
            Line::Made { number, change } => {
                self.next_number = self.next_number.max(number + 1);
                self.outstanding.insert(number, change);
            }
            Line::Shown { number, value } => {
                if let Some(Change::File { new, .. }) = self.outstanding.get_mut(&number) {
                    *new = value;
                }
            }
            Line::Closed { number } => {
                self.outstanding.remove(&number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
