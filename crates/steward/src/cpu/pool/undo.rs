//! What a server had before `steward pool` changed it, on disk before the first change.
//!
//! One file for each server, in `pool` below the state directory, held with a lock for as long as the program runs. A
//! file whose lock nobody holds was left by a program that was killed: what it says is undone by the next start, or by
//! `steward revert`.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use steward_kernel::files::{self, Unreadable};
use steward_kernel::sealed;

use super::server::Undo;
use super::{apache, haproxy};

/// Puts back what a server had.
fn put_back(undo: &Undo) -> anyhow::Result<()> {
    match undo {
        Undo::Apache { drop_in, pid_file, check } => apache::restore(drop_in, pid_file, check),
        Undo::Haproxy { control, backend, server, maxconn, instance } => {
            let server = haproxy::ServerName { backend: backend.clone(), server: server.clone() };
            // A HAProxy that has ended took the limit with it, and the next one has its own.
            if std::os::unix::net::UnixStream::connect(control).is_err() {
                return Ok(());
            }
            let now = haproxy::instance(control)?;
            if instance.is_some() && now.is_some() && *instance != now {
                return Ok(());
            }
            haproxy::set_maxconn(control, &server, *maxconn)
        }
    }
}

/// The record of one server, claimed by this process.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    /// Claims the record of `target`, and undoes what a predecessor left that was killed.
    ///
    /// A damaged record is set aside, and keeps nobody from starting.
    ///
    /// # Errors
    /// When another process sizes this server, or what was left cannot be undone.
    pub fn claim(state_directory: &Path, target: &str) -> anyhow::Result<Record> {
        let directory = state_directory.join("pool");
        std::fs::create_dir_all(&directory).with_context(|| {
            format!("cannot create {}; --state-directory names another place", directory.display())
        })?;
        let path = directory.join(file_name(target));
        loop {
            let record = match Record::open(&path) {
                Ok(Some(record)) => record,
                Ok(None) => bail!("another `steward pool` sizes this server already ({target})"),
                Err(error) if error.is_no_file() => {
                    eprintln!("steward: {}", set_aside(&path, &error.what())?);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match record.left()? {
                Left::Nothing => {}
                Left::Undo(undo) => {
                    eprintln!(
                        "steward: an earlier `steward pool` was killed: putting back what the server had"
                    );
                    record.carry_out(&undo)?;
                }
                Left::Damaged(what) => {
                    eprintln!("steward: {}", set_aside(&path, &what)?);
                    continue;
                }
            }
            return Ok(record);
        }
    }

    /// Opens and locks a record; `None` when another process holds it.
    fn open(path: &Path) -> Result<Option<Record>, Unreadable> {
        loop {
            let file = files::open_kept(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(Unreadable::failed(path, error.into())),
            }
            // Its last owner may have removed it between the two steps: then this is a file without a name.
            let there = std::fs::metadata(path).map(|found| found.ino()).ok();
            if there == file.metadata().map(|own| own.ino()).ok() {
                return Ok(Some(Record { path: path.to_owned(), file }));
            }
        }
    }

    /// Writes down how to undo what will be done, before it is.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn write(&self, undo: &Undo) -> anyhow::Result<()> {
        let mut file = &self.file;
        let text = sealed::encode(ANY_BOOT, undo).context("an undo record cannot be written as JSON")?;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.sync_all())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Undoes what was done, and forgets it.
    ///
    /// # Errors
    /// When the server refuses; the record stays then.
    pub fn undo(self) -> anyhow::Result<()> {
        if let Left::Undo(undo) = self.left()? {
            self.carry_out(&undo)?;
        }
        std::fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }

    /// Undoes what a program left that was killed; whether it left anything.
    fn revert(self) -> anyhow::Result<bool> {
        let left = match self.left()? {
            Left::Nothing => false,
            Left::Undo(_) => true,
            Left::Damaged(what) => bail!(set_aside(&self.path, &what)?),
        };
        self.undo()?;
        Ok(left)
    }

    fn carry_out(&self, undo: &Undo) -> anyhow::Result<()> {
        let kept = || format!("what is to be undone stays in {}", self.path.display());
        put_back(undo).with_context(kept)?;
        self.file.set_len(0).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// What is written there.
    fn left(&self) -> anyhow::Result<Left> {
        let mut file = &self.file;
        file.rewind().with_context(|| format!("cannot read {}", self.path.display()))?;
        let bytes = match files::read_open(file, &self.path, files::WRITTEN_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.is_too_large() => return Ok(Left::Damaged(error.what())),
            Err(error) => return Err(error.into()),
        };
        let (mut lines, cut) = sealed::lines(&bytes);
        let undo = match (lines.next(), lines.next(), cut) {
            (None, None, []) => return Ok(Left::Nothing),
            (Some(line), None, []) => sealed::decode(ANY_BOOT, line),
            _ => None,
        };
        Ok(undo.map_or_else(|| Left::Damaged("is damaged".to_owned()), Left::Undo))
    }
}

/// Keeps what is no record under another name, for a person to look at; says so. `what` is wrong with it.
fn set_aside(path: &Path, what: &str) -> anyhow::Result<String> {
    let mut aside = path.to_owned().into_os_string();
    aside.push(DAMAGED);
    let aside = PathBuf::from(aside);
    std::fs::rename(path, &aside)
        .with_context(|| format!("{} {what}, and cannot become {}", path.display(), aside.display()))?;
    Ok(format!(
        "{} {what}, so that the pool size from before is not put back: look at the server's own configuration; it is \
         {} now",
        path.display(),
        aside.display()
    ))
}

/// What a record of a program that was killed says.
enum Left {
    Nothing,
    Undo(Undo),
    /// What is wrong with it.
    Damaged(String),
}

/// What is put behind the name of a damaged record.
const DAMAGED: &str = ".damaged";

/// A server's configuration outlives a boot; whether its process does, the record says.
const ANY_BOOT: &str = "";

/// A file's name for a server: what cannot be in one becomes a dash.
fn file_name(target: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
    format!("{}.json", target.chars().map(plain).collect::<String>())
}

/// Undoes what programs left that were killed: sentences about what was put back, what is in use, and what failed.
pub fn revert(state_directory: &Path) -> Reverted {
    let mut reverted = Reverted::default();
    let Ok(entries) = std::fs::read_dir(state_directory.join("pool")) else { return reverted };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let name = path.display().to_string();
        if name.ends_with(DAMAGED) {
            continue;
        }
        match Record::open(&path) {
            Ok(None) => reverted.left.push(format!("{name}: `steward pool` runs and undoes it at its end")),
            Err(error) if error.is_no_file() => reverted
                .failed
                .push(set_aside(&path, &error.what()).unwrap_or_else(|error| format!("{error:#}"))),
            Err(error) => reverted.failed.push(error.to_string()),
            Ok(Some(record)) => match record.revert() {
                Ok(done) => reverted
                    .done
                    .extend(done.then(|| format!("{name}: the server has its own pool size again"))),
                Err(error) => reverted.failed.push(format!("{error:#}")),
            },
        }
    }
    reverted
}

/// What [`revert`] came to.
#[derive(Debug, Default)]
pub struct Reverted {
    /// What was put back.
    pub done: Vec<String>,
    /// What is in use.
    pub left: Vec<String>,
    /// What could not be put back.
    pub failed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apache(directory: &Path) -> Undo {
        Undo::Apache {
            drop_in: directory.join("a.conf"),
            pid_file: directory.join("pid"),
            check: vec!["true".into()],
        }
    }

    #[test]
    fn a_second_program_for_the_same_server_is_refused_and_for_another_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = Record::claim(directory.path(), "haproxy /run/a.sock web/a").expect("free");
        let error = Record::claim(directory.path(), "haproxy /run/a.sock web/a").expect_err("taken");
        assert!(error.to_string().contains("already (haproxy /run/a.sock web/a)"), "{error}");
        Record::claim(directory.path(), "haproxy /run/a.sock web/b").expect("another");
        drop(first);
        Record::claim(directory.path(), "haproxy /run/a.sock web/a").expect("free again");
    }

    #[test]
    fn what_a_killed_program_left_is_undone_by_the_next_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let record = Record::claim(directory.path(), "apache").expect("free");
        record.write(&apache(directory.path())).expect("written");
        std::fs::write(directory.path().join("a.conf"), "MaxRequestWorkers 3\n").expect("written");
        // Its end frees the lock and nothing else.
        drop(record);
        let next = Record::claim(directory.path(), "apache").expect("free");
        assert!(!directory.path().join("a.conf").exists());
        assert!(matches!(next.left().expect("read"), Left::Nothing));
    }

    #[test]
    fn what_a_killed_program_left_is_undone_by_revert_and_what_is_in_use_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let killed = Record::claim(directory.path(), "apache").expect("free");
        killed.write(&apache(directory.path())).expect("written");
        drop(killed);
        let running = Record::claim(directory.path(), "other").expect("free");
        running.write(&apache(directory.path())).expect("written");
        let reverted = revert(directory.path());
        assert_eq!(
            (reverted.done.len(), reverted.left.len(), reverted.failed.len()),
            (1, 1, 0),
            "{reverted:?}"
        );
        assert!(!directory.path().join("pool/apache.json").exists());
        assert!(revert(&directory.path().join("nowhere")).done.is_empty());
    }

    #[test]
    fn a_damaged_record_is_named_and_set_aside_and_keeps_nobody_from_starting() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("pool")).expect("made");
        let path = directory.path().join("pool/apache.json");
        let good = sealed::encode(ANY_BOOT, &apache(directory.path())).expect("JSON");
        let mut flipped = good.clone().into_bytes();
        flipped[40] ^= 1;
        let cut = &good.as_bytes()[..good.len() - 1];
        let twice = good.repeat(2);
        let large = vec![b'\n'; files::WRITTEN_BYTES_MAX as usize + 1];
        for damage in
            [&b"{\"kind\":\"apache\""[..], &[0xff, 0xfe], b"[]", &flipped, cut, twice.as_bytes(), &large]
        {
            std::fs::write(&path, damage).expect("written");
            let reverted = revert(directory.path());
            assert_eq!((reverted.done.len(), reverted.failed.len()), (0, 1), "{reverted:?}");
            let said =
                if damage == large { "apache.json has 1048577 bytes" } else { "apache.json is damaged" };
            assert!(reverted.failed[0].contains(said), "{reverted:?}");
            assert_eq!(
                std::fs::read(directory.path().join("pool/apache.json.damaged")).expect("kept"),
                damage
            );
            assert!(revert(directory.path()).failed.is_empty(), "said once");
            std::fs::write(&path, damage).expect("written");
            let next = Record::claim(directory.path(), "apache").expect("free");
            assert!(matches!(next.left().expect("read"), Left::Nothing));
        }
    }

    #[test]
    fn what_would_make_it_wait_is_set_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("pool")).expect("made");
        let path = directory.path().join("pool/apache.json");
        let owner_only = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let fifo = || rustix::fs::mkfifoat(rustix::fs::CWD, &path, owner_only).expect("a FIFO");
        fifo();
        let reverted = revert(directory.path());
        assert!(reverted.failed[0].contains("apache.json is a FIFO"), "{reverted:?}");
        assert!(directory.path().join("pool/apache.json.damaged").exists());
        fifo();
        Record::claim(directory.path(), "apache").expect("free");
        // Nor does it write through a link.
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, "theirs").expect("written");
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
        let record = Record::claim(directory.path(), "apache").expect("free");
        record.write(&apache(directory.path())).expect("written");
        assert_eq!(std::fs::read_to_string(&elsewhere).expect("there"), "theirs");
    }
}
