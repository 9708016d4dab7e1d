//! Steward's daemon during a run: started, waited for, asked, stopped, and looked after.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use steward_lab_guest::StewardSetup;

use crate::scheduler::{self, Loaded, wait};

const DAEMON: &str = "/usr/sbin/stewardd";
const CLIENT: &str = "/usr/bin/steward";
/// Much longer than it takes: while a busy host serves the disk late, a clock that counts instructions jumps ahead.
const START_PATIENCE: Duration = Duration::from_secs(600);
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// A calibration takes some 20 s.
const CALIBRATION_PATIENCE: Duration = Duration::from_secs(300);

/// A daemon that said it is ready.
pub struct Daemon {
    child: Child,
    log: PathBuf,
    /// What it has loaded, unless it was told to use another mechanism.
    loaded: Option<Loaded>,
}

impl Daemon {
    /// Starts the daemon on one specification file and waits until it reports readiness (`READY=1`, as systemd's
    /// services do).
    ///
    /// # Errors
    /// When it is not there, ends, stays silent for a minute, or leaves no scheduler loaded; with its log.
    pub fn start(setup: &StewardSetup, directory: &Path) -> Result<Daemon> {
        let specifications = directory.join("specs");
        fs::create_dir_all(&specifications)?;
        fs::write(specifications.join("lab.toml"), &setup.specifications)?;
        let configuration = directory.join("steward.toml");
        if let Some(text) = &setup.configuration {
            fs::write(&configuration, text)?;
        }
        let socket_path = directory.join("notify");
        let socket = UnixDatagram::bind(&socket_path)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let log = directory.join("stewardd.log");
        let output = fs::File::create(&log)?;
        let child = Command::new(DAEMON)
            .arg("--spec-directory")
            .arg(&specifications)
            .args(
                setup.configuration.iter().flat_map(|_| [OsStr::new("--config"), configuration.as_os_str()]),
            )
            .args(setup.best_effort.iter().flat_map(|order| ["--best-effort", order]))
            .args(setup.mechanism.iter().flat_map(|name| ["--mechanism", name]))
            .env("NOTIFY_SOCKET", &socket_path)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {DAEMON}"))?;
        let mut daemon = Daemon { child, log, loaded: None };
        let ready = daemon.wait_until_ready(&socket).and_then(|()| {
            let loads = setup.mechanism.is_none();
            loads.then(Loaded::now).transpose()
        });
        match ready {
            Ok(loaded) => Ok(Daemon { loaded, ..daemon }),
            Err(error) => {
                let log = daemon.log();
                // The reason why it did not start matters more than how it then stopped.
                let _ = daemon.stop();
                Err(error.context(format!("stewardd did not start; its log:\n{log}")))
            }
        }
    }

    /// Checks that the scheduler that it had loaded when it was ready is the one in force, if it was not told to do
    /// without.
    ///
    /// # Errors
    /// As [`Loaded::is_still_in_force`].
    pub fn is_still_in_force(&self) -> Result<()> {
        self.loaded.map_or(Ok(()), Loaded::is_still_in_force)
    }

    /// What it has logged so far (the last 20 kB).
    pub fn log(&self) -> String {
        tail(&fs::read(&self.log).unwrap_or_default(), 20_000)
    }

    /// The memory that is its own at the moment, in KiB.
    pub fn memory_kib(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    }

    /// Stops the daemon and checks that the kernel is back on its default scheduler.
    ///
    /// # Errors
    /// When it does not end in time or leaves a scheduler behind.
    pub fn stop(self) -> Result<()> {
        scheduler::end(self.child, "stewardd")
    }

    fn wait_until_ready(&mut self, socket: &UnixDatagram) -> Result<()> {
        let started = Instant::now();
        let mut message = [0u8; 4096];
        while started.elapsed() < START_PATIENCE {
            if let Ok(length) = socket.recv(&mut message)
                && String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1")
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status} before it was ready");
            }
        }
        bail!("it was not ready within {START_PATIENCE:?}")
    }
}

/// What `steward status --json` says, if it answers in time.
///
/// # Errors
/// When the client cannot be started, fails, or is too slow.
pub fn status(directory: &Path) -> Result<Value> {
    let text = ask(directory, &["status", "--json"], ANSWER_PATIENCE)?;
    serde_json::from_str(&text).with_context(|| format!("`{CLIENT} status --json` printed: {text}"))
}

/// Whether a status says that the daemon loaded its scheduler again, and why it had to.
pub fn loaded_again(status: &Value) -> Option<String> {
    let mechanism = &status["cpu"]["mechanism"];
    let times = mechanism["restarts"].as_u64().filter(|times| *times > 0)?;
    let reason = mechanism["exit_reason"].as_str().unwrap_or("not known");
    Some(format!("stewardd loaded its scheduler again ({times} times); why the last one ended: {reason}"))
}

/// What `steward events` says: who was admitted, refused, revoked, and why (the last 40 kB).
///
/// # Errors
/// As [`status`].
pub fn decisions(directory: &Path) -> Result<String> {
    ask(directory, &["events"], ANSWER_PATIENCE).map(|text| tail(text.as_bytes(), 40_000))
}

/// Has Steward learn what requests cost the disk of this file system.
///
/// # Errors
/// As [`status`].
pub fn calibrate(directory: &Path, path: &str) -> Result<()> {
    ask(directory, &["disk", "calibrate", path], CALIBRATION_PATIENCE).map(drop)
}

/// What the client prints. It is an error when it fails or takes longer than this.
fn ask(directory: &Path, arguments: &[&str], patience: Duration) -> Result<String> {
    let [output, complaint] = ["answer", "complaint"].map(|name| directory.join(name));
    let mut client = Command::new(CLIENT)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output)?)
        .stderr(fs::File::create(&complaint)?)
        .spawn()
        .with_context(|| format!("cannot start {CLIENT}"))?;
    let asked = format!("`{CLIENT} {}`", arguments.join(" "));
    if !wait(&mut client, patience) {
        let _ = client.kill();
        let _ = client.wait();
        bail!("{asked} did not answer within {patience:?}");
    }
    let text = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let status = client.wait()?;
    if !status.success() {
        bail!("{asked} failed with {status}: {}", text(&complaint)?);
    }
    Ok(text(&output)?)
}

/// The last `most` bytes of a text.
fn tail(text: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&text[text.len().saturating_sub(most)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scheduler_that_was_loaded_again_is_told_with_why_it_had_to_be() {
        let status = |mechanism| json!({ "cpu": { "mechanism": mechanism } });
        assert_eq!(loaded_again(&status(json!({ "restarts": 0 }))), None);
        let told = loaded_again(&status(json!({ "restarts": 2, "exit_reason": "runnable task stall" })));
        let expected =
            "stewardd loaded its scheduler again (2 times); why the last one ended: runnable task stall";
        assert_eq!(told.as_deref(), Some(expected));
    }
}
