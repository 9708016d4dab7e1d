//! A terminal that a test can see and type on: tmux, with a server of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Generous: the machine may be very busy, and nothing is measured.
const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal with a program in it. Ends when dropped.
pub struct Terminal {
    server: PathBuf,
}

impl Terminal {
    /// Starts a command of the shell in a terminal of that size.
    pub fn start(directory: &Path, columns: u16, lines: u16, command: &str) -> Self {
        let terminal = Terminal { server: directory.join("tmux") };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let command = format!("{command}; echo ended with $?; cat");
        terminal.tmux(&["new-session", "-d", "-s", "t", "-x", &columns, "-y", &lines, &command]);
        terminal
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.server).args(["-f", "/dev/null"]);
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").env_remove("NO_COLOR");
        command
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let output = self.command().args(arguments).output();
        let output = output.expect("this test needs tmux; make setup installs it");
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Presses keys, by tmux's names for them.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "t"], keys].concat());
    }

    /// Types text as it is.
    pub fn text(&self, text: &str) {
        self.tmux(&["send-keys", "-t", "t", "-l", text]);
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, lines: u16) {
        self.tmux(&["resize-window", "-t", "t", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// What is on the screen, with `escapes` also how it looks.
    pub fn screen(&self, escapes: bool) -> String {
        let flags: &[&str] = if escapes { &["-e"] } else { &[] };
        let output = self.tmux(&[&["capture-pane", "-p", "-t", "t"], flags].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen is as wanted, and gives it.
    pub fn until(&self, wanted: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen(false);
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {wanted}; on the screen is:\n{screen}");
            // Only so as not to take the CPU from what is waited for.
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Waits until that is on the screen.
    pub fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}
