//! Checks, in the lab's machine, that exactly those are announced who are served first and wait beside others:
//! `waits-seen FILE`, which is made on a disk.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steward_core::disk::moments::{ALONE_AFTER_NS, OVER_AFTER_NS};
use steward_waits::Waits;
use steward_waits::ledger::Ledger;

/// `IOPRIO_WHO_PROCESS`, and the real-time class at its middle level (include/uapi/linux/ioprio.h).
const WHO_TASK: libc::c_int = 1;
const REAL_TIME_4: libc::c_int = (1 << 13) | 4;
/// How long it is waited for an announcement that is to come, and for one that is not.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);
/// How many threads save at once, and for how long.
const CROWD: u32 = 16;
const CROWD_FOR: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("which file?")?;
    match std::env::args().nth(2).as_deref() {
        Some("once") => return save(&path),
        Some("all-the-time") => loop {
            save(&path)?;
        },
        _ => {}
    }
    let mut waits = Waits::watch()?;
    let mut ledger = Ledger::start()?;

    save(&path)?;
    another(&path)?;
    ensure!(!is_announced(&waits, SHORT)?, "somebody was announced who is not served first");

    sleep(Duration::from_nanos(ALONE_AFTER_NS) + SHORT);
    set_priority(REAL_TIME_4)?;
    save(&path)?;
    ensure!(
        !is_announced(&waits, SHORT)?,
        "who is served first was announced though nobody else wants the disk"
    );
    set_priority(0)?;
    save(&path)?;
    set_priority(REAL_TIME_4)?;
    save(&path)?;
    ensure!(!is_announced(&waits, SHORT)?, "a process was announced for what it did itself before");

    another(&path)?;
    save(&path)?;
    ensure!(is_announced(&waits, PATIENCE)?, "who is served first was not announced beside another");
    waits.take();
    another(&path)?;
    save(&path)?;
    ensure!(!is_announced(&waits, SHORT)?, "the second one was announced though nobody looked away");
    // A moment from when these began, and not from now: on a busy host that may be longer ago.
    let begun_ns = now_ns();
    another(&path)?;
    save(&path)?;
    ensure!(!waits.are_over(begun_ns + OVER_AFTER_NS), "it was over although it was a moment ago");
    ensure!(
        !waits.are_over(begun_ns + ALONE_AFTER_NS),
        "it was over soon, although nobody else brings things to the disk all the time"
    );
    sleep(Duration::from_nanos(ALONE_AFTER_NS) + SHORT);
    ensure!(waits.are_over(now_ns()), "it is not over although nobody else wants the disk");
    another(&path)?;
    save(&path)?;
    ensure!(is_announced(&waits, PATIENCE)?, "the next one was not announced");
    waits.take();
    let busy = Others::start(&path)?;
    ensure!(until(|| waits.are_over(now_ns())), "it is not over beside one that saves all the time");
    save(&path)?;
    ensure!(is_announced(&waits, PATIENCE)?, "the next one was not announced beside that one");
    waits.take();
    ensure!(until(|| waits.are_over(now_ns())), "it is not over although nobody waits");
    ensure!(waits.seen().waiting == 0, "{:?}", waits.seen());
    drop(busy);

    set_priority(0)?;
    another(&path)?;
    save(&path)?;
    ensure!(!is_announced(&waits, SHORT)?, "somebody was announced who is not served first any more");

    // The program goes on for the one that is left.
    drop(waits);
    let counted = ledger.read(now_ns())?.accounts.len();
    ensure!(counted > 0, "nothing was counted beside");
    set_priority(REAL_TIME_4)?;
    let mut waits = Waits::watch()?;
    drop(ledger);
    another(&path)?;
    save(&path)?;
    ensure!(is_announced(&waits, PATIENCE)?, "after a second start nobody was announced");
    waits.take();
    crowd()?;
    ensure!(waits.seen().waiting == 0, "some of a crowd are held to be waiting still: {:?}", waits.seen());
    let mut ledger = Ledger::start()?;
    sleep(SHORT);
    let left = ledger.read(now_ns())?.waits;
    ensure!(left.is_empty(), "some of a crowd are said to be waiting still: {left:?}");
    // More than a million without programs that are not preempted; one that ends may still hide another's end.
    let missed = recursion_misses()?;
    ensure!(missed < 100, "of a crowd's calls {missed} were not told of");
    println!("all are seen who are served first");
    Ok(())
}

/// How often this process' programs were not told of something because another task was inside of them on that CPU.
fn recursion_misses() -> Result<u64> {
    let mut misses = 0;
    for file in std::fs::read_dir("/proc/self/fdinfo")? {
        // One that was open for the directory itself is gone.
        let text = std::fs::read_to_string(file?.path()).unwrap_or_default();
        let told = text.lines().filter_map(|line| line.strip_prefix("recursion_misses:"));
        misses += told.filter_map(|number| number.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Ok(misses)
}

/// Many threads that go into fsync and come back at once, so that some are preempted where that is noted, for others
/// that do the same.
fn crowd() -> Result<()> {
    let end = Instant::now() + CROWD_FOR;
    let save_all = move || -> std::io::Result<()> {
        set_priority(REAL_TIME_4)?;
        let file = File::create("/run/crowd")?;
        while Instant::now() < end {
            file.sync_all()?;
        }
        Ok(())
    };
    let threads: Vec<_> = (0..CROWD).map(|_| std::thread::spawn(save_all)).collect();
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread of the crowd panicked"))??;
    }
    Ok(())
}

/// Writes something and brings it to the disk.
fn save(path: &str) -> Result<()> {
    let mut file = File::create(path)?;
    file.write_all(b"something")?;
    Ok(file.sync_all()?)
}

/// Another process that does so, which is not served first.
fn other(path: &str, how: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // SAFETY: between fork and exec it calls the kernel only.
    unsafe { command.pre_exec(|| set_priority(0)) };
    command.args([path, how]);
    Ok(command)
}

/// Has another one do so once.
fn another(path: &str) -> Result<()> {
    ensure!(other(path, "once")?.status()?.success(), "the other process failed");
    Ok(())
}

/// Another one that does so all the time, until this is dropped.
struct Others(Child);

impl Others {
    fn start(path: &str) -> Result<Self> {
        Ok(Others(other(path, "all-the-time")?.spawn()?))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // It ends with the machine otherwise.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether something comes to be so in time.
fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !is_so() && Instant::now() < end {
        sleep(SHORT / 10);
    }
    is_so()
}

fn is_announced(waits: &Waits, within: Duration) -> Result<bool> {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    Ok(poll(&mut [PollFd::new(&waits.as_fd(), PollFlags::IN)], Some(&timeout))? > 0)
}

fn set_priority(priority: libc::c_int) -> std::io::Result<()> {
    // SAFETY: the call takes three numbers and touches no memory.
    let outcome = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_TASK, 0, priority) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
