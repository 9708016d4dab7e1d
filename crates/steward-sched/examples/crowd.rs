//! What a scheduling decision costs with 10 domains and with 1,000, on a real kernel: `crowd [DOMAINS TASKS]...`, as
//! root inside the lab's machine, with 2 GiB of memory for 10,000 tasks. Without arguments: 10 domains with 100 tasks,
//! then 1,000 with 10,000.
//!
//! The tasks are born in their domains and wait; then all are released at once and are busy. For some seconds the
//! kernel measures its BPF programs (`kernel.bpf_stats_enabled`); the cost of a decision is the time of all callbacks
//! of the scheduler, divided by how often it was asked for a task. With a machine whose clock counts instructions, that
//! is a number of instructions. The measurement ends before the first of 10,000 tasks has waited so long that it is
//! rescued.

use std::fs::{self, File};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;
use steward_core::cpu::mechanism::Mechanism;
use steward_sched::{LoadOptions, SchedExt};

/// Long enough for each of 1,000 domains to be served once, a tick each; and with what follows shorter than the 12 s
/// after which tasks that have waited are rescued.
const SETTLE: Duration = Duration::from_secs(5);
const MEASURE: Duration = Duration::from_secs(5);
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
        let begin = Instant::now();
        let crowd = Crowd::gather(domains, tasks);
        eprintln!("{tasks} tasks in {domains} domains after {:.1} s", begin.elapsed().as_secs_f64());
        let mut scheduler = SchedExt::load(&LoadOptions::default()).unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(1)
        });
        eprintln!("the scheduler is loaded after {:.1} s", begin.elapsed().as_secs_f64());
        crowd.release();
        sleep(SETTLE);
        let (decisions, cost_ns) = measure(MEASURE);
        let gone = scheduler.exit_reason();
        let runnable: u32 = scheduler.domains().iter().flatten().map(|domain| domain.runnable).sum();
        drop(scheduler);
        eprintln!("the scheduler is unloaded after {:.1} s", begin.elapsed().as_secs_f64());
        drop(crowd);
        eprintln!("the crowd is gone after {:.1} s", begin.elapsed().as_secs_f64());
        if let Some(reason) = gone {
            eprintln!("the scheduler left: {reason}");
            std::process::exit(1);
        }
        let ratio = cost_ns / *first_ns.get_or_insert(cost_ns);
        println!(
            "{domains} domains, {tasks} tasks ({runnable} can run): {cost_ns:.0} ns for each of {decisions} decisions, ratio {ratio:.3}"
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

/// The crowd waits while this is 0. A word of memory that all of them share, and wait on by futex.
static GATE: AtomicU32 = AtomicU32::new(0);

/// Tasks in cgroups of their own; both end with the value.
struct Crowd(Vec<PathBuf>);

impl Crowd {
    /// The tasks exist and wait for `release`.
    fn gather(domains: usize, tasks: usize) -> Self {
        GATE.store(0, Ordering::SeqCst);
        let directories: Vec<PathBuf> =
            (0..domains).map(|number| format!("/sys/fs/cgroup/crowd-{number}").into()).collect();
        for (number, directory) in directories.iter().enumerate() {
            let opened = fs::create_dir(directory).and_then(|()| File::open(directory));
            let members = tasks / domains + usize::from(number < tasks % domains);
            let born = opened.and_then(|cgroup| (0..members).try_for_each(|_| bear(&cgroup)));
            born.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        }
        Crowd(directories)
    }

    fn release(&self) {
        GATE.store(1, Ordering::SeqCst);
        // SAFETY: plain system call on a word that lives as long as the program.
        unsafe { libc::syscall(libc::SYS_futex, GATE.as_ptr(), FUTEX_WAKE_PRIVATE, i32::MAX) };
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

/// From linux/sched.h; libc's constant of this name is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const FUTEX_WAIT_PRIVATE: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const FUTEX_WAKE_PRIVATE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

/// A new process in this cgroup, which waits until the gate opens and then keeps a CPU busy until it is killed.
///
/// It is born there, because moving one makes the kernel wait for every CPU, which takes minutes for thousands. It
/// shares our memory, and has no stack, so that thousands of them are no larger than what the kernel keeps of each.
#[cfg(target_arch = "x86_64")]
fn bear(cgroup: &File) -> Result<()> {
    let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND;
    let arguments = libc::clone_args {
        flags: shared as u64 | CLONE_INTO_CGROUP,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.as_raw_fd() as u64,
        // SAFETY: plain numbers, of which 0 asks for nothing.
        ..unsafe { std::mem::zeroed() }
    };
    let result: i64;
    // SAFETY: the child touches registers and the gate only, never the stack, which is still ours, and never leaves the
    // block. To us it is a system call.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 4f",
            "2:",
            "mov eax, {futex}",
            "mov rdi, r12",
            "mov esi, {wait}",
            "xor edx, edx",
            "xor r10d, r10d",
            "syscall",
            "cmp dword ptr [r12], 0",
            "je 2b",
            "3:",
            "jmp 3b",
            "4:",
            futex = const libc::SYS_futex,
            wait = const FUTEX_WAIT_PRIVATE,
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") &arguments,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") GATE.as_ptr(),
            out("rcx") _,
            out("r11") _,
        );
    }
    if result < 0 { Err(Error::from_raw_os_error(-result as i32)) } else { Ok(()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn bear(_: &File) -> Result<()> {
    Err(Error::new(std::io::ErrorKind::Unsupported, "written for x86_64, as the lab's machine is"))
}
