//! Storms that a scheduler must outlive: each kind changes, again and again, something that a scheduler keeps track of.
//!
//! `storms --kind fork|cgroup|affinity|policy|hotplug|quota|move|crowd [--seconds 30] [--tasks 6] [--pause-ms 1]
//! [--seed 1]`
//!
//! `fork`: tasks that fork, execute and end. `cgroup`: cgroups that come, change weight and limit, take in a task and
//! go while it still runs. `affinity`: tasks that are moved from CPU to CPU. `policy`: tasks that change their class
//! and nice value. `hotplug`: CPUs go off and on, and all are on at the end. `quota`: a cgroup of loops whose limit and
//! weight are changed between their extremes. `move`: tasks that execute and start others all the time, and are moved
//! between cgroups, CPUs and classes meanwhile; when one ends, another has its pid. `crowd`: an ordinary account has
//! 4,097 threads that compute with a thousandth of a CPU among them. Needs root. Between two rounds it sleeps; its work
//! is counted in rounds.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use steward_lab_workloads::{clock, number, output, process, spin};

const CGROUPS: &str = "/sys/fs/cgroup";
const CPUS: &str = "/sys/devices/system/cpu";
/// How long a task of a storm computes at a time.
const BURST_NS: u64 = 500_000;
/// How long it rests after it has had so much CPU time: so many times that.
const RESTS: u64 = 9;

struct Options {
    kind: String,
    seconds: f64,
    tasks: u32,
    pause_ms: f64,
    seed: u64,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { kind: String::new(), seconds: 30.0, tasks: 6, pause_ms: 1.0, seed: 1 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("kind") => options.kind = parser.value()?.string()?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            Long("tasks") => options.tasks = number(&mut parser)?,
            Long("pause-ms") => options.pause_ms = number(&mut parser)?,
            Long("seed") => options.seed = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

/// Numbers that look random and are the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Computes and rests by turns, so that a few real-time tasks, which no scheduler of others can hold back, starve
/// nobody. On an emulated machine to wake and to fork cost more than the bursts, so they count as well.
struct Turns {
    had_ns: u64,
}

impl Turns {
    fn new() -> Self {
        Turns { had_ns: Self::had_ns() }
    }

    /// CPU time that the task and the children that it waited for have had.
    fn had_ns() -> u64 {
        clock::thread_cpu_ns() + process::children_cpu_ns()
    }

    fn rest(&mut self) {
        let had_ns = Self::had_ns();
        clock::sleep_until(clock::now_ns() + RESTS * (had_ns - self.had_ns));
        self.had_ns = had_ns;
    }
}

/// The tasks that a storm blows about.
fn start_tasks(count: u32) -> Result<Vec<i32>> {
    let task = || {
        let mut turns = Turns::new();
        loop {
            clock::burn_until(clock::thread_cpu_ns() + BURST_NS);
            turns.rest();
        }
    };
    (0..count).map(|_| process::fork(task).context("fork")).collect()
}

fn fork_round(numbers: &mut Numbers, tasks: u32) -> Result<()> {
    let child = |how: usize| match how {
        0 => {}
        1 => clock::burn_until(clock::thread_cpu_ns() + BURST_NS),
        // When it fails, the child ends.
        _ => execute(c"nothing"),
    };
    let forked = (0..tasks).map(|_| {
        let how = numbers.below(4);
        process::fork(|| child(how)).context("fork")
    });
    // All of them at once, then all of their ends.
    let children = forked.collect::<Result<Vec<_>>>()?;
    children.into_iter().for_each(process::wait);
    Ok(())
}

/// Where the cgroups of all storms are, so that together they have the weight of one: the storms themselves need some
/// CPU time to change what is in them.
fn home() -> Result<PathBuf> {
    let home = PathBuf::from(CGROUPS).join("storms");
    match fs::create_dir(&home) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("mkdir {}", home.display()));
        }
        _ => {}
    }
    let control = home.join("cgroup.subtree_control");
    fs::write(&control, "+cpu").with_context(|| format!("writing +cpu to {}", control.display()))?;
    Ok(home)
}

/// A cgroup of the storm and the task in it.
struct Group {
    path: PathBuf,
    task: i32,
}

/// One cgroup more; when there are `tasks` of them, the oldest goes: its task is killed and still ending when it does.
fn cgroup_round(numbers: &mut Numbers, groups: &mut Vec<Group>, tasks: u32, round: u64) -> Result<()> {
    let path = home()?.join(format!("{}-{round}", std::process::id()));
    fs::create_dir(&path).with_context(|| format!("mkdir {}", path.display()))?;
    let write = |file: &str, text: String| {
        let path = path.join(file);
        fs::write(&path, &text).with_context(|| format!("writing {text} to {}", path.display()))
    };
    let task = start_tasks(1)?[0];
    write("cgroup.procs", task.to_string())?;
    write("cpu.weight", (1 + numbers.below(10_000)).to_string())?;
    if numbers.below(2) == 0 {
        write("cpu.max", format!("{} 100000", 2_000 + numbers.below(300_000)))?;
    }
    groups.push(Group { path, task });
    if groups.len() > tasks as usize {
        let oldest = groups.remove(0);
        // Sometimes back to the root first: moved and killed in one breath.
        if numbers.below(2) == 0 {
            let _ = fs::write(format!("{CGROUPS}/cgroup.procs"), oldest.task.to_string());
        }
        process::kill(oldest.task);
        process::wait(oldest.task);
        fs::remove_dir(&oldest.path).with_context(|| format!("rmdir {}", oldest.path.display()))?;
    }
    Ok(())
}

/// The CPUs that are on.
fn online() -> Vec<usize> {
    let text = fs::read_to_string(format!("{CPUS}/online")).unwrap_or_default();
    let ranges = text.trim().split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse::<usize>().ok()?..=to.parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

fn affinity_round(numbers: &mut Numbers, tasks: &[i32]) {
    let online = online();
    let task = tasks[numbers.below(tasks.len())];
    // SAFETY: an all-zero `cpu_set_t` is an empty set, and CPU_SET bounds-checks its index.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for _ in 0..=numbers.below(online.len()) {
        // SAFETY: as above.
        unsafe { libc::CPU_SET(online[numbers.below(online.len())], &mut set) };
    }
    // A CPU may have gone off meanwhile; then the task stays where it is.
    // SAFETY: the set says its own size, and the task is our child.
    unsafe { libc::sched_setaffinity(task, size_of::<libc::cpu_set_t>(), &set) };
}

fn policy_round(numbers: &mut Numbers, tasks: &[i32]) -> Result<()> {
    const POLICIES: [i32; 5] =
        [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE, libc::SCHED_FIFO, libc::SCHED_RR];
    let task = tasks[numbers.below(tasks.len())];
    let policy = POLICIES[numbers.below(POLICIES.len())];
    let is_real_time = policy == libc::SCHED_FIFO || policy == libc::SCHED_RR;
    let parameters = libc::sched_param { sched_priority: i32::from(is_real_time) };
    // SAFETY: the structure outlives the call, and the task is our child.
    if unsafe { libc::sched_setscheduler(task, policy, &parameters) } != 0 {
        bail!("sched_setscheduler to policy {policy}: {}", std::io::Error::last_os_error());
    }
    let nice = numbers.below(40) as i32 - 20;
    // SAFETY: plain system call on our child.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, task as libc::id_t, nice) };
    Ok(())
}

/// A cgroup that goes with what is in it when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Result<Self> {
        let path = home()?.join(format!("{}-{name}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("mkdir {}", path.display()))?;
        Ok(Place(path))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.0.join(file);
        fs::write(&path, text).with_context(|| format!("writing {text} to {}", path.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.write("cgroup.kill", "1");
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            clock::sleep_until(clock::now_ns() + 10_000_000);
        }
    }
}

/// Some loops that want all there is, in a cgroup.
fn start_loops(count: u32) -> Result<Place> {
    let place = Place::new("busy")?;
    for _ in 0..count {
        let child = process::fork(|| clock::burn_until(u64::MAX)).context("fork")?;
        place.write("cgroup.procs", &child.to_string())?;
    }
    Ok(place)
}

fn quota_round(numbers: &mut Numbers, place: &Place) -> Result<()> {
    const LIMITS: [&str; 6] =
        ["1000 1000000", "max 100000", "1000 1000", "1000000 1000000", "1000 100000", "max 1000000"];
    // What the kernel refuses stays as it is: a burst may not be more than the limit.
    let _ = place.write("cpu.max.burst", "0");
    place.write("cpu.max", LIMITS[numbers.below(LIMITS.len())])?;
    match numbers.below(8) {
        0 => place.write("cpu.idle", "1"),
        1 => {
            let _ = place.write("cpu.max.burst", "1000");
            Ok(())
        }
        number => {
            place.write("cpu.idle", "0")?;
            place.write("cpu.weight", if number % 2 == 0 { "1" } else { "10000" })
        }
    }
}

/// Executes this program anew as a task of `move`, which keeps the pid, or as one that does nothing.
fn execute(kind: &std::ffi::CStr) {
    let arguments = [c"/proc/self/exe".as_ptr(), c"--kind".as_ptr(), kind.as_ptr(), std::ptr::null()];
    // SAFETY: a null-terminated array of C strings; when it fails, the caller goes on.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), arguments.as_ptr()) };
}

/// A task of `move`: computes a while, starts another program as a shell or a library does, and begins anew.
fn moved() -> ! {
    let mut turns = Turns::new();
    for _ in 0..8 {
        clock::burn_until(clock::thread_cpu_ns() + BURST_NS);
        // posix_spawn(3): the parent waits as after vfork(2) until the child executes.
        let spawned = std::process::Command::new("/proc/self/exe").args(["--kind", "nothing"]).spawn();
        if let Ok(mut child) = spawned {
            let _ = child.wait();
        }
        turns.rest();
    }
    execute(c"moved");
    std::process::exit(1)
}

/// Something happens to one of the tasks of `move`.
fn move_round(numbers: &mut Numbers, places: &[Place], tasks: &mut [i32]) -> Result<()> {
    let place = numbers.below(tasks.len());
    match numbers.below(8) {
        0..4 => {
            // One that ends at this moment cannot be moved.
            let _ = places[numbers.below(places.len())].write("cgroup.procs", &tasks[place].to_string());
        }
        4 => affinity_round(numbers, tasks),
        5 | 6 => policy_round(numbers, tasks)?,
        _ => {
            process::kill(tasks[place]);
            process::wait(tasks[place]);
            // The next one has the same pid, if nobody takes it first.
            let _ = fs::write("/proc/sys/kernel/ns_last_pid", (tasks[place] - 1).to_string());
            tasks[place] = process::fork(|| execute(c"moved")).context("fork")?;
        }
    }
    Ok(())
}

/// How many threads the crowd has.
const CROWD: usize = 4097;

/// The crowd, in a cgroup that is limited once all of it is there.
fn start_crowd() -> Result<Place> {
    let place = Place::new("crowd")?;
    let (from, to) = process::pipe().context("pipe")?;
    let threads = || {
        let begin = std::sync::Arc::new(std::sync::Barrier::new(CROWD));
        for _ in 1..CROWD {
            let begin = begin.clone();
            let thread = std::thread::Builder::new().stack_size(1 << 16);
            let compute = move || {
                begin.wait();
                clock::burn_until(u64::MAX)
            };
            if let Err(error) = thread.spawn(compute) {
                eprintln!("storms: only a part of {CROWD} threads: {error}");
                return;
            }
        }
        // SAFETY: plain system calls; this thread has the descriptor.
        unsafe {
            libc::setuid(65534);
            libc::write(to, c"x".as_ptr().cast(), 1);
        }
        begin.wait();
        clock::burn_until(u64::MAX);
    };
    let child = process::fork(threads).context("fork")?;
    place.write("cgroup.procs", &child.to_string())?;
    // SAFETY: the parent writes nothing.
    unsafe { libc::close(to) };
    if !process::read_byte(from) {
        bail!("the crowd did not come to be");
    }
    place.write("cpu.max", "1000 1000000")?;
    Ok(place)
}

/// Turns a CPU other than the first off, or on again.
fn switch(cpu: usize, on: bool) -> Result<()> {
    let path = format!("{CPUS}/cpu{cpu}/online");
    match fs::write(&path, if on { "1" } else { "0" }) {
        // It is in that state already, or the kernel is busy with it.
        Err(error)
            if error.raw_os_error() != Some(libc::EBUSY) && error.raw_os_error() != Some(libc::EINVAL) =>
        {
            Err(error).with_context(|| format!("writing {path}"))
        }
        _ => Ok(()),
    }
}

fn hotplug_round(numbers: &mut Numbers, cpus: usize) -> Result<()> {
    let cpu = 1 + numbers.below(cpus.saturating_sub(1));
    let is_on = online().contains(&cpu);
    switch(cpu, !is_on)
}

fn main() -> Result<()> {
    let options = parse()?;
    let mut numbers = Numbers(options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let cpus = online().len();
    let (mut groups, mut tasks, mut places) = (Vec::new(), Vec::new(), Vec::new());
    match options.kind.as_str() {
        // What a task of a storm executes.
        "nothing" => {
            spin(1000);
            return Ok(());
        }
        "affinity" | "policy" => tasks = start_tasks(options.tasks)?,
        "hotplug" if cpus < 2 => bail!("there is one CPU only, and it cannot be turned off"),
        "fork" | "cgroup" | "hotplug" => {}
        "quota" => places.push(start_loops(options.tasks)?),
        "moved" => moved(),
        "move" => {
            places = (0..4).map(|number| Place::new(&number.to_string())).collect::<Result<_>>()?;
            places[0].write("cpu.max", "5000 100000")?;
            places[1].write("cpu.weight", "1")?;
            let start = |_| process::fork(|| execute(c"moved")).context("fork");
            tasks = (0..options.tasks).map(start).collect::<Result<_>>()?;
        }
        "crowd" => places.push(start_crowd()?),
        other => {
            bail!("--kind {other}: it is one of fork, cgroup, affinity, policy, hotplug, quota, move, crowd")
        }
    }
    let started_ns = clock::now_ns();
    let end_ns = started_ns + (options.seconds * 1e9) as u64;
    let (mut round, mut report_ns) = (0u64, started_ns);
    while clock::now_ns() < end_ns {
        if clock::now_ns() >= report_ns {
            output::line(format_args!("w {round} {:.3}", output::ms(clock::now_ns())));
            report_ns += 1_000_000_000;
        }
        match options.kind.as_str() {
            "fork" => fork_round(&mut numbers, options.tasks)?,
            "cgroup" => cgroup_round(&mut numbers, &mut groups, options.tasks, round)?,
            "affinity" => affinity_round(&mut numbers, &tasks),
            "policy" => policy_round(&mut numbers, &tasks)?,
            "quota" => quota_round(&mut numbers, &places[0])?,
            "move" => move_round(&mut numbers, &places, &mut tasks)?,
            "crowd" => {}
            _ => hotplug_round(&mut numbers, cpus)?,
        }
        round += 1;
        clock::sleep_until(clock::now_ns() + (options.pause_ms * 1e6) as u64);
    }
    output::line(format_args!("w {round} {:.3}", output::ms(clock::now_ns())));
    if options.kind == "hotplug" {
        (1..cpus).try_for_each(|cpu| switch(cpu, true))?;
    }
    if options.kind == "move" {
        for &task in &tasks {
            process::kill(task);
            process::wait(task);
        }
    }
    Ok(())
}
