//! Files that people and Steward itself write: configuration, specifications, rules, state.
//!
//! Whatever stands at the path, reading it neither waits nor takes more memory than said: regular files only, on a file
//! system that keeps them (a file of procfs may wait for news, and takes from others what it gives), up to a size.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most that is read of a file which a person writes, in bytes.
pub const WRITTEN_BYTES_MAX: u64 = 1 << 20;
/// The most that is read of a file which Steward or the system writes, in bytes.
pub const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
#[error("{} {}; {}", path.display(), self.what(), self.advice())]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Failed(io::Error),
    /// What it is instead.
    NotRegular(&'static str),
    /// Both in bytes.
    TooLarge {
        size_bytes: u64,
        most_bytes: u64,
    },
    NotText,
}

impl Unreadable {
    /// That the system refused something about a file.
    pub fn failed(path: &Path, error: io::Error) -> Unreadable {
        Unreadable { path: path.into(), reason: Reason::Failed(error) }
    }

    /// What is wrong, to come after the file's name.
    pub fn what(&self) -> String {
        match &self.reason {
            Reason::Failed(error) => format!("cannot be read: {error}"),
            Reason::NotRegular(kind) => format!("is {kind}, and only regular files are read"),
            Reason::TooLarge { size_bytes, most_bytes } => {
                format!("has {size_bytes} bytes, and at most {most_bytes} are read")
            }
            Reason::NotText => "is not text in UTF-8".to_owned(),
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match &self.reason {
            Reason::Failed(error) if error.kind() == io::ErrorKind::NotFound => "correct the name",
            Reason::Failed(_) => "correct its permissions, or remove it",
            Reason::NotRegular(_) => "remove it, or put a file in its place",
            Reason::TooLarge { .. } => "split it, or remove what does not belong there",
            Reason::NotText => "correct it, or remove it",
        }
    }

    /// Whether nothing is there.
    pub fn is_absent(&self) -> bool {
        matches!(&self.reason, Reason::Failed(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether it is larger than what is read.
    pub fn is_too_large(&self) -> bool {
        matches!(self.reason, Reason::TooLarge { .. })
    }

    /// Whether something else than a regular file is there.
    pub fn is_no_file(&self) -> bool {
        matches!(self.reason, Reason::NotRegular(_))
    }
}

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct Unwritten {
    action: &'static str,
    /// The file or directory that could not be written.
    pub path: PathBuf,
    source: io::Error,
}

/// Replaces a file whole, in a directory that is made where it is missing: whatever happens meanwhile, there is the old
/// one or the new one. When `synced`, it is on the disk before the old one goes.
///
/// # Errors
/// [`Unwritten`]; the old file is there still.
pub fn replace(path: &Path, text: &str, synced: bool) -> Result<(), Unwritten> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Unwritten { action, path, source }
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed("create", directory))?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // Whatever stands there: half a file that a full disk left, or something that would make us wait.
    let _ = std::fs::remove_file(&beside);
    let created = OpenOptions::new().write(true).create_new(true).open(&beside);
    let written = created.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        if synced { file.sync_all() } else { Ok(()) }
    });
    // Half a file would only take the room that is missing.
    written.inspect_err(|_| _ = std::fs::remove_file(&beside)).map_err(failed("write", &beside))?;
    std::fs::rename(&beside, path).map_err(failed("put into place", &beside))
}

/// Gives a file that is not as it was written another name, so that a new one can take its place and nothing of it is
/// lost. Returns what came of it, as part of a sentence: this must not stop who read it.
pub fn set_aside(path: &Path, aside: &Path) -> String {
    match std::fs::rename(path, aside) {
        Ok(()) => format!("it is now {}", aside.display()),
        Err(error) => format!("renaming it to {} failed: {error}", aside.display()),
    }
}

/// Reads a file that a person writes, as text. A link to `/dev/null` is empty: that is how people mask a file.
///
/// # Errors
/// [`Unreadable`]; see [`Unreadable::is_absent`].
pub fn read_text(path: &Path) -> Result<String, Unreadable> {
    let bytes = read_bytes(path, WRITTEN_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|_| Unreadable { path: path.into(), reason: Reason::NotText })
}

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
/// [`Unreadable`]; see [`Unreadable::is_absent`].
pub fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unreadable> {
    let because = |reason| Unreadable { path: path.into(), reason };
    let failed = |error| because(Reason::Failed(error));
    // Looked at before it is opened, because opening a device may do something, and again afterwards, because it may
    // have been replaced.
    let before = std::fs::metadata(path).map_err(failed)?;
    if is_null(&before) {
        return Ok(Vec::new());
    }
    if let Some(kind) = kind_unless_regular(&before) {
        return Err(because(Reason::NotRegular(kind)));
    }
    let file = OpenOptions::new().read(true).custom_flags(WITHOUT_WAITING).open(path).map_err(failed)?;
    refuse_unless_regular(&file, path)?;
    read_open(&file, path, bytes_max)
}

/// Opens a file that Steward alone writes, to be locked, read with [`read_open`] and written: made where nothing is,
/// for its owner alone, because who can open it can hold its lock.
///
/// # Errors
/// [`Unreadable`]: also of a link, which might lead to a file of somebody else's.
pub fn open_kept(path: &Path) -> Result<File, Unreadable> {
    let because = |reason| Unreadable { path: path.into(), reason };
    // As `read_bytes` does.
    match std::fs::symlink_metadata(path) {
        Ok(found) => {
            let kind = if found.is_symlink() { Some("a link") } else { kind_unless_regular(&found) };
            if let Some(kind) = kind {
                return Err(because(Reason::NotRegular(kind)));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(because(Reason::Failed(error))),
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let opened = options.custom_flags(WITHOUT_WAITING | libc::O_NOFOLLOW).open(path);
    let file = opened.map_err(|error| because(Reason::Failed(error)))?;
    refuse_unless_regular(&file, path)?;
    Ok(file)
}

/// Reads what is left of an open file, `path`, of at most `bytes_max` bytes.
///
/// # Errors
/// [`Unreadable`].
pub fn read_open(file: &File, path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unreadable> {
    let because = |reason| Unreadable { path: path.into(), reason };
    let failed = |error| because(Reason::Failed(error));
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    let read = bytes.len() as u64;
    if read > bytes_max {
        let size_bytes = file.metadata().map_err(failed)?.len().max(read);
        return Err(because(Reason::TooLarge { size_bytes, most_bytes: bytes_max }));
    }
    Ok(bytes)
}

const WITHOUT_WAITING: libc::c_int = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;

fn refuse_unless_regular(file: &File, path: &Path) -> Result<(), Unreadable> {
    let because = |reason| Unreadable { path: path.into(), reason };
    let found = file.metadata().map_err(|error| because(Reason::Failed(error)))?;
    match kind_unless_regular(&found).or_else(|| kernel_file_system(file)) {
        Some(kind) => Err(because(Reason::NotRegular(kind))),
        None => Ok(()),
    }
}

/// `/dev/null`: character device 1, 3 (Documentation/admin-guide/devices.txt of Linux).
fn is_null(metadata: &std::fs::Metadata) -> bool {
    metadata.file_type().is_char_device() && metadata.rdev() == rustix::fs::makedev(1, 3)
}

fn kind_unless_regular(metadata: &std::fs::Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a FIFO"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}

/// File systems of the kernel whose files look regular, by their numbers in linux/magic.h.
fn kernel_file_system(file: &File) -> Option<&'static str> {
    let number = rustix::fs::fstatfs(file).ok()?.f_type;
    match number as u64 & 0xffff_ffff {
        0x9fa0 => Some("a file of procfs"),
        0x6265_6572 => Some("a file of sysfs"),
        0x6462_6720 => Some("a file of debugfs"),
        0x7472_6163 => Some("a file of tracefs"),
        0x6367_7270 | 0x27_e0eb => Some("a file of cgroupfs"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_up_to_its_most() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        assert!(read_text(&path).expect_err("nothing is there").is_absent());
        std::fs::write(&path, "a = 1\n").expect("written");
        assert_eq!(read_text(&path).expect("readable"), "a = 1\n");
        assert_eq!(read_bytes(&path, 6).expect("just fits"), b"a = 1\n");
        let error = read_bytes(&path, 5).expect_err("too large").to_string();
        assert!(error.contains("has 6 bytes, and at most 5"), "{error}");
        std::fs::write(&path, [0xff, b'\n']).expect("written");
        let error = read_text(&path).expect_err("no text");
        assert!(error.to_string().contains("UTF-8") && !error.is_absent(), "{error}");
    }

    #[test]
    fn what_would_wait_or_never_end_is_refused_with_the_path_and_what_to_do() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let owner_only = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), owner_only).expect("a FIFO");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket");
        std::fs::create_dir(path("directory")).expect("a directory");
        let links = [("kmsg", "/proc/kmsg"), ("zero", "/dev/zero"), ("version", "/proc/version")];
        for (name, target) in links {
            std::os::unix::fs::symlink(target, path(name)).expect("a link");
        }
        let large = File::create(path("large")).expect("a file");
        large.set_len(1 << 40).expect("a file without blocks");
        for name in ["fifo", "socket", "directory", "kmsg", "zero", "version", "large"] {
            let error = read_text(&path(name)).expect_err(name).to_string();
            assert!(error.contains(&path(name).display().to_string()), "{error}");
            assert!(error.contains("; ") && !error.ends_with("; "), "{error}");
            if name != "large" {
                let error = open_kept(&path(name)).expect_err(name);
                assert!(error.is_no_file(), "{error}");
            }
        }
        let mine = open_kept(&path("mine")).expect("made");
        assert_eq!(mine.metadata().expect("it is there").mode() & 0o777, 0o600);
        assert_eq!(read_open(&mine, &path("mine"), 0).expect("it is empty"), b"");
    }

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("made/file");
        replace(&path, "one", true).expect("replaced");
        std::fs::write(directory.path().join("made/file.new"), "half a fi").expect("written");
        replace(&path, "two", false).expect("replaced");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "two");
        let error = replace(&path.join("below"), "", false).expect_err("it is no directory").to_string();
        assert!(error.starts_with("cannot create ") && error.contains("made/file: "), "{error}");
        std::fs::create_dir(directory.path().join("made/file.new")).expect("in the way");
        let error = replace(&path, "three", false).expect_err("something is in the way").to_string();
        assert!(error.starts_with("cannot write ") && error.contains("made/file.new: "), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "two");
    }

    #[test]
    fn a_link_to_dev_null_is_an_empty_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let link = directory.path().join("masked.toml");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        assert_eq!(read_text(&link).expect("it masks"), "");
    }
}
