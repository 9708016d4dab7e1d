//! Starts QEMU on a guest, listens to it, and makes sure that it ends.

use crate::emulator::Emulator;
use crate::guest::{self, GuestFile, Root};
use crate::kernel::{Kernel, KernelChoice};
use crate::tidy;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How many of the console's last lines an error shows.
const CONSOLE_LINES: usize = 25;
/// How long a machine that is timed by the host may take until its command begins, and how often it is booted at most:
/// once in tens of boots on a busy host the emulator loses a timer or tears an instruction that the kernel patches, or
/// the guest mistakes how fast its clock is.
const BOOT_PATIENCE: Duration = Duration::from_secs(180);
const BOOTS: u32 = 3;

/// A machine to boot.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// Memory in MiB. Without packages the guest's files are in it too.
    pub memory_mib: u32,
    /// Number of emulated processors.
    pub cpus: u32,
    /// Size in MiB of an empty ext4 file system mounted at /scratch; `None` for no such disk.
    pub disk_mib: Option<u32>,
    /// With N, the guest's clock is its instruction count, 2^N ns for each instruction: independent of the host's load.
    /// `None` for the host's clock.
    pub icount_shift: Option<u8>,
    /// Debian packages that the guest has installed, with what they depend on. With none, its root holds busybox only.
    pub packages: Vec<String>,
    /// The kernel to boot.
    pub kernel: KernelChoice,
    /// Further arguments for the kernel's command line.
    pub kernel_arguments: Vec<String>,
    /// The machine is killed when it has not ended after this much of the host's time.
    pub timeout_host: Duration,
    /// Where to keep the console's output; `None` for a file that is removed when all went well.
    pub console_log: Option<PathBuf>,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            memory_mib: 1024,
            cpus: 2,
            disk_mib: None,
            icount_shift: None,
            packages: Vec::new(),
            kernel: KernelChoice::Debian,
            kernel_arguments: Vec::new(),
            timeout_host: Duration::from_secs(300),
            console_log: None,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct MachineOutcome {
    /// Exit status of the command, as a shell counts it (128 + signal).
    pub status: i32,
    /// The guest's own clock when the command started, since the kernel's start.
    pub boot_guest: Duration,
    /// The host's time from QEMU's start to the command's start.
    pub boot_host: Duration,
    /// The host's time from QEMU's start to its end.
    pub elapsed_host: Duration,
    /// Version of the kernel that ran ("none" when it was given without modules).
    pub kernel_version: String,
}

/// Boots the machine, brings `files` into it and runs `command` there as root, with proc, sysfs, devtmpfs, cgroup2 (all
/// controllers enabled for the root's children), bpf, debugfs and tracefs mounted. Each line that the guest writes to
/// /run/lab/results is given to `on_line`, except those that begin with `::`, which are the machine's own. The
/// command's standard output goes to the console. Returns when the command has ended and the machine is off.
///
/// # Errors
/// When the kernel or the packages cannot be had, when QEMU does not start, and, with the console's last lines, when
/// the guest panics, stops without the command having ended, or takes longer than `timeout_host`.
pub fn run(
    config: &MachineConfig,
    files: &[GuestFile],
    command: &[String],
    on_line: &mut dyn FnMut(&str),
) -> Result<MachineOutcome> {
    let kernel = Kernel::find(&config.kernel)?;
    let emulator = Emulator::find()?;
    let place = Workspace::new()?;
    let console = config.console_log.clone().unwrap_or_else(|| place.path("console.log"));
    let image = if config.packages.is_empty() { None } else { Some(package_image(&config.packages)?) };
    let initramfs = place.path("initramfs");
    write_initramfs(config, &kernel, image.is_some(), files, command, &initramfs)?;

    let scratch = place.path("scratch.ext4");
    if let Some(size_mib) = config.disk_mib {
        make_scratch(&scratch, size_mib)?;
    }
    let timed_by_host = config.icount_shift.is_none();
    let mut boots = 0;
    loop {
        let mut qemu = qemu_command(config, &emulator, &kernel, &initramfs, &console)?;
        if let Some(image) = &image {
            attach_disk(&mut qemu, "root", image, true);
        }
        if config.disk_mib.is_some() {
            attach_disk(&mut qemu, "scratch", &scratch, false);
        }
        let mut heard = Heard::default();
        let mut running = Running::start(qemu, &place, config.timeout_host)?;
        let ended = running.listen(&mut heard, timed_by_host.then_some(BOOT_PATIENCE), on_line);
        boots += 1;
        let outcome = ended.and_then(|()| heard.outcome(&running, &kernel));
        match &outcome {
            Err(error) if timed_by_host && !heard.has_booted && boots < BOOTS => {
                eprintln!("the lab's machine did not come up, and is booted again: {error}");
            }
            _ => return outcome.with_context(|| describe_failure(&console, &place)),
        }
    }
}

/// A directory for one run's files, removed with it.
struct Workspace(PathBuf);

impl Workspace {
    fn new() -> Result<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let runs = crate::cache_directory().join("runs");
        tidy::forget_killed_runs(&runs);
        let path = runs.join(format!("{}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Nothing depends on it being gone, and there is nobody to tell.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The disk image with `packages` installed, built when it is not cached.
fn package_image(packages: &[String]) -> Result<PathBuf> {
    let names: Vec<_> = packages.iter().map(std::ffi::OsStr::new).collect();
    let image = crate::script("image.sh", &names)?;
    tidy::keep_used_images(&image);
    Ok(image)
}

/// Joins the cached base and this run's own archive: the kernel unpacks both, the later one over the earlier.
fn write_initramfs(
    config: &MachineConfig,
    kernel: &Kernel,
    on_disk: bool,
    files: &[GuestFile],
    command: &[String],
    to: &Path,
) -> Result<()> {
    let root = if on_disk { Root::Disk } else { Root::Memory };
    let scratch = match (config.disk_mib, root) {
        (None, _) => "",
        (Some(_), Root::Memory) => "/dev/vda",
        (Some(_), Root::Disk) => "/dev/vdb",
    };
    let settings = format!("root={}\nscratch={scratch}\n", if root == Root::Disk { "disk" } else { "ram" });
    let base = kernel.base_archive()?;
    let mut bytes = fs::read(&base).with_context(|| format!("reading {}", base.display()))?;
    bytes.extend(guest::archive(files, command, root, &settings)?);
    fs::write(to, bytes).with_context(|| format!("writing {}", to.display()))
}

fn make_scratch(path: &Path, size_mib: u32) -> Result<()> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    file.set_len(u64::from(size_mib) << 20).with_context(|| format!("sizing {}", path.display()))?;
    // mke2fs lives in /usr/sbin, which is not in every user's PATH.
    let output = Command::new("/usr/sbin/mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=1"])
        .arg(path)
        .output()
        .context("running /usr/sbin/mke2fs; `make setup` installs it (e2fsprogs)")?;
    if !output.status.success() {
        bail!("mke2fs {}: {}", path.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn qemu_command(
    config: &MachineConfig,
    emulator: &Emulator,
    kernel: &Kernel,
    initramfs: &Path,
    console: &Path,
) -> Result<Command> {
    // setpriv ends QEMU with us, however we end.
    let mut qemu = Command::new("setpriv");
    qemu.args(["--pdeathsig", "KILL"]).arg(&emulator.program);
    qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none"]);
    let acceleration = emulator.acceleration(config.cpus, config.icount_shift.is_some())?;
    qemu.args(["-machine", "q35,hpet=off", "-accel", acceleration, "-cpu", emulator.processor()]);
    qemu.args(["-smp", &config.cpus.to_string(), "-m", &format!("{}M", config.memory_mib)]);
    if let Some(shift) = config.icount_shift {
        qemu.args(["-icount", &format!("shift={shift},sleep=off")]);
    }
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
    let mut arguments = KERNEL_ARGUMENTS.to_vec();
    let tsc = config.icount_shift.is_none().then(counter_khz).flatten();
    let tsc = tsc.map(|khz| format!("tsc_early_khz={khz}"));
    arguments.extend(tsc.as_deref());
    arguments.extend(config.kernel_arguments.iter().map(String::as_str));
    qemu.args(["-append", &arguments.join(" ")]);
    qemu.args(["-serial", &format!("file:{}", console.display())]);
    qemu.args(["-chardev", "stdio,id=results,signal=off", "-serial", "chardev:results"]);
    Ok(qemu)
}

/// How fast the counter is that a guest reads which is timed by the host: the host's own. The guest would measure that
/// beside whatever else the host does, and be wrong by a multiple now and then. `None` where the host has none.
fn counter_khz() -> Option<u64> {
    static KHZ: OnceLock<Option<u64>> = OnceLock::new();
    *KHZ.get_or_init(|| {
        let (ticks, begin) = (counter()?, Instant::now());
        thread::sleep(Duration::from_millis(50));
        let (ticks, elapsed) = (counter()?.checked_sub(ticks)?, begin.elapsed());
        u64::try_from(u128::from(ticks) * 1_000_000 / elapsed.as_nanos().max(1)).ok().filter(|&khz| khz > 0)
    })
}

#[cfg(target_arch = "x86_64")]
fn counter() -> Option<u64> {
    // SAFETY: reads a counter, which every x86-64 CPU has.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> Option<u64> {
    None
}

/// What the guest's kernel is told: be quiet, stop at the first sign of damage, and spend no time on what emulation has
/// no use for.
const KERNEL_ARGUMENTS: &[&str] = &[
    "console=ttyS0",
    "quiet",
    "panic=-1",
    "oops=panic",
    "psi=1",
    "cgroup_no_v1=all",
    "rdinit=/init",
    "mitigations=off",
    "nokaslr",
    "tsc=reliable",
    "no_timer_check",
    "random.trust_cpu=on",
    // Its self-tests would go on for seconds beside the first experiment.
    "cryptomgr.notests",
    "apparmor=0",
    // Nor is there hardware to look for.
    "i8042.noaux",
    "i8042.nokbd",
];

/// Attaches the raw image `file`; with `snapshot`, what the guest writes to it is forgotten.
fn attach_disk(qemu: &mut Command, name: &str, file: &Path, snapshot: bool) {
    let mut drive = OsString::from("format=raw,if=none,cache=unsafe,id=");
    drive.push(name);
    drive.push(if snapshot { ",snapshot=on,file=" } else { ",snapshot=off,file=" });
    drive.push(file);
    qemu.arg("-drive").arg(drive);
    qemu.args(["-device", &format!("virtio-blk-pci,drive={name}")]);
}

/// A started QEMU; dropping it kills it.
struct Running {
    child: Child,
    started: Instant,
    deadline: Instant,
    timeout: Duration,
    errors: PathBuf,
}

/// What the machine said about itself on the result channel.
#[derive(Default)]
struct Heard {
    /// The command has begun, or is about to.
    has_booted: bool,
    status: Option<i32>,
    boot_guest: Duration,
    boot_host: Duration,
}

impl Running {
    fn start(mut qemu: Command, place: &Workspace, timeout: Duration) -> Result<Self> {
        let errors = place.path("qemu.stderr");
        let log = File::create(&errors).with_context(|| format!("creating {}", errors.display()))?;
        qemu.env("TMPDIR", &place.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let child = qemu
            .spawn()
            .context("starting qemu-system-x86_64 (under setpriv); `make setup` installs both")?;
        let started = Instant::now();
        Ok(Self { child, started, deadline: started + timeout, timeout, errors })
    }

    /// Hands lines to `on_line`, and the machine's own to `heard`, until QEMU closes the channel, which it does at its
    /// end. `boot_patience`: how long it may take until the command begins.
    fn listen(
        &mut self,
        heard: &mut Heard,
        boot_patience: Option<Duration>,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let lines = read_lines(self.child.stdout.take().context("QEMU's output is a pipe")?);
        let boot_deadline = boot_patience.map(|patience| self.started + patience);
        loop {
            let boot_deadline = boot_deadline.filter(|_| !heard.has_booted);
            let deadline = boot_deadline.map_or(self.deadline, |boot| boot.min(self.deadline));
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix("::") {
                    Some(notice) => {
                        heard.notice(notice, self.started.elapsed());
                        if boot_deadline.is_some() && heard.runs_ahead() {
                            heard.has_booted = false;
                            self.end();
                            bail!("the guest's clock is ahead of the host's");
                        }
                    }
                    None => on_line(&line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    self.end();
                    if deadline < self.deadline {
                        bail!("the guest's command had not begun after {} s", BOOT_PATIENCE.as_secs());
                    }
                    bail!("the guest had not ended after {} s and was killed", self.timeout.as_secs());
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = self.child.wait().context("waiting for QEMU")?;
        if !status.success() {
            let said = fs::read_to_string(&self.errors).unwrap_or_default();
            bail!("QEMU ended with {status}: {}", said.trim());
        }
        Ok(())
    }

    fn end(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Heard {
    /// Takes in one of the machine's own lines: `boot SECONDS` or `exit STATUS`.
    fn notice(&mut self, notice: &str, now: Duration) {
        match notice.split_once(' ') {
            Some(("boot", seconds)) => {
                let seconds = seconds.trim().parse().unwrap_or(0.0);
                self.boot_guest = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                self.boot_host = now;
                self.has_booted = true;
            }
            Some(("exit", status)) => self.status = status.trim().parse().ok(),
            _ => {}
        }
    }

    /// Whether more time had passed for the guest when it had booted than for the host.
    fn runs_ahead(&self) -> bool {
        self.has_booted && self.boot_guest > self.boot_host
    }

    fn outcome(&self, running: &Running, kernel: &Kernel) -> Result<MachineOutcome> {
        let status = self.status.context("the guest stopped before its command had ended")?;
        Ok(MachineOutcome {
            status,
            boot_guest: self.boot_guest,
            boot_host: self.boot_host,
            elapsed_host: running.started.elapsed(),
            kernel_version: kernel.version.clone(),
        })
    }
}

/// Reads lines in a thread of its own, so that waiting for one can end at a deadline.
fn read_lines(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        // An error here is QEMU's end like any other; the caller sees the channel close.
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(length) if length > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
            bytes.clear();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The context of a failure: the console's last lines, and where all of them are kept.
fn describe_failure(console: &Path, place: &Workspace) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
    let last = lines.len().saturating_sub(CONSOLE_LINES);
    // A panic's reason stands above its long trace.
    let reason = lines[..last]
        .iter()
        .filter(|line| ["panic", "BUG:", "Oops", "INFO:"].iter().any(|word| line.contains(word)));
    let last: Vec<&str> = reason.copied().chain(lines[last..].iter().copied()).collect();
    let last = last.join("\n");
    let mut kept = console.to_owned();
    if console.starts_with(&place.0) {
        let log = crate::cache_directory().join("last-failed-console.log");
        if fs::copy(console, &log).is_ok() {
            kept = log;
        }
    }
    format!("the lab's machine failed; the console ({}) ends with:\n{last}\n", kept.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_lines_tell_boot_time_and_exit_status() {
        let mut heard = Heard::default();
        heard.notice("boot 2.5", Duration::from_secs(4));
        heard.notice("exit 7", Duration::from_secs(9));
        assert_eq!(heard.boot_guest, Duration::from_millis(2500));
        assert_eq!(heard.boot_host, Duration::from_secs(4));
        assert!(heard.has_booted && !heard.runs_ahead());
        heard.notice("boot 60", Duration::from_secs(4));
        assert!(heard.runs_ahead());
        assert_eq!(heard.status, Some(7));
    }

    #[test]
    fn lines_lose_their_ends_and_keep_what_is_not_text() {
        let lines: Vec<String> = read_lines(&b"one\r\ntwo\xff\nlast"[..]).iter().collect();
        assert_eq!(lines, ["one", "two\u{fffd}", "last"]);
    }
}
