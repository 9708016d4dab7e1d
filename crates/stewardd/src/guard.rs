//! The guard: a process that outlives the daemon and thaws what the daemon froze, also after `kill -9`.
//!
//! It is this program again, started with `--guard` when the first cgroup is to be frozen. It reads one line for each
//! `cgroup.freeze` file, `+PATH` before the file is written and `-PATH` after it was written back. The daemon holds the only other end of
//! its standard input, so that the end of input means the end of the daemon, however it came. It ignores the signals
//! that are sent to all of a service at once.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use steward_kernel::deadline::Outliver;

/// The option that makes this program the guard.
pub const OPTION: &str = "--guard";

/// The daemon's end.
#[derive(Debug)]
pub struct Guard {
    program: PathBuf,
    child: Option<Child>,
    files: BTreeSet<PathBuf>,
}

impl Guard {
    /// A guard that is this program, once there is something to guard.
    pub fn new(program: &Path) -> Self {
        Guard { program: program.to_owned(), child: None, files: BTreeSet::new() }
    }

    fn tell(&mut self, sign: u8, file: &Path) -> io::Result<()> {
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut()).ok_or_else(missing)?;
        let mut line = vec![sign];
        line.extend_from_slice(file.as_os_str().as_bytes());
        line.push(b'\n');
        input.write_all(&line)
    }

    /// A new one, told of all files.
    fn start(&mut self) -> io::Result<()> {
        if let Some(mut ended) = self.child.take() {
            let _ = ended.try_wait();
        }
        self.child = Some(command(&self.program).spawn()?);
        for file in self.files.clone() {
            self.tell(b'+', &file)?;
        }
        Ok(())
    }
}

impl Outliver for Guard {
    fn freezing(&mut self, file: &Path) -> io::Result<()> {
        self.files.insert(file.to_owned());
        let told = match self.tell(b'+', file) {
            Ok(()) => Ok(()),
            // None yet, or somebody has ended it.
            Err(_) => self.start(),
        };
        if told.is_err() {
            self.files.remove(file);
        }
        told
    }

    fn thawed(&mut self, file: &Path) {
        self.files.remove(file);
        // One that has ended thaws nothing.
        let _ = self.tell(b'-', file);
    }
}

/// How the guard is started: with a pipe for its input, and deaf to signals from its first moment on.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(OPTION).stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/");
    // SAFETY: signal() may be called between fork and exec.
    unsafe { command.pre_exec(ignore_signals) };
    command
}

/// An ignored signal stays ignored over exec, so there is no moment in which the guard would heed it.
fn ignore_signals() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: a plain system call.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    Ok(())
}

/// What the guard does: reads lines to their end, then writes 0 into every file that is left. Says what it could not
/// write on standard error.
pub fn run(input: impl BufRead) {
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    for line in input.split(b'\n').map_while(Result::ok) {
        let Some((sign, path)) = line.split_first() else { continue };
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        match sign {
            b'+' => _ = files.insert(path),
            _ => _ = files.remove(&path),
        }
    }
    for file in files {
        let opened = std::fs::OpenOptions::new().write(true).truncate(true).open(&file);
        match opened.and_then(|mut opened| opened.write_all(b"0")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("stewardd: {} stays frozen: {error}; write 0 into it", file.display());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_end_of_input_what_is_frozen_still_is_thawed_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str| directory.path().join(name);
        for name in ["frozen", "thawed", "unknown"] {
            std::fs::write(file(name), "1").expect("written");
        }
        let lines = format!(
            "+{0}\n+{1}\n-{1}\n\n+{2}\n",
            file("frozen").display(),
            file("thawed").display(),
            file("gone").display()
        );
        run(lines.as_bytes());
        let says = |name: &str| std::fs::read_to_string(file(name)).expect("readable");
        assert_eq!((says("frozen"), says("thawed"), says("unknown")), ("0".into(), "1".into(), "1".into()));
        assert!(!file("gone").exists());
    }

    #[test]
    fn a_guard_that_cannot_be_started_keeps_anything_from_being_frozen() {
        let mut guard = Guard::new(Path::new("/nonexistent/stewardd"));
        assert!(guard.freezing(Path::new("/nonexistent/cgroup.freeze")).is_err());
        assert!(guard.files.is_empty());
    }
}
