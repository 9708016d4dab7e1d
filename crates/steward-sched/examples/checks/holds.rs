//! Whoever is held back, by a quota, a suspension or a priority, has let go of what it held inside the kernel.

use std::fs;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use steward_core::cpu::mechanism::{Bumper, Mechanism};
use steward_core::cpu::policy::DomainPolicy;

use crate::programs::{
    Group, Program, Shared, cpus, events, has_started, measure, of_all_cpus, pin, shared, threads_at_work,
    wait_until, waiting_for,
};
use crate::{Outcome, check, domains, stay_ahead};

/// How long anybody may wait for a lock of a directory in which the tasks of a held domain work.
const LONGEST_MS: f64 = 100.0;
/// And how long until a file of theirs is on the disk, where a commit of the journal may have begun before it.
const LONGEST_SAVE_MS: f64 = 200.0;

/// How long anybody may wait for a lock that three of them want. With several CPUs more of these wait for it before
/// others do, and each leaves in a turn of its own.
fn longest_of_several_ms() -> f64 {
    if cpus() > 1 { 1.5 * LONGEST_MS } else { LONGEST_MS }
}

/// A directory in which programs create and rename files all the time, and somebody who does the same ahead of
/// everybody and notes how long each change takes: as long as whoever has the directory's lock keeps it.
struct Neighbour {
    directory: PathBuf,
    change: fn(&Path),
    stop: Arc<AtomicBool>,
    longest_ns: Arc<AtomicU64>,
    changes: Arc<AtomicU64>,
    worker: Option<JoinHandle<()>>,
}

impl Neighbour {
    fn new() -> Self {
        let directory = PathBuf::from("/dev/shm/shared");
        fs::create_dir_all(&directory).expect("the directory is made");
        let (stop, longest_ns, changes) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        Neighbour { directory, change: move_once, stop, longest_ns, changes, worker: None }
    }

    /// Programs of the group that work in the directory.
    fn movers(&self, group: &Group, count: usize) -> Vec<Program> {
        let start = |number: usize| {
            let file = self.directory.join(format!("moved-{number}"));
            Program::start(&["move", &file.to_string_lossy()]).within(group)
        };
        (0..count).map(start).collect()
    }

    fn begin(&mut self) {
        let (stop, longest_ns, changes) = (self.stop.clone(), self.longest_ns.clone(), self.changes.clone());
        let (file, change) = (self.directory.join("ours"), self.change);
        self.worker = Some(std::thread::spawn(move || {
            stay_ahead();
            while !stop.load(Ordering::Relaxed) {
                let begin = Instant::now();
                change(&file);
                longest_ns.fetch_max(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                changes.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(3));
            }
        }));
    }

    /// The longest change in milliseconds, one that is not done yet included if the held tasks have been let go, and
    /// how many there were.
    fn end(&mut self) -> (f64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
        (self.longest_ns.load(Ordering::Relaxed) as f64 / 1e6, self.changes.load(Ordering::Relaxed))
    }
}

/// Creates the file, renames it and removes it.
pub fn move_once(file: &Path) {
    let moved = file.with_extension("moved");
    let _ = fs::write(file, "");
    let _ = fs::rename(file, &moved);
    let _ = fs::remove_file(&moved);
}

/// A domain whose tasks change a directory is suspended eight times, on several CPUs fewer: nobody else waits for the
/// directory, and each time its tasks stand still soon and use nothing more.
pub fn suspension() -> Outcome {
    let mut scheduler = shared()?;
    let (still, busy) = (Group::new("still"), Group::new("busy"));
    let mut neighbour = Neighbour::new();
    let movers = neighbour.movers(&still, 3);
    let beside = Program::on_each_cpu(&["spin"], &busy);
    neighbour.begin();
    sleep(Duration::from_millis(500));
    let mut used = Vec::new();
    for _ in 0..of_all_cpus(8.0) as u32 {
        domains::suspend(&mut scheduler, &still, true)?;
        sleep(Duration::from_millis(150));
        used.push(measure(&movers.iter().collect::<Vec<_>>(), 0.2).iter().sum::<f64>());
        domains::suspend(&mut scheduler, &still, false)?;
        sleep(Duration::from_millis(100));
    }
    let (longest_ms, changes) = neighbour.end();
    let reason = scheduler.exit_reason();
    drop((movers, beside));
    drop((still, busy));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(longest_ms < longest_of_several_ms(), "a change of the directory took {longest_ms:.1} ms");
    check!(changes > 100 / cpus() as u64, "only {changes} changes of the directory were made");
    check!(used.iter().all(|&used| used < 2.0), "while suspended, the tasks used {used:.2?} ms of each 200");
    Ok(format!("longest of {changes} changes {longest_ms:.1} ms; used {used:.2?} ms of each 200 suspended"))
}

/// Tasks in long system calls are suspended on a machine that has nothing else to do, and leave for seconds. Whoever is
/// held when others want the CPU leaves as soon as ever.
pub fn after_idleness() -> Outcome {
    let mut scheduler = shared()?;
    let (still, calls, busy) = (Group::new("still"), Group::new("calls"), Group::new("busy"));
    let readers: Vec<Program> = (0..2 * cpus()).map(|_| Program::start(&["zeros"]).within(&calls)).collect();
    domains::suspend(&mut scheduler, &calls, true)?;
    sleep(Duration::from_secs(2));
    drop(readers);
    let mut neighbour = Neighbour::new();
    let movers = neighbour.movers(&still, 3);
    let beside = Program::on_each_cpu(&["spin"], &busy);
    sleep(Duration::from_millis(200));
    neighbour.begin();
    for _ in 0..3 {
        domains::suspend(&mut scheduler, &still, true)?;
        sleep(Duration::from_millis(150));
        domains::suspend(&mut scheduler, &still, false)?;
        sleep(Duration::from_millis(100));
    }
    let (longest_ms, changes) = neighbour.end();
    let reason = scheduler.exit_reason();
    drop((movers, beside));
    drop((still, calls, busy));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(longest_ms < LONGEST_MS, "a change of the directory took {longest_ms:.1} ms");
    Ok(format!("longest of {changes} changes {longest_ms:.1} ms"))
}

/// A quota of a thousandth of a CPU, and one of a fifth.
pub fn quota() -> Outcome {
    let mut seen = Vec::new();
    for (quota, share, seconds) in [("1000 1000000", 0.001, 4.0), ("20000 100000", 0.2, 3.0)] {
        let scheduler = shared()?;
        let (tight, busy) = (Group::new("tight").set("cpu.max", quota), Group::new("busy"));
        let mut neighbour = Neighbour::new();
        let movers = neighbour.movers(&tight, 3);
        let beside = Program::on_each_cpu(&["spin"], &busy);
        let seconds = of_all_cpus(seconds);
        sleep(Duration::from_millis(500));
        neighbour.begin();
        let got = measure(&movers.iter().collect::<Vec<_>>(), seconds).iter().sum::<f64>() / (seconds * 1e3);
        let _ = fs::write(tight.0.join("cpu.max"), "max");
        let (longest_ms, changes) = neighbour.end();
        drop((movers, beside));
        drop((tight, busy));
        drop(scheduler);
        check!(longest_ms < LONGEST_MS, "{quota}: a change of the directory took {longest_ms:.1} ms");
        check!((got - share).abs() < 0.02, "{quota}: got {got:.4} of a CPU, limit {share}");
        seen.push(format!("{quota}: {got:.4} of {share}, longest of {changes} changes {longest_ms:.1} ms"));
    }
    Ok(seen.join("; "))
}

/// Waits until everybody has left what they read under the protection of RCU when the call began. The kernel does so in
/// many system calls, as when a process with threads opens its 65th file.
fn wait_for_readers(_: &Path) {
    // SAFETY: plain system call; with more than one CPU the kernel waits for a grace period.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
}

/// Tasks that are suspended at a gate, in the middle of what they do on their way to user space, read nothing there
/// that RCU protects: nobody waits for them.
pub fn readers() -> Outcome {
    let mut scheduler = shared()?;
    let (still, busy) = (Group::new("still"), Group::new("busy"));
    let mut neighbour = Neighbour { change: wait_for_readers, ..Neighbour::new() };
    let movers = neighbour.movers(&still, 6);
    let beside = Program::on_each_cpu(&["spin"], &busy);
    sleep(Duration::from_millis(500));
    domains::suspend(&mut scheduler, &still, true)?;
    sleep(Duration::from_millis(200));
    neighbour.begin();
    sleep(Duration::from_secs(3));
    domains::suspend(&mut scheduler, &still, false)?;
    let (longest_ms, waits) = neighbour.end();
    let reason = scheduler.exit_reason();
    drop((movers, beside));
    drop((still, busy));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(longest_ms < LONGEST_MS, "somebody waited for readers for {longest_ms:.1} ms");
    check!(waits > 20, "only {waits} waits for readers in 3 s");
    Ok(format!("longest of {waits} waits for readers {longest_ms:.1} ms"))
}

/// A quota that comes when nobody has been held for so long that the kernel is no longer asked where tasks are
/// preempted: it is asked again.
pub fn later_quota() -> Outcome {
    let mut scheduler = shared()?;
    let (tight, busy) = (Group::new("tight"), Group::new("busy"));
    let mut neighbour = Neighbour::new();
    let movers = neighbour.movers(&tight, 3);
    let beside = Program::start(&["spin"]).within(&busy);
    scheduler.take_events(&mut |_| {});
    sleep(Duration::from_millis(10_500));
    scheduler.take_events(&mut |_| {});
    let before = scheduler.watches_boundary();
    let tight = tight.set("cpu.max", "20000 100000");
    let told = readable(scheduler.event_descriptor());
    scheduler.take_events(&mut |_| {});
    let after = scheduler.watches_boundary();
    sleep(Duration::from_millis(500));
    neighbour.begin();
    let seconds = 3.0;
    let got = measure(&movers.iter().collect::<Vec<_>>(), seconds).iter().sum::<f64>() / (seconds * 1e3);
    let _ = fs::write(tight.0.join("cpu.max"), "max");
    let (longest_ms, changes) = neighbour.end();
    drop((movers, beside));
    drop((tight, busy));
    drop(scheduler);
    check!(!before && told && after, "watched before: {before}, told: {told}, watched then: {after}");
    check!(longest_ms < LONGEST_MS, "a change of the directory took {longest_ms:.1} ms");
    check!((got - 0.2).abs() < 0.02, "got {got:.4} of a CPU, limit 0.2");
    Ok(format!("told, and watched then; {got:.4} of 0.2, longest of {changes} changes {longest_ms:.1} ms"))
}

/// Whether something can be read there.
fn readable(descriptor: Option<RawFd>) -> bool {
    let Some(fd) = descriptor else { return false };
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, and the descriptor is the scheduler's.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// The same on a disk, with something in the file, which is there when the call returns.
pub fn save_once(file: &Path) {
    let moved = file.with_extension("moved");
    let written = fs::File::create(file).and_then(|mut open| {
        std::io::Write::write_all(&mut open, &[1; 16 << 10])?;
        fs::rename(file, &moved)?;
        open.sync_all()
    });
    written.expect("there is room on the disk");
    let _ = fs::remove_file(&moved);
}

/// A file system with a journal, on a disk whose speed is in the machine's own time. It stays for other checks.
fn timed_disk() -> Result<PathBuf, String> {
    let mounted = PathBuf::from("/timed");
    if !mounted.exists() {
        let made = std::process::Command::new("sh").args(["/lab/timed-disk.sh", "ssd", "64", "0"]).status();
        check!(
            made.as_ref().is_ok_and(|status| status.success()),
            "/lab/timed-disk.sh makes no disk: {made:?}"
        );
    }
    Ok(mounted)
}

/// Writers of an ordinary user, which are suspended, without quota or behind others: root creates, writes, renames and
/// has written out a file beside theirs. A transaction of the journal is written out only when nobody is in the middle
/// of a change that belongs to it, and no other change begins until then.
pub fn journal() -> Outcome {
    const USER: u32 = 1000;
    let directory = timed_disk()?;
    std::os::unix::fs::chown(&directory, Some(USER), Some(USER)).map_err(|error| error.to_string())?;
    let mut seen = Vec::new();
    for how in ["suspended", "without quota", "behind"] {
        let mut scheduler = shared()?;
        let (writing, busy) = (Group::new("writing"), Group::new("busy"));
        let mut neighbour = Neighbour { directory: directory.clone(), change: save_once, ..Neighbour::new() };
        let start = |number: u32| {
            let file = directory.join(format!("saved-{number}"));
            Program::start_as(USER, &["save", &file.to_string_lossy()]).within(&writing)
        };
        let writers: Vec<Program> = (0..4).map(start).collect();
        let beside = Program::on_each_cpu(&["pulse", "250", "50"], &busy);
        neighbour.begin();
        match how {
            "suspended" => {
                for _ in 0..4 {
                    domains::suspend(&mut scheduler, &writing, true)?;
                    sleep(Duration::from_millis(250));
                    domains::suspend(&mut scheduler, &writing, false)?;
                    sleep(Duration::from_millis(70));
                }
            }
            "without quota" => {
                let _ = fs::write(writing.0.join("cpu.max"), "5000 250000");
                sleep(Duration::from_millis(1200));
                let _ = fs::write(writing.0.join("cpu.max"), "max");
            }
            _ => {
                let policy = DomainPolicy { priority: 0, ..DomainPolicy::default() };
                domains::give(&mut scheduler, &writing, policy)?;
                sleep(Duration::from_millis(1200));
            }
        }
        drop(beside);
        let (longest_ms, changes) = neighbour.end();
        let reason = scheduler.exit_reason();
        drop(writers);
        drop((writing, busy));
        drop(scheduler);
        check!(reason.is_none(), "{how}: the scheduler left: {reason:?}");
        check!(longest_ms < LONGEST_SAVE_MS, "{how}: a save took {longest_ms:.1} ms");
        check!(changes > 20, "{how}: only {changes} files were saved");
        seen.push(format!("{how}: longest of {changes} saves {longest_ms:.1} ms"));
    }
    Ok(seen.join("; "))
}

/// Priority 0 below a loop that rests now and then, so that it interrupts what works below at any moment.
pub fn priority() -> Outcome {
    let mut scheduler = shared()?;
    let (low, high) = (Group::new("low"), Group::new("high"));
    let policy = DomainPolicy { priority: 0, ..DomainPolicy::default() };
    domains::give(&mut scheduler, &low, policy)?;
    let mut neighbour = Neighbour::new();
    let movers = neighbour.movers(&low, 3);
    let above = Program::on_each_cpu(&["pulse", "250", "50"], &high);
    neighbour.begin();
    let seconds = of_all_cpus(4.0);
    let used_ms = measure(&above.iter().collect::<Vec<_>>(), seconds).iter().sum::<f64>();
    let share = used_ms / (seconds * 1e3) / cpus() as f64;
    drop(above);
    let (longest_ms, changes) = neighbour.end();
    drop(movers);
    drop((low, high));
    drop(scheduler);
    check!(longest_ms < longest_of_several_ms(), "a change of the directory took {longest_ms:.1} ms");
    check!(share > 0.7, "the loops above got {share:.3} of the CPUs");
    Ok(format!("longest of {changes} changes {longest_ms:.1} ms, and the loops above got {share:.3}"))
}

/// Tasks of a domain behind that are in the kernel half of the time and wait there for each other, beside somebody
/// before them who wants 10 ms now and then: they leave in the pauses, of which they have all.
pub fn pauses() -> Outcome {
    const TURNS: &str = "/dev/shm/turns";
    let mut scheduler = shared()?;
    let (low, high) = (Group::new("low"), Group::new("high"));
    let policy = DomainPolicy { priority: 0, ..DomainPolicy::default() };
    domains::give(&mut scheduler, &low, policy)?;
    let neighbour = Neighbour::new();
    let mut behind = neighbour.movers(&low, 16);
    behind.extend((0..1).map(|_| Program::start(&["spin"]).within(&low)));
    let _ = fs::remove_file(TURNS);
    let above = Program::start(&["turns", TURNS]).within(&high);
    sleep(Duration::from_secs(1));
    let share = measure(&behind.iter().collect::<Vec<_>>(), 5.0).iter().sum::<f64>() / 5e3;
    let text = fs::read_to_string(TURNS).map_err(|error| format!("{TURNS}: {error}"))?;
    let reason = scheduler.exit_reason();
    drop((above, behind));
    drop((low, high));
    drop(scheduler);
    let (turns, longer): (u32, u32) = text
        .split_once(' ')
        .and_then(|(turns, longer)| Some((turns.parse().ok()?, longer.parse().ok()?)))
        .ok_or_else(|| format!("{TURNS} says {text:?}"))?;
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(turns > 70, "only {turns} turns in 6 s");
    check!(longer * 10 <= turns, "{longer} of {turns} turns of 10 ms took longer than 12");
    check!(share > 0.7, "those behind got {share:.3} of the CPU");
    Ok(format!("{longer} of {turns} turns of 10 ms took longer than 12, and those behind got {share:.3}"))
}

/// The scheduler, what holds somebody for moments, and a cgroup to be held.
fn with_takers() -> Result<(Shared, Box<dyn Bumper>, Group), String> {
    let scheduler = shared()?;
    let bumper = scheduler.bumper().ok_or("nobody can be held for moments")?;
    Ok((scheduler, bumper, Group::new("takers").charged()))
}

/// Whose memory is charged to a cgroup that is held back for a moment, again and again before that is over: they stand
/// still, keep nobody waiting inside the kernel meanwhile, and go on when the last moment is over.
pub fn moments() -> Outcome {
    let (mut scheduler, bumper, takers) = with_takers()?;
    let busy = Group::new("busy");
    let mut neighbour = Neighbour::new();
    let movers = neighbour.movers(&takers, 3);
    let beside = Program::start(&["spin"]).within(&busy);
    let hold = |for_ms: u64| bumper.bump(takers.id(), for_ms * 1_000_000).map_err(|error| error.to_string());
    hold(100)?;
    scheduler.take_events(&mut |_| {});
    neighbour.begin();
    sleep(Duration::from_millis(100));
    let before: f64 = movers.iter().map(Program::time_ms).sum();
    for _ in 0..40 {
        hold(100)?;
        sleep(Duration::from_millis(50));
    }
    let held_ms = movers.iter().map(Program::time_ms).sum::<f64>() - before;
    sleep(Duration::from_millis(100));
    let after_ms = measure(&movers.iter().collect::<Vec<_>>(), 1.0).iter().sum::<f64>();
    let (longest_ms, changes) = neighbour.end();
    let reason = scheduler.exit_reason();
    drop((movers, beside));
    drop((takers, busy));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(longest_ms < LONGEST_MS, "a change of the directory took {longest_ms:.1} ms");
    check!(held_ms < 100.0, "held for 2 s, the tasks used {held_ms:.1} ms");
    check!(after_ms > 300.0, "not held any more, they used {after_ms:.0} ms of a second");
    Ok(format!(
        "held for 2 s, they used {held_ms:.1} ms, then {after_ms:.0} of 1000; longest of {changes} changes {longest_ms:.1} ms"
    ))
}

/// Programs whose memory is charged below a cgroup that is held: one level below it, and two, from a third that has no
/// memory controller. They stand still, who is charged beside them does not, and all go on afterwards.
pub fn moments_below() -> Outcome {
    let (scheduler, bumper, takers) = with_takers()?;
    let takers = takers.set("cgroup.subtree_control", "+memory");
    let child = Group::new("takers/child");
    let inner = Group::new("takers/inner").set("cgroup.subtree_control", "+memory");
    let deep = Group::new("takers/inner/deep");
    let deepest = Group::new("takers/inner/deep/deepest");
    let beside = Group::new("beside").charged();
    let below = [&child, &deepest].map(|group| Program::start(&["spin"]).within(group));
    let other = Program::start(&["spin"]).within(&beside);
    sleep(Duration::from_millis(200));
    let used = |programs: &[Program]| programs.iter().map(Program::time_ms).sum::<f64>();
    let hold = || bumper.bump(takers.id(), 250_000_000).map_err(|error| error.to_string());
    hold()?;
    sleep(Duration::from_millis(100));
    let (before_ms, other_before_ms) = (used(&below), other.time_ms());
    for _ in 0..20 {
        hold()?;
        sleep(Duration::from_millis(100));
    }
    let held_ms = used(&below) - before_ms;
    let other_ms = other.time_ms() - other_before_ms;
    bumper.bump(takers.id(), 0).map_err(|error| error.to_string())?;
    sleep(Duration::from_millis(100));
    let before_ms = used(&below);
    sleep(Duration::from_secs(1));
    let after_ms = used(&below) - before_ms;
    let reason = scheduler.exit_reason();
    drop((below, other));
    drop(deepest);
    drop(deep);
    drop((inner, child));
    drop((takers, beside));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(held_ms < 100.0, "held for 2 s, those below used {held_ms:.1} ms");
    check!(other_ms > 1500.0, "beside them one used {other_ms:.0} ms of 2000");
    check!(after_ms > 200.0, "not held any more, they used {after_ms:.0} ms of a second");
    Ok(format!(
        "held for 2 s, they used {held_ms:.1} ms, then {after_ms:.0} of 1000; beside them {other_ms:.0} of 2000"
    ))
}

/// A CPU goes offline and comes back while tasks are held for moments at a gate, where they cannot leave it.
pub fn moments_under_hotplug() -> Outcome {
    let (scheduler, bumper, takers) = with_takers()?;
    let neighbour = Neighbour::new();
    let movers = neighbour.movers(&takers, 6);
    let (stop, id) = (Arc::new(AtomicBool::new(false)), takers.id());
    let until = stop.clone();
    let holding = std::thread::spawn(move || {
        stay_ahead();
        let mut failed = None;
        while !until.load(Ordering::Relaxed) && failed.is_none() {
            failed = bumper.bump(id, 100_000_000).err();
            sleep(Duration::from_millis(130));
        }
        failed
    });
    sleep(Duration::from_millis(500));
    let online = "/sys/devices/system/cpu/cpu1/online";
    let mut longest = Duration::ZERO;
    for round in 0..20 {
        let begin = Instant::now();
        fs::write(online, "0").map_err(|error| format!("{online}: {error}"))?;
        longest = longest.max(begin.elapsed());
        sleep(Duration::from_millis(150));
        fs::write(online, "1").map_err(|error| format!("{online}: {error}"))?;
        sleep(Duration::from_millis(150 + 17 * round));
    }
    stop.store(true, Ordering::Relaxed);
    let failed = holding.join().map_err(|_| "the thread that holds ended")?;
    let reason = scheduler.exit_reason();
    drop(movers);
    drop(takers);
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(failed.is_none(), "holding failed: {failed:?}");
    check!(longest < Duration::from_secs(3), "going offline took {longest:.1?}");
    Ok(format!("20 times, the longest took {longest:.1?}"))
}

/// Whom a CPU that goes offline leaves behind in a queue for those that are held, it must not wait for: pinned to it or
/// not, suspended, without quota, or held for moments again and again. Who is stopped at a gate could not leave the CPU
/// for two seconds, and who waits to be rescued for twelve.
pub fn held_under_hotplug() -> Outcome {
    let (mut scheduler, bumper, takers) = with_takers()?;
    let (still, tight) = (Group::new("still"), Group::new("tight"));
    let neighbour = Neighbour::new();
    let spinners = |group: &Group| [(); 3].map(|()| Program::start(&["spin"]).within(group));
    let (suspended, limited, taking) = (spinners(&still), spinners(&tight), spinners(&takers));
    let movers = neighbour.movers(&takers, 2);
    // Of each, one that may run anywhere.
    let pinned = || suspended.iter().zip(&limited).zip(&taking).skip(1).flat_map(|((a, b), c)| [a, b, c]);
    let (stop, id, quota) = (Arc::new(AtomicBool::new(false)), takers.id(), tight.0.join("cpu.max"));
    let until = stop.clone();
    let holding = std::thread::spawn(move || {
        stay_ahead();
        let mut failed = None;
        for turn in 0.. {
            if until.load(Ordering::Relaxed) || failed.is_some() {
                break;
            }
            failed = bumper.bump(id, 250_000_000).err().map(|error| error.to_string());
            let limit = if turn % 20 == 19 { "max" } else { "1000 1000000" };
            failed = failed.or(fs::write(&quota, limit).err().map(|error| error.to_string()));
            sleep(Duration::from_millis(90));
        }
        failed
    });
    let online = "/sys/devices/system/cpu/cpu1/online";
    let mut seconds = Vec::new();
    for round in 0..8 {
        // The kernel lets who is pinned to a CPU that goes away run anywhere.
        pinned().chain(&movers).for_each(|program| pin(program.pid(), &[1]));
        sleep(Duration::from_millis(300 + 37 * round));
        domains::suspend(&mut scheduler, &still, true)?;
        sleep(Duration::from_millis(200));
        let begin = Instant::now();
        fs::write(online, "0").map_err(|error| format!("{online}: {error}"))?;
        seconds.push(begin.elapsed().as_secs_f64());
        sleep(Duration::from_millis(200));
        fs::write(online, "1").map_err(|error| format!("{online}: {error}"))?;
        domains::suspend(&mut scheduler, &still, false)?;
    }
    stop.store(true, Ordering::Relaxed);
    let failed = holding.join().map_err(|_| "the thread that holds ended")?;
    let reason = scheduler.exit_reason();
    drop((suspended, limited, taking, movers));
    drop((still, tight, takers));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(failed.is_none(), "holding failed: {failed:?}");
    check!(seconds.iter().all(|&seconds| seconds < 10.0), "going offline took {seconds:.1?} s");
    Ok(format!("going offline took {seconds:.2?} s"))
}

/// However many of a held domain's tasks are in the middle of long system calls, each goes on now and then, long before
/// the kernel takes the scheduler out, which it does when one has waited for half a minute. What those that leave the
/// kernel may have is a slice for a third of them in this time: the others are rescued.
pub fn crowd_in_calls() -> Outcome {
    const THREADS: usize = 2000;
    const SECONDS: f64 = 15.5;
    let mut scheduler = shared()?;
    let (still, busy) = (Group::new("still"), Group::new("busy"));
    let readers = Program::start(&["zeros-crowd", &THREADS.to_string()]).within(&still);
    // Each has begun its call when they are suspended.
    let threads = threads_at_work(readers.pid(), THREADS)?;
    let beside = Program::start(&["spin"]).within(&busy);
    domains::suspend(&mut scheduler, &still, true)?;
    let before_ms = beside.time_ms();
    let waiting = waiting_for(&threads, SECONDS);
    let share = (beside.time_ms() - before_ms) / (SECONDS * 1e3);
    let reason = scheduler.exit_reason();
    drop((readers, beside));
    drop((still, busy));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(share > 0.75, "who is not suspended got {share:.3} of the CPU");
    check!(waiting == 0, "after {SECONDS} s {waiting} of {THREADS} have not gone on");
    Ok(format!(
        "each of {THREADS} went on within {SECONDS} s, and beside them a loop got {share:.3} of the CPU"
    ))
}

/// Reads the names of the directory's files, for ever: nearly all the time in system calls that have its lock.
pub fn list(directory: &Path) -> ! {
    let directory = fs::File::open(directory).expect("the directory is there");
    let mut names = [0u8; 1 << 14];
    loop {
        let (fd, buffer) = (directory.as_raw_fd(), names.as_mut_ptr());
        // SAFETY: plain system calls; the buffer is as long as it says.
        unsafe {
            while libc::syscall(libc::SYS_getdents64, fd, buffer, names.len()) > 0 {}
            libc::lseek(fd, 0, libc::SEEK_SET);
        }
    }
}

/// Whoever is held with a directory's lock is found however many of its domain stand before it, all of which compute
/// and are held where they are: nobody waits for the directory.
pub fn behind_a_crowd() -> Outcome {
    const THREADS: usize = 4500;
    let mut scheduler = shared()?;
    // So it is noted from the beginning where everybody is preempted: whoever loads the scheduler begins that when it
    // is told that there is a quota.
    let (quota, still) = (Group::new("quota").set("cpu.max", "100000 1000000"), Group::new("still"));
    events(&mut scheduler);
    check!(scheduler.watches_boundary(), "it is not noted where tasks are preempted");
    let directory = PathBuf::from("/dev/shm/listed");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    for number in 0..2000 {
        let file = directory.join(format!("file-{number}"));
        fs::write(file, "").map_err(|error| error.to_string())?;
    }
    // A little lighter, it stands behind all of them when it has had a turn.
    let lister = Program::start(&["list", &directory.to_string_lossy()]).nice(1).within(&still);
    let crowd = Program::start(&["spin-crowd", &THREADS.to_string()]).within(&still);
    threads_at_work(crowd.pid(), THREADS)?;
    let (mut longest_ms, mut changes) = (Vec::new(), 0);
    for _ in 0..2 {
        let (before_ms, mut last_ms) = (lister.time_ms(), 0.0);
        let had_turn = wait_until(90.0, || {
            let now_ms = lister.time_ms();
            std::mem::replace(&mut last_ms, now_ms) == now_ms && now_ms > before_ms + 2.0
        });
        check!(had_turn, "who lists the directory had no turn within 90 s");
        domains::suspend(&mut scheduler, &still, true)?;
        let mut neighbour = Neighbour { directory: directory.clone(), ..Neighbour::new() };
        neighbour.begin();
        sleep(Duration::from_millis(300));
        let (round_ms, round_changes) = neighbour.end();
        longest_ms.push(round_ms);
        changes += round_changes;
        domains::suspend(&mut scheduler, &still, false)?;
    }
    let reason = scheduler.exit_reason();
    let _ = fs::write(still.0.join("cgroup.kill"), "1");
    drop((lister, crowd));
    drop((still, quota));
    drop(scheduler);
    let _ = fs::remove_dir_all(&directory);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    let longest = longest_ms.iter().copied().fold(0.0, f64::max);
    check!(
        longest < LONGEST_MS,
        "the longest change of the directory in each round took {longest_ms:.1?} ms"
    );
    check!(changes > 20, "only {changes} changes of the directory were made");
    Ok(format!("longest of {changes} changes in each round {longest_ms:.1?} ms, behind {THREADS} threads"))
}

/// Tasks that spend all their time in long system calls cannot be held in the middle of one; they get no more by that
/// than the bounded share while anybody else waits, and what a quota lends them is paid back.
pub fn long_calls() -> Outcome {
    let mut scheduler = shared()?;
    let (still, tight, busy) =
        (Group::new("still"), Group::new("tight").set("cpu.max", "20000 100000"), Group::new("busy"));
    let readers = |group: &Group| -> Vec<Program> {
        (0..4).map(|_| Program::start(&["zeros"]).within(group)).collect()
    };
    let (suspended, limited) = (readers(&still), readers(&tight));
    let beside = Program::start(&["spin"]).within(&busy);
    domains::suspend(&mut scheduler, &still, true)?;
    sleep(Duration::from_secs(1));
    let all: Vec<&Program> = suspended.iter().chain(&limited).chain([&beside]).collect();
    let seconds = 5.0;
    let times = measure(&all, seconds);
    let share = |times: &[f64]| times.iter().sum::<f64>() / (seconds * 1e3);
    let (suspended_share, limited_share) = (share(&times[..4]), share(&times[4..8]));
    let reason = scheduler.exit_reason();
    drop((suspended, limited, beside));
    drop((still, tight, busy));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(suspended_share < 0.14, "suspended, the readers got {suspended_share:.3} of the CPU");
    check!(limited_share < 0.24, "with a quota of 0.2 they got {limited_share:.3} of the CPU");
    Ok(format!("suspended {suspended_share:.3}, with a quota of 0.2 {limited_share:.3} of the CPU"))
}

/// The state of a process, as in proc_pid_stat(5).
fn state_of(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next()).unwrap_or('?')
}

/// Sends a signal to all, and says how long it was until each had the state, in seconds: 5 when one never has.
fn until_all(programs: &[Program], signal: i32, state: char) -> Vec<f64> {
    let begin = Instant::now();
    // SAFETY: plain system call on our own children.
    programs.iter().for_each(|program| unsafe { _ = libc::kill(program.pid(), signal) });
    let mut seconds = vec![5.0; programs.len()];
    wait_until(5.0, || {
        for (program, seconds) in programs.iter().zip(&mut seconds) {
            if *seconds == 5.0 && state_of(program.pid()) == state {
                *seconds = begin.elapsed().as_secs_f64();
            }
        }
        seconds.iter().all(|&seconds| seconds < 5.0)
    });
    seconds
}

/// Who is told to stop, or killed, does so within a second though it is suspended, has used its quota up, is below a
/// priority that always runs, or stands behind for as long as a weight of one beside ten thousand says.
pub fn signals() -> Outcome {
    let mut scheduler = shared()?;
    let (still, tight, low) = (Group::new("still"), Group::new("tight"), Group::new("low"));
    let (light, busy) = (Group::new("light").set("cpu.weight", "1"), Group::new("busy"));
    let spinners = || [&still, &tight, &low, &light].map(|group| Program::start(&["spin"]).within(group));
    let (stopped, killed) = (spinners(), spinners());
    let pids: Vec<i32> = stopped.iter().chain(&killed).map(Program::pid).collect();
    let all_compute = wait_until(30.0, || pids.iter().all(|&pid| has_started(pid)));
    check!(all_compute, "not all programs had begun to compute after 30 s");
    let beside = Program::start(&["spin"]).within(&busy);
    let busy = busy.set("cpu.weight", "10000");
    let tight = tight.set("cpu.max", "1000 1000000");
    let policy = DomainPolicy { priority: 0, ..DomainPolicy::default() };
    domains::give(&mut scheduler, &low, policy)?;
    domains::suspend(&mut scheduler, &still, true)?;
    sleep(Duration::from_secs(2));
    let mut longest = vec![0.0f64; stopped.len()];
    // At four different moments between two looks of the scheduler.
    for round in 0..4 {
        let stops = until_all(&stopped, libc::SIGSTOP, 'T');
        longest = longest.iter().zip(stops).map(|(longest, stop)| longest.max(stop)).collect();
        // SAFETY: plain system call on our own children.
        stopped.iter().for_each(|program| unsafe { _ = libc::kill(program.pid(), libc::SIGCONT) });
        sleep(Duration::from_millis(1000 + 130 * round));
    }
    let ends = until_all(&killed, libc::SIGKILL, 'Z');
    let share = measure(&[&beside], 1.0)[0] / 1e3;
    let reason = scheduler.exit_reason();
    drop((stopped, killed, beside));
    drop((still, tight, low, light, busy));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    let of_whom = "suspended, without quota, below a priority, of little weight";
    check!(longest.iter().all(|&seconds| seconds <= 1.0), "{of_whom}: stopped after {longest:.2?} s");
    check!(ends.iter().all(|&seconds| seconds <= 1.0), "{of_whom}: killed after {ends:.2?} s");
    check!(share > 0.9, "the loop beside them got {share:.3} of the CPU");
    Ok(format!("{of_whom}: stopped after {longest:.2?} s at the longest, killed after {ends:.2?}"))
}
