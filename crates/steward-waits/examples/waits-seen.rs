//! Checks, in the lab's machine, that exactly those are announced who are served first and wait beside others:
//! `waits-seen FILE`, which is made on a disk; `waits-seen FILE behind` the same of what waits in an elevator, of a
//! disk that takes one request at a time, 10 ms for each, and has room for 1,024.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
/// The last one of the usual class, and the class that is served when nobody else is.
const BACKGROUND: libc::c_int = (2 << 13) | 7;
const IDLE: libc::c_int = 3 << 13;
/// How long it is waited for an announcement that is to come, and for one that is not.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);
/// How many threads save at once, and for how long.
const CROWD: u32 = 16;
const CROWD_FOR: Duration = Duration::from_secs(10);
/// How many pages wait in an elevator at once, and how far they are apart.
const BEHIND: u64 = 500;
const APART_BYTES: u64 = 32 << 10;
/// A file that is on no disk.
const IN_MEMORY: &str = "/run/in-memory";

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("which file?")?;
    match std::env::args().nth(2).as_deref() {
        Some("once") => return save(&path),
        Some("all-the-time") => loop {
            save(&path)?;
        },
        Some("all-the-time-open") => {
            let file = File::create(&path)?;
            loop {
                file.sync_all()?;
            }
        }
        Some("much") => return hand_on_much(&path),
        Some("behind") => return see_who_waits_behind_others(&path),
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
    let idle = Others::start(IN_MEMORY, "all-the-time-open")?;
    sleep(Duration::from_nanos(ALONE_AFTER_NS) + SHORT);
    ensure!(waits.are_over(now_ns()), "it is not over although nobody else wants the disk");
    another(&path)?;
    save(&path)?;
    ensure!(is_announced(&waits, PATIENCE)?, "nobody was announced beside one that brings nothing to a disk");
    waits.take();
    let begun_ns = now_ns();
    another(&path)?;
    save(&path)?;
    ensure!(!waits.are_over(begun_ns + ALONE_AFTER_NS), "fsync of what is on no disk ended it");
    drop(idle);
    sleep(Duration::from_nanos(ALONE_AFTER_NS) + SHORT);
    ensure!(waits.are_over(now_ns()), "it is not over although nobody wants the disk any more");
    another(&path)?;
    save(&path)?;
    ensure!(is_announced(&waits, PATIENCE)?, "the next one was not announced");
    waits.take();
    let busy = Others::start(&path, "all-the-time")?;
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

    let mut marks = waits.marks();
    let cgroup = Cgroup::make("waits-seen")?;
    let below = Cgroup::make("waits-seen/below")?;
    let within = Cgroup::make("waits-seen/below/within")?;
    for (entered, said, priority, announced) in [
        (&cgroup, &[][..], 0, false),
        (&cgroup, &[(cgroup.id, true)], 0, true),
        (&cgroup, &[(cgroup.id, true)], IDLE, false),
        (&cgroup, &[(cgroup.id, true)], BACKGROUND, false),
        (&within, &[(cgroup.id, true)], 0, true),
        (&within, &[(cgroup.id, true), (below.id, false)], 0, false),
        (&cgroup, &[], 0, false),
    ] {
        ensure!(until(|| waits.are_over(now_ns())), "it is not over although nobody waits");
        entered.enter()?;
        set_priority(priority)?;
        marks.set(&said.iter().copied().collect())?;
        another_beside(&path)?;
        save(&path)?;
        let patience = if announced { PATIENCE } else { SHORT };
        ensure!(
            is_announced(&waits, patience)? == announced,
            "of cgroups it is said {said:?}, with the priority {priority}, and it was not so"
        );
        if announced {
            waits.take();
        }
    }
    drop(marks);
    set_priority(0)?;

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

/// Who waits behind what others handed on long ago is announced as long as that is not done.
fn see_who_waits_behind_others(path: &str) -> Result<()> {
    let waits = Waits::watch()?;
    ensure!(other(&format!("{path}.much"), "much")?.status()?.success(), "the other process failed");
    // 5 s of the disk's.
    sleep(Duration::from_nanos(ALONE_AFTER_NS) + SHORT);
    let handed_on = waits.seen();
    set_priority(REAL_TIME_4)?;
    save(path)?;
    let is_announced = is_announced(&waits, PATIENCE)?;
    ensure!(is_announced, "nobody was announced behind what waits in the elevator: {handed_on:?}");
    println!("all are seen who are served first");
    Ok(())
}

/// Hands on many requests and waits for none of them.
fn hand_on_much(path: &str) -> Result<()> {
    let mut file = File::create(path)?;
    // They have their places on the disk, or would be given such side by side.
    file.write_all(&vec![0; (BEHIND * APART_BYTES) as usize])?;
    file.sync_all()?;
    for page in 0..BEHIND {
        file.write_all_at(&[1; 4096], page * APART_BYTES)?;
    }
    // SAFETY: the call takes numbers and touches no memory.
    let outcome = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    ensure!(outcome == 0, "the pages are not handed on: {}", std::io::Error::last_os_error());
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

/// The same, outside of this one's cgroup.
fn another_beside(path: &str) -> Result<()> {
    let mut command = other(path, "once")?;
    // SAFETY: it opens a file and writes into it; nobody else runs in this process.
    unsafe { command.pre_exec(|| std::fs::write("/sys/fs/cgroup/cgroup.procs", "0")) };
    ensure!(command.status()?.success(), "the other process failed");
    Ok(())
}

/// A cgroup of this program's.
struct Cgroup {
    path: PathBuf,
    id: u64,
}

impl Cgroup {
    fn make(name: &str) -> Result<Self> {
        let path = Path::new("/sys/fs/cgroup").join(name);
        std::fs::create_dir(&path)?;
        Ok(Cgroup { id: std::fs::metadata(&path)?.ino(), path })
    }

    fn enter(&self) -> Result<()> {
        Ok(std::fs::write(self.path.join("cgroup.procs"), "0")?)
    }
}

/// Another one that does so all the time, until this is dropped.
struct Others(Child);

impl Others {
    fn start(path: &str, how: &str) -> Result<Self> {
        Ok(Others(other(path, how)?.spawn()?))
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
