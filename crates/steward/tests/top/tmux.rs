//! A terminal that a test can see and type on: tmux, with a server of its own.
//!
//! Nothing here waits for time. A second client in tmux's control mode is told of every output, and the screen is
//! looked at again then; and every key is sent together with what it is to bring on the screen, so that the next one
//! cannot come too early.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Generous: the machine may be very busy, and nothing is measured.
const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal with a program in it. Ends when dropped.
pub struct Terminal {
    server: PathBuf,
    /// The client in control mode.
    control: Child,
    /// Something was written to the terminal, or changed about it.
    news: Receiver<()>,
}

impl Terminal {
    /// Starts a command of the shell in a terminal of that size.
    pub fn start(directory: &Path, columns: u16, lines: u16, command: &str) -> Self {
        let server = directory.join("tmux");
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let command = format!("{command}; echo ended with $?; cat");
        run(&server, &["new-session", "-d", "-s", "t", "-x", &columns, "-y", &lines, &command]);
        let mut attach = tmux(&server);
        attach.args(["-C", "attach-session", "-f", "ignore-size", "-t", "t"]);
        // It goes with its input: that stays open until the child is dropped.
        let mut control =
            attach.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("tmux was there just now");
        let told = BufReader::new(control.stdout.take().expect("it is a pipe"));
        let (send, news) = channel();
        std::thread::spawn(move || {
            for _ in told.split(b'\n').map_while(Result::ok) {
                // Nobody listens any more once the test is over.
                let _ = send.send(());
            }
        });
        Terminal { server, control, news }
    }

    /// Presses a key, by tmux's name for it, and waits until that is on the screen, which it must not be before.
    pub fn press(&self, key: &str, shown: &str) -> String {
        self.press_until(key, shown, |screen| screen.contains(shown))
    }

    /// Presses a key, and waits until the screen is as wanted, which it must not be before.
    pub fn press_until(&self, key: &str, wanted: &str, is_so: impl Fn(&str) -> bool) -> String {
        let before = self.screen(false);
        assert!(!is_so(&before), "nothing could show what {key} does: {wanted} before it, on\n{before}");
        run(&self.server, &["send-keys", "-t", "t", key]);
        self.until(&format!("{wanted} after {key}"), is_so)
    }

    /// Types text as it is, where it can be seen at the end of the screen: in a line to be filled in, or in a shell.
    pub fn type_in(&self, text: &str) {
        run(&self.server, &["send-keys", "-t", "t", "-l", text]);
        let plain = |text: &str| text.split_whitespace().collect::<String>();
        let typed = plain(text);
        self.until(&format!("{text:?} where it was typed"), |screen| {
            plain(screen).trim_end_matches('_').ends_with(&typed)
        });
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, lines: u16) {
        run(
            &self.server,
            &["resize-window", "-t", "t", "-x", &columns.to_string(), "-y", &lines.to_string()],
        );
    }

    /// What is on the screen, with `escapes` also how it looks.
    pub fn screen(&self, escapes: bool) -> String {
        let flags: &[&str] = if escapes { &["-e"] } else { &[] };
        let output = run(&self.server, &[&["capture-pane", "-p", "-t", "t"], flags].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen is as wanted, and gives it.
    pub fn until(&self, wanted: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            // What comes after this brings another look.
            while self.news.try_recv().is_ok() {}
            let screen = self.screen(false);
            if is_so(&screen) {
                return screen;
            }
            let news = self.news.recv_timeout(PATIENCE.saturating_sub(begun.elapsed()));
            assert!(news.is_ok(), "waited in vain for {wanted}; on the screen is:\n{screen}");
        }
    }

    /// Waits until that is on the screen.
    pub fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tmux(&self.server).arg("kill-server").output();
        let _ = self.control.wait();
    }
}

/// The program, to talk to that server.
fn tmux(server: &Path) -> Command {
    let mut command = Command::new("tmux");
    command.arg("-S").arg(server).args(["-f", "/dev/null"]);
    command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").env_remove("NO_COLOR");
    command
}

/// Has the server do something.
fn run(server: &Path, arguments: &[&str]) -> Output {
    let output = tmux(server).args(arguments).output();
    let output = output.expect("this test needs tmux; make setup installs it");
    assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
