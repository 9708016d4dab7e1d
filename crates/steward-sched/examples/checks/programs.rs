//! The programs that the checks run, and what measures them.

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::AtomicU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

use steward_core::cpu::event::Event;
use steward_core::cpu::mechanism::{CpuRecord, Mechanism, Snapshot, TaskRecord};
use steward_lab_workloads::{clock, keep_busy};
use steward_sched::{LoadOptions, SchedExt};

use crate::check;

/// Runs one of the programs when the arguments name one.
pub fn run(arguments: &[String]) -> Option<ExitCode> {
    match arguments.first()?.as_str() {
        "spin" => spin(),
        // Works BUSY_MS, sleeps SLEEP_MS, for ever: pulse BUSY_MS SLEEP_MS.
        "pulse" => {
            let busy = Duration::from_millis(arguments[1].parse().ok()?);
            let idle = Duration::from_millis(arguments[2].parse().ok()?);
            loop {
                let start = thread_time();
                while thread_time() - start < busy {
                    keep_busy();
                }
                sleep(idle);
            }
        }
        // Gives a process nice 1 and 0 in turns, for ever: renice PID.
        "renice" => {
            let pid: u32 = arguments[1].parse().ok()?;
            loop {
                for nice in [1, 0] {
                    // SAFETY: a plain system call.
                    unsafe { libc::setpriority(libc::PRIO_PROCESS, pid, nice) };
                }
            }
        }
        // Forks COUNT children that spin, and waits: fork-spin COUNT.
        "fork-spin" => {
            for _ in 0..arguments[1].parse().ok()? {
                // SAFETY: the child only spins.
                if unsafe { libc::fork() } == 0 {
                    spin();
                }
            }
            loop {
                sleep(Duration::from_secs(3600));
            }
        }
        // Two processes that hand a byte to each other for ever.
        "ring" => ring(),
        // Creates a file, renames and removes it, for ever: move FILE.
        "move" => loop {
            crate::holds::move_once(std::path::Path::new(&arguments[1]));
        },
        // Reads the names in a directory, for ever: list DIRECTORY.
        "list" => crate::holds::list(std::path::Path::new(&arguments[1])),
        // Does what `move` does on a disk, with something in the file that is written out: save FILE.
        "save" => loop {
            crate::holds::save_once(std::path::Path::new(&arguments[1]));
        },
        // Reads a gigabyte of zeros with each system call, for ever.
        "zeros" => read_zeros(),
        // So many threads that do: zeros-crowd COUNT.
        "zeros-crowd" => {
            let begin = std::sync::Arc::new(std::sync::Barrier::new(arguments[1].parse().ok()?));
            for _ in 1..arguments[1].parse().ok()? {
                let begin = begin.clone();
                let thread = std::thread::Builder::new().stack_size(1 << 16);
                let reader = move || {
                    begin.wait();
                    read_zeros();
                };
                thread.spawn(reader).expect("the thread starts");
            }
            begin.wait();
            read_zeros()
        }
        // So many threads that spin once all are there: spin-crowd COUNT. They wait for nobody when they begin.
        "spin-crowd" => {
            let all_there = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            for _ in 1..arguments[1].parse().ok()? {
                let begin = all_there.clone();
                let spinner = move || {
                    while !begin.load(std::sync::atomic::Ordering::Relaxed) {
                        sleep(Duration::from_secs(1));
                    }
                    spin()
                };
                std::thread::Builder::new().stack_size(1 << 16).spawn(spinner).expect("the thread starts");
            }
            all_there.store(true, std::sync::atomic::Ordering::Relaxed);
            spin()
        }
        // So many threads of this nice value that spin once all are there, and note their waits: watched COUNT NICE
        // FILE.
        "watched" => {
            crate::watched::run(arguments[1].parse().ok()?, arguments[2].parse().ok()?, &arguments[3])
        }
        // Shows a film of 25 frames a second, each of which takes 4.5 ms of CPU time, and writes each second how many
        // it has shown, and how many of them after the next was due: film FILE.
        "film" => film(&arguments[1]),
        // Has turns of 10 ms of CPU time, with 60 ms of sleep between them, and writes after each how many there were,
        // and how many took longer than 12 ms: turns FILE.
        "turns" => turns(&arguments[1]),
        // Sleeps, then spins: later MS.
        "later" => {
            sleep(Duration::from_millis(arguments[1].parse().ok()?));
            spin()
        }
        // Waits until somebody has opened the named pipe GATE and closed it, starts a program that works MS before it
        // executes, and writes how long that took, in milliseconds: launch GATE MS FILE.
        "launch" => {
            fs::read(&arguments[1]).ok()?;
            let (work, start) = (Duration::from_millis(arguments[2].parse().ok()?), Instant::now());
            let mut child = launch(work);
            let written = fs::write(&arguments[3], start.elapsed().as_millis().to_string());
            let _ = child.wait();
            written.ok()?;
            Some(ExitCode::SUCCESS)
        }
        // Waits until somebody has opened the named pipe GATE and closed it, starts a child that computes and never
        // executes, sleeps and computes: lender GATE MS.
        "lender" => {
            fs::read(&arguments[1]).ok()?;
            // SAFETY: the child only spins.
            if unsafe { libc::fork() } != 0 {
                sleep(Duration::from_millis(arguments[2].parse().ok()?));
            }
            spin()
        }
        // Sleeps until there is a file of that name, then spins: when FILE.
        "when" => {
            while !fs::exists(&arguments[1]).unwrap_or(false) {
                sleep(Duration::from_millis(200));
            }
            spin()
        }
        // Sets a terabyte of address space aside that it may write, or that it may not touch, or nothing, and sleeps.
        "aside" => {
            let protection = if arguments[1] == "write" { libc::PROT_WRITE } else { libc::PROT_NONE };
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            if arguments[1] != "nothing" {
                // SAFETY: a new mapping, which nothing else uses.
                let at = unsafe { libc::mmap(std::ptr::null_mut(), 1 << 40, protection, flags, -1, 0) };
                assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            }
            loop {
                sleep(Duration::from_secs(3600));
            }
        }
        // A second thread waits for something to read in the named pipe GATE and makes a spinner of the process:
        // exec-thread GATE.
        "exec-thread" => {
            let gate = arguments[1].clone();
            std::thread::spawn(move || {
                let _ = fs::read(gate);
                Command::new(own_path()).arg("spin").exec()
            });
            loop {
                sleep(Duration::from_secs(3600));
            }
        }
        // Waits until somebody has opened the named pipe GATE and closed it, and becomes a program that sleeps for a
        // minute: become GATE PATH.
        "become" => {
            let name = std::ffi::CString::new(AT_THE_GATE).expect("a name");
            // SAFETY: the name is a C string.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            fs::read(&arguments[1]).ok()?;
            let error = Command::new(&arguments[2]).args(["later", "60000"]).exec();
            panic!("{}: {error}", arguments[2])
        }
        // Becomes this user of a user namespace of its own, once somebody has said who is who there, and sleeps:
        // another-user UID.
        "another-user" => {
            let uid = arguments[1].parse().ok()?;
            // SAFETY: a plain system call of a process with one thread.
            assert_eq!(
                unsafe { libc::unshare(libc::CLONE_NEWUSER) },
                0,
                "{}",
                std::io::Error::last_os_error()
            );
            while fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.is_empty()) {
                sleep(Duration::from_millis(10));
            }
            // SAFETY: a plain system call.
            assert_eq!(unsafe { libc::setresuid(uid, uid, uid) }, 0, "{}", std::io::Error::last_os_error());
            loop {
                sleep(Duration::from_secs(3600));
            }
        }
        // Uses the CPU and announces requests: announce FILE EVERY_US.
        "announce" => crate::requests::announce(&arguments[1], arguments[2].parse().ok()?),
        // Starts one short program after the other, each of which works a moment before it executes.
        "starter" => loop {
            let _ = launch(Duration::from_millis(3)).wait();
        },
        // Starts so many short programs one after the other, every 100 ms: rounds COUNT.
        "rounds" => loop {
            let begin = Instant::now();
            for _ in 0..arguments[1].parse().ok()? {
                let _ = launch(Duration::ZERO).wait();
            }
            sleep(Duration::from_millis(100).saturating_sub(begin.elapsed()));
        },
        // Writes each millisecond of its CPU time into the named pipe PIPE what time it is: send PIPE.
        "send" => send(&arguments[1]),
        // Reads that, and writes after each hundred how many there were, and the longest time that one was under way,
        // in milliseconds: receive PIPE FILE.
        "receive" => receive(&arguments[1], &arguments[2]),
        "nothing" => Some(ExitCode::SUCCESS),
        // Loads a scheduler, and once there is a file with the directories of two cgroups it suspends the one and holds
        // the other for moments, again and again: hold FILE.
        "hold" => {
            let mut scheduler = SchedExt::load(&LoadOptions::default()).expect("it loads");
            let bumper = scheduler.bumper().expect("somebody can be held for moments");
            let id = |path: &str| fs::metadata(path).expect("the cgroup is there").ino();
            loop {
                let text = fs::read_to_string(&arguments[1]).unwrap_or_default();
                if let Some((suspended, held)) = text.split_once(' ') {
                    scheduler.suspend_domain(id(suspended), suspended, true).expect("it is suspended");
                    bumper.bump(id(held), 250_000_000).expect("it is held");
                }
                sleep(Duration::from_millis(100));
            }
        }
        _ => None,
    }
}

/// The name of a program that waits to become another one.
pub const AT_THE_GATE: &str = "at-the-gate";
/// What a thread that spins is called, from when on it has left the start of its program behind.
const SPINNING: &std::ffi::CStr = c"spinning";

/// Uses the CPU for ever.
fn spin() -> ! {
    // SAFETY: the kernel copies the name.
    unsafe { libc::prctl(libc::PR_SET_NAME, SPINNING.as_ptr()) };
    loop {
        keep_busy();
    }
}

fn film(file: &str) -> ! {
    let (period, work) = (Duration::from_millis(40), Duration::from_micros(4500));
    let (begin, mut demand, mut late) = (Instant::now(), thread_time(), 0);
    for frame in 1u32.. {
        demand += work;
        while thread_time() < demand {
            keep_busy();
        }
        late += u32::from(begin.elapsed() > period * frame);
        if frame.is_multiple_of(25) {
            let _ = fs::write(file, format!("{frame} {late}"));
        }
        sleep((begin + period * frame).saturating_duration_since(Instant::now()));
    }
    unreachable!("a film of five years")
}

fn turns(file: &str) -> ! {
    let (work, enough) = (Duration::from_millis(10), Duration::from_millis(12));
    let mut longer = 0;
    for turn in 1u32.. {
        let (begun, begin) = (thread_time(), Instant::now());
        while thread_time() - begun < work {
            keep_busy();
        }
        longer += u32::from(begin.elapsed() > enough);
        let _ = fs::write(file, format!("{turn} {longer}"));
        sleep(Duration::from_millis(60));
    }
    unreachable!("more turns than that last years")
}

/// Returns when the child, which does so much work after its fork, has executed a program.
fn launch(work: Duration) -> Child {
    let before_exec = move || {
        let start = thread_time();
        while thread_time() - start < work {
            keep_busy();
        }
        Ok(())
    };
    let mut command = Command::new(own_path());
    command.arg("nothing");
    // SAFETY: reading a clock is all that the child does.
    unsafe { command.pre_exec(before_exec) }.spawn().expect("it starts")
}

/// A thousand times the same pages, so that a call is long and needs no memory.
fn read_zeros() -> ! {
    use std::os::fd::AsRawFd;
    static ZEROS: std::sync::LazyLock<fs::File> =
        std::sync::LazyLock::new(|| fs::File::open("/dev/zero").expect("/dev/zero is there"));
    // All threads share it, and nobody reads it.
    static BUFFER: [AtomicU64; 1 << 17] = [const { AtomicU64::new(0) }; 1 << 17];
    let part = libc::iovec { iov_base: BUFFER.as_ptr().cast_mut().cast(), iov_len: size_of_val(&BUFFER) };
    let parts = vec![part; 1000];
    loop {
        // SAFETY: the buffer is as long as each part says.
        unsafe { libc::readv(ZEROS.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
    }
}

fn ring() -> ! {
    let pipe = || {
        let mut ends = [0; 2];
        // SAFETY: the call fills the array.
        unsafe { libc::pipe(ends.as_mut_ptr()) };
        ends
    };
    let (there, back) = (pipe(), pipe());
    // SAFETY: the child only passes bytes on.
    let (from, to) = if unsafe { libc::fork() } == 0 { (there[0], back[1]) } else { (back[0], there[1]) };
    let mut byte = [0u8; 1];
    // Both begin with a byte of their own, so that two are on their way.
    loop {
        // SAFETY: the buffer is one byte long.
        unsafe {
            libc::write(to, byte.as_ptr().cast(), 1);
            libc::read(from, byte.as_mut_ptr().cast(), 1);
        }
    }
}

pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A running copy of this program that ends with the value.
pub struct Program(Child);

impl Program {
    /// Starts this program with the arguments.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_file(&own_path(), arguments)
    }

    /// Starts any program.
    pub fn start_file(path: &std::path::Path, arguments: &[&str]) -> Self {
        let child = Command::new(path).args(arguments).spawn().expect("the program starts");
        // The caller goes on while the kernel still finishes the exec; a reservation given now would go with it.
        sleep(Duration::from_millis(50));
        Program(child)
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn nice(self, nice: i32) -> Self {
        // SAFETY: plain system call.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, self.0.id(), nice) };
        self
    }

    pub fn pin(self, cpu: usize) -> Self {
        pin(self.pid(), &[cpu]);
        self
    }

    /// Starts this program as another user's.
    pub fn start_as(user: u32, arguments: &[&str]) -> Self {
        let child = Command::new(own_path()).args(arguments).uid(user).gid(user).spawn();
        sleep(Duration::from_millis(50));
        Program(child.expect("the program starts"))
    }

    /// As many as there are CPUs, so that none of them is idle.
    pub fn on_each_cpu(arguments: &[&str], group: &Group) -> Vec<Self> {
        (0..cpus()).map(|_| Program::start(arguments).within(group)).collect()
    }

    pub fn within(self, group: &Group) -> Self {
        fs::write(group.0.join("cgroup.procs"), self.pid().to_string()).expect("the process moves");
        self
    }

    /// CPU time so far, in milliseconds, as the kernel accounts it.
    pub fn time_ms(&self) -> f64 {
        time_ms(self.pid())
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for child in children(self.pid()) {
            // SAFETY: plain system call on our own grandchild.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        self.kill();
    }
}

/// How many CPUs this machine has.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// So many seconds of a machine with one CPU: with several, so much less as they do more in each.
pub fn of_all_cpus(seconds: f64) -> f64 {
    seconds / cpus() as f64
}

fn send(pipe: &str) -> ! {
    let mut pipe = fs::File::create(pipe).expect("somebody reads it");
    loop {
        let start = thread_time();
        while thread_time() - start < Duration::from_millis(1) {
            keep_busy();
        }
        pipe.write_all(&clock::now_ns().to_ne_bytes()).expect("somebody reads it");
    }
}

fn receive(pipe: &str, file: &str) -> ! {
    let mut pipe = fs::File::open(pipe).expect("somebody writes into it");
    let mut longest_ns = 0;
    for count in 1_u64.. {
        let mut sent = [0; 8];
        pipe.read_exact(&mut sent).expect("somebody writes into it");
        longest_ns = longest_ns.max(clock::now_ns() - u64::from_ne_bytes(sent));
        if count.is_multiple_of(100) {
            fs::write(file, format!("{count} {}", longest_ns / 1_000_000)).expect("a file");
        }
    }
    unreachable!("it reads for ever")
}

/// Makes a named pipe.
pub fn named_pipe(path: &str) -> Result<(), String> {
    let name = std::ffi::CString::new(path).map_err(|error| error.to_string())?;
    // SAFETY: the name is a C string.
    if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } == 0 {
        return Ok(());
    }
    Err(format!("{path}: {}", std::io::Error::last_os_error()))
}

/// Restricts a task to the CPUs.
pub fn pin(pid: i32, cpus: &[usize]) {
    // SAFETY: the set is initialized before it is used.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &set);
    }
}

pub fn own_path() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

pub fn children(pid: i32) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// So many threads of the process, as soon as each has used a millisecond of CPU time: they have begun what they do.
pub fn threads_at_work(pid: i32, count: usize) -> Result<Vec<i32>, String> {
    for _ in 0..120 {
        let threads = threads(pid);
        if threads.len() == count && threads.iter().all(|&thread| time_ms(thread) >= 1.0) {
            return Ok(threads);
        }
        sleep(Duration::from_secs(1));
    }
    Err(format!("not all of {count} threads have begun in 120 s"))
}

/// How many of the threads do not run at all within so many seconds.
pub fn waiting_for(threads: &[i32], seconds: f64) -> usize {
    let before: Vec<f64> = threads.iter().map(|&thread| time_ms(thread)).collect();
    sleep(Duration::from_secs_f64(seconds));
    threads.iter().zip(before).filter(|(thread, before)| time_ms(**thread) <= *before).count()
}

pub fn time_ms(pid: i32) -> f64 {
    fs::read_to_string(format!("/proc/{pid}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1e6
}

/// Whether the process spins: it has the kernel's locks for starting a program no more. By its name: what it has used
/// in user space would not tell, for there the start links the program, between one mapping and the next.
pub fn has_started(pid: i32) -> bool {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.strip_suffix(b"\n") == Some(SPINNING.to_bytes())
}

/// CPU time that each program uses in the coming seconds, in milliseconds.
pub fn measure(programs: &[&Program], seconds: f64) -> Vec<f64> {
    let before: Vec<f64> = programs.iter().map(|program| program.time_ms()).collect();
    sleep(Duration::from_secs_f64(seconds));
    programs.iter().zip(before).map(|(program, before)| program.time_ms() - before).collect()
}

/// When which of them was found to have run in the coming seconds, and for how many milliseconds.
pub fn when_they_ran(programs: &[&Program], seconds: f64) -> Vec<(f64, usize, f64)> {
    let begin = std::time::Instant::now();
    let mut ran = Vec::new();
    while begin.elapsed().as_secs_f64() < seconds {
        let used = measure(programs, 0.02);
        let at = begin.elapsed().as_secs_f64();
        ran.extend(
            used.into_iter().enumerate().filter(|(_, ms)| *ms > 0.0).map(|(place, ms)| (at, place, ms)),
        );
    }
    ran
}

/// A cgroup that goes away with the value.
pub struct Group(pub PathBuf);

impl Group {
    pub fn new(path: &str) -> Self {
        let directory = PathBuf::from("/sys/fs/cgroup").join(path);
        if let Some(parent) = directory.parent() {
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
        }
        fs::create_dir(&directory).expect("the cgroup is made");
        Group(directory)
    }

    /// Its tasks' memory is charged to it, and not to the cgroup above.
    pub fn charged(self) -> Self {
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory").expect("there is a memory controller");
        self
    }

    /// The cgroup's id.
    pub fn id(&self) -> u64 {
        fs::metadata(&self.0).expect("the cgroup is there").ino()
    }

    pub fn set(self, file: &str, value: &str) -> Self {
        fs::write(self.0.join(file), value)
            .unwrap_or_else(|error| panic!("{}/{file}: {error}", self.0.display()));
        self
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

thread_local! {
    static SHARED: RefCell<Option<SchedExt>> = const { RefCell::new(None) };
}

/// A scheduler that checks use one after the other, because loading takes a minute of the machine's clock. What they
/// set is the default again when it is dropped.
pub struct Shared(Option<SchedExt>);

impl Deref for Shared {
    type Target = SchedExt;

    fn deref(&self) -> &SchedExt {
        self.0.as_ref().expect("it is taken when it is dropped")
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut SchedExt {
        self.0.as_mut().expect("it is taken when it is dropped")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let LoadOptions { thresholds, best_effort } = LoadOptions::default();
        self.set_memory_free(None);
        // Fails when the kernel has taken it back.
        let whole = self.set_best_effort(best_effort).is_ok()
            && self.set_thresholds(thresholds).is_ok()
            && self.set_exec_table(&[]).is_ok();
        SHARED.set(self.0.take().filter(|_| whole));
    }
}

/// The scheduler that checks share, loaded if it is not. Nobody has a reservation, and what the last ones used is
/// forgotten: to wait for that costs the host next to nothing.
pub fn shared() -> Result<Shared, String> {
    let mut scheduler = match SHARED.take() {
        Some(scheduler) => scheduler,
        None => load()?,
    };
    let forgotten = |cpu: &CpuRecord| {
        let last = [cpu.measured_load, cpu.projected_load].into_iter().chain(cpu.window);
        last.into_iter().all(|load| load < 0.005)
    };
    let as_new = wait_until(300.0, || {
        scheduler.snapshot().is_ok_and(|seen| seen.tasks.is_empty() && seen.cpus.iter().all(forgotten))
    });
    check!(as_new, "what was before does not end: {:?}", scheduler.snapshot());
    events(&mut scheduler);
    Ok(Shared(Some(scheduler)))
}

/// Takes the scheduler that checks share out of force.
pub fn unload() {
    drop(SHARED.take());
}

/// A scheduler of one's own.
pub fn load() -> Result<SchedExt, String> {
    unload();
    SchedExt::load(&LoadOptions::default()).map_err(|error| error.to_string())
}

pub fn snapshot(scheduler: &mut SchedExt) -> Result<Snapshot, String> {
    scheduler.snapshot().map_err(|error| error.to_string())
}

pub fn record(scheduler: &mut SchedExt, tid: i32) -> Option<TaskRecord> {
    scheduler.snapshot().ok()?.tasks.into_iter().find(|task| task.tid == tid)
}

pub fn events(scheduler: &mut SchedExt) -> Vec<Event> {
    let mut events = Vec::new();
    scheduler.take_events(&mut |event| events.push(event));
    events
}

/// Waits for something that the guest's clock will bring, at most the given time of that clock.
pub fn wait_until(seconds: f64, mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..(seconds * 20.0) as u32 {
        if condition() {
            return true;
        }
        sleep(Duration::from_millis(50));
    }
    condition()
}
