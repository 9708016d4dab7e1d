//! Checks, in the lab's machine, that exactly those are announced who are served first: `waits-seen FILE`, which is
//! made.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steward_waits::Waits;

/// `IOPRIO_WHO_PROCESS`, and the real-time class at its middle level (include/uapi/linux/ioprio.h).
const WHO_TASK: libc::c_int = 1;
const REAL_TIME_4: libc::c_int = (1 << 13) | 4;
/// How long it is waited for an announcement that is to come, and for one that is not.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("which file?")?;
    let mut file = File::create(&path)?;
    let mut waits = Waits::watch()?;
    let save = |file: &mut File| -> Result<()> {
        file.write_all(b"something")?;
        Ok(file.sync_all()?)
    };

    save(&mut file)?;
    ensure!(!is_announced(&waits, SHORT)?, "somebody was announced who is not served first");

    set_priority(REAL_TIME_4)?;
    save(&mut file)?;
    ensure!(is_announced(&waits, PATIENCE)?, "who is served first was not announced");
    waits.take();
    save(&mut file)?;
    ensure!(!is_announced(&waits, SHORT)?, "the second one was announced though nobody looked away");
    ensure!(!waits.are_over(now_ns(), 3_600_000_000_000), "it was over although it was a moment ago");
    ensure!(waits.are_over(now_ns(), 1), "it is not over although nobody waits");
    save(&mut file)?;
    ensure!(is_announced(&waits, PATIENCE)?, "the next one was not announced");
    waits.take();
    ensure!(waits.are_over(now_ns(), 1), "it is not over although nobody waits");

    set_priority(0)?;
    save(&mut file)?;
    ensure!(!is_announced(&waits, SHORT)?, "somebody was announced who is not served first any more");

    drop(waits);
    // What was watched before is not in the way of what is watched next.
    set_priority(REAL_TIME_4)?;
    let mut waits = Waits::watch()?;
    save(&mut file)?;
    ensure!(is_announced(&waits, PATIENCE)?, "after a second start nobody was announced");
    waits.take();
    println!("all are seen who are served first");
    Ok(())
}

fn is_announced(waits: &Waits, within: Duration) -> Result<bool> {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    Ok(poll(&mut [PollFd::new(&waits.as_fd(), PollFlags::IN)], Some(&timeout))? > 0)
}

fn set_priority(priority: libc::c_int) -> Result<()> {
    // SAFETY: the call takes three numbers and touches no memory.
    let outcome = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_TASK, 0, priority) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
