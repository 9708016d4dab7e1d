//! Which scheduler is in force, and programs that hold one: Steward's daemon (see `daemon`), or any other.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const STATE: &str = "/sys/kernel/sched_ext/state";
const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// A program that has loaded a scheduler and holds it until it is killed.
pub struct Holder {
    child: Child,
    program: String,
}

impl Holder {
    /// Starts `program` and waits until a scheduler is in force.
    ///
    /// # Errors
    /// When it cannot be started, ends, or loads nothing within a minute; with what it said.
    pub fn start(program: &str, directory: &Path) -> Result<Holder> {
        let log = directory.join("scheduler.log");
        let mut child = Command::new(program)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let started = Instant::now();
        while state() != "enabled" {
            let ended = child.try_wait()?;
            if ended.is_some() || started.elapsed() > START_PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("{program} loaded no scheduler; what it said:\n{said}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Holder { child, program: program.to_owned() })
    }

    /// Ends the program and checks that the kernel is back on its default scheduler.
    ///
    /// # Errors
    /// When it does not end in time or leaves a scheduler behind.
    pub fn stop(self) -> Result<()> {
        end(self.child, &self.program)
    }
}

/// Whether a sched_ext program is in force.
///
/// # Errors
/// Says what the kernel reports instead, and what its log says of why.
pub fn is_loaded() -> Result<()> {
    match state().as_str() {
        "enabled" => Ok(()),
        state => {
            bail!("no scheduler is loaded: {STATE} reads `{state}`; the kernel's log:\n{}", kernel_log())
        }
    }
}

/// The lines of the kernel's log from where it speaks of a stall or of its scheduler, else its last ones, or why there
/// are none.
fn kernel_log() -> String {
    const LINES: usize = 60;
    let opened = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let mut log = match opened {
        Ok(log) => log,
        Err(error) => return format!("/dev/kmsg: {error}"),
    };
    // Each read is one record: numbers, `;`, and the text.
    let mut record = [0; 8192];
    let mut lines = Vec::new();
    loop {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => lines.push(String::from_utf8_lossy(&record[..length]).trim_end().to_owned()),
            // That record has been overwritten meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    let texts = lines.iter().map(|line| line.split_once(';').map_or(line.as_str(), |(_, text)| text));
    // CPUs that go off and on have a line each time.
    let texts: Vec<&str> = texts.filter(|text| !text.starts_with("smpboot: ")).collect();
    // A stall that RCU or the scheduler's own watchdog sees, and what the kernel says when it takes a scheduler out.
    let words = ["rcu: INFO", "task stall", "disabled (", "watchdog"];
    let begin = texts
        .iter()
        .position(|text| words.iter().any(|word| text.contains(word)))
        .unwrap_or(texts.len().saturating_sub(LINES));
    texts[begin..].iter().take(LINES).copied().collect::<Vec<_>>().join("\n")
}

/// Asks a holder of a scheduler to end, and checks that the kernel is back on its default one.
///
/// # Errors
/// When it does not end in time or leaves a scheduler behind.
pub fn end(mut holder: Child, name: &str) -> Result<()> {
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(holder.id() as i32, libc::SIGTERM) };
    if !wait(&mut holder, STOP_PATIENCE) {
        let _ = holder.kill();
        let _ = holder.wait();
        bail!("{name} did not stop within {STOP_PATIENCE:?} of SIGTERM");
    }
    // The kernel takes a scheduler out just after the last descriptor that holds it is gone.
    let started = Instant::now();
    while state() != "disabled" {
        if started.elapsed() > STOP_PATIENCE {
            bail!("{name} has stopped, but {STATE} reads `{}` instead of `disabled`", state());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether a child ended within `patience`.
pub fn wait(child: &mut Child, patience: Duration) -> bool {
    let started = Instant::now();
    while started.elapsed() < patience {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn state() -> String {
    match fs::read_to_string(STATE) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => error.to_string(),
    }
}
