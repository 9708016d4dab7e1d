//! Which scheduler is in force, and programs that hold one: Steward's daemon (see `daemon`), or any other.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const STATE: &str = "/sys/kernel/sched_ext/state";
/// How often the kernel has put a scheduler in force since it booted.
const TIMES_LOADED: &str = "/sys/kernel/sched_ext/enable_seq";
const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// A program that has loaded a scheduler and holds it until it is killed.
pub struct Holder {
    child: Child,
    program: String,
    loaded: Loaded,
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
        let loaded = Loaded::now()?;
        Ok(Holder { child, program: program.to_owned(), loaded })
    }

    /// Checks that the scheduler that it had loaded when it was started is the one in force.
    ///
    /// # Errors
    /// As [`Loaded::is_still_in_force`].
    pub fn is_still_in_force(&self) -> Result<()> {
        self.loaded.is_still_in_force()
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
fn is_loaded() -> Result<()> {
    match state().as_str() {
        "enabled" => Ok(()),
        state => {
            bail!("no scheduler is loaded: {STATE} reads `{state}`; the kernel's log:\n{}", kernel_log())
        }
    }
}

/// A scheduler that was in force at some moment. Who holds one may load it anew where the kernel has taken it out, so
/// that one is in force at the end says nothing of what was between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// How often the kernel had put a scheduler in force by then.
    times: u64,
}

impl Loaded {
    /// The one that is in force now.
    ///
    /// # Errors
    /// When none is, or when the kernel does not count them.
    pub fn now() -> Result<Loaded> {
        is_loaded()?;
        let text = fs::read_to_string(TIMES_LOADED).with_context(|| format!("cannot read {TIMES_LOADED}"))?;
        let times = text.trim().parse().with_context(|| format!("{TIMES_LOADED} reads `{text}`"))?;
        Ok(Loaded { times })
    }

    /// Checks that it is the one that is in force now.
    ///
    /// # Errors
    /// When none is, or another one: the kernel took it out, and it was loaded anew; with what the kernel's log says.
    pub fn is_still_in_force(self) -> Result<()> {
        self.is_the_same_as(Loaded::now()?, kernel_log)
    }

    fn is_the_same_as(self, at_the_end: Loaded, log: impl Fn() -> String) -> Result<()> {
        if self == at_the_end {
            return Ok(());
        }
        bail!(
            "the scheduler was taken out during the run and loaded again: {TIMES_LOADED} was {} when the run began, and \
             is {} at its end; the kernel's log:\n{}",
            self.times,
            at_the_end.times,
            log()
        )
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
    // A stall that RCU or the scheduler's own watchdog sees, and what the kernel says when a scheduler comes or goes.
    let words = ["rcu: INFO", "task stall", "sched_ext: BPF scheduler", "watchdog failed"];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_that_was_loaded_anew_is_not_the_one_that_was_in_force() {
        let (first, log) = (Loaded { times: 1 }, || "runnable task stall".to_owned());
        assert!(first.is_the_same_as(Loaded { times: 1 }, log).is_ok());
        let error = first.is_the_same_as(Loaded { times: 2 }, log).unwrap_err().to_string();
        assert!(
            error.starts_with("the scheduler was taken out during the run and loaded again: "),
            "{error}"
        );
        assert!(error.contains("was 1 when the run began, and is 2 at its end"), "{error}");
        assert!(error.ends_with("runnable task stall"), "{error}");
    }
}
