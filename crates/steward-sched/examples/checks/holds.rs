//! Whoever is held back, by a quota, a suspension or a priority, has let go of what it held inside the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use steward_core::cpu::mechanism::Mechanism;
use steward_core::cpu::policy::DomainPolicy;

use crate::programs::{Group, Program, measure, shared};
use crate::{Outcome, check, domains, stay_ahead};

/// How long anybody may wait for a lock of a directory in which the tasks of a held domain work.
const LONGEST_MS: f64 = 100.0;

/// A directory in which programs create and rename files all the time, and somebody who does the same ahead of
/// everybody and notes how long each change takes: as long as whoever has the directory's lock keeps it.
struct Neighbour {
    directory: PathBuf,
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
        Neighbour { directory, stop, longest_ns, changes, worker: None }
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
        let file = self.directory.join("ours");
        self.worker = Some(std::thread::spawn(move || {
            stay_ahead();
            while !stop.load(Ordering::Relaxed) {
                let begin = Instant::now();
                move_once(&file);
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

/// A domain whose tasks change a directory is suspended eight times: nobody else waits for the directory, and each time
/// its tasks stand still soon and use nothing more.
pub fn suspension() -> Outcome {
    let mut scheduler = shared()?;
    let (still, busy) = (Group::new("still"), Group::new("busy"));
    let mut neighbour = Neighbour::new();
    let movers = neighbour.movers(&still, 3);
    let beside = Program::start(&["spin"]).within(&busy);
    neighbour.begin();
    sleep(Duration::from_millis(500));
    let mut used = Vec::new();
    for _ in 0..8 {
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
    check!(longest_ms < LONGEST_MS, "a change of the directory took {longest_ms:.1} ms");
    check!(changes > 100, "only {changes} changes of the directory were made");
    check!(used.iter().all(|&used| used < 2.0), "while suspended, the tasks used {used:.2?} ms of each 200");
    Ok(format!("longest of {changes} changes {longest_ms:.1} ms; used {used:.2?} ms of each 200 suspended"))
}

/// A quota of a thousandth of a CPU, and one of a fifth.
pub fn quota() -> Outcome {
    let mut seen = Vec::new();
    for (quota, share, seconds) in [("1000 1000000", 0.001, 4.0), ("20000 100000", 0.2, 3.0)] {
        let scheduler = shared()?;
        let (tight, busy) = (Group::new("tight").set("cpu.max", quota), Group::new("busy"));
        let mut neighbour = Neighbour::new();
        let movers = neighbour.movers(&tight, 3);
        let beside = Program::start(&["spin"]).within(&busy);
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

/// Priority 0 below a loop that rests now and then, so that it interrupts what works below at any moment.
pub fn priority() -> Outcome {
    let mut scheduler = shared()?;
    let (low, high) = (Group::new("low"), Group::new("high"));
    let policy = DomainPolicy { priority: 0, ..DomainPolicy::default() };
    domains::give(&mut scheduler, &low, policy)?;
    let mut neighbour = Neighbour::new();
    let movers = neighbour.movers(&low, 3);
    let above = Program::start(&["pulse", "250", "50"]).within(&high);
    neighbour.begin();
    let seconds = 4.0;
    let share = measure(&[&above], seconds)[0] / (seconds * 1e3);
    drop(above);
    let (longest_ms, changes) = neighbour.end();
    drop(movers);
    drop((low, high));
    drop(scheduler);
    check!(longest_ms < LONGEST_MS, "a change of the directory took {longest_ms:.1} ms");
    check!(share > 0.7, "the loop above got {share:.3} of the CPU");
    Ok(format!("longest of {changes} changes {longest_ms:.1} ms, and the loop above got {share:.3}"))
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
