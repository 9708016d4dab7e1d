//! What a scheduling decision costs with 10 domains and with 1,000, on a real kernel: `crowd [DOMAINS TASKS]...`, as root
//! inside the lab's machine. Without arguments: 10 domains with 100 tasks, then 1,000 with 10,000.
//!
//! All tasks are busy. For some seconds the kernel measures its BPF programs (`kernel.bpf_stats_enabled`); the cost of a
//! decision is the time of all callbacks of the scheduler, divided by how often it was asked for a task. With a machine
//! whose clock counts instructions, that is a number of instructions.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use steward_core::mechanism::Mechanism;
use steward_sched::{LoadOptions, SchedExt};

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

fn main() {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let crowds: Vec<(usize, usize)> = match arguments.as_slice() {
        [] => vec![(10, 100), (1000, 10_000)],
        numbers => numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
    };
    // What this program does must not wait behind the crowd.
    let parameters = libc::sched_param { sched_priority: 10 };
    // SAFETY: plain system call on ourselves; children start as ordinary tasks.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) };
    let mut first_ns = None;
    for (domains, tasks) in crowds {
        let scheduler = SchedExt::load(&LoadOptions::default()).unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(1)
        });
        let crowd = Crowd::gather(domains, tasks);
        sleep(Duration::from_secs(1));
        let (decisions, cost_ns) = measure(Duration::from_secs(5));
        let gone = scheduler.exit_reason();
        drop(crowd);
        if let Some(reason) = gone {
            eprintln!("the scheduler left: {reason}");
            std::process::exit(1);
        }
        let ratio = cost_ns / *first_ns.get_or_insert(cost_ns);
        println!(
            "{domains} domains, {tasks} tasks: {cost_ns:.0} ns for each of {decisions} decisions, ratio {ratio:.3}"
        );
    }
}

/// Decisions in this time, and the mean cost of one in nanoseconds.
fn measure(time: Duration) -> (u64, f64) {
    let before = read();
    fs::write(STATISTICS, "1").expect("root can ask for statistics");
    sleep(time);
    fs::write(STATISTICS, "0").expect("root can ask for statistics");
    let after = read();
    let decisions = after.0 - before.0;
    (decisions, (after.1 - before.1) as f64 / decisions.max(1) as f64)
}

/// How often the scheduler was asked for a task, and the time that all its callbacks took.
fn read() -> (u64, u64) {
    let programs = ProgInfoIter::default().filter(|program| program.name.as_bytes().starts_with(b"steward_"));
    programs.fold((0, 0), |(decisions, time_ns), program| {
        let asked = program.name.as_bytes().starts_with(b"steward_dispatc");
        (decisions + if asked { program.run_cnt } else { 0 }, time_ns + program.run_time_ns)
    })
}

/// Busy tasks in cgroups of their own; both end with the value.
struct Crowd(Vec<PathBuf>);

impl Crowd {
    fn gather(domains: usize, tasks: usize) -> Self {
        let directories: Vec<PathBuf> =
            (0..domains).map(|number| format!("/sys/fs/cgroup/crowd-{number}").into()).collect();
        for directory in &directories {
            fs::create_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        }
        for number in 0..tasks {
            // SAFETY: one thread; the child only spins.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
            if pid == 0 {
                loop {
                    std::hint::black_box(0);
                }
            }
            let members = directories[number % domains].join("cgroup.procs");
            fs::write(&members, pid.to_string())
                .unwrap_or_else(|error| panic!("{}: {error}", members.display()));
        }
        Crowd(directories)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for directory in &self.0 {
            let _ = fs::write(directory.join("cgroup.kill"), "1");
        }
        // SAFETY: reaps the children that were killed above.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
        for directory in &self.0 {
            let _ = fs::remove_dir(directory);
        }
    }
}
