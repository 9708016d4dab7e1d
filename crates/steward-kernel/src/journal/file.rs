//! The journal as a file: opened and locked, and a change recorded in it before it is made.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::change::Change;
use super::error::{JournalError, SCHEMA};
use super::lines::{Line, Past, encode, take_in};
use crate::error::KernelError;
use crate::roots::{Roots, read, write};

/// The file is rewritten when it has this many lines more than there are changes to undo.
pub(super) const SPARE_LINES_MAX: usize = 512;

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
    pub(super) outstanding: BTreeMap<u64, Change>,
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
        self.write_file_of(None, path, value)
    }

    /// The same with a file that is of a disk, and goes with it; `disk` says of which, as `which()` of
    /// `disk/identity.rs` does.
    ///
    /// # Errors
    /// As [`Journal::write_file`].
    pub fn write_file_of(
        &mut self,
        disk: Option<String>,
        path: &Path,
        value: &str,
    ) -> Result<Option<u64>, JournalError> {
        let old = read(path)?.trim().to_owned();
        if old == value {
            return Ok(None);
        }
        let number = self.record(Change::File { path: path.into(), old, new: value.into(), disk })?;
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
    pub(super) fn note(&mut self, line: Line) -> Result<(), JournalError> {
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

    /// Takes the file away when it says nothing and nothing can be written into it.
    pub(super) fn remove_if_useless(&self) {
        if self.file.is_none() && self.outstanding.is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
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

pub(super) fn boot_identity(roots: &Roots) -> Result<String, KernelError> {
    Ok(read(&roots.proc.join("sys/kernel/random/boot_id"))?.trim().to_owned())
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
    let options = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NONBLOCK);
    // Where there can be no such file, because the disk is full, the directory will do.
    let directory = || File::open(path.parent().unwrap_or(Path::new("/")));
    let failed = |source| JournalError::File { action: "lock", path: path.into(), source };
    // Whoever may open it, to read it, may hold the lock: one that an earlier version made is closed to others.
    let private = |file: File| {
        if file.metadata()?.mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    };
    let opened = options.open(lock_path).and_then(private);
    let file = opened.or_else(|error| directory().map_err(|_| error)).map_err(failed)?;
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

pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
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
