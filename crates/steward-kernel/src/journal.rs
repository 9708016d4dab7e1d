//! The undo journal: what Steward changed in the kernel, and what was there before.
//!
//! Each change is written here with its old value, and the file is synced, before the change is made. So whatever
//! happens afterwards - a stop, a crash, `kill -9` - [`revert`] can put back what is still Steward's: it changes
//! nothing that someone else has written since, and running it twice does no more than running it once.
//!
//! The file is one JSON object a line, with a sum over it ([`sealed`]). The first line holds the identity of the boot:
//! after a reboot nothing is left to put back. Where a line is not as it was written, that line is lost and no other:
//! the rest is put back, and the file is set aside under another name for a person to look at. A line that the disk did
//! not take whole is cut off again, and its change is not made. The file is locked while it is in use, so that nobody
//! reverts under a running daemon.

mod shared;

pub use shared::SharedJournal;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use steward_core::disk::priority::Priority;
use steward_core::process::TaskId;

use crate::cpu::rescheduling::{self, Real, Tasks};
use crate::cpu::scheduling::Scheduling;
use crate::disk::{devices, priority};
use crate::error::KernelError;
use crate::roots::{Roots, read, read_if_present};
use crate::{files, sealed};

mod knob;
mod knobs;

pub use knob::Knob;

/// The version of the file's format.
const SCHEMA: u32 = 3;
/// The format before, which knew no knobs of cgroups; its lines are the same otherwise.
const SCHEMA_WITHOUT_KNOBS: u32 = 2;
/// The first format, whose lines had no sums.
const SCHEMA_WITHOUT_SUMS: u32 = 1;
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
    /// What orders a disk's requests was changed.
    DiskOrder {
        /// The directory of its queue.
        queue: PathBuf,
        /// The elevator before.
        old: String,
        /// How many requests could wait in it.
        old_requests: u64,
        /// The elevator by the change.
        new: String,
    },
    /// The priority of a task's disk requests was changed.
    DiskPriority {
        /// Which task.
        task: TaskId,
        /// What it was before.
        old: Priority,
        /// What it is by the change.
        new: Priority,
    },
    /// A file of a cgroup was written, once or several times.
    Knob(Knob),
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::File { path, old, .. } => write!(formatter, "{} to {old:?}", path.display()),
            Change::Task { task, .. } => write!(formatter, "the scheduling of task {}", task.tid),
            Change::DiskOrder { queue, old, .. } => {
                write!(formatter, "the elevator of {} to {old}", queue.display())
            }
            Change::DiskPriority { task, .. } => write!(formatter, "the disk priority of task {}", task.tid),
            Change::Knob(knob) => knob.fmt(formatter),
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
    Again { number: u64, value: String },
    Closed { number: u64 },
}

/// An open undo journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// `None` until the disk takes it.
    file: Option<File>,
    /// Of its whole lines.
    length_bytes: u64,
    _lock: Lock,
    boot: String,
    lines: usize,
    next_number: u64,
    outstanding: BTreeMap<u64, Change>,
    set_aside: Option<String>,
}

impl Journal {
    /// Opens the journal at `path`, or starts one. Changes recorded earlier in this boot stay
    /// [`outstanding`](Journal::outstanding). What is damaged, and a disk that is full, keep nobody from opening it:
    /// see [`Journal::set_aside`], and [`Journal::record`] fails until there is room.
    ///
    /// # Errors
    /// [`JournalError`], in every case with the path.
    pub fn open(path: &Path, roots: &Roots) -> Result<Self, JournalError> {
        let boot = boot_identity(roots)?;
        let lock = lock(path)?;
        let Past { next_number, outstanding, damage } = Past::read(path, &boot)?;
        let mut journal = Journal {
            path: path.into(),
            file: None,
            length_bytes: 0,
            _lock: lock,
            boot,
            lines: 0,
            next_number: next_number + 1,
            outstanding,
            set_aside: None,
        };
        // Writing it anew drops closed changes and those of an earlier boot. Where that fails the old one stays, and
        // says the same.
        let aside = (!damage.is_empty()).then(|| beside(path, ".damaged"));
        let outcome = journal.start_over(aside.as_deref());
        journal.set_aside = aside.map(|aside| damage_sentence(path, &damage, &aside, outcome));
        Ok(journal)
    }

    /// What was wrong with the file when it was opened, and where it is now; `None` when it was whole.
    pub fn set_aside(&self) -> Option<&str> {
        self.set_aside.as_deref()
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
    /// [`JournalError::File`]. A record that stays open does no harm: undoing twice is undoing once.
    pub fn close(&mut self, number: u64) -> Result<(), JournalError> {
        if self.outstanding.remove(&number).is_none() {
            return Ok(());
        }
        self.append(&Line::Closed { number })?;
        self.shorten();
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
        let written = write(path, value).map_err(JournalError::from);
        if let Err(error) = written.and_then(|()| self.note_shown(number, path, value)) {
            // Back, if it was written, whatever the kernel shows for it.
            if let Some(Change::File { old, .. }) = self.outstanding.get(&number) {
                let _ = write(path, old);
            }
            let _ = self.close(number);
            return Err(error);
        }
        Ok(Some(number))
    }

    /// The kernel may show a value in another form (`max` as `max 100000`); that form is then what is ours.
    fn note_shown(&mut self, number: u64, path: &Path, value: &str) -> Result<(), JournalError> {
        let shown = read(path)?.trim().to_owned();
        if shown == value {
            return Ok(());
        }
        self.note(Line::Shown { number, value: shown })
    }

    /// Writes a line about a change that is recorded, and takes it in.
    fn note(&mut self, line: Line) -> Result<(), JournalError> {
        self.append(&line)?;
        take_in(&mut self.outstanding, line);
        self.shorten();
        Ok(())
    }

    /// Writes the journal anew when most of its lines say nothing any more.
    fn shorten(&mut self) {
        if self.lines > self.outstanding.len() + SPARE_LINES_MAX {
            // Where that fails the file is only longer than it need be.
            let _ = self.start_over(None);
        }
    }

    fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        if self.file.is_none() {
            let path = self.path.clone();
            self.start_over(None).map_err(|source| JournalError::File { action: "write", path, source })?;
        }
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let text = encode(line, &self.boot);
        if let Err(source) = file.write_all(text.as_bytes()).and_then(|()| file.sync_data()) {
            // Nothing may follow half a line.
            let whole = self.length_bytes;
            let cut = file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole)));
            if cut.is_err() {
                self.file = None;
            }
            return Err(JournalError::File { action: "write", path: self.path.clone(), source });
        }
        self.length_bytes += text.len() as u64;
        self.lines += 1;
        Ok(())
    }

    /// Writes the journal anew with what is outstanding; the one before goes to `aside`, or away.
    fn start_over(&mut self, aside: Option<&Path>) -> io::Result<()> {
        let mut text = encode(&Line::Start { schema: SCHEMA, boot: self.boot.clone() }, &self.boot);
        for (number, change) in &self.outstanding {
            text += &encode(&Line::Made { number: *number, change: change.clone() }, &self.boot);
        }
        self.file = Some(replace(&self.path, &text, aside)?);
        self.length_bytes = text.len() as u64;
        self.lines = self.outstanding.len() + 1;
        Ok(())
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
        // On a full disk the record stays open, and the next one to read it finds everything as it was.
        let _ = journal.close(number);
    }
    if journal.file.is_none() && journal.outstanding.is_empty() {
        let _ = std::fs::remove_file(path);
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
        Change::DiskOrder { queue, old, old_requests, new } => devices::undo(queue, old, *old_requests, new),
        Change::DiskPriority { task, old, new } => priority::undo(*task, *old, *new, roots),
        Change::Knob(knob) => match knob.put_back(roots) {
            Ok(()) => Ok(Undone::PutBack),
            Err(left) => left.map(Undone::Left),
        },
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

pub(crate) fn write(path: &Path, value: &str) -> Result<(), KernelError> {
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

/// The first line says of which boot the others are, so that it can be read without knowing that.
fn encode(line: &Line, boot: &str) -> String {
    let word = if matches!(line, Line::Start { .. }) { "" } else { boot };
    sealed::encode(word, line).expect("a journal line has only strings and numbers")
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
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).custom_flags(libc::O_NONBLOCK);
    // Where there can be no such file, because the disk is full, the directory will do.
    let directory = || File::open(path.parent().unwrap_or(Path::new("/")));
    let failed = |source| JournalError::File { action: "lock", path: path.into(), source };
    let file = options.open(lock_path).or_else(|error| directory().map_err(|_| error)).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(Errno::WOULDBLOCK) => Err(JournalError::InUse { path: path.into() }),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Puts `text` in place of the file so that a crash leaves either the old content or the new, and the old file at
/// `aside`.
fn replace(path: &Path, text: &str, aside: Option<&Path>) -> io::Result<File> {
    let next = beside(path, ".new");
    // What stands there is of a predecessor that was killed.
    let _ = std::fs::remove_file(&next);
    let written = OpenOptions::new().write(true).create_new(true).open(&next).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        if let Some(aside) = aside {
            std::fs::rename(path, aside)?;
        }
        std::fs::rename(&next, path)?;
        Ok(file)
    });
    // Half a file would only take the room that is missing.
    written.inspect_err(|_| _ = std::fs::remove_file(&next))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// What a journal says of this boot.
#[derive(Default)]
struct Past {
    /// The highest number of a change.
    next_number: u64,
    outstanding: BTreeMap<u64, Change>,
    /// What is not as it was written.
    damage: Vec<String>,
}

impl Past {
    fn read(path: &Path, boot: &str) -> Result<Self, JournalError> {
        match files::read_bytes(path, files::KEPT_BYTES_MAX) {
            Ok(content) => Past::parse(&content, boot, path),
            Err(error) if error.is_absent() => Ok(Past::default()),
            Err(error) => Ok(Past { damage: vec![format!("it {}", error.what())], ..Past::default() }),
        }
    }

    fn parse(content: &[u8], boot: &str, path: &Path) -> Result<Self, JournalError> {
        let (lines, cut) = sealed::lines(content);
        let mut past = Past::default();
        let mut plain = false;
        for (number, text) in (1_u64..).zip(lines.chain((!cut.is_empty()).then_some(cut))) {
            if number == 1 {
                match start_of(text) {
                    Some((SCHEMA_WITHOUT_SUMS..=SCHEMA, of)) if of != boot => return Ok(Past::default()),
                    Some((SCHEMA_WITHOUT_KNOBS..=SCHEMA, _)) => continue,
                    Some((SCHEMA_WITHOUT_SUMS, _)) => {
                        plain = true;
                        continue;
                    }
                    Some((found, _)) => return Err(JournalError::Schema { path: path.into(), found }),
                    // Each other line shows by itself whether it is of this boot.
                    None => {}
                }
            }
            let line =
                sealed::decode(boot, text).or_else(|| serde_json::from_slice(text).ok().filter(|_| plain));
            match line {
                Some(line) => past.take(line),
                None => past.damage.push(format!("line {number} is not as it was written")),
            }
        }
        Ok(past)
    }

    fn take(&mut self, line: Line) {
        if let Line::Made { number, .. } | Line::Closed { number } = line {
            self.next_number = self.next_number.max(number);
        }
        take_in(&mut self.outstanding, line);
    }
}

/// What a line makes of the changes that are in force.
fn take_in(outstanding: &mut BTreeMap<u64, Change>, line: Line) {
    match line {
        Line::Start { .. } => {}
        Line::Made { number, change } => _ = outstanding.insert(number, change),
        Line::Shown { number, value } => match outstanding.get_mut(&number) {
            Some(Change::File { new, .. }) => *new = value,
            Some(Change::Knob(knob)) => knob.shows(value),
            _ => {}
        },
        Line::Again { number, value } => {
            if let Some(Change::Knob(knob)) = outstanding.get_mut(&number) {
                knob.will_be(value);
            }
        }
        Line::Closed { number } => _ = outstanding.remove(&number),
    }
}

/// Format and boot, if this is a first line. One without a sum is believed only in the format that had none.
fn start_of(text: &[u8]) -> Option<(u32, String)> {
    let plain = || {
        let line = serde_json::from_slice(text).ok()?;
        matches!(line, Line::Start { schema: SCHEMA_WITHOUT_SUMS, .. }).then_some(line)
    };
    match sealed::decode("", text).or_else(plain)? {
        Line::Start { schema, boot } => Some((schema, boot)),
        _ => None,
    }
}

fn damage_sentence(path: &Path, damage: &[String], aside: &Path, outcome: io::Result<()>) -> String {
    let first = damage.first().map_or("", String::as_str);
    let more = match damage.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let aside = match outcome {
        Ok(()) => format!("it is now {}", aside.display()),
        Err(error) => format!("setting it aside as {} failed: {error}", aside.display()),
    };
    format!(
        "the undo journal {} is damaged: {first}{more}; what else it says is put back, and what those lines said stays \
         as it is; {aside}",
        path.display()
    )
}

#[cfg(test)]
mod tests;
