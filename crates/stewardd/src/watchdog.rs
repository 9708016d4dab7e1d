//! The guard: a process that outlives the daemon and puts back what the daemon wrote into cgroups, also after `kill
//! -9`: it thaws what was frozen, and gives back weights.
//!
//! It is this program again, started with `--guard` when the first file is to be written. It reads one line for each
//! file, `+VALUE PATH` before the file is written, with the value that it had, and `-PATH` after it was written back.
//! The daemon holds the only other end of its standard input, so that the end of input means the end of the daemon,
//! however it came. It ignores the signals that are sent to all of a service at once.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use steward_kernel::cpu::deadline::Watchdog;

/// The option that makes this program the guard.
pub const OPTION: &str = "--guard";

/// The daemon's end.
#[derive(Debug)]
pub struct Guard {
    program: PathBuf,
    child: Option<Child>,
    /// What was in each file.
    files: BTreeMap<PathBuf, String>,
}

impl Guard {
    /// A guard that is this program, once there is something to guard.
    pub fn new(program: &Path) -> Self {
        Guard { program: program.to_owned(), child: None, files: BTreeMap::new() }
    }

    fn tell(&mut self, what: &str, file: &Path) -> io::Result<()> {
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut()).ok_or_else(missing)?;
        let mut line = what.as_bytes().to_vec();
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
        for (file, back) in self.files.clone() {
            self.tell(&format!("+{back} "), &file)?;
        }
        Ok(())
    }
}

impl Watchdog for Guard {
    fn changing(&mut self, file: &Path, back: &str) -> io::Result<()> {
        self.files.insert(file.to_owned(), back.to_owned());
        let told = match self.tell(&format!("+{back} "), file) {
            Ok(()) => Ok(()),
            // None yet, or somebody has ended it.
            Err(_) => self.start(),
        };
        if told.is_err() {
            self.files.remove(file);
        }
        told
    }

    fn changed_back(&mut self, file: &Path) {
        self.files.remove(file);
        // One that has ended puts nothing back.
        let _ = self.tell("-", file);
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

/// What the guard does: reads lines to their end, then writes into every file that is left what was in it. Says what it
/// could not write on standard error.
pub fn run(input: impl BufRead) {
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    for line in input.split(b'\n').map_while(Result::ok) {
        match line.split_first() {
            Some((b'+', rest)) => {
                let Some(space) = rest.iter().position(|byte| *byte == b' ') else { continue };
                files.insert(path(&rest[space + 1..]), rest[..space].to_vec());
            }
            Some((_, rest)) => _ = files.remove(&path(rest)),
            None => {}
        }
    }
    for (file, back) in files {
        let opened = std::fs::OpenOptions::new().write(true).truncate(true).open(&file);
        match opened.and_then(|mut opened| opened.write_all(&back)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let back = String::from_utf8_lossy(&back);
                eprintln!("stewardd: {} stays changed: {error}; write {back} into it", file.display());
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
        for name in ["frozen", "thawed", "unknown", "weight of it"] {
            std::fs::write(file(name), "1").expect("written");
        }
        let lines = format!(
            "+0 {0}\n+0 {1}\n-{1}\n\n+0 {2}\n+100 {3}\nnonsense\n+\n",
            file("frozen").display(),
            file("thawed").display(),
            file("gone").display(),
            file("weight of it").display()
        );
        run(lines.as_bytes());
        let says = |name: &str| std::fs::read_to_string(file(name)).expect("readable");
        assert_eq!((says("frozen"), says("thawed"), says("unknown")), ("0".into(), "1".into(), "1".into()));
        assert_eq!(says("weight of it"), "100");
        assert!(!file("gone").exists());
    }

    #[test]
    fn a_guard_that_cannot_be_started_is_an_error() {
        let mut guard = Guard::new(Path::new("/nonexistent/stewardd"));
        assert!(guard.changing(Path::new("/nonexistent/cgroup.freeze"), "0").is_err());
        assert!(guard.files.is_empty());
    }
}
